"""The stream of a zone's filter to one follower: the sender's state machine.

As with `RouteFeed`, `next` is called when there is credit for one element and either `get_timer` is
due or the log has changed. A follower that is slow to take a filter keeps that one in memory, which
all that have begun with it share, and gets the latest one after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ._elements import ELEMENT_HEADER_SIZE, LENGTH_SIZE, Element, ElementKind
from ._filter_log import FilterLog

__all__ = ["FilterFeed"]


class FilterFeed:
    """The elements that one follower is to be sent, one after the other.

    Args:
        log: The log to read.
        max_batch: Bytes of an element that the follower prefers; the limit of the log applies as
            well.
    """

    __slots__ = ("_data", "_gather_until", "_log", "_number", "_sent", "_sequence", "_size")

    def __init__(self, log: FilterLog, *, max_batch: int | None = None) -> None:
        limit = log.limits.max_batch
        room = limit if max_batch is None else min(max_batch, limit)
        self._log = log
        self._size = room - ELEMENT_HEADER_SIZE - LENGTH_SIZE
        # The filter that the follower has or gets, how much of it was sent, and the number of the
        # last id that it has with it.
        self._number = 0
        self._data = b""
        self._sent = 0
        self._sequence = 0
        self._gather_until: float | None = None

    def get_timer(self) -> float:
        """Return when `next` has to be called, also if the log does not change; `-inf` is now."""
        log = self._log
        if not log.number:
            return inf
        if self._sent < len(self._data) or self._number != log.number:
            return -inf
        if self._sequence == log.sequence or not log.has_since(self._sequence):
            return inf
        return -inf if self._gather_until is None else self._gather_until

    def next(self, now: float) -> bytes | None:
        """Return the next element; `None` if there is none before the time of `get_timer`.

        Args:
            now: The time, in seconds of the caller's clock.
        """
        log = self._log
        if not log.number:
            return None
        if self._sent == len(self._data) and self._number != log.number:
            self._number, self._sequence, self._data = log.filter()
            self._sent = 0
        if self._sent < len(self._data):
            return self._part()
        if self._sequence == log.sequence or not log.has_since(self._sequence):
            # In the second case, a filter is about to come.
            return None
        if self._gather_until is None:
            self._gather_until = now + log.limits.zone_gather
        if now < self._gather_until:
            return None
        ids = log.ids_after(self._sequence, self._most_ids)
        self._sequence += len(ids)
        if self._sequence == log.sequence:
            self._gather_until = None
        return self._element(ElementKind.IDS, ids)

    @property
    def _most_ids(self) -> int:
        return self._size // (16 + LENGTH_SIZE)

    def _part(self) -> bytes:
        # A filter has a multiple of 8 bytes, and so has each part.
        end = self._sent + self._size // 8 * 8
        part, self._sent = self._data[self._sent : end], end
        if end >= len(self._data):
            self._data, self._sent = b"", 0
            return self._element(ElementKind.FILTER, (part,), last=True)
        return self._element(ElementKind.FILTER, (part,))

    def _element(self, kind: ElementKind, frames: Sequence[bytes], *, last: bool = False) -> bytes:
        log = self._log
        # Neither ids nor a good filter can be made smaller.
        element = Element(kind, log.home, log.instance, self._sequence, frames, last)
        return element.serialize(compress=False)
