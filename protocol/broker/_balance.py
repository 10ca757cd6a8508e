"""Methods of unicast: the choice of one of several routes that carry the tags.

A `Balancer` belongs to one tag query, so that queries do not disturb one another. It reads
no clock and has no random source: both are arguments. It never counts requests itself, but
looks at what the candidates say of themselves at that moment.

`LeastOutstanding` and `PeakEwma` look at two candidates drawn at random and take the better
one ("power of two choices"): nearly as even as to look at all, at a cost that does not grow,
and no herd runs to the one that was best when it last was looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import exp, inf
from types import MappingProxyType
from typing import Final, Protocol

__all__ = [
    "BALANCERS",
    "LATENCY_DECAY",
    "MAX_WEIGHT",
    "Balancer",
    "Candidate",
    "LeastOutstanding",
    "PeakEwma",
    "Random",
    "RoundRobin",
    "Weighted",
    "peak_ewma",
]

LATENCY_DECAY: Final = 10.0
"""Seconds after which a measured latency has lost all but a third of its weight, by default."""

MAX_WEIGHT: Final = 1e9
"""Greatest weight that counts; a greater one counts as this. 1 beside it is hardly anything."""


class Candidate(Protocol):
    """The properties of a route that a balancer may read."""

    @property
    def route_id(self) -> bytes:
        """The route id, 16 bytes."""
        ...

    @property
    def outstanding(self) -> int:
        """Number of requests handed over and not yet ended."""
        ...

    @property
    def latency(self) -> float:
        """The moving average of the latency, in seconds; 0 if it is not known."""
        ...

    @property
    def weight(self) -> float:
        """The share of the requests, relative to the weights of other routes."""
        ...


class Balancer(ABC):
    """A method of unicast, and its state for one tag query."""

    __slots__ = ()

    @abstractmethod
    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        """Return the index of the candidate that gets the next request.

        Args:
            candidates: At least one. They may change from one call to the next.
            now: The time, in seconds, on a clock that is not set back.
            random: Returns a random number, 0 or more and less than 1.
        """


class RoundRobin(Balancer):
    """In turn."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = 0

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        """Return the index of the next in turn."""
        turn = self._turn
        self._turn = turn + 1
        return turn % len(candidates)


class Random(Balancer):
    """Any, all equally likely."""

    __slots__ = ()

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        """Return a random index."""
        return int(random() * len(candidates))


class LeastOutstanding(Balancer):
    """The one of two random candidates that has fewer requests in hand."""

    __slots__ = ()

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        """Return the index of the better of two."""
        first, second = _two(len(candidates), random)
        if candidates[second].outstanding < candidates[first].outstanding:
            return second
        return first


class PeakEwma(Balancer):
    """The one of two random candidates that will likely answer first.

    That is judged by latency times requests in hand, the new one included. A candidate of
    unknown latency that has nothing in hand is tried first; while its first answer is
    awaited it is taken to be as fast as the other.

    Once slow would be slow for ever if nothing were sent there: so a latency that has not
    been measured anew loses weight with time, and the candidate is tried again.

    Args:
        decay: Seconds in which an old latency shrinks to about a third; see
            `LATENCY_DECAY`.

    Raises:
        ValueError: `decay` is not above 0.
    """

    __slots__ = ("_decay", "_seen")

    def __init__(self, decay: float = LATENCY_DECAY) -> None:
        if not decay > 0:
            raise ValueError(f"the decay must be above 0 seconds, not {decay}")
        self._decay = decay
        # Route id to a latency and since when it has been that.
        self._seen: dict[bytes, tuple[float, float]] = {}

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        """Return the index of the better of two."""
        first, second = _two(len(candidates), random)
        one, other = candidates[first], candidates[second]
        latency, others = self._latency(one, now), self._latency(other, now)
        if len(self._seen) > 2 * len(candidates):
            self._forget(candidates)
        if not latency:
            if not one.outstanding:
                return first
            latency = others or 1.0
        if not others:
            if not other.outstanding:
                return second
            others = latency
        if others * (other.outstanding + 1) < latency * (one.outstanding + 1):
            return second
        return first

    def _latency(self, candidate: Candidate, now: float) -> float:
        latency = candidate.latency
        if latency <= 0:
            return 0.0
        seen = self._seen.get(candidate.route_id)
        if seen is None or seen[0] != latency:
            self._seen[candidate.route_id] = latency, now
            return latency
        # Never to 0, which would say that it is unknown.
        return max(latency * exp((seen[1] - now) / self._decay), 1e-9)

    def _forget(self, candidates: Sequence[Candidate]) -> None:
        """Keep what is known of the candidates and no others."""
        seen = self._seen
        ids = (each.route_id for each in candidates)
        self._seen = {route_id: seen[route_id] for route_id in ids if route_id in seen}


class Weighted(Balancer):
    """In turn, as often as the weights say, and evenly spread ("smooth" round robin).

    Over as many requests as the weights' sum each candidate gets as many as its weight,
    exactly, if the weights are whole numbers. One of weight 0 gets none, unless all are 0.
    A weight that is negative or not a number counts as 0. A pick takes time in proportion to
    the number of candidates.
    """

    __slots__ = ("_credit", "_turn")

    def __init__(self) -> None:
        self._credit: dict[bytes, float] = {}
        self._turn = 0

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        """Return the index of the one that is furthest behind its share."""
        credit = self._credit
        best, most, total = -1, -inf, 0.0
        for index, candidate in enumerate(candidates):
            weight = candidate.weight
            if not weight > 0:
                continue
            weight = min(weight, MAX_WEIGHT)
            total += weight
            route_id = candidate.route_id
            has = credit[route_id] = credit.get(route_id, 0.0) + weight
            if has > most:
                best, most = index, has
        if best < 0:
            turn = self._turn
            self._turn = turn + 1
            return turn % len(candidates)
        credit[candidates[best].route_id] -= total
        if len(credit) > len(candidates):
            ids = (each.route_id for each in candidates)
            self._credit = {route_id: credit[route_id] for route_id in ids if route_id in credit}
        return best


def peak_ewma(average: float, sample: float, elapsed: float, decay: float) -> float:
    """Return a moving average of latencies that believes in bad news at once.

    A sample above the average becomes the average. One below it moves the average down, the
    more the longer ago the last sample was.

    Args:
        average: The average so far, in seconds; 0 if there is none.
        sample: The measured latency, in seconds; 0 or less if it was not measured.
        elapsed: Seconds since the last sample.
        decay: Seconds in which the old average loses all but about a third of its weight;
            with 0 or less only the sample counts.
    """
    if sample <= 0:
        return average
    if sample >= average or decay <= 0:
        return sample
    share = exp(-max(elapsed, 0.0) / decay)
    return average * share + sample * (1.0 - share)


def _two(count: int, random: Callable[[], float]) -> tuple[int, int]:
    """Return two different random indices, if there are two."""
    first = int(random() * count)
    if count == 1:
        return first, first
    second = int(random() * (count - 1))
    return first, second + (second >= first)


BALANCERS: Final[Mapping[str, Callable[[], Balancer]]] = MappingProxyType(
    {
        "roundrobin": RoundRobin,
        "random": Random,
        "leastoutstanding": LeastOutstanding,
        "peakewma": PeakEwma,
        "weighted": Weighted,
    }
)
"""The methods of unicast by name, in the form of `method_name`."""
