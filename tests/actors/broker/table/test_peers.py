"""Routes of peer brokers in the table: who gets a request, and what becomes of own routes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from uuid import UUID

import pytest

from onward.actors import Node, Timer
from onward.actors.broker import (
    Broker,
    BrokerOptions,
    ChoiceOptions,
    PeerRoutes,
    RemoteRoute,
    WaitingOptions,
    exchange_of,
)
from onward.actors.broker.table import _peer_index, _release
from onward.actors.broker.table._index import TagIndexWorker
from onward.actors.broker.table._remote import AnyRoute, own_route
from onward.protocol import TAGS, Address, NoRoute, NotDelivered
from onward.protocol.broker import (
    Entry,
    RouteAdd,
    RouteRemove,
    SnapshotRoute,
    TagList,
    WellKnownKey,
    format_id,
    owner_text,
    with_default_tags,
    with_owner,
)
from onward.protocol.eventlog import Outcome
from onward.protocol.rsocket import ErrorCode
from onward.protocol.security import Principal
from tests.support.compiled import interpreted
from tests.support.rsocket_answers import counts
from tests.support.rsocket_peer import (
    FNF,
    MULTICAST,
    RR,
    Peer,
    World,
    asked_for,
    errors,
    in_world,
    request,
)
from tests.support.workers import Echo, Recorder

ZONE = int(WellKnownKey.ZONE)
FUTURE: Final = 10**14
"""A timestamp that is newer than those of this broker."""

ASKED = asked_for("a")


def rid(number: int) -> bytes:
    return UUID(int=number).bytes


class Other:
    """A peer broker of the world's broker, with a recorder in place of its link."""

    def __init__(self, w: World, number: int = 1) -> None:
        self.w = w
        while w.new_id().int < 500:  # own destinations have other ids
            pass
        self.index = w.broker.index
        self.link = Recorder()
        self.routes = PeerRoutes(rid(1000 + number), f"other-{number}")
        self.index.peer_joined(self.routes)
        self.name = f"link-{number}"

    async def connect(self) -> Other:
        address = await self.w.node.start(lambda: self.link, address=self.name)
        self.routes.connected(address, "10.0.0.9:7000")
        return self

    def add(
        self, number: int, service: str = "a", tags: TagList = (), timestamp: int = FUTURE
    ) -> str:
        tags = with_default_tags(tags, service, rid(number))
        frame = RouteAdd(self.routes.broker_id, rid(number), timestamp, service, tags)
        return self.index.add_remote(self.routes, frame)

    def remove(self, number: int, timestamp: int = FUTURE + 1) -> bool:
        frame = RouteRemove(self.routes.broker_id, rid(number), timestamp)
        return self.index.remove_remote(self.routes, frame)

    async def got(self) -> list[tuple[int, bytes]]:
        """Return the ids of the routes that requests were sent to, with their query if plain."""
        await self.w.loop.idle()
        found: list[tuple[int, bytes]] = []
        for message in self.link.messages:
            exchange = exchange_of(message)
            route = None if exchange is None else exchange.route
            number = UUID(bytes=route.route_id).int if route is not None else 0
            query = b"" if exchange is not None else message.onward_route[1].value
            found.append((number, query))
            if exchange is not None:
                exchange.fail(NotDelivered("the destination", "it was only a test"))
        self.link.messages.clear()
        return found


async def other(w: World, number: int = 1) -> Other:
    return await Other(w, number).connect()


# --- who gets a request -------------------------------------------------------------------------


@in_world(BrokerOptions(management=False))
async def test_a_request_goes_to_the_broker_that_its_destination_is_connected_to(w: World) -> None:
    peer, requester = await other(w), await w.requester()
    assert peer.add(1) == ""
    requester.send(request(FNF, 1, ASKED))
    assert await peer.got() == [(1, b"")]
    (entry,) = w.broker.index.table
    assert isinstance(entry.target, RemoteRoute)
    assert (entry.target.requests, entry.target.shared.requests) == (1, 1)
    assert entry.target.peer is peer.routes


@in_world(BrokerOptions(management=False))
async def test_own_destinations_are_preferred_while_one_keeps_up(w: World) -> None:
    peer, requester = await other(w), await w.requester()
    peer.add(1)
    own = [await w.destination() for _ in range(2)]
    for number in range(4):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert await counts(own) == [2, 2]
    first, second = map(own_route, w.broker.index.own_entries())
    first.pass_over()
    for number in range(4, 8):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert await counts(own) == [0, 4]
    second.pass_over()
    requester.send(request(FNF, 17, ASKED))
    assert await peer.got() == [(1, b"")]
    peer.routes.draining = True  # all are busy: own ones again
    requester.send(request(FNF, 19, ASKED))
    assert await peer.got() == []


@in_world()
async def test_all_destinations_are_alike_if_none_is_preferred(w: World) -> None:
    peer, requester, own = await other(w), await w.requester(), await w.destination()
    peer.add(1)
    w.broker.index.prefer_own(prefer=False)
    for number in range(4):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert await counts([own]) == [2]
    assert len(await peer.got()) == 2
    w.broker.index.prefer_own(prefer=True)
    requester.send(request(FNF, 9, ASKED))
    assert await counts([own]) == [1]


