"""The ids of the messages that a node sends: counters that need no disk.

An id is `start << 20 | count`: the time at which its counter was begun, in Unix milliseconds, and
what was counted since. A counter of more than 2^20 moves the time on, which stays behind the clock
at less than a million messages in each millisecond. So a node that was restarted begins above all
ids of before, as long as its clock is not set back by more than it was away.

Each pair of source and destination has a counter of its own. Its ids follow each other without
gaps, as a window of ids needs, and say nothing about the messages to others. So it is known which
ids a counter has given, and an answer to another one is to no message of this node.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ._identities import Destination, Identity

__all__ = ["COUNT_BITS", "MAX_ID_COUNTERS", "MAX_START", "MessageIds", "id_time"]

COUNT_BITS: Final = 20
"""Bits of an id below the time at which its counter was begun."""
MAX_ID_COUNTERS: Final = 16_384
"""Most counters of pairs of source and destination that a node keeps. Beyond: the one that was used
longest ago is let go; when it is needed again, it begins above all that were let go."""
MAX_START: Final = 2**43 - 1
"""Latest time at which a counter may be begun, in Unix milliseconds: in the year 2248."""


def id_time(number: int) -> int:
    """Return the time of an id, in Unix milliseconds; its message was not sent before."""
    return number >> COUNT_BITS


class MessageIds:
    """The counters of the pairs of source and destination.

    Args:
        limit: Most counters.
    """

    __slots__ = ("_first", "_floor", "_limit", "_next")

    def __init__(self, limit: int = MAX_ID_COUNTERS) -> None:
        self._limit = limit
        self._floor = 0
        self._next: OrderedDict[tuple[Identity, Destination], int] = OrderedDict()
        self._first: dict[tuple[Identity, Destination], int] = {}

    def __len__(self) -> int:
        return len(self._next)

    def take(self, source: Identity, destination: Destination, now: int) -> int:
        """Take the next id of a pair.

        Args:
            source: The sender.
            destination: The receiver.
            now: The time, in Unix milliseconds.

        Raises:
            ValueError: The time is negative or after `MAX_START`.
        """
        if not 0 <= now <= MAX_START:
            raise ValueError(f"an id needs a time from 0 to {MAX_START}, not {now}")
        pair = (source, destination)
        number = self._next.pop(pair, None)
        if number is None:
            number = self._first[pair] = max(now << COUNT_BITS, self._floor)
        self._next[pair] = number + 1
        if len(self._next) > self._limit:
            gone, left = self._next.popitem(last=False)
            del self._first[gone]
            self._floor = max(self._floor, left)
        return number

    def is_of(self, source: Identity, destination: Destination, time: int) -> bool:
        """Whether the counter of a pair has given, or is about to give, ids of a time."""
        pair = (source, destination)
        return pair in self._next and id_time(self._first[pair]) <= time <= id_time(
            self._next[pair]
        )

    def has_taken(self, source: Identity, destination: Destination, number: int) -> bool:
        """Whether an id was taken of the counter of a pair; not known of one that was let go."""
        pair = (source, destination)
        return pair in self._next and self._first[pair] <= number < self._next[pair]
