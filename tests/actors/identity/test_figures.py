"""What the router of identities has done, for operators."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onward.actors import Instrument, MailboxOptions, Node
from onward.actors._node_report import node_report
from onward.actors.identity import ROUTER, DirectoryFile
from onward.actors.identity.links._session import Waiting
from onward.actors.monitoring import Monitor
from onward.protocol import OnwardError
from onward.protocol.eventlog import Kind, Outcome
from onward.protocol.identity import (
    RING_EVENTS,
    SCOPE_ANY,
    AdvertAddress,
    AdvertSource,
    NodeAdvert,
    RelayLoadLimits,
    RelayPolicy,
    identity_text,
    short_text,
    sign_advert,
)
from onward.protocol.metrics import metrics_text
from tests.actors.identity.directory.test_file import other
from tests.support.domains import domain_text, learns, member as serving
from tests.support.identities import attached, engine_text, joined, key_of, node_text
from tests.support.relays import OPEN, Member, chain, introduce, member, relay_text, tell_engine
from tests.support.transports import Echo, Recorder, Stuck, eventually


def read(monitor: Monitor) -> dict[str, dict[tuple[str, ...], float]]:
    read: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(
        "".join(metrics_text(filter(None, monitor.metrics.collect())))
    ):
        for sample in family.samples:
            read.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return read


def asked(of: Member, question: str) -> list[dict[str, object]]:
    return node_rows(of.node, question)


def node_rows(node: Node, question: str) -> list[dict[str, object]]:
    report = node_report(node, question)
    assert report is not None
    rows: list[dict[str, object]] = json.loads(report)["rows"]
    return rows


async def test_a_relay_has_figures_of_its_load_and_refusals() -> None:
    async with Node("a") as a, Node("r") as r, Node("b") as b:
        one, relay, other = await member(a), await member(r, relay=OPEN), await member(b)
        introduce(one, relay, other)
        await chain(one, relay, other)
        await asyncio.sleep(20)  # ids begin late enough for nodes that have just started
        await b.start(Echo, address="echo")
        engine = other.identities.engine("echo")
        tell_engine(one, engine, other, "echo")
        route = f"{relay_text(relay)} => {engine_text(engine)}"
        assert (await a.request(route, b"12")).payload == b"12"
        (row,) = asked(relay, "identity")
        assert row["identity"] == identity_text(relay.own)
        assert (row["nodes"], row["joined"], row["lost"], row["relayed"]) == (2, 2, 0, 2)
        assert row["relay_refused"] == {}
        assert (await _figure(one, "sealed"), await _figure(other, "engines")) == (1, 1)
        rows = asked(relay, "identities")
        assert {each["identity"]: each["engines"] for each in rows} == {
            identity_text(one.own): 0,
            identity_text(other.own): 1,
        }
        assert [each["dialled"] for each in rows] == [False, True]
        found = read(Monitor(r))
        assert found["onward_identity_relayed_total"][()] == 2
        assert found["onward_identity_relayed_bytes_total"][()] > 1000
        assert found["onward_identity_nodes"][()] == 2
    async with Node("none") as none:
        assert "onward_identity_nodes" not in read(Monitor(none))


async def test_a_file_that_fails_has_figures(tmp_path: Path) -> None:
    path = tmp_path / "node.directory"
    DirectoryFile(path).close()
    other(path, "INSERT INTO request (identity, trust) VALUES (x'', 0)")
    names = ("file_trouble", "file_failures", "file_bad_requests")
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        saver = ours.directory.saver
        assert saver is not None
        await asyncio.sleep(2)
        (row,) = node_rows(a, "identity")
        assert [row[each] for each in names] == [0, 0, 1]
        saver._file._file.execute("PRAGMA query_only=1")
        ours.ban(key_of("other").identity)
        await asyncio.sleep(2)
        found = read(Monitor(a))
        assert found["onward_identity_file_trouble"][()] == 1
        assert found["onward_identity_file_failures_total"][()] == 1
        assert found["onward_identity_file_bad_requests_total"][()] == 1
        saver._file._file.execute("PRAGMA query_only=0")
        await asyncio.sleep(10)
        assert read(Monitor(a))["onward_identity_file_trouble"][()] == 0


async def _figure(of: Member, name: str) -> object:
    return asked(of, "identity")[0][name]


async def test_what_is_not_relayed_is_counted_by_its_status() -> None:
    closed = RelayPolicy(destinations=frozenset({key_of("other").identity}))
    async with Node("a") as a, Node("r") as r, Node("b") as b:
        one, relay, other = await member(a), await member(r, relay=closed), await member(b, "x")
        introduce(one, relay, other)
        await chain(one, relay, other)
        await asyncio.sleep(20)
        a.send(f"{relay_text(relay)} => 36#node:{identity_text(other.own)} => x", b"")
        await asyncio.sleep(1)
        found = read(Monitor(r))
        assert found["onward_identity_relay_refused_total"] == {("permission_denied",): 1}


async def test_a_relay_has_figures_of_what_it_holds_and_has_reserved() -> None:
    policy = RelayPolicy(to_reserved=True)
    async with Node("a") as a, Node("r") as r, Node("b") as b:
        limits = RelayLoadLimits(peer_messages=2, burst=8, rate=1)
        one, other = await member(a), await member(b, "x")
        relay = await member(r, relay=policy, relay_limits=limits)
        introduce(one, relay, other)
        await chain(one, relay, other)
        await asyncio.sleep(20)
        await other.identities.reserve(relay.own, duration=600)
        await Recorder.on(b, "x")
        peers = relay.identities._router.peers
        send = peers.send
        room = r.loop.create_future()

        def send_to_full(*record: object) -> asyncio.Future[None]:
            send(*record)  # type: ignore[arg-type]
            return room

        peers.send = send_to_full  # type: ignore[method-assign,assignment]
        for _ in range(10):
            a.send(f"{relay_text(relay)} => 36#node:{identity_text(other.own)} => x", b"")
        await asyncio.sleep(1)
        found = read(Monitor(r))
        # Of eight that came one is carried and one is held, which is the share of one node.
        assert found["onward_identity_relay_held"][()] == 1
        assert found["onward_identity_relay_held_bytes"][()] > 1000
        assert found["onward_identity_relay_reservations"][()] == 1
        assert found["onward_identity_relay_charged"][()] == 2
        assert found["onward_identity_relay_charged_bytes"][()] > 2000
        assert found["onward_identity_relay_layers"][()] == 8
        assert found["onward_identity_relay_rate_refused_total"][()] == 2
        assert found["onward_identity_relay_held_refused_total"] == {("previous_full",): 6}
        assert found["onward_identity_relay_refused_total"] == {("resource_limit_exceeded",): 8}
        await asyncio.sleep(600)
        found = read(Monitor(r))
        assert found["onward_identity_relay_held"][()] == 0
        assert found["onward_identity_relay_charged"][()] == 1


async def test_requests_to_domains_have_figures_of_what_came_of_them() -> None:
    async with Node("a") as a, Node("b") as b:
        ours = await attached(a)
        theirs, _ = await serving(b, (a, ours))
        learns(ours, theirs.own)
        await a.request(domain_text(), b"?")
        found = read(Monitor(b))
        assert found["onward_identity_domains"][()] == 1
        assert found["onward_identity_domain_pending"][()] == 0
        outcomes = found["onward_identity_domain_requests_total"]
        assert {each: count for each, count in outcomes.items() if count} == {("served",): 1}


async def test_look_ups_and_dials_are_counted_by_what_came_of_them() -> None:
    async with Node("a") as a, Node("b") as b, Node("c") as c:
        ours, between = await attached(a, dials=("memory",)), await attached(b)
        theirs = await attached(c, "echo")
        await c.start(Echo, address="echo")
        listener = await c.listen("memory://counted", expose=[ROUTER])
        theirs.advertise(listener.uri)
        await joined((c, theirs), b)
        await joined((a, ours), b)
        del between
        assert (await a.request(f"{node_text(theirs.own)} => echo", b"hi")).payload == b"hi"
        now = ours._router.milliseconds()
        gone = key_of("gone")
        advert = NodeAdvert(gone.identity, (AdvertAddress("memory://x", 1),), bytes(32), 1, now)
        ours.directory.put(sign_advert(advert, gone), AdvertSource.LOCAL)
        for name in ("gone", "nowhere", "nowhere"):
            with pytest.raises(OnwardError):
                await a.request(f"{node_text(key_of(name).identity)} => echo", b"hi")
        found = read(Monitor(a))
        assert found["onward_identity_dials_total"] == {("opened",): 1, ("failed",): 1}
        assert found["onward_identity_unreached"][()] == 1
        assert found["onward_identity_dialling"][()] == found["onward_identity_lookups"][()] == 0
        assert found["onward_identity_missing"][()] == 1
        assert found["onward_identity_lookups_found_total"][()] == 1
        assert found["onward_identity_lookups_asked_total"][()] == 3
        wishes = found["onward_identity_lookup_wishes_total"]
        assert (wishes["started",], wishes["missing",]) == (2, 1)
        assert found["onward_identity_lookups_ended_total"]["not_found",] == 1


def ignore(error: OnwardError) -> None:
    """Take no notice of a record that is not handed over."""


async def test_what_of_a_topic_was_routed_lost_or_slow_has_figures() -> None:
    async with Node("a") as a, Node("b") as b:
        ours, theirs = await attached(a), await attached(b)
        await Recorder.on(a, "owner")
        topic = ours.create_topic(key_of("topic"), engine="owner", scope=SCOPE_ANY)
        link = await joined((a, ours), b)
        there = await Recorder.on(b, "there")
        stuck = Stuck()
        await b.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=1))
        for name in ("there", "stuck"):
            await theirs.subscribe(topic, name)
        for number in range(3):
            ours.publish(topic, b"%d" % number, source="owner")
            await there.next()
        link.cut()
        await eventually(lambda: not ours.peers() and not theirs.peers())
        for _ in range(RING_EVENTS + 5):
            ours.publish(topic, b"x", source="owner")
        await joined((a, ours), b)
        await eventually(lambda: len(there.messages) == RING_EVENTS + 3)
        sent, came = read(Monitor(a)), read(Monitor(b))
        assert sent["onward_identity_topics"][()] == 2
        assert sent["onward_identity_topic_nodes"][()] == 1
        assert came["onward_identity_topics_followed"][()] == 1
        assert came["onward_identity_topic_subscribers"][()] == 2
        assert came["onward_identity_topics_waiting"][()] == 0
        events = sent["onward_identity_topic_events_total"]
        assert events["publications",] == events["published",] == RING_EVENTS + 8
        assert events["sent_again",] == RING_EVENTS
        heard = came["onward_identity_topic_events_total"]
        assert (heard["delivered",], heard["lost",]) == (RING_EVENTS + 3, 5)
        assert heard["copies",] == 2 * (RING_EVENTS + 3)
        assert heard["asked_again",] > 0
        # One is handled, and one waits.
        assert heard["not_taken_by_engines",] == RING_EVENTS + 1
        # A session with no room.
        session = ours._router.peers.sessions[theirs.own]
        session.waiting.extend([Waiting(b"", True, ignore)] * 1000)
        ours.publish(topic, b"x", source="owner")
        await eventually(ours.refused)
        events = read(Monitor(a))["onward_identity_topic_events_total"]
        assert events["not_taken_by_nodes",] == 1
        session.waiting.clear()
        # What has become of a topic stays when it is gone.
        ours.delete_topic(topic, engine="owner")
        await eventually(lambda: len(theirs.topics()) == 1)
        after = read(Monitor(a))["onward_identity_topic_events_total"]
        assert after["published",] == RING_EVENTS + 9
        after = read(Monitor(b))["onward_identity_topic_events_total"]
        assert (after["delivered",], after["lost",]) == (RING_EVENTS + 3, 5)


async def test_joined_and_lost_and_banned_nodes_are_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="onward.actors.identity"):
        async with Node("a") as a, Node("b") as b:
            one, other = await member(a), await member(b)
            await chain(one, other)
            name = short_text(one.own)
            other.identities.ban(one.own)
            assert (await _figure(other, "lost"), await _figure(other, "bans")) == (1, 1)
            assert asked(other, "identities") == []
    told = [
        (getattr(each, "event", ""), each.getMessage())
        for each in caplog.records
        if name in each.getMessage()
    ]
    assert ("identity.joined", f"{name} has joined") in told
    assert ("identity.lost", f"{name} is lost") in told
    assert ("identity.banned", f"{name} is banned") in told


async def test_a_node_without_a_router_has_none() -> None:
    async with Node("a") as a:
        made = await member(a)
        await a.stop_worker("identity")
        assert node_report(made.node, "identity") is None


class _Flows(Instrument):
    """Keeps what it is told of messages that are relayed."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, str, str, bool]] = []

    def names_part(self) -> object:
        return self

    def count(self, kind: int, outcome: int, name: str, to: str, size: int) -> None:
        self.told.append((kind, outcome, name, to, size > 0))


@pytest.mark.parametrize("anonymous", [False, True])
async def test_an_event_log_is_told_what_is_relayed_and_refused(anonymous: bool) -> None:
    policy = RelayPolicy(destinations=frozenset({key_of("b").identity}))
    async with Node("a") as a, Node("r") as r, Node("b") as b:
        one, other = await member(a), await member(b, "echo")
        relay = await member(r, relay=policy, anonymous=anonymous)
        introduce(one, relay, other)
        await chain(one, relay, other)
        await asyncio.sleep(20)
        await b.start(Echo, address="echo")
        flows = _Flows()
        r.add_instrument(flows)
        here, there = identity_text(one.own), identity_text(other.own)
        route = f"{relay_text(relay)} => 36#node:{there} => echo"
        assert (await a.request(route, b"12")).payload == b"12"
        b.send(f"{relay_text(relay)} => 36#node:{here} => none", b"")
        await asyncio.sleep(1)
    kind, shown = Kind.RELAY, not anonymous
    assert flows.told == [
        (kind, Outcome.FORWARD, here if shown else "", there, True),
        (kind, Outcome.FORWARD, there if shown else "", here, True),
        (kind, Outcome.REJECTED, "", "permission_denied", False),
    ]
