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
from ._clocks import Budget
from ._events import size_of_event

if TYPE_CHECKING:
    from ._recorder import Recorder

__all__ = ["DestinationLog"]


class _Late(NamedTuple):
    """The state of a destination that is not recorded yet.

    Attributes:
        said: Whether the log has the destination as present.
        there: Whether it is present.
        node: Its service name.
        tags: Its current or last tags.
        reason: The reason why it has left.
    """

    said: bool
    there: bool
    node: str
    tags: TagList
    reason: str

    @property
    def event(self) -> EventName:
        """The event to record."""
        if not self.there:
            return EventName.DOWN
        return EventName.RETAG if self.said else EventName.UP


class DestinationLog:
    """The record of destinations.

    Args:
        recorder: The recorder.

    Attributes:
        left_out: Events not recorded as they happened, since the start.
    """

    __slots__ = ("_budget", "_late", "_recorder", "_told", "_waiting", "left_out")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder: Final = recorder
        options = recorder.options
        self._budget: Final = Budget(
            options.max_event_bytes_per_second, options.max_event_burst, recorder.now
        )
        self._late: dict[bytes, _Late] = {}
        self.left_out = 0
        # Events since the log fell behind, and those of them that were recorded later.
        self._waiting = 0
        self._told = 0

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
        if not late and self._budget.take(size_of_event(node, tags, reason)):
            self._recorder.event(name, route_id, node, tags, reason)
            return
        self.left_out += 1
        self._waiting += 1
        before = late.get(route_id)
        said = name is not EventName.UP if before is None else before.said
        there = name is not EventName.DOWN
        if said or there:
            late[route_id] = _Late(said, there, node, tags, reason)
        else:
            del late[route_id]  # it has joined and left, and is not in the log

    def catch_up(self) -> None:
        """Record queued states as far as there is room, and at the end what was left out."""
        late = self._late
        while late:
            each = next(iter(late.values()))
            if not self._budget.take(size_of_event(each.node, each.tags, each.reason)):
                return
            self._tell_next()
        self._tell_end()

    def finish(self) -> None:
        """Record all queued states."""
        while self._late:
            self._tell_next()
        self._tell_end()

    def _tell_next(self) -> None:
        route_id = next(iter(self._late))
        each = self._late.pop(route_id)
        self._told += 1
        self._recorder.event(each.event, route_id, each.node, each.tags, each.reason)

    def _tell_end(self) -> None:
        if not self._waiting:
            return
        reason = (
            f"{self._waiting - self._told} events: destinations came, changed and went faster "
            f"than {self._recorder.options.max_event_bytes_per_second} bytes a second; "
            f"{self._told} others were told late"
        )
        self._waiting = self._told = 0
        self._budget.charge(size_of_event("", (), reason))
        self._recorder.lose(reason)