@in_world(BrokerOptions(choice=ChoiceOptions(method="random")))
async def test_other_methods_prefer_own_destinations_as_well(w: World) -> None:
    peer, requester, own = await other(w), await w.requester(), await w.destination()
    for number in range(1, 9):
        peer.add(number)
    for number in range(8):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert await counts([own]) == [8]


@in_world()
async def test_a_new_sticky_key_prefers_own_destinations_and_stays(w: World) -> None:
    peer = await other(w)
    for number in (1, 2):
        peer.add(number)
    recorder = Recorder()
    await w.node.start(lambda: recorder, address="worker")
    query = "32#@sticky=user service=a user=7"
    w.node.send(query, b"x")
    ((_, first),) = await peer.got()
    registrations = [w.broker.register("worker", service="a") for _ in range(2)]
    w.node.send(query, b"x")
    assert await peer.got() == [(0, first)]
    w.node.send("32#@sticky=user service=a user=8", b"own")
    await w.loop.idle()
    peer.remove(1)
    peer.remove(2)
    w.node.send(query, b"own")
    await w.loop.idle()
    peer.add(1)
    w.node.send(query, b"own")
    await w.loop.idle()
    assert recorder.payloads == [b"own"] * 3
    for each in registrations:
        each.pass_over()
    w.node.send("32#@sticky=user service=a user=9", b"x")
    assert len(await peer.got()) == 1


def shards(broker: Broker) -> list[int]:
    """Return the numbers of the routes to which the shards of 64 keys belong."""
    found: list[int] = []
    for key in range(64):
        query = f"@shard=user service=a user={key}".encode()
        route = broker.index.preview(broker.index.asked(Address(TAGS, query)))
        assert route is not None
        found.append(UUID(bytes=route.route_id).int)
    return found


@in_world()
async def test_a_shard_is_the_same_at_all_brokers(w: World) -> None:
    here = await other(w)
    for number in range(1, 5):
        here.add(number)
    await w.node.start(Echo, address="worker")
    for number in range(5, 9):
        w.broker.register("worker", service="a", route_id=UUID(int=number))
    async with Node("there") as node:
        broker = await Broker.attach(node)
        await node.start(Echo, address="worker")
        peer = PeerRoutes(rid(2000))
        broker.index.peer_joined(peer)
        for number in (8, 2, 6, 4, 1, 7, 3, 5):
            if number < 5:
                broker.register("worker", service="a", route_id=UUID(int=number))
            else:
                frame = RouteAdd(peer.broker_id, rid(number), FUTURE, "a")
                assert broker.index.add_remote(peer, frame) == ""
        there = shards(broker)
        assert there == shards(w.broker)
        assert set(there) == set(range(1, 9))
        # One that leaves moves its own keys only, at both.
        assert here.remove(3)
        gone = next(e for e in broker.index.own_entries() if e.route_id == rid(3))
        assert broker.index.leave(gone)
        after = shards(broker)
        assert after == shards(w.broker)
        assert [new for old, new in zip(there, after, strict=True) if old != 3] == [
            old for old in there if old != 3
        ]


@in_world(BrokerOptions(management=False))
async def test_a_request_of_a_peer_broker_goes_to_own_destinations_only(w: World) -> None:
    peer = await other(w)
    peer.add(1)
    index = w.broker.index
    ask = index.asked(Address(TAGS, b"service=a"))
    assert index.own_candidates(ask) == ()
    assert index.choose_own(ask, None) is None
    await w.node.start(Echo, address="worker")
    mine = [w.broker.register("worker", service="a") for _ in range(2)]
    addresses = {each.address for each in mine}
    assert {index.choose_own(ask, None) for _ in range(4)} == addresses
    mine[0].pass_over()
    assert {index.choose_own(ask, None) for _ in range(4)} == {mine[1].address}
    mine[1].pass_over()
    assert index.choose_own(ask, None) in addresses
    every = index.asked(Address(TAGS, b"@multicast service=a"))
    assert index.choose_own(every, None) is None
    assert len(index.own_candidates(every)) == 2
    assert {entry.target.requests for entry in index.table.of(rid(1001))} == {0}


@in_world(BrokerOptions(management=False))
async def test_what_others_have_refused_goes_to_one_that_has_not(w: World) -> None:
    peer = await other(w)
    for number in (1, 2):
        peer.add(number)
    await w.node.start(Echo, address="worker")
    mine = w.broker.register("worker", service="a", route_id=UUID(int=3))
    index = w.broker.index
    ask = index.asked(Address(TAGS, b"service=a"))
    one, two, three = [index.table.get(rid(number)) for number in (1, 2, 3)]
    assert one is not None and two is not None and three is not None  # noqa: PT018
    assert index.others(ask, (one.target, two.target)) == [three]
    assert index.choose_among([three], None) == mine.address
    assert index.others(ask, (one.target, three.target)) == [two]
    mine.pass_over()
    found = index.others(ask, (one.target,))
    assert set(found) == {two, three}
    assert {index.choose_among(found, None) for _ in range(9)} == {peer.routes.to}
    assert index.others(ask, (one.target, two.target, three.target)) == []
    # One that has registered anew is another route.
    peer.add(1, timestamp=FUTURE + 1)
    assert [each.route_id for each in index.others(ask, (one.target, two.target))] == [
        rid(3),
        rid(1),
    ]


