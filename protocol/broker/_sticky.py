"""Sticky routes: requests with equal keys get the same route while it is registered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from ._balance import Balancer, Candidate

__all__ = ["MAX_STICKY", "Sticky"]

MAX_STICKY: Final = 10_000
"""Most keys for which a `Sticky` remembers a route, by default; at the limit the one that was
not used for the longest time is forgotten, and is given any route when it comes again."""


class Sticky:
    """A table of keys and the route each got, on top of a method for keys that have none.

    A key stays where it is as long as its route is among the candidates. When the route has
    left, the key is given another, and stays there.

    Attributes:
        forgotten: Number of keys that were forgotten because of the limit.

    Args:
        balancer: Chooses for keys that have no route.
        max_sticky: See `MAX_STICKY`.

    Raises:
        ValueError: `max_sticky` is not at least 1.
    """

    __slots__ = ("_balancer", "_max_sticky", "_places", "_routes", "forgotten")

    def __init__(self, balancer: Balancer, max_sticky: int = MAX_STICKY) -> None:
        if max_sticky < 1:
            raise ValueError(f"max_sticky must be at least 1, not {max_sticky}")
        self._balancer = balancer
        self._max_sticky = max_sticky
        self._routes: OrderedDict[Hashable, bytes] = OrderedDict()
        # Where each candidate of the last call stood; they seldom change.
        self._places: dict[bytes, int] = {}
        self.forgotten = 0

    def pick(
        self,
        key: Hashable,
        candidates: Sequence[Candidate],
        now: float,
        random: Callable[[], float],
    ) -> int:
        """Return the index of the candidate that has the key.

        Args:
            key: What is to stay on one route, such as `AddressQuery.keys` or their
                `shard_hash`.
            candidates: As in `Balancer.pick`.
            now: As in `Balancer.pick`.
            random: As in `Balancer.pick`.
        """
        routes = self._routes
        route_id = routes.get(key)
        if route_id is not None:
            place = self._place(route_id, candidates)
            if place is not None:
                routes.move_to_end(key)
                return place
        place = self._balancer.pick(candidates, now, random)
        routes[key] = candidates[place].route_id
        routes.move_to_end(key)
        if len(routes) > self._max_sticky:
            routes.popitem(last=False)
            self.forgotten += 1
        return place

    def route_of(self, key: Hashable) -> bytes | None:
        """Return the route id a key was given; `None` if it has none. Changes nothing.

        The route may have left since; `pick` would give the key another then.
        """
        return self._routes.get(key)

    def _place(self, route_id: bytes, candidates: Sequence[Candidate]) -> int | None:
        """Return where a route is among the candidates; `None` if it is not."""
        place = self._places.get(route_id)
        if place is None or place >= len(candidates) or candidates[place].route_id != route_id:
            self._places = {each.route_id: at for at, each in enumerate(candidates)}
            place = self._places.get(route_id)
        return place

    def __len__(self) -> int:
        """Return for how many keys a route is remembered."""
        return len(self._routes)
