"""Where one frame goes, by the broker's own code; what the fast way is held against."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

from ...protocol.broker import RoutingType
from ._questions import Code, MethodSet, Question
from ._tables import Numbers, Table
from ._turns import fraction, next_turn

__all__ = ["Placer", "Resolver", "Standing", "weighted_place"]

Placer: TypeAlias = Callable[[int], tuple[int, bool]]
"""Returns the place of who gets a frame, by its key, and whether the method failed on it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A candidate of which nothing is known but who it is: it has nothing in hand."""

    route_id: bytes
    weight: float
    outstanding: int = 0
    latency: float = 0.0


class Resolver:
    """Resolves one frame at a time with one table and its methods.

    Shards are placed by `Sharding.prepare` and `Placement.pick`, with a load of 0 for all. Methods
    of unicast that have no state are asked as they are, with lots drawn from the frame's turn;
    nothing is in anybody's hand, and no latency is known, so that `least-outstanding` and
    `peak-ewma` take the first that they draw. Those that have a state are what they come to
    over many requests: `round-robin` is the remainder of the turn, `weighted` a lot by weight. A
    plug-in of unicast is made anew for each frame; one of sharding prepares itself once for the
    candidates. One that raises, or chooses nobody, has failed: as at the broker, any candidate
    gets the frame, a shard's always the same.

    Args:
        table: The table.
        methods: What may choose.
    """

    def __init__(self, table: Table, methods: MethodSet) -> None:
        self._table: Final = table
        self._methods: Final = methods

    def candidates(self, question: Question) -> Numbers:
        """Return the routes that carry the tags asked for."""
        return self._table.resolve(question.query)

    def place(self, question: Question, numbers: Numbers, key: int) -> int:
        """Return the place of the candidate that gets a frame, of one or more.

        Args:
            question: What is asked for; not by a multicast.
            numbers: The candidates.
            key: The hash of the tags that choose, or the frame's turn.
        """
        return self.placer(question, numbers)(key)[0]

    def placer(self, question: Question, numbers: Numbers) -> Placer:
        """Return what places frames among candidates, with all prepared that is so once.

        Args:
            question: What is asked for; not by a multicast.
            numbers: The candidates, one or more.
        """
        code, count = self._methods.code(question), len(numbers)
        if code is Code.REMAINDER and question.routing is RoutingType.UNICAST:
            return lambda key: (key % count, False)
        if code is Code.WEIGHTED:
            shares = self._table.weights(numbers).tolist()
            return lambda key: (weighted_place(shares, key), False)
        ids = [self._table.snapshot.route_id(number) for number in numbers.tolist()]
        name = self._methods.method(question)
        if question.routing is RoutingType.SHARD:
            return self._sharded(name, ids)
        weights = self._table.weights(numbers).tolist()
        return self._balanced(name, [Standing(*each) for each in zip(ids, weights, strict=True)])

    def _sharded(self, name: str, ids: list[bytes]) -> Placer:
        count = len(ids)
        try:
            pick = self._methods.sharding(name).prepare(ids).pick
        except Exception:  # noqa: BLE001 - what plug-ins do wrong stops here, as at the broker
            return lambda key: (key % count, True)

        def place(key: int) -> tuple[int, bool]:
            try:
                return _checked(pick(key, _nothing), count), False
            except Exception:  # noqa: BLE001 - the same
                return key % count, True

        return place

    def _balanced(self, name: str, standing: list[Standing]) -> Placer:
        count, make = len(standing), self._methods.balancer

        def place(key: int) -> tuple[int, bool]:
            try:
                return _checked(make(name).pick(standing, 0.0, _lots(key)), count), False
            except Exception:  # noqa: BLE001 - what plug-ins do wrong stops here, as at the broker
                return int(fraction(key) * count), True

        return place

    def route(self, question: Question, key: int) -> tuple[int, ...]:
        """Return who gets a frame, as the lake names routes: nobody, one, or all of a multicast."""
        numbers = self.candidates(question)
        if not len(numbers):
            return ()
        if self._methods.code(question) is Code.ALL:
            return tuple(self._table.keys(numbers).tolist())
        at = self.place(question, numbers, key)
        return (int(self._table.keys(numbers[at : at + 1])[0]),)


def weighted_place(weights: list[float], turn: int) -> int:
    """Return whose lot it is, by weight; in turn if nobody has any."""
    shares = list(accumulate(weights))
    if not shares[-1] > 0:
        return turn % len(weights)
    at = bisect_right(shares, fraction(turn) * shares[-1])
    # A fraction just below 1 may be rounded up to all there is.
    return min(at, max(at for at, weight in enumerate(weights) if weight > 0))


def _checked(at: int, count: int) -> int:
    if not 0 <= at < count:
        raise IndexError(f"{at} is none of {count} candidates")
    return int(at)


def _nothing(_: int) -> int:
    return 0


def _lots(turn: int) -> Callable[[], float]:
    state = turn

    def draw() -> float:
        nonlocal state
        drawn = fraction(state)
        state = next_turn(state)
        return drawn

    return draw