@in_world(BrokerOptions(management=False))
async def test_a_multicast_has_one_copy_for_each_peer_broker(w: World) -> None:
    peers = [await other(w, number) for number in (1, 2, 3)]
    index = w.broker.index
    ask = index.asked(Address(TAGS, b"@multicast service=a"))
    assert index.divide(ask) == ((), ())
    for number in (1, 2):
        peers[0].add(number)
    peers[1].add(3)
    peers[2].add(4, "b")
    own = await w.destination()
    (entry,) = index.own_entries()
    assert index.divide(ask) == ((entry,), ((peers[0].routes, 2), (peers[1].routes, 1)))
    w.node.send("32#@multicast service=a", b"x")
    for peer, sent in zip(peers, (1, 1, 0), strict=True):
        assert await peer.got() == [(0, b"@multicast service=a")] * sent
        assert peer.routes.every.requests == sent
    index.suspend_peer(peers[0].routes)
    assert index.divide(ask) == ((entry,), ((peers[1].routes, 1),))
    del own


@in_world(BrokerOptions(express_path=False, management=False))
async def test_a_divided_multicast_has_one_leg_for_each_peer_broker(w: World) -> None:
    peer, own, requester = await other(w), await w.destination(), await w.requester()
    for number in (1, 2):
        peer.add(number)
    requester.send(request(FNF, 1, asked_for("a", MULTICAST)))
    assert await counts([own]) == [1]
    assert await peer.got() == [(UUID(bytes=peer.routes.broker_id).int, b"")]
    peer.remove(2)
    own.link.session.leave()
    requester.send(request(FNF, 3, asked_for("a", MULTICAST)))
    assert await peer.got() == [(1, b"")]


@in_world()
async def test_a_plain_message_to_a_single_destination_names_it(w: World) -> None:
    peer = await other(w)
    peer.add(1)
    w.node.send("32#service=a", b"x")
    assert await peer.got() == [(0, f"route={UUID(int=1)}".encode())]
    peer.add(2)
    w.node.send("32#service=a", b"x")
    ((_, query),) = await peer.got()
    assert query in {f"route={UUID(int=number)}".encode() for number in (1, 2)}


# --- links --------------------------------------------------------------------------------------


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=0)))
async def test_without_a_link_a_request_is_certainly_not_handed_over(w: World) -> None:
    peer, requester = await other(w), await w.requester()
    peer.add(1)
    peer.routes.disconnected()
    requester.send(request(RR, 1, ASKED))
    ((_, code, _),) = errors(await requester.received())
    assert code == ErrorCode.REJECTED
    with pytest.raises(NotDelivered):
        await w.node.request("32#service=a", b"", timeout=5)


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=10.0, max_wait=60.0)))
async def test_requests_wait_for_a_broker_that_is_away(w: World) -> None:
    peer = await other(w)
    peer.add(1)
    w.broker.index.suspend_peer(peer.routes)
    for _ in range(_release.SLICE + 1):
        w.node.send("32#service=a", b"x")
    w.node.send("32#service=a zone=9", b"never")
    assert await peer.got() == []
    await asyncio.sleep(8)
    assert w.broker.statistics().waiting == _release.SLICE + 2
    w.broker.index.reveal_peer(peer.routes)
    await asyncio.sleep(1)
    assert len(await peer.got()) == _release.SLICE + 1
    await asyncio.sleep(2)
    assert w.broker.statistics().waiting == 0


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=2.0, max_wait=60.0)))
async def test_they_wait_no_longer_than_for_any_missing_destination(w: World) -> None:
    peer = await other(w)
    peer.add(1)
    w.broker.index.suspend_peer(peer.routes)
    w.broker.expect([SnapshotRoute(UUID(int=7).bytes, "b")])
    for service, patience in (("a", 2.0), ("c", 2.0), ("b", 60.0)):
        began = w.loop.time()
        with pytest.raises(NoRoute):
            await w.node.request(f"32#service={service}", b"", timeout=99)
        assert w.loop.time() - began == pytest.approx(patience, abs=0.01)


@in_world(BrokerOptions(waiting=WaitingOptions(max_wait=60.0)))
async def test_many_queries_that_wait_are_looked_up_in_slices(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_release, "SLICE", 2)
    peer = await other(w)
    for number in range(1, 6):
        peer.add(number, tags=((ZONE, str(number)),))
    w.broker.index.suspend_peer(peer.routes)
    for number in range(1, 6):
        w.node.send(f"32#service=a zone={number}", b"x")
    await w.loop.idle()
    for _ in range(2):
        w.broker.index.reveal_peer(peer.routes)
    await asyncio.sleep(1)
    assert len(await peer.got()) == 5
    w.broker.index.reveal_peer(peer.routes)  # nothing waits


