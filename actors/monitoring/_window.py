"""The last five minutes of a node and its broker: rates, latency, and the problems of the time.

A timer takes a few counters every two seconds, and all that problems are found in every thirty:
that looks at each connection, in slices.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from ...protocol.eventlog import Outcome
from ...protocol.metrics import Durations, quantile
from ...protocol.rsocket import FrameType
from .._reloads import Reloads
from ..broker import Broker
from ..cluster import Cluster
from ..runtime._slices import Slices, in_slices
from ._event_ring import EventRing
from ._health import HealthChecks, Stage
from ._lag import LoopLag
from ._limits import limit_uses
from ._problems import Observation, Problem, find_problems

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Window", "WindowPoint"]

INTERVAL: Final = 2.0
"""The seconds between two points."""

MAX_POINTS: Final = 150
"""The maximum number of points kept: five minutes."""

OBSERVED: Final = 15
"""The points from one observation to the next."""

SPAN: Final = 5
"""The points over which rates and latency are taken: one in 16 requests has a duration, so two
seconds have few."""

_KINDS: Final = (
    int(FrameType.REQUEST_RESPONSE),
    int(FrameType.REQUEST_FNF),
    int(FrameType.REQUEST_STREAM),
    int(FrameType.REQUEST_CHANNEL),
)
_REFUSED: Final = (Outcome.UNROUTABLE, Outcome.REJECTED)
_FAILED: Final = (Outcome.FAILED, Outcome.DROP)
_WITHOUT_FAULT: Final = (Outcome.DELIVER, Outcome.CANCELED)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Counters at one moment."""

    at: float
    clock: float
    ended: int
    good: int
    durations: tuple[int, ...]
    lags: tuple[int, ...]
    connections: int
    waiting: int


@dataclass(frozen=True, slots=True)
class WindowPoint:
    """The figures of some seconds, which end at one moment.

    Attributes:
        at: The time of their end, in seconds since 1970.
        rate: Requests that have ended, by the second.
        success: The share of them that no side has ended by an error, from 0 to 1; `None` if none
            has ended.
        p50: The duration in seconds that half of the answered requests did not exceed; `None`
            without a sample.
        p99: The same for 99 in 100.
        lag: The longest time for which the event loop was held, by the upper bound of its bucket.
        connections: Connections at the end.
        waiting: Requests that wait for a destination, at the end.
    """

    at: float
    rate: float
    success: float | None
    p50: float | None
    p99: float | None
    lag: float | None
    connections: int
    waiting: int


