"""The resolution of one frame by the broker's own code: the reference for `_placing`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

from ...protocol.broker import RoutingType
from ._questions import Code, MethodSet, Question
from ._tables import Numbers, OpenTable
from ._turns import fraction, next_turn

__all__ = ["Placer", "Resolver", "Standing", "weighted_place"]

Placer: TypeAlias = Callable[[int], tuple[int, bool]]
"""A function from a frame's key to the place of its candidate, and whether the method failed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A candidate without load: its route id and its weight."""

    route_id: bytes
    weight: float
    outstanding: int = 0
    latency: float = 0.0


class Resolver:
    """A resolver of one frame at a time with one table and its methods.

    `Sharding.prepare` and `Placement.pick` place shards, with a load of 0 for all. Unicast methods
    without a state run unchanged, with random numbers from the frame's turn. No candidate has a
    load or a latency, so `least-outstanding` and `peak-ewma` choose the first that they draw.
    Methods with a state are replaced by their average over many requests: `round-robin` by the
    remainder of the turn, `weighted` by a draw by weight. A unicast plug-in is created for each
    frame; a sharding plug-in prepares the candidates once. A plug-in that raises, or chooses no
    candidate, has failed: as at the broker, any candidate gets the frame, for a shard always the
    same one.

    Args:
        table: The table.
        methods: The methods of this side.
    """

    def __init__(self, table: OpenTable, methods: MethodSet) -> None:
        self._table: Final = table
        self._methods: Final = methods

    def candidates(self, question: Question) -> Numbers:
        """Return the routes that carry the tags of a question."""
        return self._table.resolve(question.query)

    def place(self, question: Question, numbers: Numbers, key: int) -> int:
        """Return the place of the candidate that gets a frame.

        Args:
            question: The question; not a multicast.
            numbers: The candidates, one or more.
            key: The hash of the tags of the shard or sticky key, or the frame's turn.
        """
        return self.placer(question, numbers)(key)[0]

    def placer(self, question: Question, numbers: Numbers) -> Placer:
        """Return the function that places frames among candidates; it is prepared once for them.

        Args:
            question: The question; not a multicast.
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
        except Exception:  # noqa: BLE001 - errors of plug-ins stop here, as at the broker
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
            except Exception:  # noqa: BLE001 - errors of plug-ins stop here, as at the broker
                return int(fraction(key) * count), True

        return place

    def route(self, question: Question, key: int) -> tuple[int, ...]:
        """Return the lake's ids of a frame's routes: none, one, or all of a multicast."""
        numbers = self.candidates(question)
        if not len(numbers):
            return ()
        if self._methods.code(question) is Code.ALL:
            return tuple(self._table.keys(numbers).tolist())
        at = self.place(question, numbers, key)
        return (int(self._table.keys(numbers[at : at + 1])[0]),)


def weighted_place(weights: list[float], turn: int) -> int:
    """Return the place that a turn draws by weight; in turn if all weights are 0."""
    shares = list(accumulate(weights))
    if not shares[-1] > 0:
        return turn % len(weights)
    at = bisect_right(shares, fraction(turn) * shares[-1])
    # A product with a fraction just below 1 may be rounded up to the total.
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
