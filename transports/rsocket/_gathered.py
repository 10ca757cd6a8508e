"""Bytes kept of one peer's frames, with one bound for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from ._byte_shares import Pace
from ._request import FRAME_COST

if TYPE_CHECKING:
    from ._byte_shares import ByteShares
    from ._exchange import StreamExchange
    from ._flow import Flow
    from ._link import Link
    from ._reassembly import Keeper

__all__ = ["Gathered"]

SPARE: Final = 64
"""Ended requests that are kept, besides as many as have not ended, before they are removed."""

LOOKS: Final = 8
"""Requests and other keepers that are counted for each frame at the limit, on average; more are
counted at the rate of `Pace`."""

SHARE_GIVEN_UP: Final = 8
"""The least part of a peer's kept bytes that is given up for others: one in so many."""


class Gathered:
    """The bytes kept of a peer's frames, bounded by `max_gathered`.

    They are of fragmented requests, elements that a handler of this node has not received, and
    unfinished answers to workers. Frames are counted when they arrive, but not when they are
    released, as that may be on the path of a relayed frame. At the limit all are counted anew, but
    not for each frame: there may be more than 100,000 of them.

    Attributes:
        limit: The most bytes kept, with the cost of their objects.

    Args:
        link: The peer's connection.
        shares: The bytes kept of all peers.
    """

    def __init__(self, link: Flow, shares: ByteShares) -> None:
        self._link: Flow | None = link
        self._shares = shares
        self.limit = link.gathering.max_gathered
        self._requests: set[StreamExchange] = set()
        self._keepers: set[Keeper] = set()
        self._size = 0
        self._sort_out = SPARE
        self._frames = 0  # frames counted since the last full count
        self._pace = Pace(shares.clock)

    def add(self, exchange: StreamExchange, size: int) -> bool:
        """Count a frame that a request has been given to keep.

        Returns:
            Whether there is room for it. If not, the caller has to refuse the request.
        """
        self._requests.add(exchange)
        return self._room(size + FRAME_COST)

    def keep(self, keeper: Keeper, size: int) -> bool:
        """Count a frame that a keeper has been given to keep, until `let_go`.

        Returns:
            Whether there is room for it. If not, the caller has to drop it.
        """
        self._keepers.add(keeper)
        return self._room(size + FRAME_COST)

    def let_go(self, keeper: Keeper) -> None:
        """Remove a keeper that keeps nothing any more."""
        self._keepers.discard(keeper)

    def clear(self) -> None:
        """Remove all requests and keepers at the end of the connection."""
        self._requests.clear()
        self._keepers.clear()
        if self._link is not None:
            self._shares.note(self._link, 0)
            self._link = None

    def count(self) -> int:
        """Count the kept bytes anew, and return them."""
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
        elif self._size > self.limit and self._may_count():
            began = self._pace.clock()
            self.count()
            self._pace.done(began)
        room = self._size <= self.limit
        shares.note(link, self._size)
        if shares.exceeds(link.source):
            given_up = self._claim(link.source, size)
            still = shares.exceeds(link.source)
            room = self._size <= self.limit and not still
            shares.reached += given_up or still
        if not room:
            # The caller releases at least that.
            self._size -= size
            shares.note(link, self._size)
        return room

    def _claim(self, source: str, size: int) -> bool:
        """Make room for a source at the expense of one over its share; return whether it did."""
        shares = self._shares
        if not shares.measure() or not shares.exceeds(source):
            return False
        most = shares.overdrawn(source)
        if most is None or most.source == source:
            return False
        cast("Link", most).session.gathered.give_up(size)
        return True

    def give_up(self, size: int) -> None:
        """Refuse the largest fragmented requests, to make room for others.

        Args:
            size: The bytes needed. At least an eighth of the kept bytes is given up, so that the
                requests are not searched again for each small need.
        """
        needed = max(size, self.count() // SHARE_GIVEN_UP)
        for each in sorted(self._requests, key=lambda each: each.size, reverse=True):
            if needed <= 0:
                break
            # Not one that was handed to several destinations or to a handler.
            if each.stream is not None and each.stream.peer is each:
                needed -= each.size + FRAME_COST * len(each.frames)
                each.link.session.give_up(each)
        if self._link is not None:
            self._shares.note(self._link, self.count())

    def _may_count(self) -> bool:
        """Whether a full count is due, by its length and the rate limit."""
        several = len(self._requests) + len(self._keepers)
        return several <= LOOKS * self._frames or self._pace.due()
