"""What the tests of the route stream are made of: routes, logs, and a copy of what is read."""

from __future__ import annotations

from collections.abc import Iterable

from onward.protocol.broker import RouteAdd, RouteRemove
from onward.protocol.cluster import (
    CaughtUp,
    Element,
    Position,
    RoundBegan,
    RoundEnded,
    RouteAdded,
    RouteFeed,
    RouteRefused,
    RouteRemoved,
    RouteSubscription,
    SubscribeAgain,
    SubscriptionEvent,
)

HOME = bytes(range(16))
OTHER = bytes(range(1, 17))
INSTANCE = 1_760_000_000_000
CLOCK = 1_760_000_100_000


def route_id(number: int) -> bytes:
    return number.to_bytes(16)


def added(number: int, home: bytes = HOME, *, time: int = CLOCK, region: str = "eu") -> RouteAdd:
    return RouteAdd(home, route_id(number), time, "orders", ((6, region), ("colour", "blue")))


def removed(number: int, home: bytes = HOME, *, time: int = CLOCK) -> RouteRemove:
    return RouteRemove(home, route_id(number), time)


class Copy:
    """A subscription with the routes that it leads to.

    Attributes:
        routes: The routes by their ids.
        in_step: Whether the copy was ever in step.
        again: Reasons to subscribe again.
    """

    def __init__(self, home: bytes = HOME) -> None:
        self.subscription = RouteSubscription(home)
        self.routes: dict[bytes, RouteAdd] = {}
        self.in_step = 0
        self.again: list[str] = []
        self.refused: list[int] = []
        self._named: set[bytes] | None = None

    def request(self, now: float = 0.0) -> Position:
        return Position.parse(self.subscription.request(now))

    def receive(self, data: bytes, now: float = 0.0) -> tuple[SubscriptionEvent, ...]:
        events = self.subscription.receive(Element.parse(data), now, CLOCK)
        for event in events:
            self.apply(event)
        return events

    def apply(self, event: SubscriptionEvent) -> None:
        match event:
            case RoundBegan():
                self._named = set()
            case RouteAdded(route):
                self.routes[route.route_id] = route
                if self._named is not None:
                    self._named.add(route.route_id)
            case RouteRemoved(route):
                self.routes.pop(route.route_id, None)
            case RouteRefused(route, ahead):
                self.routes.pop(route.route_id, None)
                self.refused.append(ahead)
            case RoundEnded():
                assert self._named is not None
                self.routes = {key: self.routes[key] for key in self._named & self.routes.keys()}
                self._named = None
            case CaughtUp():
                self.in_step += 1
            case SubscribeAgain(reason):
                self.again.append(reason)


def drain(feed: RouteFeed, now: float = 0.0) -> list[bytes]:
    """Return all elements that there are now."""
    made: list[bytes] = []
    while (data := feed.next(now)) is not None:
        made.append(data)
    return made


def routes_in(elements: Iterable[bytes]) -> int:
    return sum(len(Element.parse(data).frames) for data in elements)
