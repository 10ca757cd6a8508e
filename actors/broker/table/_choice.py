"""Choosing a destination among those that carry the tags, where it is more than taking turns."""

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
from ._route import BrokerRoute
from ._selector import Ask, Selector

__all__ = ["Candidates", "Choice", "next_free"]

MAX_PROBES: Final = 16
"""Destinations looked at for one that keeps up, before a busy one is taken."""

_logger = logging.getLogger("onward.actors.broker")

Candidates: TypeAlias = tuple[Entry[BrokerRoute], ...]
"""Destinations that carry the tags asked for, in an order that stays as long as they do."""


class _Routes(Sequence[BrokerRoute]):
    """Candidates as a balancer looks at them. Nothing is copied: most look at two of them."""

    __slots__ = ("entries",)

    def __init__(self, entries: Candidates) -> None:
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, at: int) -> BrokerRoute: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[BrokerRoute]: ...
    def __getitem__(self, at: int | slice) -> BrokerRoute | Sequence[BrokerRoute]:
        if isinstance(at, slice):
            return _Routes(self.entries[at])
        return self.entries[at].target

    def __iter__(self) -> Iterator[BrokerRoute]:
        return (entry.target for entry in self.entries)


def next_free(candidates: Candidates, turn: int) -> int | None:
    """Return the index of the next in turn that keeps up, of those looked at."""
    for number in range(1, min(len(candidates), MAX_PROBES)):
        at = (turn + number) % len(candidates)
        if not candidates[at].target.busy:
            return at
    return None


class _KeepingUp(Balancer):
    """Has a new sticky key begin with one that keeps up, if its method names one that is busy."""

    __slots__ = ("_balancer",)

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        at = self._balancer.pick(candidates, now, random)
        entries = cast("_Routes", candidates).entries
        if not entries[_checked(at, entries)].target.busy:
            return at
        free = next_free(entries, at)
        return at if free is None else free


class _Placed:
    """A placement, and the candidates it was prepared for."""

    __slots__ = ("candidates", "placement")

    def __init__(self, candidates: Candidates, placement: Placement) -> None:
        self.candidates: Final = candidates
        self.placement: Final = placement


class _Stuck:
    """The sticky keys of one way of asking, and of how many candidates it notes the place."""

    __slots__ = ("noted", "sticky")

    def __init__(self, sticky: Sticky) -> None:
        self.sticky: Final = sticky
        self.noted = 0


class Choice:
    """Chooses by what a request asks for.

    A method that raises, or returns what is no candidate's index, is counted and logged; the
    request then goes to any candidate, a shard's always to the same.

    Args:
        max_sticky: Keys of sticky requests for which a destination is remembered. At the limit
            those of the query not asked for longest are forgotten; or, if there is but one
            query, the key not used for longest.
        max_placed: Destinations in all placements that are kept. At the limit the one that was
            not asked for longest is made anew when it is.
        clock: Tells the time in seconds; it does not go back.

    Attributes:
        random: Returns a random number, 0 or more and less than 1.
        unknown: Requests for a method that nobody knows, which got the default.
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

    def pick(self, ask: Ask, candidates: Candidates) -> int | None:
        """Return the index of a candidate; `None` if all are to have the request.

        Args:
            ask: What is asked for.
            candidates: At least one.
        """
        if ask.unknown:
            self.unknown += 1
        selector = ask.selector
        if ask.sticky and selector.balancer is not None:
            return self._stick(selector, selector.balancer, ask.sticky, candidates)
        if selector.balancer is not None:
            return self._balance(selector.balancer, candidates)
        if selector.sharding is not None:
            return self._shard(selector, selector.sharding, ask.shard, candidates)
        return None if len(candidates) > 1 else 0

    def preview(self, ask: Ask, candidates: Candidates) -> int | None:
        """Say what `pick` would return, and change nothing.

        `None` also if chance decides.
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
        except Exception:  # noqa: BLE001 - foreign code; the real thing is counted and logged
            return None
        return None if by_chance else at

    def stuck(self, ask: Ask, candidates: Candidates) -> int | None:
        """Return the index of the candidate a sticky key stays with; `None` if with none."""
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
        except Exception as error:  # noqa: BLE001 - what plug-ins do wrong stops here
            self._on_failure(balancer, error)
            return int(self.random() * len(candidates))

    def _stick(
        self, selector: Selector, balancer: Balancer, key: TagList, candidates: Candidates
    ) -> int:
        kept = self._sticky.get(selector)
        if kept is None:
            kept = self._sticky[selector] = _Stuck(Sticky(_KeepingUp(balancer), self._max_sticky))
        self._sticky.move_to_end(selector)
        before = len(kept.sticky)
        try:
            routes = _Routes(candidates)
            at = _checked(kept.sticky.pick(key, routes, self._clock(), self.random), candidates)
        except Exception as error:  # noqa: BLE001 - what plug-ins do wrong stops here
            self._on_failure(balancer, error)
            at = int(self.random() * len(candidates))
        self._keys += len(kept.sticky) - before
        # Sticky notes where each candidate stands: that is bounded as placements are.
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
        """Keys whose destination was forgotten because of a limit, since the start."""
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
        except Exception as error:  # noqa: BLE001 - what plug-ins do wrong stops here
            self._on_failure(sharding, error)
            return key % len(candidates)

    def _placement(
        self, selector: Selector, sharding: Sharding, candidates: Candidates
    ) -> Placement:
        placed = self._placed.get(selector)
        # The table makes a new tuple when a destination that matters comes or goes.
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
        # The first times tell it all, and there may be one for each request.
        if self.failed & (self.failed - 1) == 0:
            name = type(method).__name__
            text = "the method %s failed (%d so far)"
            _logger.error(text, name, self.failed, exc_info=error)


def _checked(at: int, candidates: Candidates) -> int:
    if not 0 <= at < len(candidates):
        raise IndexError(f"{at} is none of {len(candidates)} candidates")
    return at
