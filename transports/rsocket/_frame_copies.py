"""Copies of large requests and elements for several destinations, a few at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...protocol import NotDelivered, ProtocolError
from ._request import FRAME_COST

if TYPE_CHECKING:
    from ._leg import Leg
    from ._link import Link
    from ._multicast import MulticastRequest

__all__ = ["LARGE", "FrameCopies"]

LARGE: Final = 256 * 1024
"""Bytes of all copies of a frame above which they are handed over a few at a time."""
SLICE: Final = 256 * 1024
"""Bytes of copies that are handed over in one turn of the loop; one copy at least."""
INTERVAL: Final = 0.05
"""Seconds between checks of the copies under way while others are queued."""
SELDOM: Final = 0.5
"""Seconds between checks of the copies under way while none is queued."""
UNTOUCHED: Final = 0.2
"""Seconds without a byte read after which a copy stops delaying the others."""
SET_ASIDE: Final = 4
"""The part of `max_held_total` that such copies may fill: one in so many."""


@dataclass(slots=True, eq=False)
class _Copy:
    """A copy in the backlog of a destination's socket.

    Attributes:
        leg: The leg of the copy.
        link: The destination's connection.
        size: Its unread bytes, as far as known.
        ahead: Bytes of the backlog up to its end.
        seen: Bytes of the backlog at the last check.
        since: When the destination last read.
        slow: Whether the other copies no longer wait for it.
        set_aside: Whether only `max_held_total` counts it.
        left: Whether the destination was given up.
    """

    leg: Leg
    link: Link
    size: int
    ahead: int
    seen: int
    since: float
    slow: bool = False
    set_aside: bool = False
    left: bool = False

    def look(self, now: float) -> int:
        """Return the bytes of the copy that were read since the last check."""
        link = self.link
        waiting = _waiting(link)
        if waiting < self.seen:
            self.ahead -= self.seen - waiting
            self.since = now
        self.seen = waiting
        left = max(0, min(self.size, self.ahead, waiting))
        read = self.size - left
        self.size = left
        return read


class FrameCopies:
    """The unread copies of the large frames of one multicast.

    They count for the multicast until they are read, and are bounded by `max_held`, by
    `max_multicast_held` of the requester and by `max_held_total`, of which no source of requesters
    may have more than is free. A copy without a byte read for `UNTOUCHED` seconds no longer counts
    for `max_held`, so that the destinations that read need not wait for the others. As long as
    such copies fill no more than a quarter of `max_held_total`, that limit alone counts them. A
    destination that reads nothing for `patience` with a backlog above `high_water` is
    given up.

    Args:
        multicast: The request.
    """

    def __init__(self, multicast: MulticastRequest) -> None:
        self._multicast = multicast
        self._loop = multicast.link.node.loop
        self._queue: deque[tuple[Leg, Link]] = deque()
        self._queued: set[Leg] = set()
        self._turn: Leg | None = None
        self._under_way: list[_Copy] = []
        self._held = 0  # bytes under way that delay the others
        self._kept = 0  # bytes of the request kept for the queue
        self._no_room_since: float | None = None
        self._handle: asyncio.Handle | None = None

    @property
    def kept(self) -> int:
        """Bytes of the request's own frame that are kept for the queued destinations."""
        return self._kept if self._queue else 0

    def hand_to(self, leg: Leg, link: Link) -> None:
        """Queue a destination for the request."""
        multicast = self._multicast
        exchange = multicast.exchange
        if not self._kept:
            self._kept = exchange.size + FRAME_COST
            exchange.wait()
            self._join(leg, link)
            # The frames of a fragmented one were counted as they arrived.
            whole = len(exchange.frames) == 1
            if whole and not multicast.link.session.gathered.keep(self, exchange.size):
                exchange.fail(NotDelivered("the request", "too many large ones are on their way"))
        else:
            self._join(leg, link)

    def allows(self, leg: Leg, link: Link) -> bool:
        """Whether a destination may be sent a large frame now; if not, queue it."""
        if leg is self._turn:
            self._turn = None
            return True
        self._join(leg, link)
        return False

    def _join(self, leg: Leg, link: Link) -> None:
        if leg not in self._queued:
            self._queued.add(leg)
            self._queue.append((leg, link))
        if self._no_room_since is None:
            self._again(0)

    def _again(self, seconds: float) -> None:
        if self._handle is not None:
            if seconds:
                return
            self._handle.cancel()
        loop = self._loop
        go_on = self._go_on
        self._handle = loop.call_later(seconds, go_on) if seconds else loop.call_soon(go_on)

    def _go_on(self) -> None:
        self._handle = None
        now = self._multicast.link.time()
        self._look(now)
        handed = 0
        room = True
        while self._queue and handed < SLICE:
            size = self._size_for(self._queue[0][0])
            room = not size or self._room(size)
            if not room:
                break
            leg, link = self._queue.popleft()
            self._queued.discard(leg)
            if size:
                handed += size
                self._hand_over(leg, link, size, now)
        if room:
            self._no_room_since = None
        elif self._no_room_since is None or any(not copy.left for copy in self._under_way):
            self._no_room_since = now
        elif now - self._no_room_since >= self._multicast.rules.patience:
            self._multicast.overflow("too many bytes are held for multicasts")
        if not self._queue:
            self._multicast.link.session.gathered.let_go(self)
        if self._queue or self._under_way:
            # A copy that is read at once is gone by the next turn.
            soon = self._queue and (room or handed)
            self._again(0 if soon else INTERVAL if self._queue else SELDOM)

    def _size_for(self, leg: Leg) -> int:
        """Return the bytes of the next frame for a destination, or 0."""
        if leg.ended:
            return 0
        if leg.to is None:
            return self._multicast.exchange.size
        if leg.queue is None:
            return 0
        frame = leg.queue[0]
        return frame.end - frame.start

    def _room(self, size: int) -> bool:
        multicast = self._multicast
        rules, link = multicast.rules, multicast.link
        own = rules.copies.get(link.source, 0)
        return (
            # no source has more than is free
            (not own or own + size <= rules.max_total - rules.held - size)
            and (not self._held or self._held + size <= rules.max_held)
            and link.multicast_held + size <= link.gathering.max_multicast_held
            and rules.held + size <= rules.max_total
        )

    def _hand_over(self, leg: Leg, link: Link, size: int, now: float) -> None:
        """Hand a destination its copy; a failure affects that destination only."""
        multicast = self._multicast
        if leg.to is None:
            try:
                leg.hand_over(link, now)
            except (NotDelivered, ProtocolError) as error:
                multicast.on_skipped(leg, error)
                return
        else:
            self._turn = leg
            leg.replenish()
            if self._turn is leg:
                self._turn = None
                return  # it has no credit, or its socket is full
        waiting = _waiting(link)
        self._under_way.append(_Copy(leg, link, size, waiting, waiting, now))
        self._held += size
        multicast.book(size)
        copies, source = multicast.rules.copies, multicast.link.source
        copies[source] = copies.get(source, 0) + size

    # --- copies under way ---------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """Release the bytes read since the last check, and the destinations that do not read."""
        patience = self._multicast.rules.patience
        late: list[_Copy] = []
        for copy in self._under_way:
            read = copy.look(now)
            if read:
                self._let_go(copy, read)
            if not copy.size or copy.left:
                continue
            unread = now - copy.since
            if unread >= patience:
                late.append(copy)
            elif unread >= UNTOUCHED and not copy.set_aside:
                self._pass_over(copy)
        for copy in late:
            self._give_up(copy)
        self._under_way = [copy for copy in self._under_way if copy.size]

    def _pass_over(self, copy: _Copy) -> None:
        """Stop counting a slow copy for the multicast, within the limits of all multicasts."""
        if not copy.slow:
            copy.slow = True
            self._held -= copy.size
        rules = self._multicast.rules
        if rules.set_aside + copy.size > rules.max_total // SET_ASIDE:
            return
        copy.set_aside = True
        rules.set_aside += copy.size
        self._multicast.link.multicast_held -= copy.size

    def _give_up(self, copy: _Copy) -> None:
        """Give up a destination; a copy set aside counts until its socket is closed.

        A socket below `high_water` is never closed for a peer that does not read, and its bytes
        are few. They count for `max_pending_total` only.
        """
        copy.left = True
        many = copy.seen > copy.link.flow.high_water
        if not (many and copy.set_aside):
            self._let_go(copy, copy.size)
            copy.size = 0
        if many and not copy.leg.ended:
            self._multicast.on_left(copy.leg)

    def _let_go(self, copy: _Copy, size: int) -> None:
        rules, source = self._multicast.rules, self._multicast.link.source
        rules.copies[source] -= size
        if not rules.copies[source]:
            del rules.copies[source]
        if copy.set_aside:
            rules.set_aside -= size
            rules.held -= size
        else:
            self._multicast.book(-size)
            if not copy.slow:
                self._held -= size

    def close(self) -> None:
        """Hand over no more copies. Those under way count until they are read."""
        self._queue.clear()
        self._queued.clear()
        self._multicast.link.session.gathered.let_go(self)


def _waiting(link: Link) -> int:
    """Return the backlog of a destination's socket, with the bytes of the next flush."""
    return link.waiting + (link.core.pending if link.flushing else 0)
