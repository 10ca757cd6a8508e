"""The routes of marked messages, along which reports of their hops may be sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ...protocol import Address, Route, TraceMark

__all__ = ["MarkedRoutes", "ReportOrigin"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ReportOrigin:
    """The sender and route of a hop's report.

    Attributes:
        trace: The trace id.
        tracer: The address of the tracer.
        worker: The primary address of the worker that sent it.
        own: The address of that worker at which the message arrived.
        route: The route of the report.
    """

    trace: str
    tracer: Address
    worker: Address
    own: Address
    route: Route


class MarkedRoutes:
    """The return routes of marked messages, and the origins of reports.

    Args:
        limit: Most addresses in the stored return routes, and in the routes of reports. The
            oldest are removed.
    """

    __slots__ = ("_origins", "_returns")

    def __init__(self, limit: int) -> None:
        self._returns: _Bounded[tuple[str, Address, Route], None] = _Bounded(limit)
        self._origins: _Bounded[str, ReportOrigin] = _Bounded(limit)

    def note(self, trace: str, worker: Address, back: Route) -> None:
        """Store that a worker had a message of a trace, with its return route."""
        self._returns.put((trace, worker, back), None, len(back))

    def is_return(self, trace: str, worker: Address, route: Route) -> bool:
        """Whether a worker had a message of the trace with that return route."""
        return (trace, worker, route) in self._returns

    def note_origin(self, hop: str, origin: ReportOrigin) -> None:
        """Store the origin of a hop's report."""
        self._origins.put(hop, origin, len(origin.route))

    def origin(self, mark: TraceMark) -> ReportOrigin | None:
        """Return the origin of the report of the hop before, if it was on this node."""
        origin = self._origins.get(mark.hop)
        if origin is None or (origin.trace, origin.tracer) != (mark.trace, mark.tracer):
            return None
        return origin


class _Bounded(Generic[K, V]):
    """Values by key, with a limit for their addresses; the newest is always kept."""

    __slots__ = ("_limit", "_size", "_values")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._values: dict[K, tuple[V, int]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Store a value as the newest."""
        before = self._values.pop(key, None)
        self._size += size - (0 if before is None else before[1])
        while self._size > self._limit and self._values:
            oldest = next(iter(self._values))
            self._size -= self._values.pop(oldest)[1]
        self._values[key] = (value, size)
