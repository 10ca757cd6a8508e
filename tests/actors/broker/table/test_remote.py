"""Routes of peer brokers: their counters, and what they share."""

from __future__ import annotations

import pytest

from onward.actors.broker import PeerRoutes, RemoteRoute
from onward.actors.broker._exchange import FAILED, Exchange
from onward.actors.broker._tally import SAMPLED, SLOW, ServiceTally
from onward.actors.broker.table._remote import RemoteKind, own_route
from onward.protocol import Address
from onward.protocol.broker import RouteKind

PEER = bytes(15) + b"\x09"


def kind_of(clock: list[float], decay: float = 10.0) -> RemoteKind:
    kind = RouteKind(PEER, "orders", ((1, "orders"), (-1, PEER.hex())))
    peer = PeerRoutes(PEER, "nine")
    peer.clock, peer.decay = lambda: clock[0], decay
    shared = kind.shared = RemoteKind(peer, kind, ServiceTally("orders"), 2.0)
    return shared


def route_of(kind: RemoteKind, number: int = 0) -> RemoteRoute:
    return RemoteRoute(bytes([number]) * 16, kind.kind, 1)


def plain() -> Exchange:
    """Return a request that only ends."""
    exchange = Exchange()
    exchange.began, exchange.size = 1.0, 0
    exchange.ended, exchange.route = False, None
    exchange.log = exchange.withdraw = exchange.handed = None
    return exchange


def test_the_requests_of_routes_count_for_their_kind() -> None:
    kind = kind_of([0.0])
    first, second = (route_of(kind, number) for number in (1, 2))
    assert first.choose(None) == kind.peer.to
    answered, failed, moved, open_one = plain(), plain(), plain(), plain()
    for exchange in (answered, failed, moved):
        assert first.choose(exchange) == kind.peer.to
        assert exchange.route is first
    assert second.choose(open_one) == kind.peer.to
    assert (first.requests, second.requests, kind.requests) == (4, 1, 5)
    assert (first.outstanding, second.outstanding, kind.outstanding) == (3, 1, 4)
    answered.end(1.5)
    failed.end(0.0, FAILED)
    first.released()
    assert (first.outstanding, second.outstanding, kind.outstanding) == (0, 1, 1)
    assert (kind.tally.answered, kind.tally.counts[FAILED]) == (1, 1)


def test_requests_to_routes_that_have_left_are_outstanding_until_they_end() -> None:
    kind = kind_of([0.0])
    route = route_of(kind)
    answered, failed = plain(), plain()
    route.choose(answered)
    route.choose(failed)
    kind.left += route.requests
    assert (kind.requests, kind.outstanding) == (0, 2)
    # The routes that come then have another object of their kind.
    after = kind.kind.shared = RemoteKind(kind.peer, kind.kind, kind.service)
    after.follow(kind)
    assert (after.requests, after.outstanding) == (0, 2)
    answered.end(1.5)
    failed.end(0.0, FAILED)
    assert (after.requests, after.outstanding, after.latency) == (0, 0, 0.5)


def test_answers_are_measured_for_the_kind() -> None:
    clock = [100.0]
    kind = kind_of(clock)
    route = route_of(kind)
    assert route.target is route
    assert (route.latency, route.weight) == (0.0, 2.0)
    route.ended(0.5)
    assert route.latency == 0.5
    clock[0] += 10.0
    route.ended(0.1)
    assert route.latency == pytest.approx(0.1 + 0.4 / 2.718281828)
    route.ended(0.0)  # it says nothing about the destination
    assert route.service is kind.tally is kind.service.at_peers()
    assert (kind.service.answered, kind.tally.answered) == (0, 3)
    assert kind.service.used
    counts = kind.tally.durations.read().counts
    assert sum(counts) == 2  # both were slow
    for _ in range(SAMPLED - 3):
        route.ended(SLOW / 2)
    assert sum(kind.tally.durations.read().counts) == 2 + SAMPLED


def test_a_route_is_expected_while_the_link_is_lost() -> None:
    kind = kind_of([0.0])
    peer, route = kind.peer, route_of(kind, 1)
    assert (route.row().busy, route.row().expected) == (False, False)
    peer.draining = True
    assert (route.row().busy, route.row().expected) == (True, False)
    peer.suspended = True
    assert (route.row().busy, route.row().expected) == (False, True)


def test_a_peer_broker_without_a_name_is_known_by_its_id() -> None:
    peer = PeerRoutes(PEER)
    assert peer.label == "00000000-0000-0000-0000-000000000009"
    peer.name = "nine"
    assert peer.label == "nine"


def test_a_copy_for_all_has_the_peer_broker_as_its_route() -> None:
    peer = PeerRoutes(PEER, "nine")
    every = peer.every
    assert (every.peer, every.route_id) == (peer, PEER)
    about = every.destination
    assert (about.service, about.tags, about.peer, about.link) == ("", (), "-", True)


def test_a_link_is_known_before_and_after_the_table() -> None:
    peer = PeerRoutes(PEER)
    link = Address(0, b"link")
    peer.connected(link, "10.0.0.1:7")
    assert (peer.connection, peer.every.connection) == (None, None)
    asked: list[Address] = []
    peer.joined(Address(0, b"to"), asked.append, lambda: 0.0, 1.0)
    assert asked == [Address(0, b"to"), link]
    peer.connected(link)
    assert asked[2:] == [link]
    peer.left()
    assert (peer.address, peer.cell) == (None, None)


def test_an_event_names_the_destination() -> None:
    route = route_of(kind_of([0.0]))
    event = route.event("lost", "gone")
    assert (event.kind, event.service, event.reason, event.peer) == ("lost", "orders", "gone", "-")
    assert event.tags == (("service", "orders"),)


def test_an_own_route_is_none_of_a_peer_broker() -> None:
    kind = kind_of([0.0])
    with pytest.raises(AssertionError, match="as an own one"):
        own_route(route_of(kind))