@in_world()
async def test_a_route_that_comes_releases_what_waits_for_it(w: World) -> None:
    peer, requester = await other(w), await w.requester()
    requester.send(request(FNF, 1, ASKED))
    assert await peer.got() == []
    peer.add(1)
    assert await peer.got() == [(1, b"")]


@in_world()
async def test_a_busy_link_is_passed_over(w: World) -> None:
    first, second, requester = await other(w, 1), await other(w, 2), await w.requester()
    first.add(1)
    second.add(2)
    busy = True
    first.routes.connected(Address(0, b"link-1"), busy=lambda: busy)
    for number in range(4):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert (len(await first.got()), len(await second.got())) == (0, 4)
    busy = False
    requester.send(request(FNF, 9, ASKED), request(FNF, 11, ASKED))
    assert (len(await first.got()), len(await second.got())) == (1, 1)


@in_world()
async def test_a_peer_broker_leaves_the_table(w: World) -> None:
    peer = await other(w)
    peer.add(1)
    index = w.broker.index
    assert index.drop_peer(peer.routes, 10) == 1
    index.peer_left(peer.routes)
    await w.loop.idle()
    assert index.peers.known == {}
    assert not w.node.has(peer.routes.to)
    assert peer.routes.cell is None
    index.peer_left(peer.routes)
    again = Other(w)
    await w.loop.idle()
    index.peer_left(peer.routes)
    assert index.peers.known == {again.routes.broker_id: again.routes}


# --- updates ------------------------------------------------------------------------------------


@in_world(BrokerOptions(management=False, max_peer_routes=3))
async def test_the_routes_of_peer_brokers_have_a_limit_of_their_own(w: World) -> None:
    first, second = await other(w, 1), await other(w, 2)
    for number in (1, 2):
        assert first.add(number) == ""
    assert second.add(2, timestamp=FUTURE - 1) == ""  # hidden, and counted
    reason = "the table has as many routes of peer brokers as it may"
    assert second.add(3) == reason
    assert first.add(1, timestamp=FUTURE + 1) == ""  # it has its place
    assert (first.routes.count, second.routes.count) == (2, 1)
    limits = {each.name: each for each in w.broker.limits()}
    limit = limits["max_peer_routes"]
    assert (limit.used, limit.limit, limit.reached) == (3, 3, 1)
    assert limits["max_routes"].used == 0
    assert w.broker.statistics().peer_routes == 3
    assert w.broker.statistics().routes == 0
    assert first.remove(1, FUTURE + 2)
    assert not first.remove(1, FUTURE + 2)
    assert second.add(3) == ""


@in_world(BrokerOptions(management=False, max_routes=1))
async def test_routes_of_peer_brokers_do_not_count_as_own(w: World) -> None:
    peer = await other(w)
    for number in (1, 2):
        peer.add(number)
    await w.node.start(Echo, address="worker")
    w.broker.register("worker", service="a", route_id=UUID(int=1))
    with pytest.raises(NotDelivered):
        w.broker.register("worker", service="a", route_id=UUID(int=2))
    assert w.broker.index.own_routes == 1


@in_world(BrokerOptions(management=False))
async def test_updates_that_are_refused(w: World) -> None:
    peer = await other(w)
    index = w.broker.index
    frame = RouteAdd(rid(999), rid(1), FUTURE, "a")
    assert index.add_remote(peer.routes, frame) == "it is connected to another broker"
    assert peer.add(1, "onward.management") == "its service name is reserved"
    await w.node.start(Echo, address="worker")
    w.broker.register("worker", service="a", route_id=UUID(int=1))
    assert peer.add(1) == "its id is that of a worker of this broker"
    assert peer.routes.count == 0
    assert index.own_routes == 1
    assert peer.add(2) == peer.add(2) == ""
    assert peer.routes.count == 1


@in_world(BrokerOptions(management=False))
async def test_a_newer_route_of_a_peer_broker_closes_the_own_connection(w: World) -> None:
    peer, own = await other(w), await w.destination()
    (entry,) = w.broker.index.own_entries()
    number = UUID(bytes=entry.route_id).int
    told: list[RouteAdd | RouteRemove] = []
    w.broker.index.own_changes(told.append)
    assert peer.add(number, timestamp=entry.timestamp - 1) == ""
    assert not own.closed  # the other is older
    with w.broker.events.subscribe() as events:
        assert peer.add(number) == ""
        event = await anext(events)
    assert (event.kind, event.reason) == ("replaced", "replaced by a newer connection")
    await own.received()
    assert own.closed
    assert w.broker.index.own_routes == 0
    (there,) = w.broker.index.table
    assert there.target.to == peer.routes.to
    added, removed = told
    assert isinstance(added, RouteAdd)
    assert isinstance(removed, RouteRemove)
    assert removed.route_id == entry.route_id
    assert removed.timestamp > FUTURE
    # The client that comes back has a newer one again.
    again = await w.destination(route_id=UUID(int=number))
    assert w.broker.index.own_routes == 1
    assert not again.closed
    assert w.broker.index.table.hidden_of(peer.routes.broker_id) == 1
    again.die()
    await w.loop.idle()
    assert w.broker.index.table.hidden_of(peer.routes.broker_id) == 0


