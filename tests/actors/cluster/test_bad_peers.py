"""Brokers that break the protocol, or are none: the link ends with a reason, and others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest

from onward.actors.broker import Handlers
from onward.actors.cluster import ClusterOptions, PeerConnection, PeerRefused
from onward.protocol import OnwardError
from onward.protocol.broker import BrokerInfo, Dialect
from onward.protocol.cluster import (
    BROKER_INFO_ROUTE,
    BROKERS_ROUTE,
    DRAINING,
    REMOTE_BROKER_INFO_ROUTE,
    ROUTE_JOIN_ROUTE,
    ROUTES_ROUTE,
    ClusterLimits,
    LinkRefusal,
    PeerInfo,
    Position,
    java_route,
)
from tests.support.clusters import SOON, Clusters, FakePeer, Site, clusters
from tests.support.fixtures import Caplog, Patch
from tests.support.peer_links import MemoryLink

PAUSE = ClusterLimits().pause
FAKE = "test://fake"


@pytest.fixture
async def cluster() -> AsyncIterator[Clusters]:
    async with clusters() as made:
        yield made


async def beside(cluster: Clusters, fake: FakePeer) -> tuple[Site, Site]:
    """Return a broker that has dialled a fake one, and an honest peer broker of it."""
    cluster.network.listen(FAKE, fake)
    honest = await cluster.start("honest")
    await honest.serve("orders")
    one = await cluster.start("one", ["honest", "fake"])
    await asyncio.sleep(SOON)
    return one, honest


async def check_closed(
    cluster: Clusters, one: Site, fake: FakePeer, caplog: Caplog, *, text: str
) -> None:
    """Check that the link was closed with a text, that there is a pause, and that others go on."""
    await asyncio.sleep(SOON)
    assert len(fake.lost) == 1
    assert text in fake.lost[0]
    row = one.peer(fake.facts.broker_id)
    assert (row.state, row.routes) == ("paused", 0)
    assert text in row.reason
    assert one.cluster.statistics().lost == {"bad frame": 1}
    assert len([line for line in caplog.messages if text in line]) == 1
    await asyncio.sleep(PAUSE - 2)
    assert fake.connected == 1
    assert len(one.found("orders")) == 1
    await asyncio.sleep(40)
    assert fake.connected == 2


LIES: dict[str, tuple[Callable[[FakePeer], bytes], str]] = {
    "a route of another broker": (
        lambda fake: fake.snapshot(fake.route("lies", broker_id=uuid4().bytes)),
        "another broker's route",
    ),
    "a removal of another broker's route": (
        lambda fake: fake.changes(fake.removed(uuid4().bytes, broker_id=uuid4().bytes), sequence=1),
        "another broker's route",
    ),
    "an element of another home broker": (
        lambda fake: FakePeer().snapshot(fake.route("lies")),
        "another broker's routes",
    ),
    "an element that is cut": (lambda fake: fake.snapshot(fake.route("lies"))[:-1], "cut short"),
    "an element with bytes behind it": (
        lambda fake: fake.snapshot(fake.route("lies")) + b"\0",
        "cut short",
    ),
    "no element": (lambda fake: b"", "0 bytes"),
    "an element of an unknown kind": (
        lambda fake: b"\x09" + fake.snapshot(fake.route("lies"))[1:],
        "kind 9",
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_wrong_element_closes_the_link(cluster: Clusters, caplog: Caplog, lie: str) -> None:
    fake = FakePeer()
    one, _ = await beside(cluster, fake)
    make, text = LIES[lie]
    with caplog.at_level(logging.WARNING):
        fake.send(fake.snapshot(fake.route("orders"), fake.route("prices")))
        await asyncio.sleep(SOON)
        if "home broker" not in lie:
            assert len(one.found("orders")) == 2
        fake.send(make(fake))
        await check_closed(cluster, one, fake, caplog, text=text)


async def test_removals_of_what_is_not_there_are_no_fault(cluster: Clusters) -> None:
    fake = FakePeer()
    one, _ = await beside(cluster, fake)
    fake.send(fake.snapshot(), fake.changes(fake.removed(uuid4().bytes), sequence=1))
    await asyncio.sleep(SOON)
    assert one.peer(fake.facts.broker_id).state == "up"
    assert one.peer(fake.facts.broker_id).sequence == 1


async def test_a_wrong_number_has_the_routes_read_anew(cluster: Clusters) -> None:
    fake = FakePeer()
    one, _ = await beside(cluster, fake)
    fake.send(fake.snapshot(fake.route("prices")), fake.changes(fake.route("prices"), sequence=7))
    await asyncio.sleep(SOON)
    assert fake.subscriptions == [Position().serialize()] * 2
    fake.send(fake.snapshot(fake.route("prices"), sequence=9))
    await asyncio.sleep(SOON)
    assert len(one.found("prices")) == 1
    assert one.peer(fake.facts.broker_id).state == "up"


async def test_timestamps_far_ahead_are_refused_and_counted(cluster: Clusters) -> None:
    limits = ClusterLimits()
    fake = FakePeer()
    one, _ = await beside(cluster, fake)
    far = int(limits.max_ahead * 1000) + 60_000
    fake.send(fake.snapshot(fake.route("prices"), fake.route("prices", ahead=far)))
    await asyncio.sleep(SOON)
    assert len(one.found("prices")) == 1
    row = one.peer(fake.facts.broker_id)
    assert (row.state, row.refused) == ("up", {"timestamp too far ahead": 1})


async def test_elements_that_were_not_requested(cluster: Clusters, caplog: Caplog) -> None:
    fake = FakePeer()
    one, _ = await beside(cluster, fake)
    worker = one.cluster.links.mesh[fake.facts.broker_id]
    receiver = worker._receiver
    assert receiver is not None
    with caplog.at_level(logging.WARNING):
        for _ in range(one.cluster.options.ahead + 1):
            receiver.element(fake.snapshot(fake.route("lies")))
        await check_closed(cluster, one, fake, caplog, text="more elements than were requested")


async def test_a_peer_broker_that_floods_with_requests(cluster: Clusters) -> None:
    fake = FakePeer()
    one, honest = await beside(cluster, fake)
    assert fake.connection is not None
    info = FakePeer(name="x").facts.serialize()
    connection = fake.connection
    answers = await asyncio.gather(
        *(connection.request(REMOTE_BROKER_INFO_ROUTE, info) for _ in range(100)),
        return_exceptions=True,
    )
    served = [each for each in answers if not isinstance(each, BaseException)]
    assert len(served) == one.cluster.options.max_greetings
    assert all("busy" in str(each) for each in answers if isinstance(each, OnwardError))
    assert one.found("orders") == [honest.id]


async def test_more_brokers_than_are_remembered(cluster: Clusters) -> None:
    limits = ClusterLimits(max_known=10)
    fake = FakePeer()
    cluster.network.listen(FAKE, fake)
    one = await cluster.start("one", ["fake"], options=ClusterOptions(limits=limits))
    await asyncio.sleep(SOON)
    assert fake.connection is not None
    for number in range(30):
        told = FakePeer(cluster_uri=f"test://nowhere-{number}").facts
        await fake.connection.request(REMOTE_BROKER_INFO_ROUTE, told.serialize())
    used = {use.name: use for use in one.cluster.limits()}
    assert (used["cluster.max_known"].used, used["cluster.max_known"].reached) == (10, 21)
    await asyncio.sleep(10)
    # What a peer broker says does not choose where this one connects to.
    assert {uri for _, uri in cluster.network.dials} == {FAKE}


@pytest.mark.parametrize("route", [BROKER_INFO_ROUTE, REMOTE_BROKER_INFO_ROUTE])
async def test_a_request_that_cannot_be_read(cluster: Clusters, caplog: Caplog, route: str) -> None:
    fake = FakePeer()
    one, _ = await beside(cluster, fake)
    assert fake.connection is not None
    with caplog.at_level(logging.WARNING):
        with pytest.raises(OnwardError):
            await fake.connection.request(route, b"no BROKER_INFO")
        await check_closed(cluster, one, fake, caplog, text="BROKER_INFO, frame type")


async def test_a_position_that_cannot_be_read(cluster: Clusters, caplog: Caplog) -> None:
    fake = FakePeer()
    one, _ = await beside(cluster, fake)
    assert fake.connection is not None
    with caplog.at_level(logging.WARNING):
        fake.connection.subscribe(ROUTES_ROUTE, b"short", 1, _Nothing())
        await check_closed(cluster, one, fake, caplog, text="bytes for a position")


async def test_a_list_that_cannot_be_read(cluster: Clusters) -> None:
    one = await cluster.start("one")
    fake = FakePeer()
    cluster.network.listen(FAKE, fake)
    await cluster.network.connect_from(FAKE)(one.uri, fake)
    assert fake.connection is not None
    # Another digest than the broker's own is answered with its list.
    answer = await fake.connection.request(BROKERS_ROUTE, b"x" * 32)
    assert one.cluster.info.broker_id in answer


async def test_a_comparison_that_cannot_be_read(cluster: Clusters, caplog: Caplog) -> None:
    fake = FakePeer()
    fake.answer = b"no list of brokers"
    with caplog.at_level(logging.WARNING):
        one, _ = await beside(cluster, fake)
        await check_closed(cluster, one, fake, caplog, text="a list of brokers is cut short")


async def test_a_stream_that_the_peer_broker_ends_is_asked_for_again(cluster: Clusters) -> None:
    fake = FakePeer()
    one, _ = await beside(cluster, fake)
    fake.send(fake.snapshot(fake.route("prices")))
    await asyncio.sleep(SOON)
    fake.send(None)
    await asyncio.sleep(SOON)
    assert len(one.found("prices")) == 1
    assert len(fake.subscriptions) == 1
    await asyncio.sleep(1)
    position = Position(fake.facts.instance, 1)
    assert fake.subscriptions == [Position().serialize(), position.serialize()]
    fake.send(fake.changes(fake.route("prices"), sequence=2))
    await asyncio.sleep(SOON)
    assert len(one.found("prices")) == 2


async def test_a_route_that_cannot_be_loaded_is_the_end_of_the_link_only(
    cluster: Clusters, caplog: Caplog, monkeypatch: Patch
) -> None:
    fake = FakePeer()
    one, honest = await beside(cluster, fake)

    def fail(*_: object) -> str:
        raise RuntimeError("a mistake of ours")

    with caplog.at_level(logging.ERROR), monkeypatch.context() as patched:
        patched.setattr(one.broker.index, "add_remote", fail)
        fake.send(fake.snapshot(fake.route("prices")))
        await asyncio.sleep(SOON)
    assert [each for each in caplog.messages if "cannot be loaded" in each]
    assert one.peer(fake.facts.broker_id).state == "paused"
    assert one.found("orders") == [honest.id]


async def test_a_route_that_cannot_be_loaded_after_its_link_was_lost(
    cluster: Clusters, caplog: Caplog, monkeypatch: Patch
) -> None:
    fake = FakePeer()
    one, _ = await beside(cluster, fake)
    failed = 0

    def fail(*_: object) -> str:
        nonlocal failed
        failed += 1
        if failed == 100:
            raise AssertionError("it is tried again and again")
        cluster.network.cut(one.uri, FAKE)
        raise RuntimeError("a mistake of ours")

    with caplog.at_level(logging.ERROR), monkeypatch.context() as patched:
        patched.setattr(one.broker.index, "add_remote", fail)
        fake.send(fake.snapshot(fake.route("prices"), fake.route("prices")))
        await asyncio.sleep(SOON)
        assert failed == 1
    row = one.peer(fake.facts.broker_id)
    assert (row.state, row.routes) == ("suspended", 0)
    cluster.network.heal()
    await asyncio.sleep(10)
    fake.send(fake.snapshot(fake.route("prices")))
    await asyncio.sleep(SOON)
    row = one.peer(fake.facts.broker_id)
    assert (row.state, row.routes) == ("up", 1)


async def test_a_link_that_is_taken_before_the_pause_is_seen_to_be_over(cluster: Clusters) -> None:
    """The pause is forgotten with the broker, as there are as many known ones as there may be."""
    fake = FakePeer()
    cluster.network.listen(FAKE, fake)
    options = ClusterOptions(limits=ClusterLimits(max_known=1))
    one = await cluster.start("one", ["fake"], options=options)
    await asyncio.sleep(SOON)
    fake.send(b"no element")
    await asyncio.sleep(SOON)
    assert one.peer(fake.facts.broker_id).state == "paused"
    await cluster.start("two", ["one"])
    await asyncio.sleep(SOON)
    await cluster.network.connect_from(FAKE)(one.uri, fake)
    fake.send(fake.snapshot(fake.route("prices")))
    await asyncio.sleep(SOON)
    assert one.peer(fake.facts.broker_id).state == "up"
    await asyncio.sleep(PAUSE)
    assert one.found("prices") == [fake.facts.broker_id]
    cluster.network.cut(one.uri, FAKE)
    await asyncio.sleep(SOON)
    assert one.found("prices") == []


async def test_a_peer_broker_that_does_not_know_a_request(cluster: Clusters) -> None:
    one = await cluster.start("one")
    fake = FakePeer()
    cluster.network.listen(FAKE, fake)
    await cluster.network.connect_from(FAKE)(one.uri, fake)
    worker = one.cluster.links.mesh[fake.facts.broker_id]
    assert worker.connection is not None
    assert await one.cluster._ask(fake.facts.broker_id, "unknown.route", b"") is None
    assert await one.cluster._ask(uuid4().bytes, "unknown.route", b"") is None
    assert fake.lost == []


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"version": "2"}, "another version"),
        ({"zone": "elsewhere"}, "different zones"),
        ({"broker_id": b"\0" * 16, "instance": 5}, ""),
    ],
)
async def test_brokers_that_are_refused_or_not(
    cluster: Clusters, facts: dict[str, object], text: str
) -> None:
    one = await cluster.start("one")
    fake = FakePeer(**facts)
    connect = cluster.network.connect_from(FAKE)
    if not text:
        await connect(one.uri, fake)
        return
    with pytest.raises(PeerRefused, match=text):
        await connect(one.uri, fake)
    assert not cluster.network.links
    assert sum(one.cluster.statistics().refused.values()) == 1


class JavaPeer(FakePeer):
    """A Java broker."""

    def on_connected(self, connection: PeerConnection) -> Handlers:
        assert isinstance(connection, MemoryLink)
        assert isinstance(connection.far, MemoryLink)
        connection.far.java = True
        return super().on_connected(connection)


async def test_a_java_broker_with_a_flapping_link_is_not_relied_on(cluster: Clusters) -> None:
    fake = JavaPeer(version="")
    one, _ = await beside(cluster, fake)

    async def join() -> None:
        assert fake.connection is not None
        await fake.connection.request(ROUTE_JOIN_ROUTE, java_route(fake.added("java")))

    await join()
    assert one.found("java") == [fake.facts.broker_id]
    for _ in range(3):
        await asyncio.sleep(5)
        cluster.network.cut(one.uri, FAKE)
        assert one.found("java") == []
        cluster.network.heal()
    await asyncio.sleep(6)
    await join()
    assert one.peer(fake.facts.broker_id).state == "unsteady"
    assert one.found("java") == []
    await asyncio.sleep(15)
    assert one.peer(fake.facts.broker_id).state == "up"
    assert one.found("java") == [fake.facts.broker_id]


async def test_own_routes_that_a_java_broker_does_not_take_are_counted(cluster: Clusters) -> None:
    fake = JavaPeer(version="")
    one, _ = await beside(cluster, fake)
    await one.serve("mail")
    await asyncio.sleep(SOON)
    assert one.peer(fake.facts.broker_id).refused == {"not taken by it": 1}
    assert one.peer(fake.facts.broker_id).state == "up"


async def test_facts_that_cannot_be_read_are_refused(cluster: Clusters) -> None:
    one = await cluster.start("one")

    class Odd(FakePeer):
        @property
        def info(self) -> BrokerInfo:
            return BrokerInfo(uuid4().bytes, 1, (("instance", b"soon"),))

    with pytest.raises(PeerRefused, match="instance"):
        await cluster.network.connect_from(FAKE)(one.uri, Odd())
    assert one.cluster.peers() == []


@pytest.mark.parametrize("facts", [{"version": "2"}, {"zone": "b"}, {"instance": 1}])
async def test_a_seed_that_cannot_be_a_peer_is_dialled_rarely_and_shown(
    cluster: Clusters, facts: dict[str, Any]
) -> None:
    one = await cluster.start("one", ["fake"], join=False)
    own_id = {"broker_id": one.id} if "instance" in facts else {}
    cluster.network.listen(FAKE, FakePeer(**own_id, **facts))
    one.cluster.join(one.uri)
    await asyncio.sleep(120)
    # After 1 s, 2 s, 4 s and so on, up to 30 s, and a second more if its id is the smaller one.
    assert 7 <= len(cluster.network.dials) <= 8
    (row,) = one.cluster.peers()
    ((refusal, count),) = one.cluster.statistics().refused.items()
    assert (row.uri, row.state, count) == (FAKE, "connecting", len(cluster.network.dials))
    assert row.reason == LinkRefusal[refusal.upper()].value
    right = FakePeer()
    cluster.network.listen(FAKE, right)
    await asyncio.sleep(32)
    assert one.peer(right.facts.broker_id).state == "joining"


async def test_another_broker_with_the_id_of_one_that_has_a_link(cluster: Clusters) -> None:
    one = await cluster.start("one")
    first = FakePeer()
    await cluster.network.connect_from(FAKE)(one.uri, first)
    twin = FakePeer(broker_id=first.facts.broker_id, instance=first.facts.instance + 1)
    with pytest.raises(PeerRefused, match="same id"):
        await cluster.network.connect_from("test://twin")(one.uri, twin)
    assert first.lost == []


async def test_a_restarted_broker_with_its_id_has_its_routes_read_anew(cluster: Clusters) -> None:
    one = await cluster.start("one")
    first = FakePeer()
    connect = cluster.network.connect_from(FAKE)
    await connect(one.uri, first)
    first.send(first.snapshot(first.route("orders"), first.route("prices")))
    await asyncio.sleep(SOON)
    cluster.network.links[0].cut("the connection was reset")
    second = FakePeer(
        broker_id=first.facts.broker_id,
        instance=first.facts.instance + 5,
        timestamp=first.facts.timestamp + 5,
    )
    await connect(one.uri, second)
    await asyncio.sleep(SOON)
    # Its routes are hidden until it has told all that there are now.
    assert one.found("orders") == []
    second.send(second.snapshot(second.route("orders")))
    await asyncio.sleep(SOON)
    assert len(one.found("orders")) == 1
    assert one.found("prices") == []
    assert one.peer(second.facts.broker_id).instance == second.facts.instance


async def test_a_restarted_broker_with_its_id_and_a_clock_that_was_set_back(
    cluster: Clusters,
) -> None:
    one = await cluster.start("one")
    first = FakePeer(state=DRAINING)
    connect = cluster.network.connect_from(FAKE)
    await connect(one.uri, first)
    await asyncio.sleep(SOON)
    assert one.peer(first.facts.broker_id).draining
    cluster.network.links[0].cut("the connection was reset")
    second = FakePeer(
        broker_id=first.facts.broker_id,
        instance=first.facts.instance - 600_000,
        timestamp=first.facts.timestamp - 600_000,
    )
    await connect(one.uri, second)
    second.send(second.snapshot(second.route("orders")))
    await asyncio.sleep(SOON)
    row = one.peer(second.facts.broker_id)
    assert (row.state, row.draining, row.instance) == ("up", False, second.facts.instance)
    assert len(one.found("orders")) == 1


async def test_what_a_peer_broker_tells_of_others_is_only_about_others(cluster: Clusters) -> None:
    fake = FakePeer()
    one, honest = await beside(cluster, fake)
    assert fake.connection is not None
    lie = PeerInfo(one.id, 1 << 50, instance=1, name="a lie")
    await fake.connection.request(REMOTE_BROKER_INFO_ROUTE, lie.serialize())
    assert PeerInfo.of(one.cluster.info).name == "one"
    assert one.peer(honest).state == "up"
    again = PeerInfo.parse(await fake.connection.request(BROKER_INFO_ROUTE, fake.facts.serialize()))
    assert again.frame().serialize(Dialect.SPECIFICATION) == again.serialize()
    assert again.broker_id == one.id


class _Nothing:
    """A receiver that ignores everything."""

    def element(self, data: bytes) -> None:
        """Ignore an element."""

    def ended(self, text: str) -> None:
        """Ignore the end."""

    def broken(self) -> None:
        """Ignore a broken stream."""
