"""The log of a broker's own routes, of which each peer broker reads a copy.

Each change gets the next number. The log keeps the frames of all routes that there are, by the
number that each came with, and the frames of the last changes. From the first a snapshot is read,
from the second what a subscriber has missed. Both are read at a number, so that a reader keeps
nothing but numbers (`RouteFeed`).

A snapshot is read up to the number that the log had when it began. A route that is replaced
meanwhile has a greater number, and comes among the changes behind the snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..broker import ID_SIZE, Dialect, RouteAdd, RouteRemove, null_last
from ._elements import ELEMENT_HEADER_SIZE, LENGTH_SIZE, Element, ElementKind
from ._limits import ClusterLimits

__all__ = ["RouteLog", "RouteLogStatistics"]

_SLACK: Final = 1024
"""Numbers of routes that are gone which the order may hold, beside one for each route."""

LEAST_CHANGES: Final = 256
"""Changes that are kept however few routes there are."""
CHANGES_OF_ROUTE: Final = 2
"""Changes that are kept for each route beyond that: for more of them a snapshot costs less."""


@dataclass(frozen=True, slots=True)
class RouteLogStatistics:
    """A route log at one moment.

    Attributes:
        sequence: The number of the last change.
        routes: Number of own routes.
        changes: Number of changes that are kept for subscribers that are behind.
        change_bytes: Bytes of these changes.
        forgotten: Number of changes that are no longer kept.
    """

    sequence: int
    routes: int
    changes: int
    change_bytes: int
    forgotten: int


class RouteLog:
    """The own routes of a broker, and the last changes of them, numbered.

    Args:
        home: 16 bytes: this broker's id.
        instance: When this broker was started, in milliseconds since the Unix epoch. It has to
            differ from that of each earlier start with the same id.
        limits: `log_changes` and `log_bytes` bound what is kept of changes, and so does what a
            snapshot costs in their place; a route that there is takes its frame and some 300 bytes.

    Attributes:
        sequence: The number of the last change; 0 before the first.

    Raises:
        ValueError: The id has not 16 bytes, or the instance not 1 to 63 bits.
    """

    def __init__(self, home: bytes, instance: int, limits: ClusterLimits | None = None) -> None:
        if len(home) != ID_SIZE or not 0 < instance < 1 << 63:
            raise ValueError("a log is that of a broker's id and instance")
        self.home: Final = home
        self.instance: Final = instance
        self.limits: Final = limits or ClusterLimits()
        self.sequence = 0
        # Route id to the number that the route has, that to its frame, and all of these numbers.
        self._numbers: dict[bytes, int] = {}
        self._routes: dict[int, bytes] = {}
        self._order: list[int] = []
        self._changes: dict[int, bytes] = {}
        self._change_bytes = 0
        self._written = 0
        # The latest element of changes: as a rule all peer brokers are sent the same.
        self._latest: tuple[tuple[int, int, bool], bytes, int] | None = None

    def __len__(self) -> int:
        """Return the number of own routes."""
        return len(self._numbers)

    @property
    def written(self) -> int:
        """Bytes that all changes since the start would take in elements, without compression."""
        return self._written

    def add(self, change: RouteAdd | RouteRemove) -> int:
        """Number a change of an own route and keep it.

        The removal of a route that was not added changes nothing, as no peer broker knows it.

        Returns:
            The number of the last change.

        Raises:
            ValueError: It is of another broker's route: nothing is ever told of those.
            BrokerFrameError: The route cannot be written as a frame: it has several tags without a
                value, or more than `MAX_TAGS` with the default ones. The log is as it was.
        """
        if change.broker_id != self.home:
            raise ValueError("a change of another broker's route")
        if isinstance(change, RouteRemove):
            known = self._numbers.get(change.route_id)
            if known is None:
                return self.sequence
            frame = change.serialize(Dialect.SPECIFICATION)
            del self._numbers[change.route_id], self._routes[known]
            self._append(frame)
            return self.sequence
        # ROUTE_SETUP, Value Length: "If there is no value length present, assume the value is
        # null." So only the last tag can have none.
        change = replace(change, tags=null_last(change.tags))
        frame = change.serialize(Dialect.SPECIFICATION)
        number = self._append(frame)
        previous = self._numbers.get(change.route_id)
        if previous is not None:
            del self._routes[previous]
        self._numbers[change.route_id] = number
        self._routes[number] = frame
        self._order.append(number)
        if len(self._order) > 2 * len(self._routes) + _SLACK:
            self._order = [each for each in self._order if each in self._routes]
        return number

    def _append(self, frame: bytes) -> int:
        self.sequence += 1
        self._changes[self.sequence] = frame
        self._change_bytes += len(frame)
        self._written += LENGTH_SIZE + len(frame)
        worth = max(LEAST_CHANGES, CHANGES_OF_ROUTE * len(self._numbers))
        most, most_bytes = min(worth, self.limits.log_changes), self.limits.log_bytes
        while self._changes and (len(self._changes) > most or self._change_bytes > most_bytes):
            oldest = self.sequence - len(self._changes) + 1
            self._change_bytes -= len(self._changes.pop(oldest))
        return self.sequence

    def has_since(self, sequence: int) -> bool:
        """Whether all changes after a number are kept; not so for one that is still to come."""
        return self.sequence - len(self._changes) <= sequence <= self.sequence

    def changes_after(self, sequence: int, *, max_batch: int, compress: bool) -> tuple[bytes, int]:
        """Return an element of the changes after a number, and the number that it reaches.

        Args:
            sequence: A number for which `has_since` is true, and that is not the last one.
            max_batch: Bytes to which frames are gathered.
            compress: Whether they are compressed.
        """
        key = (sequence, max_batch, compress)
        made = self._latest
        # One that was made when there were fewer changes is of use as well, as others follow.
        if made is not None and made[0] == key:
            return made[1], made[2]
        frames: list[bytes] = []
        size, reached = ELEMENT_HEADER_SIZE, sequence
        while reached < self.sequence:
            frame = self._changes[reached + 1]
            size += LENGTH_SIZE + len(frame)
            if frames and size > max_batch:
                break
            frames.append(frame)
            reached += 1
        data = self._element(ElementKind.CHANGES, reached, frames).serialize(compress=compress)
        self._latest = key, data, reached
        return data, reached

    def part_after(
        self, number: int, until: int, *, max_batch: int, compress: bool
    ) -> tuple[bytes, int | None]:
        """Return a part of a snapshot.

        Args:
            number: The number of the last route in the part before; 0 for the first part.
            until: The number of the snapshot.
            max_batch: Bytes to which frames are gathered.
            compress: Whether they are compressed.

        Returns:
            The element, and the number of the last route in it; `None` if it is the last part.
        """
        frames: list[bytes] = []
        size, order, routes = ELEMENT_HEADER_SIZE, self._order, self._routes
        reached: int | None = None
        for at in range(bisect_right(order, number), bisect_right(order, until)):
            frame = routes.get(order[at])
            if frame is None:
                continue
            size += LENGTH_SIZE + len(frame)
            if frames and size > max_batch:
                reached = number
                break
            frames.append(frame)
            number = order[at]
        element = self._element(ElementKind.SNAPSHOT, until, frames, last=reached is None)
        return element.serialize(compress=compress), reached

    def mark(self, sequence: int) -> bytes:
        """Return an element that says the number that a subscriber has reached."""
        return self._element(ElementKind.MARK, sequence, ()).serialize()

    def _element(
        self, kind: ElementKind, sequence: int, frames: Sequence[bytes], *, last: bool = False
    ) -> Element:
        return Element(kind, self.home, self.instance, sequence, frames, last)

    def statistics(self) -> RouteLogStatistics:
        """Return the log's figures at this moment."""
        return RouteLogStatistics(
            sequence=self.sequence,
            routes=len(self._numbers),
            changes=len(self._changes),
            change_bytes=self._change_bytes,
            forgotten=self.sequence - len(self._changes),
        )
