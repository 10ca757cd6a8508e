"""Destinations that are not read because their responses are for one slow requester."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from ._byte_shares import Pace
from ._exchange import StreamExchange

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["HeldBack"]

INTERVAL: Final = 0.1
"""Seconds between checks of the requester's backlog."""
PATIENCE: Final = 20
"""Intervals without a byte read by the requester after which destinations are read again."""
MOST_REQUESTS: Final = 256
"""Requests of the requester that are searched for their destinations."""


class HeldBack:
    """The destinations that are not read while half of `max_pending` waits for a requester.

    Responses of request/response have no credit: many large ones at once would exceed the
    requester's backlog, however steadily it reads. A destination is held back only if all its
    streams are for that requester, so that no other requester waits. It is released soon if the
    requester does not read at all.

    Args:
        requester: The connection with the large backlog.

    Attributes:
        links: The destinations that are held back.
    """

    def __init__(self, requester: Link) -> None:
        self._requester = requester
        self.links: set[Link] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._read = 0
        self._idle = 0
        self._pace = Pace(requester.time)

    def look(self) -> None:
        """Hold back the destinations that answer only the requester; rate limited.

        Each call searches the streams of all destinations, and each flush calls it.
        """
        if self._idle >= PATIENCE or not self._pace.due():
            return
        requester = self._requester
        began = requester.time()
        for stream in islice(requester.core.streams.values(), MOST_REQUESTS):
            peer = stream.peer
            taker = peer.taker if isinstance(peer, StreamExchange) else None
            if taker is None or taker is requester or taker.blocked:
                continue
            if taker.answers_only(requester):
                self.links.add(taker)
                taker.block(requester)
        self._pace.done(began)
        if self.links and self._timer is None:
            self._read = requester.bytes_read()
            self._wait()

    def _wait(self) -> None:
        loop = self._requester.node.loop
        self._timer = loop.call_later(INTERVAL, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        requester = self._requester
        # A destination with a request of another requester was unblocked meanwhile.
        self.links = {link for link in self.links if _held(link, requester)}
        read = requester.bytes_read()
        self._idle = self._idle + 1 if read == self._read else 0
        self._read = read
        if requester.waiting <= requester.flow.max_pending // 4 or self._idle >= PATIENCE:
            self._let_go()
        elif self.links:
            self._wait()

    def _let_go(self) -> None:
        links, self.links = self.links, set()
        for link in links:
            link.unblock(self._requester)

    def end(self) -> None:
        """Read the destinations again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._let_go()


def _held(link: Link, requester: Link) -> bool:
    """Whether a destination is still not read and answers a requester only."""
    return link.blocked and (not link.core.streams or link.answers_only(requester))