class Window:
    """The last five minutes.

    Args:
        node: The node.
        broker: Its broker, if it has one.
        checks: The health checks.
        lag: The lag of the loop.
        events: The recent events of the broker, if there is one.
        reloads: The parts that are read anew, if there are some.
        cluster: The broker's part in a cluster, if it has one.
    """

    def __init__(
        self,
        node: Node,
        broker: Broker | None,
        checks: HealthChecks,
        lag: LoopLag,
        events: EventRing | None,
        reloads: Reloads | None,
        cluster: Cluster | None = None,
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._broker = broker
        self._checks = checks
        self._lag = lag
        self._events = events
        self._reloads = reloads
        self._samples: deque[_Sample] = deque(maxlen=MAX_POINTS + SPAN)
        self._observations: deque[Observation] = deque(maxlen=MAX_POINTS // OBSERVED)
        self._taken = 0
        self._timer: asyncio.TimerHandle | None = None
        self._slice: asyncio.Handle | None = None

    def start(self) -> None:
        """Begin to collect figures."""
        self._take()

    def stop(self) -> None:
        """Stop collecting figures."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._slice is not None:
            self._slice.cancel()
            self._slice = None

    def _take(self) -> None:
        self._samples.append(self._sample())
        if self._taken % OBSERVED == 0 and self._slice is None:
            self._go_on(self.observe())
        self._taken += 1
        self._timer = self._node.loop.call_later(INTERVAL, self._take)

    def _go_on(self, observation: Slices[Observation]) -> None:
        """Run one more slice of an observation."""
        self._slice = None
        try:
            next(observation)
        except StopIteration as end:
            self._observations.append(end.value)
        else:
            self._slice = self._node.loop.call_soon(self._go_on, observation)

    # --- what is asked for --------------------------------------------------------------------

    def points(self) -> tuple[WindowPoint, ...]:
        """Return the points, the oldest first."""
        samples = tuple(self._samples)
        # Without the others it is the first minute of the program: a shorter span is all there is.
        pairs = ((samples[max(0, at - SPAN)], samples[at]) for at in range(1, len(samples)))
        return tuple(_point(before, now) for before, now in pairs)[-MAX_POINTS:]

    async def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong now, or was within the last five minutes."""
        now = await in_slices(self.observe())
        return find_problems(now, self._observations[0] if self._observations else None)

    def observe(self) -> Slices[Observation]:
        """Return the figures that problems are found in. It looks at each connection, in slices."""
        broker, reloads = self._broker, self._reloads
        failed = {
            f"{stage.value}: {each.name}": each.problem
            for stage in Stage
            for each in self._checks.run(stage)
            if not each.passed
        }
        at, error = time.time(), "" if reloads is None else reloads.statistics().error
        figures = yield from self._node.parts.workers.figures()
        counts = dict(_node_counts(self._node, figures.failed))
        lags = self._lag.histogram.read().counts
        if broker is None:
            return Observation(at, failed, error, lags=lags, counts=counts)
        reports = yield from broker.reports_in_slices()
        counts.update(_broker_counts(broker, reports))
        if self._events is not None:
            counts["events", ""] = self._events.lost
        outcomes = _outcomes(broker)
        return Observation(
            at,
            failed,
            error,
            dict(_certificates(reports)),
            tuple(limit_uses(self._node, broker, self._cluster)),
            lags,
            outcomes.total(),
            sum(outcomes[each] for each in _REFUSED),
            sum(outcomes[each] for each in _FAILED),
            broker.statistics().oldest_wait,
            counts,
            () if self._cluster is None else tuple(_peers_away(self._cluster)),
        )

    def _sample(self) -> _Sample:
        lags = self._lag.histogram.read().counts
        at, clock, broker = time.time(), self._node.loop.time(), self._broker
        if broker is None:
            return _Sample(at, clock, 0, 0, (), lags, 0, 0)
        outcomes = _outcomes(broker)
        durations = (broker.tally.durations(kind).counts for kind in _KINDS)
        uses = chain.from_iterable(listener.limits() for _, listener in broker.listeners())
        return _Sample(
            at,
            clock,
            outcomes.total(),
            sum(outcomes[each] for each in _WITHOUT_FAULT),
            tuple(map(sum, zip(*durations, strict=True))),
            lags,
            int(sum(use.used for use in uses if use.name == "max_connections")),
            broker.statistics().waiting,
        )


def _point(before: _Sample, now: _Sample) -> WindowPoint:
    seconds = max(now.clock - before.clock, 0.001)
    ended = now.ended - before.ended
    return WindowPoint(
        now.at,
        ended / seconds,
        (now.good - before.good) / ended if ended else None,
        _quantile(0.5, before.durations, now.durations),
        _quantile(0.99, before.durations, now.durations),
        _quantile(1.0, before.lags, now.lags),
        now.connections,
        now.waiting,
    )


def _quantile(share: float, before: Iterable[int], now: Iterable[int]) -> float | None:
    """Return the duration that a share of those between two readings does not exceed."""
    counts = tuple(late - early for late, early in zip(now, before, strict=True))
    return quantile(Durations(counts, 0.0), share)


def _outcomes(broker: Broker) -> Counter[Outcome]:
    found = Counter[Outcome]()
    for kind in _KINDS:
        found.update(broker.tally.ended(kind))
    return found


def _certificates(reports: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, float]]:
    for uri, found in reports:
        secure: Mapping[str, Any] | None = found.get("tls")
        if secure is not None and secure["not_after"] is not None:
            yield uri, secure["not_after"]


def _broker_counts(
    broker: Broker, reports: Iterable[tuple[str, Mapping[str, Any]]]
) -> Iterator[tuple[tuple[str, str], int]]:
    yield ("lost", ""), broker.statistics().lost
    for uri, found in reports:
        yield ("slow-peers", uri), found.get("closed", {}).get("too slow", 0)
        decisions: Mapping[str, Any] | None = found.get("authentication")
        if decisions is not None:
            yield ("authentication", uri), sum(decisions["refused"].values())
            yield ("bans", uri), decisions["banned"]


def _peers_away(cluster: Cluster) -> Iterator[tuple[str, str, str, str]]:
    """Yield the other brokers that are not reached, or with routes that are not in use.

    One that is gone is none of them: most have been stopped.
    """
    for row in cluster.peers():
        if row.state not in ("up", "joining", "gone", "known"):
            yield row.name or row.uri or row.broker_id, row.state, row.reason, row.reported_by


def _node_counts(node: Node, failures: int) -> Iterator[tuple[tuple[str, str], int]]:
    yield ("failures", ""), failures
    instruments = node.instruments
    found = None if instruments is None else instruments.figures().get("event_log")
    if isinstance(found, Mapping):
        log = cast("Mapping[str, Any]", found)
        yield ("event-log", ""), sum(log["recorder"]["dropped"].values()) + log["writer"]["lost"]
