"""Large requests on their way to several destinations: a few copies at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...protocol import NotDelivered, ProtocolError

if TYPE_CHECKING:
    from ._branch import Branch
    from ._link import Link
    from ._merge import Merge

__all__ = ["LARGE", "Legs"]

LARGE: Final = 64 * 1024
"""Bytes of a request from which on its copies are handed over a few at a time."""
INTERVAL: Final = 0.05
"""Seconds after which it is looked again whether copies have been read."""


@dataclass(slots=True)
class _Leg:
    """A copy that waits for a socket.

    Attributes:
        branch: Whose it is.
        link: The destination's connection.
        until: When it counts as not read.
    """

    branch: Branch
    link: Link
    until: float


class Legs:
    """The copies of one large request that destinations have not read yet, bounded by `max_held`.

    There is one at least, and one in each turn of the loop. They count as held for the multicast
    until their destination's socket is below `high_water` again. A destination that does not
    read its copy for `multicast_patience` is done without.

    Args:
        merge: The request.
        size: Its bytes.
    """

    def __init__(self, merge: Merge, size: int) -> None:
        self._merge = merge
        self._size = size
        self._queue: deque[tuple[Branch, Link]] = deque()
        self._under_way: list[_Leg] = []
        self._handle: asyncio.Handle | None = None

    def hand_to(self, branch: Branch, link: Link) -> None:
        """Have a destination get the request when it is its turn."""
        self._queue.append((branch, link))
        if self._handle is None:
            self._handle = self._merge.link.node.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._handle = None
        self._look()
        loop = self._merge.link.node.loop
        room = (len(self._under_way) + 1) * self._size <= self._merge.rules.max_held
        if self._queue and (room or not self._under_way):
            self._hand_over(*self._queue.popleft())
            # What a destination reads at once is gone by then.
            self._handle = loop.call_soon(self._go_on)
        elif self._queue or self._under_way:
            self._handle = loop.call_later(INTERVAL, self._go_on)

    def _hand_over(self, branch: Branch, link: Link) -> None:
        """Hand a destination its copy; what goes wrong costs it alone."""
        merge = self._merge
        if branch.ended:
            return
        try:
            branch.hand_over(link)
        except (NotDelivered, ProtocolError) as error:
            merge.on_skipped(branch, error)
            return
        until = link.time() + merge.rules.patience
        self._under_way.append(_Leg(branch, link, until))
        merge.book(self._size)

    def _look(self) -> None:
        """Let go of what has been read, and of who does not read."""
        left: list[_Leg] = []
        late: list[Branch] = []
        for leg in self._under_way:
            link = leg.link
            if not link.flushing and link.waiting <= link.options.high_water:
                continue
            if link.time() < leg.until:
                left.append(leg)
            else:
                late.append(leg.branch)
        self._merge.book(-self._size * (len(self._under_way) - len(left)))
        self._under_way = left
        for branch in late:
            if not branch.ended:
                self._merge.on_left(branch)

    def close(self) -> None:
        """Hand over no more: the request is over. What is under way is counted until it is read."""
        self._queue.clear()
