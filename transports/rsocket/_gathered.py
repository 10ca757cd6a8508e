"""What is kept of one peer's frames, bounded for all of it together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

from ._byte_shares import Pace
from ._request import FRAME_COST

if TYPE_CHECKING:
    from ._byte_shares import ByteShares
    from ._exchange import StreamExchange
    from ._flow import Flow
    from ._link import Link

__all__ = ["Gathered", "Keeper"]

SPARE: Final = 64
"""Requests in fragments that are over, above as many as are not, before they are let go of."""

LOOKS: Final = 8
"""Requests and other keepers that are looked at for each frame counted, on average, at the limit;
besides those looked at every now and then, by `Pace`."""

SHARE_GIVEN_UP: Final = 8
"""What part of what is kept of a peer's frames it loses at least, one of so many, if others need
the room."""


class Keeper(Protocol):
    """What keeps something of what a peer has sent."""

    @property
    def kept(self) -> int:
        """The bytes it keeps, with what the objects cost."""
        ...


class Gathered:
    """Bounds what is kept of a peer's frames by `max_gathered`.

    There are requests in fragments, elements that a handler of this node has not taken, and answers
    to workers that are not whole. All are counted when they come, and none when it goes, as that
    may be on the path of a relayed frame. At the limit it is looked what is left, but not for each
    frame: there may be more than 100,000 of them to look at.

    Args:
        link: The peer's connection, which has the limit.
        shares: What is kept of all peers together.
    """

    def __init__(self, link: Flow, shares: ByteShares) -> None:
        self._link: Flow | None = link
        self._shares = shares
        self._limit = link.options.max_gathered
        self._requests: set[StreamExchange] = set()
        self._keepers: set[Keeper] = set()
        self._size = 0
        self._sort_out = SPARE
        self._frames = 0  # counted since all was counted
        self._pace = Pace(shares.clock)

    def add(self, exchange: StreamExchange, size: int) -> bool:
        """Count a frame that is kept of a request; it has it already.

        Returns:
            Whether there is room for it. If not, it is up to the caller to refuse the request.
        """
        self._requests.add(exchange)
        return self._room(size + FRAME_COST)

    def keep(self, keeper: Keeper, size: int) -> bool:
        """Count a frame that something keeps, until it is let go of; it has it already.

        Returns:
            Whether there is room for it. If not, it is up to the caller to give it up.
        """
        self._keepers.add(keeper)
        return self._room(size + FRAME_COST)

    def let_go(self, keeper: Keeper) -> None:
        """Forget what keeps something: it does no more."""
        self._keepers.discard(keeper)

    def clear(self) -> None:
        """Let go of all: the connection is over."""
        self._requests.clear()
        self._keepers.clear()
        if self._link is not None:
            self._shares.note(self._link, 0)
            self._link = None

    def count(self) -> int:
        """Count what is left, and return how many bytes that is."""
        self._requests = {each for each in self._requests if each.kept}
        self._sort_out = 2 * len(self._requests) + SPARE
        requests = (each.size + FRAME_COST * len(each.frames) for each in self._requests)
        self._frames = 0
        self._size = sum(requests) + sum(each.kept for each in self._keepers)
        return self._size

    def _room(self, size: int) -> bool:
        link, shares = self._link, self._shares
        if link is None:
            return False
        self._size += size
        self._frames += 1
        if len(self._requests) > self._sort_out:
            self.count()
        elif self._size > self._limit and self._may_count():
            began = self._pace.clock()
            self.count()
            self._pace.done(began)
        room = self._size <= self._limit
        shares.note(link, self._size)
        if shares.exceeds(link.source):
            self._claim(link.source, size)
            room = self._size <= self._limit and not shares.exceeds(link.source)
        if not room:
            # The caller gives up at least that.
            self._size -= size
            shares.note(link, self._size)
        return room

    def _claim(self, source: str, size: int) -> None:
        """Look whether a source has room, and else have the one that holds the most make some."""
        shares = self._shares
        if not shares.measure() or not shares.exceeds(source):
            return
        most = shares.overdrawn(source)
        if most is not None and most.source != source:
            cast("Link", most).session.gathered.give_up(size)

    def give_up(self, size: int) -> None:
        """Refuse the largest requests in fragments: others need their room.

        Args:
            size: The bytes that are needed. It is an eighth of all that is kept at least, so that
                small ones are not looked through again for each.
        """
        needed = max(size, self.count() // SHARE_GIVEN_UP)
        for each in sorted(self._requests, key=lambda each: each.size, reverse=True):
            if needed <= 0:
                break
            # Not one that several destinations or a handler have in hand.
            if each.stream is not None and each.stream.peer is each:
                needed -= each.size + FRAME_COST * len(each.frames)
                each.link.session.give_up(each)
        if self._link is not None:
            self._shares.note(self._link, self.count())

    def _may_count(self) -> bool:
        """Whether to count what is left: not for each frame, where that is long."""
        several = len(self._requests) + len(self._keepers)
        return several <= LOOKS * self._frames or self._pace.due()
