"""The windows of ids by which a message of the network is delivered at most once.

Theory of operation
===================

Each counter of ids that a sender has begun has a window: the highest id, which of the 1,024 ids up
to it were received, and the latest expiry of these. An id below the window is refused. A counter is
known by its source, its destination, and the time that its ids have, so one that was begun after
another is not below the window of that, whichever has the later time. A counter of more than 2^20
ids goes on with the next time, and so with the next window: about this carry, ids may come out of
order as elsewhere. Two counters of a pair with the same time would share a window, and the messages
of one would be refused as those of the other; `first_id_time` says why there are none.

A pair of source and destination has a few windows at a time. For a further one, the one with the
earliest time of ids goes, and the pair accepts ids of that time or before by windows alone that it
still has. This is not done by an expiry, as one sender could so choose what is accepted of others.

The windows of a pair may be forgotten when all that it has seen is expired. They are also *let go*
when there are too many: then the floor rises to the latest expiry of the pair. What has no window
is accepted only if it expires after the floor, and so is what comes later for a window that is
opened then. So a message of a window that is gone is never accepted again. To forget expired
windows raises the floor as well, which refuses nothing unless the clock is set back.

A peer that sends with ever new keys could have all windows let go, and raise the floor above what
others send. So each peer has a share of the windows, beyond which its new pairs are refused, and a
pair is let go only if it expires soon: beyond that new pairs are refused until one does. With ever
new times of ids it gets no more: each window counts, and a pair that has one gets a further one
beyond a limit only in the place of its own.

A node that is started knows none of the ids from before. All that was accepted then expires by
`MAX_TTL + MAX_SKEW` after the start, and has an id that was begun by `MAX_SKEW` after it, since no
other is accepted. What is both is refused.

A clock that is behind at a start would leave what was accepted before out of this. So a node with
a clock that is set forward refuses what is both of that time, as if it was started then; the
windows stay. Until it is set right, what it accepts is of the time that it has.

A node with a clock that is set back begins anew as well: floors and ids of before are of a time to
come, and would have all refused until then. The windows stay, and say what is not accepted again
once the clock gets there. Where windows were let go before they expired, or go now as the clock was
set back too often, a *gap* stays: what may have been in them, by its expiry and the time of its id,
is refused. So others are refused only for as long as the clock passes that time again. What was
forgotten as it had expired is like what was accepted before a start: with an id that was begun
later than the clock says now, it may be accepted once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush, heapreplace
from typing import Final

from ._freshness import MAX_SKEW, MAX_TTL, FreshnessRefusal, PeerShares, expiry_refusal
from ._identities import Destination, Identity
from ._message_ids import id_time
from ._number_window import NumberWindow

__all__ = [
    "MAX_FLOOR_AHEAD",
    "MAX_REPLAY_WINDOWS",
    "MAX_REPLAY_WINDOWS_OF_PAIR",
    "MAX_REPLAY_WINDOWS_OF_PEER",
    "REPLAY_WINDOW",
    "ReplayWindows",
]

REPLAY_WINDOW: Final = 1024
"""Ids of a counter, up to the highest, that may come out of order. Beyond: a message is refused as
too old."""
MAX_REPLAY_WINDOWS: Final = 65_536
"""Most windows. Beyond: the pair of source and destination that expires first is let go if it does
within `MAX_FLOOR_AHEAD`, and else the message of a new pair is refused."""
MAX_REPLAY_WINDOWS_OF_PEER: Final = 16_384
"""Most of these windows of which one peer has sent the first message. Beyond: a message of a new
pair by this peer is refused."""
MAX_REPLAY_WINDOWS_OF_PAIR: Final = 4
"""Most of these windows of one pair of source and destination. Beyond: the one with the earliest
time of ids is let go, and a message with an id that is earlier than all is refused as too old."""
MAX_FLOOR_AHEAD: Final = 60_000
"""Most time until the expiry of a pair that is let go, in milliseconds. What has no window is not
accepted if it expires before."""

_MOST_FORMER: Final = 2
"""Most times that the clock was set back of which the windows of before stay, until they expire.
Beyond: those of the earliest go, and a gap stays in their place."""
_MOST_GAPS: Final = 8
"""Most gaps, until they expire. Beyond: the two earliest become one, which has what is between."""
_AT_ONCE: Final = 256
"""Most entries that are looked at for one message without a window."""

_Pair = tuple[Identity, Destination]


class _Window(NumberWindow):
    """The ids of one counter."""

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


class _Windows:
    """The windows of one pair, by the time of their ids; at least one.

    Attributes:
        until: The latest expiry, also of windows that were let go.
        below: The latest time of ids of a window that was let go.
    """

    __slots__ = ("below", "of_time", "until")

    def __init__(self) -> None:
        self.of_time: dict[int, _Window] = {}
        self.until = 0
        self.below = -1

    @property
    def is_full(self) -> bool:
        return len(self.of_time) >= MAX_REPLAY_WINDOWS_OF_PAIR

    def refusal(self, time: int) -> FreshnessRefusal | None:
        """Return why a window of a time is not opened; `None` if it may be."""
        old = time <= self.below or (self.is_full and time < min(self.of_time))
        return FreshnessRefusal.TOO_OLD if old else None

    def let_go_earliest(self) -> Identity:
        """Remove the window with the earliest time of ids, and return the peer that has it."""
        self.below = min(self.of_time)
        return self.of_time.pop(self.below).peer

    def expired(self, time: int) -> list[int]:
        """Return the times of windows that have seen nothing that expires later; never of all."""
        return [each for each, window in self.of_time.items() if window.until < time][
            : len(self.of_time) - 1
        ]


@dataclass(frozen=True, slots=True)
class _Gap:
    """The messages that may have been accepted before a clock was set back, and are forgotten.

    Attributes:
        since: The earliest expiry of them, in Unix milliseconds.
        until: The latest one.
        begun: The latest time of its ids.
    """

    since: int
    until: int
    begun: int

    def has(self, time: int, expiry: int) -> bool:
        return self.since <= expiry <= self.until and time <= self.begun

    def joined(self, other: _Gap) -> _Gap:
        return _Gap(
            min(self.since, other.since),
            max(self.until, other.until),
            max(self.begun, other.begun),
        )


@dataclass(frozen=True, slots=True)
class _Former:
    """The windows from before the clock was set back.

    Attributes:
        pairs: The windows.
        all: What they have seen that was not expired then.
    """

    pairs: dict[_Pair, _Windows]
    all: _Gap

    def refusal(self, pair: _Pair, time: int, number: int, expiry: int) -> FreshnessRefusal | None:
        """Return why a message is refused that may have been received; `None` if it was not."""
        windows = self.pairs.get(pair)
        if windows is None:
            return None
        window = windows.of_time.get(time)
        if window is not None:
            # What was let go before this one was opened is in a gap.
            is_old = window.is_below(number) or window.has_seen(number)
            return FreshnessRefusal.REPEATED if is_old else None
        is_gone = time <= windows.below and self.all.since <= expiry <= windows.until
        return FreshnessRefusal.FORGOTTEN if is_gone else None


class ReplayWindows:
    """The windows of all counters.

    `check` is a question, for before a signature is verified; `record` comes once all else is, so
    a forged message uses up no id. What either refuses is counted.

    Args:
        started: The time at which this node was started, in Unix milliseconds.
        floor: The latest expiry that was accepted before, where it was kept; `None` if it was not.
        limit: Most windows.
        share: Most windows of one peer.

    Attributes:
        floor: The expiry at or before which nothing without a window is accepted, in Unix
            milliseconds.
        until: The latest expiry that was recorded, to be kept for the next start.
        let_go: The windows that were let go before they expired.
        refused: The messages that were refused, by their reasons.
    """

    __slots__ = (
        "_by_expiry",
        "_former",
        "_gaps",
        "_latest",
        "_limits",
        "_pairs",
        "_shares",
        "_start_floor",
        "_started",
        "floor",
        "let_go",
        "refused",
        "until",
    )

    def __init__(
        self,
        started: int,
        floor: int | None = None,
        limit: int = MAX_REPLAY_WINDOWS,
        share: int = MAX_REPLAY_WINDOWS_OF_PEER,
    ) -> None:
        self._started = started
        self._start_floor = started + MAX_TTL + MAX_SKEW if floor is None else floor
        self._pairs: dict[_Pair, _Windows] = {}
        # The windows from before the clock was set back, and the gaps in them, earliest first.
        self._former: list[_Former] = []
        self._gaps: list[_Gap] = []
        # The latest time of a message since then.
        self._latest = started
        self._limits = limit, share
        # One entry for each pair, with an expiry that it had; `_forget_first` puts it right.
        self._by_expiry: list[tuple[int, _Pair]] = []
        self._shares = PeerShares(limit, share)
        self.floor = 0
        self.until = self._start_floor if floor is not None else 0
        self.let_go = 0
        self.refused = dict.fromkeys(FreshnessRefusal, 0)

    def __len__(self) -> int:
        return self._shares.used

    def of_pair(self, source: Identity, destination: Destination) -> int:
        """Return the number of windows of a pair."""
        windows = self._pairs.get((source, destination))
        return 0 if windows is None else len(windows.of_time)

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
        pair = source, destination
        return self._counted(self._refusal(pair, id_time(number), number, expiry, now))

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
        pair, time = (source, destination), id_time(number)
        self._latest = max(self._latest, now)
        windows = self._pairs.get(pair)
        refusal = self._refusal(pair, time, number, expiry, now)
        if refusal is None and (windows is None or time not in windows.of_time):
            refusal = self._open(pair, time, expiry, peer, now)
            windows = self._pairs.get(pair)
        if refusal is not None or windows is None:
            return self._counted(refusal)
        window = windows.of_time[time]
        window.add(number)
        if expiry > window.until:
            window.until = expiry
            windows.until = max(windows.until, expiry)
            self.until = max(self.until, expiry)
        return None

    def start_again(self, started: int) -> None:
        """Go on by a clock that was set forward: what was begun before is refused, as at a start.

        Args:
            started: The time, in Unix milliseconds. Ids that are accepted begin later than
                `MAX_SKEW` after it.
        """
        # Nothing that was seen before expires later than this.
        self._start_floor = max(self._start_floor, self.until, started + MAX_TTL + MAX_SKEW)
        self._started = started

    def begin_anew(self, started: int) -> None:
        """Go on by a clock that was set back: what was begun before is refused, and what was seen.

        Args:
            started: The time, in Unix milliseconds. Ids that are accepted begin later than
                `MAX_SKEW` after it.
        """
        # Whatever was accepted and is not expired.
        earliest, latest = self._latest - MAX_SKEW, self._latest + MAX_SKEW
        whole = _Gap(earliest, min(self.until, latest + MAX_TTL), latest)
        if self._pairs:
            self._former.append(_Former(self._pairs, whole))
        if len(self._former) > _MOST_FORMER:
            self._gaps.append(self._former.pop(0).all)
        if self.floor >= earliest:
            self._gaps.append(replace(whole, until=self.floor))
        while len(self._gaps) > _MOST_GAPS:
            first = self._gaps.pop(0)
            self._gaps[0] = self._gaps[0].joined(first)
        self.start_again(started)
        self._latest = started
        self._pairs, self._by_expiry = {}, []
        self._shares = PeerShares(*self._limits)
        self.floor = 0

    def forget_expired(self, now: int) -> None:
        """Forget windows of which all that they have seen is expired, some in each call.

        A message without a window does so as well.

        Args:
            now: The time, in Unix milliseconds.
        """
        before = now - MAX_SKEW
        if self._former or self._gaps:
            self._former = [each for each in self._former if each.all.until >= before]
            self._gaps = [each for each in self._gaps if each.until >= before]
        for _ in range(_AT_ONCE):
            if not self._by_expiry or self._by_expiry[0][0] >= before:
                return
            windows = self._pairs[self._by_expiry[0][1]]
            if not self._forget_first():
                for time in windows.expired(before):
                    self._forget(windows.of_time.pop(time))

    def _refusal(
        self, pair: _Pair, time: int, number: int, expiry: int | None, now: int
    ) -> FreshnessRefusal | None:
        if expiry is None:
            return FreshnessRefusal.NO_EXPIRY
        if (refusal := expiry_refusal(expiry, now)) is not None:
            return refusal
        if time > now + MAX_SKEW:
            return FreshnessRefusal.AHEAD
        if expiry <= self._start_floor and time <= self._started + MAX_SKEW:
            return FreshnessRefusal.BEFORE_START
        if self._former or self._gaps:
            refusal = self._refusal_of_before(pair, time, number, expiry)
            if refusal is not None:
                return refusal
        windows = self._pairs.get(pair)
        window = None if windows is None else windows.of_time.get(time)
        if window is not None:
            return window.refusal(number, expiry)
        if expiry <= self.floor:
            return FreshnessRefusal.FORGOTTEN
        return None if windows is None else windows.refusal(time)

    def _refusal_of_before(
        self, pair: _Pair, time: int, number: int, expiry: int
    ) -> FreshnessRefusal | None:
        """Return why a message is refused by what came before the clock was set back."""
        for former in self._former:
            refusal = former.refusal(pair, time, number, expiry)
            if refusal is not None:
                return refusal
        is_gone = any(gap.has(time, expiry) for gap in self._gaps)
        return FreshnessRefusal.FORGOTTEN if is_gone else None

    def _open(
        self, pair: _Pair, time: int, expiry: int, peer: Identity, now: int
    ) -> FreshnessRefusal | None:
        """Open the window of a counter, or return why there is no room for it."""
        self.forget_expired(now)
        windows = self._pairs.get(pair)
        refusal = self._shares.refusal(peer)
        if windows is not None and (windows.is_full or refusal is not None):
            # In the place of its earliest one, for the peer that this was counted for.
            if time < min(windows.of_time):
                return refusal
            self.let_go += 1
            windows.of_time[time] = _Window(self.floor, windows.let_go_earliest())
            return None
        # One that expires after this message is not let go: the floor would be above the message.
        if refusal is FreshnessRefusal.FULL and self._let_go(
            min(now + MAX_FLOOR_AHEAD, expiry - 1)
        ):
            refusal = None
        if refusal is None:
            if windows is None:
                windows = self._pairs[pair] = _Windows()
                heappush(self._by_expiry, (expiry, pair))
            windows.of_time[time] = _Window(self.floor, peer)
            self._shares.add(peer)
        return refusal

    def _let_go(self, latest: int) -> bool:
        """Remove the pair that expires first, and return whether one does by `latest`."""
        for _ in range(_AT_ONCE):
            if not self._by_expiry or self._by_expiry[0][0] > latest:
                break
            before = len(self)
            if self._forget_first():
                self.let_go += before - len(self)
                return True
        return False

    def _forget_first(self) -> bool:
        """Forget the pair that expires first, and return whether it was.

        Else it has seen a later expiry, and its entry is put right.
        """
        expiry, pair = self._by_expiry[0]
        windows = self._pairs[pair]
        if windows.until > expiry:
            heapreplace(self._by_expiry, (windows.until, pair))
            return False
        heappop(self._by_expiry)
        del self._pairs[pair]
        for each in windows.of_time.values():
            self._forget(each)
        self.floor = max(self.floor, expiry)
        return True

    def _forget(self, window: _Window) -> None:
        self._shares.remove(window.peer)
        self.floor = max(self.floor, window.until)

    def _counted(self, refusal: FreshnessRefusal | None) -> FreshnessRefusal | None:
        if refusal is not None:
            self.refused[refusal] += 1
        return refusal
