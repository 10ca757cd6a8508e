"""The loading of a peer broker's routes, slice by slice."""

from __future__ import annotations

from collections import Counter

import pytest

from onward.actors.broker import PeerRoutes
from onward.actors.cluster import _loader
from onward.actors.cluster._loader import RouteLoader
from onward.protocol.broker import Dialect, RouteAdd, RouteRemove
from onward.protocol.cluster import CaughtUp, Element, ElementKind, RouteSubscription
from tests.protocol.cluster.streams import CLOCK, HOME, INSTANCE, added


class Table:
    """A table of what one peer broker tells."""

    def __init__(self) -> None:
        self.routes: set[bytes] = set()
        self._untold: set[bytes] = set()

    def peer_joined(self, peer: PeerRoutes) -> None: ...
    def peer_left(self, peer: PeerRoutes) -> None: ...
    def suspend_peer(self, peer: PeerRoutes) -> None: ...
    def reveal_peer(self, peer: PeerRoutes) -> None: ...

    def room_for(self, peer: PeerRoutes) -> int:
        raise NotImplementedError

    def most_of(self, peer: PeerRoutes) -> int:
        raise NotImplementedError

    def add_remote(self, peer: PeerRoutes, route: RouteAdd) -> str:
        self.routes.add(route.route_id)
        self._untold.discard(route.route_id)
        return ""

    def remove_remote(self, peer: PeerRoutes, route: RouteRemove) -> bool:
        raise NotImplementedError

    def begin_round(self, peer: PeerRoutes) -> None:
        self._untold = set(self.routes)

    def sweep_peer(self, peer: PeerRoutes, limit: int) -> int:
        gone = [*self._untold][:limit]
        self.routes.difference_update(gone)
        self._untold.difference_update(gone)
        return len(gone)

    def drop_peer(self, peer: PeerRoutes, limit: int) -> int:
        raise NotImplementedError


def test_full_passes_of_the_collector_are_put_off_in_a_round_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slices: list[int] = []
    table = Table()
    table.routes = {bytes([9]) * 16, bytes([8]) * 16, bytes([7]) * 16}
    monkeypatch.setattr(_loader, "put_off_full_passes", lambda: slices.append(len(table.routes)))
    subscription = RouteSubscription(HOME)
    subscription.request(0.0)
    loader = RouteLoader(table, PeerRoutes(HOME), subscription, 10, Counter())

    def element(kind: ElementKind, numbers: range, sequence: int, *, last: bool = False) -> None:
        frames = tuple(added(number).serialize(Dialect.SPECIFICATION) for number in numbers)
        made = Element(kind, HOME, INSTANCE, sequence, frames, last)
        loader.put(made.serialize())

    element(ElementKind.SNAPSHOT, range(3), 5)
    element(ElementKind.SNAPSHOT, range(3, 5), 5, last=True)
    element(ElementKind.CHANGES, range(5, 7), 7)
    told: list[object] = []
    done = 0
    while not loader.idle:
        loaded, events = loader.load(2, 0.0, CLOCK)
        done += loaded
        told += events
    assert (done, told) == (3, [CaughtUp()])
    assert table.routes == {number.to_bytes(16) for number in range(7)}
    # In slices of two: the round begins with the first, and the last one removes what is left.
    assert slices == [4, 6, 8, 6]
