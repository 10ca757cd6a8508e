"""Nodes that send messages on in the clear, and sealing keys that are rotated."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable

import pytest

from onward.actors import Node
from onward.actors.identity import IdentityKeys, PassedOn
from onward.actors.identity.links._session import Failed
from onward.actors.workers import Proxy
from onward.protocol import Address, LinkDown, Message, parse_route, route as route_of
from onward.protocol.identity import (
    OLD_KEY_TIME,
    ControlContent,
    EngineContent,
    Identity,
    PeelOutcome,
    RelayLoadLimits,
    RelayPolicy,
    RelayStatus,
    Verifiers,
    open_engine_message,
    parse_p2p_message,
)
from tests.support.domains import domain_text, learns, member as serving
from tests.support.identities import engine_text, key_of, node_text
from tests.support.relays import OPEN, Member, Tap, chain, introduce, member, relay_text
from tests.support.transports import Echo, Recorder, Relay, eventually


@pytest.fixture
async def three() -> AsyncIterator[tuple[Node, Node, Node]]:
    async with Node("a") as a, Node("r") as r, Node("b") as b:
        yield a, r, b


async def line_of(
    three: tuple[Node, Node, Node], policy: RelayPolicy | None, **limits: int
) -> tuple[Member, Member, Member]:
    """Return three nodes in a line, the one in the middle a relay, the last an echo."""
    a, r, b = three
    load = RelayLoadLimits(**limits)
    line = (
        await member(a),
        await member(r, relay=policy, relay_limits=load),
        await member(b, "echo"),
    )
    await b.start(Echo, address="echo")
    await chain(*line)
    await asyncio.sleep(40)
    return line


def carried(by: Member, *to: Member) -> int:
    """Return the bytes of the messages that links have carried from a node to others."""
    bodies: list[bytes] = []
    for one in to:
        for node, _, message in one.tap.seen:
            if node == by.own and isinstance(message.content, EngineContent):
                opened = open_engine_message(message.content.envelope, Verifiers())
                assert opened is not None
                bodies.append(opened.body)
    return sum(map(len, bodies))


@pytest.mark.parametrize(
    "policy",
    [
        OPEN,
        RelayPolicy(sources=frozenset({key_of("a").identity})),
        RelayPolicy(destinations=frozenset({key_of("b").identity})),
    ],
)
async def test_a_node_sends_on_in_the_clear_what_its_policy_allows(
    three: tuple[Node, Node, Node], policy: RelayPolicy
) -> None:
    a, r, b = await line_of(three, policy)
    route = f"{node_text(r.own)} => {node_text(b.own)} => echo"
    assert (await a.node.request(route, b"12")).payload == b"12"
    await b.node.start(Echo, address="engine")
    engine = b.identities.engine("engine")
    await asyncio.sleep(1)
    route = f"{node_text(r.own)} => {engine_text(engine)}"
    assert (await a.node.request(route, b"3456")).payload == b"3456"
    found = r.identities.relay_statistics()
    # With the answers.
    assert (found.relayed, found.relayed_size) == (4, carried(r, a, b))
    assert found.refused == {}


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        (None, RelayStatus.PERMISSION_DENIED),
        (RelayPolicy(to_reserved=True), RelayStatus.NO_RESERVATION),
        (RelayPolicy(sources=frozenset({key_of("b").identity})), RelayStatus.PERMISSION_DENIED),
        (RelayPolicy(exits=True), RelayStatus.PERMISSION_DENIED),
    ],
)
async def test_threat_15_a_node_sends_nothing_on_that_its_policy_does_not_allow(
    three: tuple[Node, Node, Node], policy: RelayPolicy | None, status: RelayStatus
) -> None:
    a, r, b = await line_of(three, policy)
    a.node.send(f"{node_text(r.own)} => {node_text(b.own)} => echo", b"x")
    await eventually(lambda: r.identities.relay_statistics().refused == {status: 1})
    assert r.node.dead_letters.by_reason == {"not exposed": 1}
    assert r.identities.relay_statistics().relayed == 0


async def test_what_is_reserved_is_spent_in_the_clear_as_well(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, RelayPolicy(to_reserved=True))
    await b.identities.reserve(r.own, size=24_000, messages=9)
    route = f"{node_text(r.own)} => {node_text(b.own)} => echo"
    await a.node.request(route, bytes(6000))
    a.node.send(route, bytes(13_000))
    over = {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 1}
    await eventually(lambda: r.identities.relay_statistics().refused == over)
    await a.node.request(route, bytes(4000))
    assert r.identities.relay_statistics().charged_size == carried(r, a, b)
    # There is room for the question, and none for its answer.
    with pytest.raises(TimeoutError):
        await a.node.request(route, bytes(3000), timeout=5)
    found = r.identities.relay_statistics()
    assert (found.charged, found.charged_size) == (5, carried(r, a, b))
    assert found.refused == {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 2}
    assert r.identities.relay_statistics().reservations == 1
    assert b.identities.relay_statistics().reserved == 1


async def test_what_is_reserved_is_spent_by_routes_as_well(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, RelayPolicy(to_reserved=True))
    seen: list[PassedOn] = []
    r.identities.watch_relay(seen.append)
    await b.identities.reserve(r.own, size=60_000)
    link, _ = r.identities._router.links.get((r.own, a.own))
    onward = parse_route(f"{node_text(b.own)} => nothing that answers")
    back = tuple(Address(0, bytes((number,)) * 1000) for number in range(55))
    for _ in range(2):
        link.receive(Message(onward, back, b""))
    over = {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 1}
    await eventually(lambda: r.identities.relay_statistics().refused == over)
    await eventually(lambda: carried(r, b))
    found, size = r.identities.relay_statistics(), carried(r, b)
    assert size > 55_000
    assert (found.charged, found.charged_size) == (1, size)
    assert (found.relayed, found.relayed_size) == (1, size)
    assert seen == [PassedOn(a.own, b.own, size, False)]


async def test_a_peer_has_a_rate_in_the_clear_as_well(three: tuple[Node, Node, Node]) -> None:
    a, r, b = await line_of(three, OPEN, rate=1, burst=2)
    for _ in range(5):
        a.node.send(f"{node_text(r.own)} => {node_text(b.own)} => echo", b"x")
    over = {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 3}
    await eventually(lambda: r.identities.relay_statistics().refused == over)


async def test_answers_in_the_clear_have_the_rate_of_the_node_that_sends_them(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, OPEN, rate=1, burst=2)
    asked = await Recorder.on(b.node, "echo 2")
    engine = b.identities.engine("echo 2")
    back = await Recorder.on(a.node, "back")
    await asyncio.sleep(1)
    back.send(f"{node_text(r.own)} => {engine_text(engine)}", b"?")
    question = await asked.next()
    for _ in range(9):
        asked.reply(question, b"!")
    over = {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 7}
    await eventually(lambda: r.identities.relay_statistics().refused == over)
    await eventually(lambda: len(back.messages) == 2)


async def test_what_comes_back_over_another_relay_is_not_sent_on(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, OPEN)
    async with Node("c") as node:
        c = await member(node, relay=OPEN)
        await chain(b, c, r)
        await asyncio.sleep(1)
        introduce(a, r, b, c)
        asked, back = await Recorder.on(b.node, "echo 2"), await Recorder.on(a.node, "back")
        engine = b.identities.engine("echo 2")
        await asyncio.sleep(1)
        back.send(f"{node_text(r.own)} => {engine_text(engine)}", b"?")
        question = await asked.next()
        for one, other in ((b, r), (r, b)):
            one.identities._router.peers.disconnect(other.own, "a test")
        # It has the addresses of the route, and goes on and on over another relay.
        way = f"{relay_text(c)} => {node_text(r.own)}"
        around = route_of(way, question.return_route[1:])
        for number in range(3):
            asked.send(around, b"%d" % number)
        refused = {RelayStatus.CONNECTION_FAILED: 3}
        await eventually(lambda: r.identities.relay_statistics().refused == refused)
        assert r.node.dead_letters.by_reason == {"not exposed": 3}
        assert r.identities.relay_statistics().relayed == 1
        assert back.messages == []


async def test_what_has_lost_its_link_since_it_came_is_not_sent_on(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, OPEN)
    link, _ = r.identities._router.links.get((r.own, a.own))
    link.receive(Message(parse_route(f"{node_text(b.own)} => echo"), (), b"x"))
    for one, other in ((b, r), (r, b)):
        one.identities._router.peers.disconnect(other.own, "a test")
    refused = {RelayStatus.CONNECTION_FAILED: 1}
    await eventually(lambda: r.identities.relay_statistics().refused == refused)
    assert r.node.dead_letters.by_reason == {"not exposed": 1}
    assert r.identities.relay_statistics().relayed == 0


async def test_what_the_router_would_refuse_behind_an_identity_is_not_charged(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, RelayPolicy(to_reserved=True))
    await b.identities.reserve(r.own, messages=9)
    for number in range(5):
        a.node.send(f"{node_text(r.own)} => {node_text(b.own)} => 36#self => echo", b"%d" % number)
    await eventually(lambda: r.node.dead_letters.by_reason == {"unreadable address": 5})
    found = r.identities.relay_statistics()
    assert (found.charged, found.relayed) == (0, 0)


async def test_what_cannot_be_sent_on_is_not_exposed(three: tuple[Node, Node, Node]) -> None:
    a, r, b = await line_of(three, OPEN)
    for address in (
        node_text(key_of("nowhere").identity),
        node_text(r.own),
        relay_text(b),
        "36#topic:aaaa",
    ):
        a.node.send(f"{node_text(r.own)} => {address} => echo", b"x")
    await eventually(lambda: r.node.dead_letters.total == 4)
    assert r.node.dead_letters.by_reason["not exposed"] == 4
    assert r.identities.relay_statistics().refused == {RelayStatus.CONNECTION_FAILED: 2}
    assert r.identities.relay_statistics().relayed == 0


async def test_threat_14_a_route_that_goes_to_and_fro_ends(three: tuple[Node, Node, Node]) -> None:
    a, r, b = await line_of(three, OPEN)
    b.relays.service.admission.policy = OPEN
    to_and_fro = " => ".join([node_text(r.own), node_text(b.own)] * 3)
    assert (await a.node.request(f"{to_and_fro} => echo", b"x")).payload == b"x"
    # There and back.
    assert r.identities.relay_statistics().relayed == 6
    assert b.identities.relay_statistics().relayed == 4


async def test_an_engine_passes_on_for_others_what_the_policy_allows(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, None)
    await r.node.start(Relay, address="engine")
    engine = r.identities.engine("engine")
    recorder = await Recorder.on(b.node, "echo 2")
    await asyncio.sleep(1)
    a.node.send(f"{engine_text(engine)} => {node_text(b.own)} => echo", b"x")
    await eventually(lambda: r.node.dead_letters.total == 1)
    assert recorder.messages == []
    r.relays.service.admission.policy = OPEN
    route = f"{engine_text(engine)} => {node_text(b.own)} => echo"
    assert (await a.node.request(route, b"x")).payload == b"x"


async def test_what_an_engine_passes_on_counts_with_its_size(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, OPEN)
    await r.node.start(Relay, address="engine")
    engine = r.identities.engine("engine")
    link, _ = r.identities._router.links.get((engine, a.own))
    onward = parse_route(f"0#engine => {node_text(b.own)} => echo")
    for size in (600, 1):
        link.receive(Message(onward, (), bytes(size)))
    await eventually(lambda: r.identities.relay_statistics().relayed == 2)
    await eventually(lambda: r.identities.relay_statistics().relayed_size == carried(r, b))
    assert carried(r, b) > 601


# --- what is charged and counted ------------------------------------------------------------------


def give_up(one: Member, to: Member) -> list[Failed]:
    """Have the link to a node take what it is given, and not send it; return its refusals."""
    peers, taken = one.identities._router.peers, list[Failed]()
    send = peers.send

    def take(
        node: Identity, record: bytes, failed: Failed, expiry: int | None = None
    ) -> Awaitable[None] | None:
        if node != to.own:
            return send(node, record, failed, expiry)
        taken.append(failed)
        return None

    peers.send = take  # type: ignore[method-assign]
    return taken


async def test_what_a_link_does_not_take_in_the_clear_is_refunded_and_not_counted(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, RelayPolicy(to_reserved=True))
    seen: list[PassedOn] = []
    r.identities.watch_relay(seen.append)
    await b.identities.reserve(r.own, size=1000, messages=1)
    peers = r.identities._router.peers
    send = peers.send

    def refuse(
        node: Identity, record: bytes, failed: Failed, expiry: int | None = None
    ) -> Awaitable[None] | None:
        if node != b.own:
            return send(node, record, failed, expiry)
        failed(LinkDown("b", "a test"))
        return None

    peers.send = refuse  # type: ignore[method-assign]
    route = f"{node_text(r.own)} => {node_text(b.own)} => echo"
    for _ in range(3):
        a.node.send(route, bytes(900))
    await eventually(lambda: r.node.dead_letters.by_reason == {"link down": 3})
    found = r.identities.relay_statistics()
    assert (found.relayed, found.relayed_size, found.charged, found.charged_size) == (0, 0, 0, 0)
    assert (found.refused, seen) == ({}, [])
    peers.send = send  # type: ignore[method-assign]
    # All of the reservation is left.
    a.node.send(route, bytes(900))
    await eventually(lambda: carried(r, b))
    size = carried(r, b)
    assert r.identities.relay_statistics().charged_size == size
    assert [(each.previous, each.following, each.size) for each in seen] == [(a.own, b.own, size)]


async def test_what_a_link_has_taken_in_the_clear_and_not_sent_is_refunded_and_counted(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, RelayPolicy(to_reserved=True))
    await b.identities.reserve(r.own)
    taken = give_up(r, b)
    a.node.send(f"{node_text(r.own)} => {node_text(b.own)} => echo", bytes(9))
    await eventually(lambda: taken)
    found = r.identities.relay_statistics()
    size = found.relayed_size
    assert (found.relayed, found.charged, found.charged_size) == (1, 1, size)
    taken[0](LinkDown("b", "a test"))
    found = r.identities.relay_statistics()
    # What was counted stays so, as counters only rise; and what became of it is counted as well.
    assert (found.relayed, found.relayed_size, found.charged) == (1, size, 0)
    assert r.identities.refused() == {"relayed messages that a link has not sent": 1}
    assert r.node.dead_letters.by_reason == {"link down": 1}


async def test_an_answer_in_the_clear_is_charged_once_a_link_has_taken_it(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, RelayPolicy(to_reserved=True))
    seen: list[PassedOn] = []
    r.identities.watch_relay(seen.append)
    await b.identities.reserve(r.own)
    taken = give_up(r, a)
    asked = asyncio.ensure_future(
        a.node.request(f"{node_text(r.own)} => {node_text(b.own)} => echo", bytes(9), timeout=9)
    )
    await eventually(lambda: taken)
    assert r.identities.relay_statistics().charged == 2
    size = carried(r, b)
    assert seen == [
        PassedOn(a.own, b.own, size, False),
        PassedOn(b.own, a.own, seen[1].size, True),
    ]
    taken[0](LinkDown("a", "a test"))
    found = r.identities.relay_statistics()
    assert (found.relayed, found.charged, found.charged_size) == (2, 1, size)
    with pytest.raises(TimeoutError):
        await asked


@pytest.mark.parametrize(
    ("policy", "charged"), [(None, 0), (OPEN, 0), (RelayPolicy(to_reserved=True), 2)]
)
async def test_what_a_worker_sends_elsewhere_by_itself_is_relayed_if_the_policy_allows_it(
    three: tuple[Node, Node, Node], policy: RelayPolicy | None, charged: int
) -> None:
    a, r, b = three
    line = await member(a), await member(r, "proxy", relay=policy), await member(b, "echo")
    await b.start(Echo, address="echo")
    await r.start(lambda: Proxy(f"{node_text(line[2].own)} => echo"), address="proxy")
    await chain(*line)
    await asyncio.sleep(40)
    if charged:
        await line[2].identities.reserve(line[1].own)
    answer = await a.request(f"{node_text(line[1].own)} => proxy", b"x")
    assert answer.payload == b"x"
    found = line[1].identities.relay_statistics()
    assert (found.relayed, found.charged, found.refused) == (2 if policy else 0, charged, {})


async def test_the_answer_of_a_domain_goes_on_to_the_one_that_has_asked_a_worker_for_it(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = three
    asks, relay = await member(a), await member(r, "proxy", relay=OPEN)
    await r.start(lambda: Proxy(domain_text("orders"), transparent=True), address="proxy")
    theirs, worker = await serving(b, (r, relay.identities))
    await chain(asks, relay)
    for each in (relay.identities, theirs):
        learns(each, theirs.own)
    await asyncio.sleep(40)
    answer = await a.request(f"{node_text(relay.own)} => proxy", b"x")
    assert (answer.payload, worker.asked) == (b"b", 1)
    assert relay.identities.relay_statistics().refused == {}


# --- keys and statistics -------------------------------------------------------------------------


def keys_of(one: Member, seed: bytes) -> IdentityKeys:
    return IdentityKeys(one.key, seed, None, None, "", 0)


def is_control(record: bytes) -> bool:
    return isinstance(parse_p2p_message(record).content, ControlContent)


async def test_threat_21_what_is_sealed_to_the_key_before_opens_for_its_time(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, OPEN)
    introduce(a, r, b)
    route = f"{relay_text(r)} => {node_text(b.own)} => echo"
    assert (await a.node.request(route, b"x")).payload == b"x"
    before = r.identities.sealing_key
    # The sender does not hear of the new key.
    a.tap.change = lambda _, record: [] if is_control(record) else [record]
    assert r.identities.reload(keys_of(r, bytes(range(32))))
    assert not r.identities.reload(keys_of(r, bytes(range(32))))
    assert r.identities.sealing_key != before
    assert (await a.node.request(route, b"x")).payload == b"x"
    await asyncio.sleep(OLD_KEY_TIME / 1000 + 1)
    with pytest.raises(TimeoutError):
        await a.node.request(route, b"x", timeout=5)
    assert r.identities.relay_statistics().outcomes[PeelOutcome.NOT_OPENED] == 1
    a.tap.change = Tap().change
    assert r.identities.reload(keys_of(r, bytes(range(1, 33))))
    await asyncio.sleep(1)
    assert (await a.node.request(route, b"x")).payload == b"x"
    with pytest.raises(ValueError, match="of another identity"):
        r.identities.reload(dataclasses.replace(keys_of(r, bytes(32)), signing=a.key))


async def test_threat_21_a_sender_hears_of_the_new_key_of_a_node_behind_relays(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, OPEN)
    route = f"{relay_text(r)} => {node_text(b.own)} => echo"
    assert (await a.node.request(route, b"x")).payload == b"x"
    b.identities.reload(keys_of(b, bytes(range(32))))
    # The relay hears of it, and is asked from time to time.
    for _ in range(6):
        await asyncio.sleep(OLD_KEY_TIME / 3000)
        assert (await a.node.request(route, b"x")).payload == b"x"
    assert b.identities.relay_statistics().outcomes == {PeelOutcome.DELIVER: 7}


async def test_threat_21_what_is_under_way_ends_with_the_trust(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three, OPEN)
    introduce(a, r, b)
    waiting = await Recorder.on(b.node, "waiting")
    b.identities.engine("waiting")
    route = f"{relay_text(r)} => {node_text(b.own)} => waiting"
    asked = asyncio.ensure_future(a.node.request(route, b"x", timeout=5))
    question = await waiting.next()
    assert r.identities.relay_statistics().handles == 1
    assert a.identities.relay_statistics().expected == 1
    # The relay trusts the one that asks no more: the answer has no way back.
    r.identities.ban(a.own)
    assert r.identities.relay_statistics().handles == 0
    waiting.reply(question, b"y")
    with pytest.raises(TimeoutError):
        await asked
    unknown = "answers over relays: there is no such handle, or it was used"
    assert r.identities.refused()[unknown] == 1


async def test_statistics_say_what_was_done(three: tuple[Node, Node, Node]) -> None:
    a, r, b = await line_of(three, OPEN)
    introduce(a, r, b)
    await a.node.request(f"{relay_text(r)} => {node_text(b.own)} => echo", b"x")
    found = r.identities.relay_statistics()
    assert found.outcomes == {PeelOutcome.NEXT: 1}
    assert (found.relayed, found.layers, found.handles, found.held) == (2, 1, 0, 0)
    assert found.relayed_size > 2048
    assert a.identities.relay_statistics().sealed == 1
    assert b.identities.relay_statistics().outcomes == {PeelOutcome.DELIVER: 1}