@in_world(BrokerOptions(management=False))
async def test_a_round_sweeps_what_is_not_told(w: World) -> None:
    peer = await other(w)
    for number in range(1, 6):
        peer.add(number)
    index = w.broker.index
    index.begin_round(peer.routes)
    peer.add(1)
    peer.add(2, timestamp=FUTURE - 5, tags=((ZONE, "z"),))
    assert [index.sweep_peer(peer.routes, 2) for _ in range(2)] == [2, 1]
    assert peer.routes.count == index.peers.count == 2
    assert sum(kind.routes for kind in peer.routes.kinds) == 2


@in_world(BrokerOptions(management=False))
async def test_an_expected_destination_that_joins_a_peer_broker_is_not_expected(w: World) -> None:
    peer = await other(w)
    w.broker.expect([SnapshotRoute(rid(1), "a"), SnapshotRoute(rid(2), "a")])
    peer.add(1)
    figures = w.broker.statistics()
    assert (figures.expected, figures.expected_joined) == (1, 1)


# --- own routes ---------------------------------------------------------------------------------


@in_world()
async def test_changes_of_own_routes_are_told_in_order(w: World) -> None:
    await w.node.start(Echo, address="worker")
    first = w.broker.register("worker", service="a", tags={"zone": "z"}, route_id=UUID(int=1))
    told: list[RouteAdd | RouteRemove] = []
    unfollow = w.broker.index.own_changes(told.append)
    own = w.broker.broker_id.bytes
    (added,) = told  # what is there, but the management service
    assert isinstance(added, RouteAdd)
    assert (added.broker_id, added.route_id, added.service_name) == (own, rid(1), "a")
    assert set(added.tags) == {(ZONE, "z"), (1, "a"), (2, format_id(rid(1)))}
    told.clear()
    w.broker.register("worker", service="b", route_id=UUID(int=1))
    first.withdraw()  # it was replaced
    second = w.broker.register("worker", service="a", route_id=UUID(int=2))
    second.withdraw()
    peer = await other(w)
    peer.add(3)
    assert [(type(each), each.route_id) for each in told] == [
        (RouteAdd, rid(1)),
        (RouteAdd, rid(2)),
        (RouteRemove, rid(2)),
    ]
    times = [each.timestamp for each in told]
    assert times[2] > times[1]
    unfollow()
    unfollow()
    w.broker.register("worker", service="a")
    assert len(told) == 3


@in_world(BrokerOptions(management=False))
async def test_suspended_sessions_are_followed_as_routes_with_rules(w: World) -> None:
    own, index = await w.destination(), w.broker.index
    (entry,) = index.own_entries()
    told: list[RouteAdd | RouteRemove] = []
    end = index.own_changes(told.append)
    index.suspend(entry)
    # Without rules nothing is kept for it.
    assert [type(each) for each in told] == [RouteAdd, RouteRemove]
    assert index.own_place(entry.route_id) is None
    end()
    index.ruled = True
    place = index.own_place(entry.route_id)
    told.clear()
    end = index.own_changes(told.append)
    (first,) = told
    assert isinstance(first, RouteAdd)
    assert (first.service_name, first.timestamp) == ("onward.suspended", entry.timestamp)
    assert index.places_of(entry.route_id) == [place]
    # A peer broker tells of one of another principal, which has had the id later.
    peer = await other(w)
    frame = RouteAdd(peer.routes.broker_id, entry.route_id, FUTURE, "onward.suspended")
    assert index.add_remote(peer.routes, with_owner(frame, "x")) == ""
    assert index.suspended
    assert index.leave(entry)
    assert isinstance(told[-1], RouteRemove)
    assert [each.broker_id for each in index.places_of(entry.route_id)] == [peer.routes.broker_id]
    assert index.drop_peer(peer.routes, 10) == 1
    assert index.places_of(entry.route_id) == []
    end()
    del own


