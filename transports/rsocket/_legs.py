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

__all__ = ["LARGE", "Legs"]

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
class _Leg:
    """A copy in the backlog of a destination's socket.

    Attributes:
        branch: The leg of the copy.
        link: The destination's connection.
        size: Its unread bytes, as far as known.
        ahead: Bytes of the backlog up to its end.
        seen: Bytes of the backlog at the last check.
        since: When the destination last read.
        slow: Whether the other copies no longer wait for it.
        set_aside: Whether only `max_held_total` counts it.
        left: Whether the destination was given up.
    """

    branch: Leg
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


class Legs:
    """The unread copies of the large frames of one multicast.

    They count for the multicast until they are read, and are bounded by `max_held`, by
    `max_multicast_held` of the requester and by `max_held_total`, of which no source of requesters
    may have more than is free. A copy without a byte read for `UNTOUCHED` seconds no longer counts
    for `max_held`, so that the destinations that read need not wait for the others. As long as
    such copies fill no more than a quarter of `max_held_total`, that limit alone counts them. A
    destination that reads nothing for `patience` with a backlog above `high_water` is
    given up.

    Args:
        merge: The request.
    """

    def __init__(self, merge: MulticastRequest) -> None:
        self._merge = merge
        self._loop = merge.link.node.loop
        self._queue: deque[tuple[Leg, Link]] = deque()
        self._queued: set[Leg] = set()
        self._turn: Leg | None = None
        self._under_way: list[_Leg] = []
        self._held = 0  # bytes under way that delay the others
        self._kept = 0  # bytes of the request kept for the queue
        self._no_room_since: float | None = None
        self._handle: asyncio.Handle | None = None

    @property
    def kept(self) -> int:
        """Bytes of the request's own frame that are kept for the queued destinations."""
        return self._kept if self._queue else 0

    def hand_to(self, branch: Leg, link: Link) -> None:
        """Queue a destination for the request."""
        merge = self._merge
        exchange = merge.exchange
        if not self._kept:
            self._kept = exchange.size + FRAME_COST
            exchange.wait()
            self._join(branch, link)
            # The frames of a fragmented one were counted as they arrived.
            whole = len(exchange.frames) == 1
            if whole and not merge.link.session.gathered.keep(self, exchange.size):
                exchange.fail(NotDelivered("the request", "too many large ones are on their way"))
        else:
            self._join(branch, link)

    def allows(self, branch: Leg, link: Link) -> bool:
        """Whether a destination may be sent a large frame now; if not, queue it."""
        if branch is self._turn:
            self._turn = None
            return True
        self._join(branch, link)
        return False

    def _join(self, branch: Leg, link: Link) -> None:
        if branch not in self._queued:
            self._queued.add(branch)
            self._queue.append((branch, link))
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
        now = self._merge.link.time()
        self._look(now)
        handed = 0
        room = True
        while self._queue and handed < SLICE:
            size = self._size_for(self._queue[0][0])
            room = not size or self._room(size)
            if not room:
                break
            branch, link = self._queue.popleft()
            self._queued.discard(branch)
            if size:
                handed += size
                self._hand_over(branch, link, size, now)
        if room:
            self._no_room_since = None
        elif self._no_room_since is None or any(not leg.left for leg in self._under_way):
            self._no_room_since = now
        elif now - self._no_room_since >= self._merge.rules.patience:
            self._merge.overflow("too many bytes are held for multicasts")
        if not self._queue:
            self._merge.link.session.gathered.let_go(self)
        if self._queue or self._under_way:
            # A copy that is read at once is gone by the next turn.
            soon = self._queue and (room or handed)
            self._again(0 if soon else INTERVAL if self._queue else SELDOM)

    def _size_for(self, branch: Leg) -> int:
        """Return the bytes of the next frame for a destination, or 0."""
        if branch.ended:
            return 0
        if branch.to is None:
            return self._merge.exchange.size
        if not branch.queue:
            return 0
        frame = branch.queue[0]
        return frame.end - frame.start

    def _room(self, size: int) -> bool:
        merge = self._merge
        rules, link = merge.rules, merge.link
        own = rules.copies.get(link.source, 0)
        return (
            # no source has more than is free
            (not own or own + size <= rules.max_total - rules.held - size)
            and (not self._held or self._held + size <= rules.max_held)
            and link.multicast_held + size <= link.options.max_multicast_held
            and rules.held + size <= rules.max_total
        )

    def _hand_over(self, branch: Leg, link: Link, size: int, now: float) -> None:
        """Hand a destination its copy; a failure affects that destination only."""
        merge = self._merge
        if branch.to is None:
            try:
                branch.hand_over(link)
            except (NotDelivered, ProtocolError) as error:
                merge.on_skipped(branch, error)
                return
        else:
            self._turn = branch
            branch.replenish()
            if self._turn is branch:
                self._turn = None
                return  # it has no credit, or its socket is full
        waiting = _waiting(link)
        self._under_way.append(_Leg(branch, link, size, waiting, waiting, now))
        self._held += size
        merge.book(size)
        copies, source = merge.rules.copies, merge.link.source
        copies[source] = copies.get(source, 0) + size

    # --- copies under way ---------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """Release the bytes read since the last check, and the destinations that do not read."""
        patience = self._merge.rules.patience
        late: list[_Leg] = []
        for leg in self._under_way:
            read = leg.look(now)
            if read:
                self._let_go(leg, read)
            if not leg.size or leg.left:
                continue
            unread = now - leg.since
            if unread >= patience:
                late.append(leg)
            elif unread >= UNTOUCHED and not leg.set_aside:
                self._pass_over(leg)
        for leg in late:
            self._give_up(leg)
        self._under_way = [leg for leg in self._under_way if leg.size]

    def _pass_over(self, leg: _Leg) -> None:
        """Stop counting a slow copy for the multicast, within the limits of all multicasts."""
        if not leg.slow:
            leg.slow = True
            self._held -= leg.size
        rules = self._merge.rules
        if rules.set_aside + leg.size > rules.max_total // SET_ASIDE:
            return
        leg.set_aside = True
        rules.set_aside += leg.size
        self._merge.link.multicast_held -= leg.size

    def _give_up(self, leg: _Leg) -> None:
        """Give up a destination; a copy set aside counts until its socket is closed.

        A socket below `high_water` is never closed for a peer that does not read, and its bytes
        are few. They count for `max_pending_total` only.
        """
        leg.left = True
        many = leg.seen > leg.link.options.high_water
        if not (many and leg.set_aside):
            self._let_go(leg, leg.size)
            leg.size = 0
        if many and not leg.branch.ended:
            self._merge.on_left(leg.branch)

    def _let_go(self, leg: _Leg, size: int) -> None:
        rules, source = self._merge.rules, self._merge.link.source
        rules.copies[source] -= size
        if not rules.copies[source]:
            del rules.copies[source]
        if leg.set_aside:
            rules.set_aside -= size
            rules.held -= size
        else:
            self._merge.book(-size)
            if not leg.slow:
                self._held -= size

    def close(self) -> None:
        """Hand over no more copies. Those under way count until they are read."""
        self._queue.clear()
        self._queued.clear()
        self._merge.link.session.gathered.let_go(self)


def _waiting(link: Link) -> int:
    """Return the backlog of a destination's socket, with the bytes of the next flush."""
    return link.waiting + (link.core.pending if link.flushing else 0)
