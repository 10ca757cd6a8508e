"""The record of destinations that join, change and leave, within a rate of bytes.

A peer can register, change its tags and leave as often as it likes. Each of these is an event, up
to a limit of bytes a second plus the bytes saved before. Beyond that the log *falls behind*: only
the last state of each destination is stored, and recorded in turn when there is room. So the
changes in between are left out, and the log is right about each destination in the end.

Destinations that are behind form a queue, and later changes join it, so that none overtakes
another. The queue is bounded by the limit of routes: it has destinations in the table that are not
in the log, and destinations in the log that have left; no more than three for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol.broker import TagList
from ....protocol.eventlog import EventName
from ._events import size_of_event
from ._rate_limit import RateLimit

if TYPE_CHECKING:
    from ._recorder import Recorder

__all__ = ["DestinationLog"]


class _Change(NamedTuple):
    """The state of a destination that is not recorded yet.

    Attributes:
        known: Whether the log has the destination as present.
        there: Whether it is present.
        node: Its service name.
        tags: Its current or last tags.
        reason: The reason why it has left.
    """

    known: bool
    there: bool
    node: str
    tags: TagList
    reason: str

    @property
    def event(self) -> EventName:
        """The event to record."""
        if not self.there:
            return EventName.DOWN
        return EventName.RETAG if self.known else EventName.UP


class DestinationLog:
    """The record of destinations.

    Args:
        recorder: The recorder.
    """

    __slots__ = ("_late", "_limit", "_recorder", "_skipped")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder: Final = recorder
        options = recorder.options
        self._limit: Final = RateLimit(
            options.max_event_bytes_per_second, options.max_event_burst, recorder.now
        )
        self._late: dict[bytes, _Change] = {}
        self._skipped = 0

    def add(
        self, name: EventName, route_id: bytes, node: str, tags: TagList, reason: str = ""
    ) -> None:
        """Record an event of a destination, or put it into the queue.

        Args:
            name: `UP`, `RETAG` or `DOWN`.
            route_id: 16 bytes.
            node: Its service name.
            tags: Its tags.
            reason: The reason why it has left.
        """
        late = self._late
        if not late and self._limit.take(size_of_event(node, tags, reason)):
            self._recorder.event(name, route_id, node, tags, reason)
            return
        before = late.get(route_id)
        known = name is not EventName.UP if before is None else before.known
        there = name is not EventName.DOWN
        if before is not None:
            self._skip()
        if known or there:
            late[route_id] = _Change(known, there, node, tags, reason)
        else:
            self._skip()
            del late[route_id]  # it has joined and left, and is not in the log

    def _skip(self) -> None:
        self._skipped += 1
        self._recorder.left_out["changes"] += 1

    def catch_up(self) -> None:
        """Record queued states as far as there is room, and at the end what was left out."""
        while self._late:
            each = next(iter(self._late.values()))
            if not self._limit.take(size_of_event(each.node, each.tags, each.reason)):
                return
            self._record_next()
        self._report()

    def finish(self) -> None:
        """Record all queued states."""
        while self._late:
            self._record_next()
        self._report()

    def _record_next(self) -> None:
        route_id = next(iter(self._late))
        each = self._late.pop(route_id)
        self._recorder.event(each.event, route_id, each.node, each.tags, each.reason)

    def _report(self) -> None:
        if self._skipped:
            rate = self._recorder.options.max_event_bytes_per_second
            self._recorder.event(
                EventName.LOST,
                reason=f"{self._skipped} events: destinations changed faster than {rate} bytes "
                "a second",
            )
            self._skipped = 0