@in_world(BrokerOptions(management=False))
async def test_an_earlier_time_of_an_owner_decides_anew(w: World) -> None:
    """A peer broker tells it when another zone has told it that, with the same registration."""
    index, peer, third = w.broker.index, await other(w), await other(w, 2)
    index.ruled = True
    clients = [await w.destination() for _ in range(2)]
    shown, suspended = index.own_entries()
    for entry in (shown, suspended):
        route = own_route(entry)
        route.destination = replace(route.destination, principal=Principal("bob", "token"))
    index.suspend(suspended)
    told: list[RouteAdd | RouteRemove] = []
    index.own_changes(told.append)
    later = shown.timestamp + 10_000

    def tell(peer: Other, route_id: bytes, owner: str, since: int = 0) -> None:
        frame = RouteAdd(peer.routes.broker_id, route_id, later, "a")
        assert index.add_remote(peer.routes, with_owner(frame, owner, since)) == ""

    for entry in (shown, suspended):
        tell(peer, entry.route_id, "ann")
    tell(third, rid(3), "bob")
    tell(peer, rid(3), "ann", later - 1)
    tell(third, rid(3), "bob", later - 2)
    homes = [index.table.get(each) for each in (shown.route_id, rid(3))]
    assert [each and each.kind.broker_id for each in homes] == [
        w.broker.broker_id.bytes,
        third.routes.broker_id,
    ]
    for entry in (shown, suspended):
        tell(peer, entry.route_id, "ann", entry.timestamp - 1000)
    tell(peer, rid(3), "ann", later - 3)
    assert (index.own_entries(), index.suspended) == ((), {})
    for route_id in (shown.route_id, suspended.route_id, rid(3)):
        (entry, *_) = index.table.entries_of(route_id)
        assert entry.kind.broker_id == peer.routes.broker_id
    assert {type(each) for each in told[2:]} == {RouteRemove}
    for each in clients:
        await each.received()
        assert each.closed


@in_world(BrokerOptions(management=False))
async def test_the_end_of_a_hidden_route_may_end_an_own_one(w: World) -> None:
    """The hidden route was of the owner that has had the id first, as the own one is.

    What is shown instead gets the messages that wait for it.
    """
    index, peer, third = w.broker.index, await other(w), await other(w, 2)
    index.ruled = True
    client = await w.destination()
    (own,) = index.own_entries()
    route, ann = own_route(own), Principal("ann", "token")
    route.destination = replace(route.destination, principal=ann)
    owner, since = owner_text("ann", "token", ""), own.timestamp - 1000
    route.owned_since = since

    def tell(peer: Other, owner: str, service: str) -> None:
        frame = RouteAdd(peer.routes.broker_id, own.route_id, own.timestamp - 500, service)
        assert index.add_remote(peer.routes, with_owner(frame, owner, since)) == ""

    tell(peer, owner, "a")
    tell(third, "bob", "b")
    assert index.own_entries() == (own,)
    w.node.send("32#service=b", b"x")
    assert peer.remove(UUID(bytes=own.route_id).int)
    assert index.own_entries() == ()
    (shown,) = index.table.entries_of(own.route_id)
    assert shown.broker_id == third.routes.broker_id
    assert await third.got() == [(0, f"route={format_id(own.route_id)}".encode())]
    await client.received()
    assert client.closed


@pytest.mark.parametrize("anew", [False, True])
def test_another_route_of_an_owner_with_an_earlier_time_gets_what_waits(anew: bool) -> None:
    """What an owner's broker tells of one registration shows a newer one of the same owner.

    Args:
        anew: Whether it is told with a new registration.
    """

    @in_world(BrokerOptions(management=False))
    async def run(w: World) -> None:
        index, peer, third, fourth = w.broker.index, *[await other(w, n) for n in (1, 2, 3)]

        def tell(peer: Other, owner: str, service: str, timestamp: int, since: int = 0) -> None:
            frame = RouteAdd(peer.routes.broker_id, rid(3), timestamp, service)
            assert index.add_remote(peer.routes, with_owner(frame, owner, since)) == ""

        tell(fourth, "bob", "c", 1000)
        tell(peer, "ann", "a", 1001)
        tell(third, "ann", "b", 2000)
        w.node.send("32#service=b", b"x")
        assert await third.got() == []
        tell(peer, "ann", "a", 1001 + anew, 999)
        (shown, *_) = index.table.entries_of(rid(3))
        assert shown.broker_id == third.routes.broker_id
        assert await third.got() == [(0, f"route={format_id(rid(3))}".encode())]

    run()


@in_world(BrokerOptions(management=False))
async def test_what_an_own_route_has_hidden_gets_what_waits_for_it(w: World) -> None:
    peer = await other(w)
    await w.node.start(Echo, address="worker")
    mine = w.broker.register("worker", service="a", route_id=UUID(int=3))
    (own,) = w.broker.index.own_entries()
    own_route(own).destination = replace(own_route(own).destination, link=True)
    peer.add(3, "b", timestamp=own.timestamp - 1)
    w.node.send("32#service=b", b"x")
    assert await peer.got() == []
    mine.withdraw()
    assert await peer.got() == [(0, f"route={format_id(rid(3))}".encode())]


def told_of(index: TagIndexWorker) -> list[RouteAdd | RouteRemove]:
    """Return a list of what is told of own destinations from now on."""
    told: list[RouteAdd | RouteRemove] = []
    index.own_changes(told.append)
    told.clear()
    return told


