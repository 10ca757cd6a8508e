"""The choice among several destinations, except by plain round robin."""

from __future__ import annotations

import copy
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, cast, overload

from ....protocol.broker import (
    Balancer,
    Candidate,
    Entry,
    Placement,
    RoutingType,
    Sharding,
    Sticky,
    TagList,
)
from ._remote import AnyRoute
from ._selector import Ask, Selector

__all__ = ["Candidates", "Choice", "next_free"]

MAX_PROBES: Final = 16
"""Destinations examined for a free one before a busy one is chosen."""

_logger = logging.getLogger("onward.actors.broker")

Candidates: TypeAlias = tuple[Entry[AnyRoute], ...]
"""Destinations that carry the tags of a query; the order changes only when they do."""


class _Routes(Sequence[AnyRoute]):
    """A view of candidates for a balancer, without a copy: most balancers read two of them.

    Attributes:
        entries: The candidates.
        near: How many of the first of them are preferred.
    """

    __slots__ = ("entries", "near")

    def __init__(self, entries: Candidates, near: int = 0) -> None:
        self.entries = entries
        self.near = near

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, at: int) -> AnyRoute: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[AnyRoute]: ...
    def __getitem__(self, at: int | slice) -> AnyRoute | Sequence[AnyRoute]:
        if isinstance(at, slice):
            return _Routes(self.entries[at])
        return self.entries[at].target

    def __iter__(self) -> Iterator[AnyRoute]:
        return (entry.target for entry in self.entries)


def next_free(candidates: Candidates, turn: int) -> int | None:
    """Return the index of the next free candidate after a turn, of those examined."""
    for number in range(1, min(len(candidates), MAX_PROBES)):
        at = (turn + number) % len(candidates)
        if not candidates[at].target.busy:
            return at
    return None


class _KeepingUp(Balancer):
    """A balancer for new sticky keys: of the candidates that are preferred, one that is not busy.

    If those it looks at are all busy, it takes any other that is free.
    """

    __slots__ = ("_balancer",)

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        routes = cast("_Routes", candidates)
        entries = routes.entries
        near = entries[: routes.near] if routes.near else entries
        at = self._balancer.pick(_Routes(near), now, random)
        if not near[_checked(at, near)].target.busy:
            return at
        free = next_free(near, at)
        if free is None and len(near) < len(entries):
            free = next_free(entries, len(near) - 1)
        return at if free is None else free


class _Placed:
    """A placement and its candidates."""

    __slots__ = ("candidates", "placement")

    def __init__(self, candidates: Candidates, placement: Placement) -> None:
        self.candidates: Final = candidates
        self.placement: Final = placement


class _Stuck:
    """The sticky keys of one selector, and the number of candidates that it stores."""

    __slots__ = ("noted", "sticky")

    def __init__(self, sticky: Sticky) -> None:
        self.sticky: Final = sticky
        self.noted = 0


