"""Destinations that are not read, as what they send is for one requester that reads slowly."""

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
"""Seconds after which it is looked again how much waits for the requester."""
PATIENCE: Final = 20
"""Intervals in which the requester has read nothing before its destinations are read again."""
MOST_REQUESTS: Final = 256
"""Requests of the requester that are looked through for who answers them."""


class HeldBack:
    """Destinations whose sockets are not read while half of `max_pending` waits for a requester.

    Answers of request/response have no credit, so that many large ones at once would exceed what
    may wait, however steadily their requester reads. A destination is held back only if all it has
    in hand is for that requester: others never wait for one that is slow. It is not for long
    if the requester does not read at all.

    Args:
        requester: The connection that much waits for.

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
        """Hold back the destinations that answer only the requester, unless it was done just now.

        Each look goes through the streams of all destinations, and it is asked for at each flush.
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
        # One that another has asked meanwhile is read again, and is not held back any more.
        self.links = {link for link in self.links if _held(link, requester)}
        read = requester.bytes_read()
        self._idle = self._idle + 1 if read == self._read else 0
        self._read = read
        if requester.waiting <= requester.options.max_pending // 4 or self._idle >= PATIENCE:
            self._let_go()
        elif self.links:
            self._wait()

    def _let_go(self) -> None:
        links, self.links = self.links, set()
        for link in links:
            link.unblock(self._requester)

    def end(self) -> None:
        """Read the destinations again: the requester has read, or is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._let_go()


def _held(link: Link, requester: Link) -> bool:
    """Whether a destination is still not read because of its answers to a requester alone."""
    return link.blocked and (not link.core.streams or link.answers_only(requester))
