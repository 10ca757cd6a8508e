"""Route events that wait to be written."""

from __future__ import annotations

from functools import partial
from typing import Final

from ....protocol.broker import TagList
from ....protocol.eventlog import EventName, RouteEvent, clip_name, events_block
from ..storage._output import EVENTS, Output
from ..storage._segment_dictionary import SegmentDictionary
from ._sink import Receipt
from ._texts import clean, clean_tags, size_of, size_of_tags

__all__ = ["EventBuffer", "size_of_event"]

EVENTS_A_BLOCK: Final = 256
"""Most route events that are kept before they are written."""

EVENT_BYTES: Final = 64 * 1024
"""Bytes of tags and reasons that events are kept with before they are written."""

MAX_EVENT: Final = 1024 * 1024
"""Most bytes of the tags of one event; one that has more is told without them."""

MAX_REASON: Final = 1024
"""Most bytes of the reason of an event; the rest is cut off."""


EVENT_COST: Final = 96
"""Most bytes of an event without its texts: number, time, route id, the id among the segment's,
and what goes before blocks of it, of its name and of that id, should it be alone in each."""


def size_of_event(node: str, tags: TagList, reason: str) -> int:
    """Return the bytes of an event in a segment, at most: its name is among the names as well."""
    return EVENT_COST + 2 * size_of(node) + size_of_tags(tags) + size_of(reason)


class EventBuffer:
    """Keeps route events until they fill a block.

    Args:
        output: Where they are written.
    """

    __slots__ = ("_bytes", "_events", "_naming", "_output", "_receipt")

    def __init__(self, output: Output) -> None:
        self._output: Final = output
        self._naming: Final[SegmentDictionary] = output.naming
        self._events: list[RouteEvent] = []
        self._bytes = 0
        self._receipt = Receipt()

    def __len__(self) -> int:
        """Return how many are kept."""
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
    ) -> Receipt:
        """Keep an event, and write all that are kept if they are many.

        A destination that nobody ever asks has a name and an id all the same: the event alone
        would not say them to who reads what a segment lists.

        Returns:
            What tells whether the block that it is in is kept.
        """
        said = (reason,) if name is EventName.LOST else ()
        try:
            size = size_of_tags(tags)
            if size > MAX_EVENT:
                reason, tags, size = f"{reason} ({size} bytes of tags are left out)", (), 0
            node, reason, tags = clip_name(node), clean(reason, MAX_REASON), clean_tags(tags)
            self._naming.route(route_id)
            self._naming.name(node)
        except Exception as error:  # noqa: BLE001 - who routes is not to fail with us
            self._output.unpacked(EVENTS, error)
            return Receipt(kept=False)
        receipt = self._receipt
        receipt.says += said
        self._events.append(RouteEvent(seq, ts_us, name, route_id, node, tags, reason))
        self._bytes += size + len(reason) + len(node)
        if len(self._events) >= EVENTS_A_BLOCK or self._bytes >= EVENT_BYTES:
            self.write()
        return receipt

    def write(self) -> None:
        """Write what is kept."""
        events = self._events
        if events:
            receipt = self._receipt
            self._events, self._receipt = [], Receipt()
            self._bytes = 0
            self._output.put(EVENTS, len(events), partial(events_block, events), receipt=receipt)
