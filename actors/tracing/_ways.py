"""What a node remembers of marked messages, to know where reports of their hops may go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ...protocol import Address, Route, TraceMark

__all__ = ["Origin", "Ways"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Origin:
    """How the report of a hop was sent.

    Attributes:
        trace: Of which trace.
        tracer: Where to in the end.
        worker: The primary address of the worker that it was sent as.
        own: The address of that worker that the message came to.
        way: Along which route.
    """

    trace: str
    tracer: Address
    worker: Address
    own: Address
    way: Route


class Ways:
    """The ways back of marked messages, and how hops were reported.

    Args:
        limit: Most addresses in all that is remembered, of ways back and of reports each. What is
            oldest is forgotten.
    """

    __slots__ = ("_backs", "_origins")

    def __init__(self, limit: int) -> None:
        self._backs: _Bounded[tuple[str, Address, Route], None] = _Bounded(limit)
        self._origins: _Bounded[str, Origin] = _Bounded(limit)

    def note(self, trace: str, worker: Address, back: Route) -> None:
        """Remember that a worker had a message of a trace, and the way back from it."""
        self._backs.put((trace, worker, back), None, len(back))

    def leads_back(self, trace: str, worker: Address, way: Route) -> bool:
        """Tell whether a worker had a message of the trace that came that way."""
        return (trace, worker, way) in self._backs

    def note_origin(self, hop: str, origin: Origin) -> None:
        """Remember how a hop was reported."""
        self._origins.put(hop, origin, len(origin.way))

    def origin(self, mark: TraceMark) -> Origin | None:
        """Return how the hop before was reported, if it was on this node."""
        origin = self._origins.get(mark.hop)
        if origin is None or (origin.trace, origin.tracer) != (mark.trace, mark.tracer):
            return None
        return origin


class _Bounded(Generic[K, V]):
    """Values by key, of so many addresses together and at least one."""

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
        """Remember a value as the newest."""
        before = self._values.pop(key, None)
        self._size += size - (0 if before is None else before[1])
        while self._size > self._limit and self._values:
            oldest = next(iter(self._values))
            self._size -= self._values.pop(oldest)[1]
        self._values[key] = (value, size)