async def own_ones(w: World, count: int) -> tuple[list[Peer], list[Entry[AnyRoute]]]:
    """Connect destinations of the principals `p0`, `p1` and so on."""
    clients = [await w.destination() for _ in range(count)]
    own = w.broker.index.own_entries()
    entries = [entry for entry in own if entry.target.destination.link]
    for number, entry in enumerate(entries):
        route, principal = own_route(entry), Principal(f"p{number}", "token")
        route.destination = replace(route.destination, principal=principal)
    return clients, entries


@interpreted
@in_world()
async def test_own_destinations_are_told_again_in_slices_as_rules_come_and_go(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_peer_index, "RULED", 2)
    index, (clients, entries) = w.broker.index, await own_ones(w, 5)
    assert index.suspend(entries[3])
    assert index.suspend(entries[4])
    told = told_of(index)
    turns: list[int] = []
    after = index.after

    def later(seconds: float, action: Callable[[], object]) -> Timer:
        turns.append(len(told))
        return after(seconds, action)

    monkeypatch.setattr(index, "after", later)
    index.rule(ruled=True)
    index.rule(ruled=True)
    await w.loop.idle()
    # The management service is a destination, of which no other broker is told.
    assert turns == [0, 1, 3]
    assert [(type(each), each.route_id) for each in told] == [
        (RouteAdd, entry.route_id) for entry in entries
    ]
    services = [each.service_name for each in told if isinstance(each, RouteAdd)]
    assert services == ["a"] * 3 + ["onward.suspended"] * 2
    assert [each.timestamp for each in told] == [entry.timestamp for entry in entries]
    # One that has left meanwhile is not told of; those that were kept are, once, that they are not.
    told.clear()
    index.rule(ruled=False)
    assert index.leave(entries[0])
    assert index.leave(entries[4])
    await w.loop.idle()
    assert [(type(each), each.route_id) for each in told] == [
        (RouteRemove, entries[0].route_id),
        (RouteRemove, entries[4].route_id),
        (RouteAdd, entries[1].route_id),
        (RouteAdd, entries[2].route_id),
        (RouteRemove, entries[3].route_id),
    ]
    del clients


@in_world(BrokerOptions(management=False))
async def test_own_destinations_are_compared_anew_as_rules_come(w: World) -> None:
    """Without rules the newest one of each route id has stayed."""
    index, peer = w.broker.index, await other(w)
    clients, entries = await own_ones(w, 3)
    assert index.suspend(entries[2])
    for entry, since in zip(entries, (1, 0, 1), strict=True):
        frame = RouteAdd(peer.routes.broker_id, entry.route_id, entry.timestamp - 5, "a")
        owner = "another" if since else owner_text("p1", "token", "")
        assert index.add_remote(peer.routes, with_owner(frame, owner)) == ""
    assert index.own_entries() == tuple(entries[:2])
    events = w.broker.events.subscribe()
    index.rule(ruled=True)
    await w.loop.idle()
    assert index.own_entries() == (entries[1],)
    assert not index.suspended
    assert index.table.get(entries[0].route_id) is not entries[0]
    left = await anext(events)
    assert (left.kind, left.reason) == ("left", "its route id belongs to another principal")
    for client, closed in zip(clients, (True, False, True), strict=True):
        await client.received()
        assert client.closed is closed


@in_world(BrokerOptions(management=False))
async def test_what_rules_show_gets_what_waits_for_it(w: World) -> None:
    index, peer = w.broker.index, await other(w)
    (client,), (entry,) = await own_ones(w, 1)
    frame = RouteAdd(peer.routes.broker_id, entry.route_id, entry.timestamp - 5, "b")
    assert index.add_remote(peer.routes, with_owner(frame, "another")) == ""
    w.node.send("32#service=b", b"x")
    assert await peer.got() == []
    index.rule(ruled=True)
    assert await peer.got() == [(0, f"route={format_id(entry.route_id)}".encode())]
    await client.received()
    assert client.closed


@in_world(BrokerOptions(management=False))
async def test_a_peer_broker_tells_owners_or_none_of_routes_that_are_known(w: World) -> None:
    index, peer, third = w.broker.index, await other(w), await other(w, 2)

    def tell(peer: Other, timestamp: int, owner: str | None) -> None:
        frame = RouteAdd(peer.routes.broker_id, rid(1), timestamp, "a")
        frame = frame if owner is None else with_owner(frame, owner, timestamp - 1)
        assert index.add_remote(peer.routes, frame) == ""

    def places() -> list[tuple[bytes, str | None]]:
        return [(each.broker_id, each.owner) for each in index.places_of(rid(1))]

    one, two = peer.routes.broker_id, third.routes.broker_id
    tell(peer, 1000, None)
    tell(third, 2000, None)
    assert places() == [(two, None), (one, None)]
    tell(third, 2000, "bob")
    tell(peer, 1000, "ann")
    assert places() == [(one, "ann"), (two, "bob")]
    tell(peer, 1000, None)
    tell(third, 2000, None)
    assert places() == [(two, None), (one, None)]
    tell(peer, 1000, "ann")
    assert (peer.routes.count, third.routes.count) == (1, 1)
    assert sum(kind.routes for kind in peer.routes.kinds) == 1
    assert index.table.statistics().hidden == 1
    tell(peer, 999, "eve")  # an older registration
    assert (one, "ann") in places()


