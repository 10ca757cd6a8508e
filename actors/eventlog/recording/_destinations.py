"""Destinations that come, change and go, as events: no more of them than the log has room for.

A peer can register, change its tags and leave as often as it likes. Each of these is an event, up
to so many bytes a second and what was saved up before. Beyond that the log *falls behind*: of each
destination only what it is now is kept, and told in its turn when there is room again. So what is
left out is what came in between, and in the end the log says of each destination what is true.

Who falls behind is in a line, and whoever comes later joins it, so nobody is told of before those
that wait. What is in the line is bounded by the routes that a broker lets in: those that are there
and were not told, and those that were told and are gone; no more than three for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol.broker import TagList
from ....protocol.eventlog import EventName
from ._events import size_of_event
from ._limits import Budget

if TYPE_CHECKING:
    from ._recorder import Recorder

__all__ = ["DestinationLog"]


class _Late(NamedTuple):
    """What a destination is now, and was not told.

    Attributes:
        said: Whether the log says that it is there.
        there: Whether it is.
        node: Its service name.
        tags: Its tags, or those it had.
        reason: Why it has left.
    """

    said: bool
    there: bool
    node: str
    tags: TagList
    reason: str

    @property
    def event(self) -> EventName:
        """What there is to tell."""
        if not self.there:
            return EventName.DOWN
        return EventName.RETAG if self.said else EventName.UP


class DestinationLog:
    """Records what becomes of destinations.

    Args:
        recorder: Where it is recorded.

    Attributes:
        left_out: Events that were not recorded as they happened, since the start.
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
        # Since the log fell behind: what happened, and what of it was told when there was room.
        self._waiting = 0
        self._told = 0

    def add(
        self, name: EventName, route_id: bytes, node: str, tags: TagList, reason: str = ""
    ) -> None:
        """Record an event of a destination, or have it wait.

        Args:
            name: `UP`, `RETAG` or `DOWN`.
            route_id: 16 bytes.
            node: Its service name.
            tags: Its tags.
            reason: Why it has left.
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
            del late[route_id]  # it has come and gone, and the log knows nothing of it

    def catch_up(self) -> None:
        """Tell what waits, as far as there is room; if that is all, say what was left out."""
        late = self._late
        while late:
            each = next(iter(late.values()))
            if not self._budget.take(size_of_event(each.node, each.tags, each.reason)):
                return
            self._tell_next()
        self._tell_end()

    def finish(self) -> None:
        """Tell all that waits: there is no later time."""
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