class Choice:
    """The choice of a destination by the selector of a request.

    A method that raises, or returns an invalid index, is counted and logged. The request then
    goes to an arbitrary candidate, for a shard request always the same.

    Args:
        max_sticky: Most sticky keys with a remembered destination. At the limit the keys of the
            selector least recently used are forgotten; with a single selector, the key least
            recently used.
        max_placed: Most destinations in all placements that are kept. At the limit the placement
            least recently used is forgotten, and prepared anew on its next use.
        clock: Returns a monotonic time in seconds.

    Attributes:
        random: Returns a random number, 0 or more and less than 1.
        unknown: Requests for an unknown method, which got the default.
        failed: Requests on which a method failed.
    """

    def __init__(self, max_sticky: int, max_placed: int, clock: Callable[[], float]) -> None:
        self._max_sticky = max_sticky
        self._max_placed = max_placed
        self._clock = clock
        self._placed: OrderedDict[Selector, _Placed] = OrderedDict()
        self._members = 0
        self._sticky: OrderedDict[Selector, _Stuck] = OrderedDict()
        self._keys = 0
        self._noted = 0
        self._forgotten = 0
        self.random: Callable[[], float] = random.random
        self.unknown = 0
        self.failed = 0

    def pick(self, ask: Ask, candidates: Candidates, near: int = 0) -> int | None:
        """Return the index of a candidate; `None` if the request goes to all.

        Args:
            ask: The query.
            candidates: At least one.
            near: How many of the first candidates are preferred for a new sticky key; 0: all.
        """
        if ask.unknown:
            self.unknown += 1
        selector = ask.selector
        if ask.sticky and selector.balancer is not None:
            return self._stick(selector, selector.balancer, ask.sticky, _Routes(candidates, near))
        if selector.balancer is not None:
            # Unicast Routing: "The method to select the routes is determined by the
            # implementation."
            return self._balance(selector.balancer, candidates)
        if selector.sharding is not None:
            # Shard Routing: "the broker will select a routable destination using implementation of
            # the brokers choice."
            return self._shard(selector, selector.sharding, ask.shard, candidates)
        return None if len(candidates) > 1 else 0

    def preview(self, ask: Ask, candidates: Candidates) -> int | None:
        """Return the result that `pick` would have, without changing any state.

        `None` also if the choice is random.
        """
        if len(candidates) == 1:
            return 0
        stuck = self.stuck(ask, candidates)
        if stuck is not None:
            return stuck
        balancer = ask.selector.balancer
        if balancer is None:
            return None if ask.routing is RoutingType.MULTICAST else self.pick(ask, candidates)
        by_chance = False

        def chance() -> float:
            nonlocal by_chance
            by_chance = True
            return 0.0

        try:
            at = copy.deepcopy(balancer).pick(_Routes(candidates), self._clock(), chance)
        except Exception:  # noqa: BLE001 - foreign code; `pick` counts and logs its failures
            return None
        return None if by_chance else at

    def stuck(self, ask: Ask, candidates: Candidates) -> int | None:
        """Return the index of a sticky key's candidate; `None` if it has none."""
        kept = self._sticky.get(ask.selector) if ask.sticky else None
        route_id = None if kept is None else kept.sticky.route_of(ask.sticky)
        if route_id is None:
            return None
        found = (at for at, each in enumerate(candidates) if each.route_id == route_id)
        return next(found, None)

    # --- unicast ------------------------------------------------------------------------------

    def _balance(self, balancer: Balancer, candidates: Candidates) -> int:
        try:
            at = balancer.pick(_Routes(candidates), self._clock(), self.random)
            return _checked(at, candidates)
        except Exception as error:  # noqa: BLE001 - errors of plug-ins stop here
            self._on_failure(balancer, error)
            return int(self.random() * len(candidates))

    def _stick(self, selector: Selector, balancer: Balancer, key: TagList, routes: _Routes) -> int:
        candidates = routes.entries
        kept = self._sticky.get(selector)
        if kept is None:
            kept = self._sticky[selector] = _Stuck(Sticky(_KeepingUp(balancer), self._max_sticky))
        self._sticky.move_to_end(selector)
        before = len(kept.sticky)
        try:
            at = _checked(kept.sticky.pick(key, routes, self._clock(), self.random), candidates)
        except Exception as error:  # noqa: BLE001 - errors of plug-ins stop here
            self._on_failure(balancer, error)
            at = int(self.random() * len(candidates))
        self._keys += len(kept.sticky) - before
        # Sticky stores the index of each candidate, bounded as placements are.
        self._noted += len(candidates) - kept.noted
        kept.noted = len(candidates)
        while len(self._sticky) > 1 and (
            self._keys > self._max_sticky or self._noted > self._max_placed
        ):
            self._unstick(next(iter(self._sticky)))
        if not selector.remembered:
            self._unstick(selector)
        return at

    def _unstick(self, selector: Selector) -> None:
        kept = self._sticky.pop(selector)
        self._keys -= len(kept.sticky)
        self._noted -= kept.noted
        self._forgotten += len(kept.sticky) + kept.sticky.forgotten

    @property
    def forgotten(self) -> int:
        """Sticky keys forgotten because of a limit, since the start."""
        return self._forgotten + sum(kept.sticky.forgotten for kept in self._sticky.values())

    # --- shard --------------------------------------------------------------------------------

    def _shard(
        self, selector: Selector, sharding: Sharding, key: int, candidates: Candidates
    ) -> int:
        def load(at: int) -> int:
            return candidates[at].target.outstanding

        try:
            placement = self._placement(selector, sharding, candidates)
            return _checked(placement.pick(key, load), candidates)
        except Exception as error:  # noqa: BLE001 - errors of plug-ins stop here
            self._on_failure(sharding, error)
            return key % len(candidates)

    def _placement(
        self, selector: Selector, sharding: Sharding, candidates: Candidates
    ) -> Placement:
        placed = self._placed.get(selector)
        # The table makes a new tuple when a matching destination joins or leaves.
        if placed is not None and placed.candidates is candidates:
            self._placed.move_to_end(selector)
            return placed.placement
        if placed is not None:
            self._forget(selector)
        placement = sharding.prepare([entry.route_id for entry in candidates])
        if selector.remembered and len(candidates) <= self._max_placed:
            self._placed[selector] = _Placed(candidates, placement)
            self._members += len(candidates)
            while self._members > self._max_placed:
                self._forget(next(iter(self._placed)))
        return placement

    def _forget(self, selector: Selector) -> None:
        self._members -= len(self._placed.pop(selector).candidates)

    def _on_failure(self, method: Balancer | Sharding, error: Exception) -> None:
        self.failed += 1
        # Log at powers of two: there may be a failure for each request.
        if self.failed & (self.failed - 1) == 0:
            name = type(method).__name__
            text = "the method %s failed (%d so far)"
            _logger.error(text, name, self.failed, exc_info=error, extra={"event": "method.failed"})


def _checked(at: int, candidates: Candidates) -> int:
    if not 0 <= at < len(candidates):
        raise IndexError(f"{at} is none of {len(candidates)} candidates")
    return at