@in_world()
async def test_a_snapshot_has_own_routes_only(w: World) -> None:
    peer = await other(w)
    peer.add(1)
    own = await w.destination()
    assert {each.broker_id for each in w.broker.saved()} == {w.broker.broker_id.bytes}
    del own


@in_world(BrokerOptions(management=False))
async def test_a_suspended_session_that_moves_to_a_peer_broker_is_given_up(w: World) -> None:
    peer, own = await other(w), await w.destination()
    index = w.broker.index
    (entry,) = index.own_entries()
    number = UUID(bytes=entry.route_id).int
    assert index.suspend(entry)
    assert peer.add(number, timestamp=entry.timestamp - 1) == ""
    assert index.suspended
    assert peer.add(number) == ""
    assert not index.suspended
    await own.received()
    assert own.closed
    assert index.resume(entry) is None


# --- what is shown ------------------------------------------------------------------------------


@in_world(BrokerOptions(management=False))
async def test_rows_say_at_which_broker_a_destination_is(w: World) -> None:
    peer, own = await other(w), await w.destination()
    peer.add(1)
    here, there = w.broker.routes()
    assert (here.broker, there.broker) == ("", "other-1")
    assert (there.route_id, there.service, there.peer) == (UUID(int=1), "a", "10.0.0.9:7000")
    assert ("service", "a") in there.tags
    assert not there.busy
    found = w.broker.resolve("service=a")
    assert [row.broker for row in found.matching] == ["", "other-1"]
    assert (found.next, found.matches, found.routes) == (here.route_id, 2, 2)
    assert w.broker.resolve("@sticky=user service=a user=1").first_use
    peer.routes.disconnected()
    peer.routes.name = ""
    w.broker.index.suspend_peer(peer.routes)
    (_, there) = w.broker.routes()
    assert (there.broker, there.peer, there.expected) == (str(UUID(int=1001)), "-", True)
    del own


@in_world(BrokerOptions(management=False))
async def test_services_tell_own_destinations_from_others(w: World) -> None:
    peer, requester, own = await other(w), await w.requester(), await w.destination()
    for number in (1, 2):
        peer.add(number)
    peer.add(3, "b", ((ZONE, "z"),))
    requester.send(request(RR, 1, asked_for({1: "a", 2: format_id(rid(1))})))
    await w.loop.idle()
    index = w.broker.index
    found = {each.service: each for each in index.service_statistics() if each is not None}
    assert set(found) == {"a", "b"}
    assert (found["a"].destinations, found["a"].elsewhere) == (1, 2)
    assert (found["a"].requests, found["a"].in_progress) == (1, 1)
    assert (found["a"].forwarded, found["b"].forwarded) == (1, 0)
    assert (found["b"].destinations, found["b"].elsewhere) == (0, 1)
    await peer.got()
    await w.loop.idle()
    (both,) = [each for each in index.service_statistics() if each and each.service == "a"]
    assert both.ended == both.forwarded_ended
    assert both.ended is not None
    assert {each: count for each, count in both.ended.items() if count} == {Outcome.REJECTED: 1}
    seen = [
        each
        for each in index.service_statistics(lambda tags: (ZONE, "z") in tags)
        if each is not None
    ]
    assert [(each.service, each.elsewhere, each.destinations) for each in seen] == [("b", 1, 0)]
    assert index.drop_peer(peer.routes, 10) == 3
    found = {each.service: each for each in index.service_statistics() if each is not None}
    assert (found["a"].requests, found["a"].elsewhere) == (1, 0)
    assert found["a"].forwarded == 1
    del own


@in_world(BrokerOptions(management=False))
async def test_no_event_is_made_of_a_route_of_a_peer_broker(w: World) -> None:
    peer = await other(w)
    with w.broker.events.subscribe() as events:
        peer.add(1)
        peer.remove(1)
        await w.node.start(Echo, address="worker")
        w.broker.register("worker", service="own")
        event = await anext(events)
    assert (event.kind, event.service) == ("joined", "own")


@in_world()
async def test_a_route_that_has_moved_from_a_java_broker_does_not_come_back(w: World) -> None:
    java, other = Other(w, 1), Other(w, 2)
    java.routes.java = True

    def add(peer: Other, timestamp: int) -> str:
        route = RouteAdd(peer.routes.broker_id, rid(7), timestamp, "a")
        return w.broker.index.add_remote(peer.routes, route)

    assert not add(java, 1000)
    assert not add(other, 2000)
    gone = RouteRemove(other.routes.broker_id, rid(7), 3000)
    assert w.broker.index.remove_remote(other.routes, gone)
    # It never says that the destination has gone, and what it has said may come later.
    assert (java.routes.count, w.services()) == (0, [])
    assert add(java, 1000) == "a later change of the route is known"
    assert not add(java, 4000)
    assert w.services() == ["a"]
