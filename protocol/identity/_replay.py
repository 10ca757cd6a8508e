"""The windows of ids by which a message of the network is delivered at most once.

Theory of operation
===================

Each pair of source and destination has a window: the highest id, which of the 1,024 ids up to it
were received, and the latest expiry of these. An id below the window is refused.

A window may be forgotten when all that it has seen is expired. It is also *let go* when there are
too many: then the floor rises to its latest expiry. A pair without a window accepts nothing that
expires at or before the floor, and neither does the window that it gets later. So a message of a
window that is gone is never accepted again. To forget an expired window raises the floor as well,
which refuses nothing unless the clock is set back.

A peer that sends with ever new keys could have all windows let go, and raise the floor above what
others send. So each peer has a share, beyond which its new pairs are refused, and a window is let
go only if it expires soon: beyond that new pairs are refused until one does.

A node that is started knows none of the ids from before. All that was accepted then expires by
`MAX_TTL + MAX_SKEW` after the start, and has an id that was begun by `MAX_SKEW` after it, since no
other is accepted. What is both is refused.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import Final

from ._freshness import MAX_SKEW, MAX_TTL, FreshnessRefusal, PeerShares, expiry_refusal
from ._identities import Destination, Identity
from ._message_ids import id_time
from ._number_window import NumberWindow

__all__ = [
    "MAX_FLOOR_AHEAD",
    "MAX_REPLAY_PAIRS",
    "MAX_REPLAY_PAIRS_OF_PEER",
    "REPLAY_WINDOW",
    "ReplayWindows",
]

REPLAY_WINDOW: Final = 1024
"""Ids of a pair of source and destination, up to the highest, that may come out of order. Beyond:
a message is refused as too old."""
MAX_REPLAY_PAIRS: Final = 65_536
"""Most pairs of source and destination that have a window. Beyond: the window that expires first is
let go if it does within `MAX_FLOOR_AHEAD`, and else the message of a new pair is refused."""
MAX_REPLAY_PAIRS_OF_PEER: Final = 16_384
"""Most of these pairs of which one peer has sent the first message. Beyond: a message of a new pair
by this peer is refused."""
MAX_FLOOR_AHEAD: Final = 60_000
"""Most time until the expiry of a window that is let go, in milliseconds. New pairs accept no
message that expires before."""

_AT_ONCE: Final = 256
"""Most entries that are looked at for one message of a new pair."""

_Pair = tuple[Identity, Destination]


class _Window(NumberWindow):
    """The ids of one pair."""

    __slots__ = ("floor", "peer", "until")

    def __init__(self, floor: int, peer: Identity) -> None:
        super().__init__(REPLAY_WINDOW)
        self.until = 0
        self.floor = floor
        self.peer = peer

    def refusal(self, number: int, expiry: int) -> FreshnessRefusal | None:
        if expiry <= self.floor:
            return FreshnessRefusal.FORGOTTEN
        if self.is_below(number):
            return FreshnessRefusal.TOO_OLD
        return FreshnessRefusal.REPEATED if self.has_seen(number) else None

    def record(self, number: int, expiry: int) -> None:
        self.add(number)
        self.until = max(self.until, expiry)


class ReplayWindows:
    """The windows of all pairs of source and destination.

    `check` is a question, for before a signature is verified; `record` comes once all else is, so
    a forged message uses up no id. What either refuses is counted.

    Args:
        started: The time at which this node was started, in Unix milliseconds.
        floor: The latest expiry that was accepted before, where it was kept; `None` if it was not.
        limit: Most windows.
        share: Most windows of one peer.

    Attributes:
        floor: The expiry at or before which new pairs accept nothing, in Unix milliseconds.
        until: The latest expiry that was recorded, to be kept for the next start.
        let_go: The windows that were let go before they expired.
        refused: The messages that were refused, by their reasons.
    """

    __slots__ = (
        "_by_expiry",
        "_shares",
        "_start_floor",
        "_started",
        "_windows",
        "floor",
        "let_go",
        "refused",
        "until",
    )

    def __init__(
        self,
        started: int,
        floor: int | None = None,
        limit: int = MAX_REPLAY_PAIRS,
        share: int = MAX_REPLAY_PAIRS_OF_PEER,
    ) -> None:
        self._started = started
        self._start_floor = started + MAX_TTL + MAX_SKEW if floor is None else floor
        self._windows: dict[_Pair, _Window] = {}
        # One entry for each window, with an expiry that it had; `_forget` puts it right.
        self._by_expiry: list[tuple[int, _Pair]] = []
        self._shares = PeerShares(limit, share)
        self.floor = 0
        self.until = self._start_floor if floor is not None else 0
        self.let_go = 0
        self.refused = dict.fromkeys(FreshnessRefusal, 0)

    def __len__(self) -> int:
        return len(self._windows)

    def check(
        self, source: Identity, destination: Destination, number: int, expiry: int | None, now: int
    ) -> FreshnessRefusal | None:
        """Return why a message is refused; `None` if it is not. Nothing is recorded.

        Args:
            source: The source of the message.
            destination: Its destination.
            number: Its id.
            expiry: Its expiry, in Unix milliseconds.
            now: The time, in Unix milliseconds.
        """
        return self._counted(self._refusal((source, destination), number, expiry, now))

    def record(
        self,
        source: Identity,
        destination: Destination,
        number: int,
        expiry: int,
        peer: Identity,
        now: int,
    ) -> FreshnessRefusal | None:
        """Record a message; return why it is refused, or `None` if it was not seen before.

        Args:
            source: The source of the message; its signature was verified.
            destination: Its destination.
            number: Its id.
            expiry: Its expiry, in Unix milliseconds.
            peer: The node at the other end of the link by which it came.
            now: The time, in Unix milliseconds.
        """
        pair = (source, destination)
        refusal = self._refusal(pair, number, expiry, now)
        if refusal is None:
            window = self._windows.get(pair)
            if window is not None:
                window.record(number, expiry)
            else:
                refusal = self._open(pair, number, expiry, peer, now)
        if refusal is None:
            self.until = max(self.until, expiry)
        return self._counted(refusal)

    def forget_expired(self, now: int) -> None:
        """Forget windows of which all that they have seen is expired, some in each call.

        A message of a new pair does so as well.

        Args:
            now: The time, in Unix milliseconds.
        """
        for _ in range(_AT_ONCE):
            if not self._by_expiry or self._by_expiry[0][0] >= now - MAX_SKEW:
                return
            self._forget_first()

    def _refusal(
        self, pair: _Pair, number: int, expiry: int | None, now: int
    ) -> FreshnessRefusal | None:
        if expiry is None:
            return FreshnessRefusal.NO_EXPIRY
        if (refusal := expiry_refusal(expiry, now)) is not None:
            return refusal
        if id_time(number) > now + MAX_SKEW:
            return FreshnessRefusal.AHEAD
        if expiry <= self._start_floor and id_time(number) <= self._started + MAX_SKEW:
            return FreshnessRefusal.BEFORE_START
        window = self._windows.get(pair)
        if window is not None:
            return window.refusal(number, expiry)
        return FreshnessRefusal.FORGOTTEN if expiry <= self.floor else None

    def _open(
        self, pair: _Pair, number: int, expiry: int, peer: Identity, now: int
    ) -> FreshnessRefusal | None:
        """Open the window of a new pair, or return why there is no room for it."""
        self.forget_expired(now)
        refusal = self._shares.refusal(peer)
        # One that expires after this message is not let go: the floor would be above the message.
        if refusal is FreshnessRefusal.FULL and self._let_go(
            min(now + MAX_FLOOR_AHEAD, expiry - 1)
        ):
            refusal = None
        if refusal is None:
            window = self._windows[pair] = _Window(self.floor, peer)
            window.record(number, expiry)
            self._shares.add(peer)
            heappush(self._by_expiry, (expiry, pair))
        return refusal

    def _let_go(self, latest: int) -> bool:
        """Remove the window that expires first, and return whether one does by `latest`."""
        for _ in range(_AT_ONCE):
            if not self._by_expiry or self._by_expiry[0][0] > latest:
                break
            if self._forget_first():
                self.let_go += 1
                return True
        return False

    def _forget_first(self) -> bool:
        """Forget the window that expires first, and return whether it was.

        Else it has seen a later expiry, and its entry is put right.
        """
        expiry, pair = self._by_expiry[0]
        window = self._windows[pair]
        if window.until > expiry:
            heapreplace(self._by_expiry, (window.until, pair))
            return False
        heappop(self._by_expiry)
        del self._windows[pair]
        self._shares.remove(window.peer)
        self.floor = max(self.floor, expiry)
        return True

    def _counted(self, refusal: FreshnessRefusal | None) -> FreshnessRefusal | None:
        if refusal is not None:
            self.refused[refusal] += 1
        return refusal
