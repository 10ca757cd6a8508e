"""A buffer of route events."""

from __future__ import annotations

from functools import partial
from typing import Final

from ....protocol.broker import TagList
from ....protocol.eventlog import EventName, RouteEvent, clip_name
from ....protocol.eventlog._blocks import events_body
from ..storage._dictionary import size_of, size_of_tags
from ..storage._output import EVENTS, Output

__all__ = ["EventBuffer", "size_of_event"]

EVENTS_A_BLOCK: Final = 256
"""Number of events that fill a block."""

EVENT_BYTES: Final = 64 * 1024
"""Bytes of tags, names and reasons that fill a block."""

MAX_EVENT: Final = 1024 * 1024
"""Most bytes of the tags of one event; longer tags are left out."""

MAX_REASON: Final = 1024
"""Most characters of the reason of an event; the rest is cut off."""

EVENT_COST: Final = 96
"""Most bytes of an event without its texts: its numbers, its route id with the definition, and the
headers of the blocks for event, name and route id, if it is alone in each."""


def size_of_event(node: str, tags: TagList, reason: str) -> int:
    """Return the most bytes of an event in a segment, with the definition of its name."""
    return EVENT_COST + 2 * size_of(node) + size_of_tags(tags) + size_of(reason)


class EventBuffer:
    """A buffer of route events that fills blocks.

    Args:
        output: The output for the blocks.
    """

    __slots__ = ("_bytes", "_events", "_output")

    def __init__(self, output: Output) -> None:
        self._output: Final = output
        self._events: list[RouteEvent] = []
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of events in the buffer."""
        return len(self._events)

    def add(
        self,
        seq: int,
        ts_us: int,
        name: EventName,
        route_id: bytes | None,
        node: str,
        tags: TagList,
        reason: str,
    ) -> None:
        """Add an event, and write the buffer if it is full.

        The name and route id are defined even if no request uses them, for readers that list the
        definitions of a segment.
        """
        size = size_of_tags(tags)
        if size > MAX_EVENT:
            reason, tags, size = f"{reason} ({size} bytes of tags are left out)", (), 0
        node, reason = clip_name(node), reason[:MAX_REASON]
        self._output.naming.route(route_id)
        self._output.naming.name(node)
        self._events.append(RouteEvent(seq, ts_us, name, route_id, node, tags, reason))
        self._bytes += size + len(reason) + len(node)
        if len(self._events) >= EVENTS_A_BLOCK or self._bytes >= EVENT_BYTES:
            self.write()

    def write(self) -> bool:
        """Write the events in the buffer as a block; return whether none was dropped."""
        if not self._events:
            return True
        events, self._events = self._events, []
        self._bytes = 0
        return self._output.put(EVENTS, len(events), partial(events_body, events))
