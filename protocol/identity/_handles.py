"""The way back of answers: handles that are good for one use.

A relay that passes a sealed message on keeps a handle: 16 random bytes that stand for the previous
node, the handle of that node, and its own reply key. It gives the handle to the next node alone,
which may use it once, until the message expires. At its end the message has a handle as well, which
its receiver answers by; and the sender has one for the answer that it waits for.

What a handle is refused for is counted, and nothing is sent to any peer for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from ._freshness import MAX_SKEW, MAX_TTL, FreshnessRefusal, PeerShares
from ._identities import Identity
from ._p2p_message import ReplyContent
from ._replies import REPLY_SIZES, check_answer, open_answer, seal_answer, stream_xor
from ._return_ways import (
    Answer,
    ExpectedAnswer,
    HandleRefusal,
    PassedBack,
    ReturnHandle,
    check_handle,
)
from ._sealing import NO_REPLY

__all__ = [
    "MAX_EXPECTED",
    "MAX_HANDLES",
    "MAX_HANDLES_OF_PEER",
    "ExpectedAnswers",
    "HandleTable",
]

MAX_HANDLES: Final = 65_536
"""Most handles that a node keeps for others, until their use or expiry. Beyond: the message has
none, which is counted."""
MAX_HANDLES_OF_PEER: Final = 16_384
"""Most of these handles for one peer. Beyond: the message has none, which is counted. A source
behind the peer has as many as the peer has left."""
MAX_EXPECTED: Final = 16_384
"""Most answers that a node waits for at a time. Beyond: the message is refused at its sender."""

_AT_ONCE: Final = 256
"""Most handles that are forgotten for one that is added."""


_E = TypeVar("_E", ReturnHandle, ExpectedAnswer)


class _Handles(Generic[_E]):
    """Handles with a limit, of all peers and of one; each is for one use until its expiry."""

    __slots__ = ("_by_expiry", "_entries", "_shares", "refused")

    def __init__(self, limit: int, share: int) -> None:
        self._entries: dict[bytes, _E] = {}
        self._by_expiry: list[tuple[int, bytes]] = []
        self._shares = PeerShares(limit, share)
        self.refused = dict.fromkeys(HandleRefusal, 0)

    def __len__(self) -> int:
        return len(self._entries)

    def forget_expired(self, now: int) -> None:
        """Forget handles that are expired, some in each call; one that is added does so as well.

        Args:
            now: The time, in Unix milliseconds.
        """
        for _ in range(_AT_ONCE):
            if not self._by_expiry or not _is_expired(self._by_expiry[0][0], now):
                return
            _, handle = heappop(self._by_expiry)
            entry = self._entries.get(handle)
            if entry is not None and _is_expired(entry.expiry, now):
                self._remove(handle)

    def clock_set_back(self, now: int) -> None:
        """Forget handles that expire later than any may by a clock that was set back.

        They would have room and shares for as long as it was set back by. An answer by one of them
        is dropped, so that what waits for it ends as if there was none.

        Args:
            now: The time, in Unix milliseconds.
        """
        latest = now + MAX_TTL + MAX_SKEW
        self._forget_all([each for each, entry in self._entries.items() if entry.expiry > latest])
        self._shorten()

    def forget_peer(self, peer: Identity) -> None:
        """Forget the handles of a peer that is not trusted any more."""
        self._forget_all([each for each, entry in self._entries.items() if entry.peer == peer])

    def _forget_all(self, handles: Iterable[bytes]) -> None:
        for handle in handles:
            self._remove(handle)

    def forget(self, handle: bytes) -> None:
        """Forget a handle that comes to no use, if it is there."""
        if handle in self._entries:
            self._remove(handle)

    def _add(self, handle: bytes, entry: _E, now: int) -> HandleRefusal | None:
        check_handle(handle)
        self.forget_expired(now)
        refusal = self._refusal_to_add(handle, entry, now)
        if refusal is None:
            self._entries[handle] = entry
            self._shares.add(entry.peer, entry.source)
            heappush(self._by_expiry, (entry.expiry, handle))
            self._shorten()
            return None
        return self._counted(refusal)

    def _refusal_to_add(self, handle: bytes, entry: _E, now: int) -> HandleRefusal | None:
        if handle in self._entries:
            return HandleRefusal.IN_USE
        if _is_expired(entry.expiry, now):
            return HandleRefusal.EXPIRED
        full = self._shares.refusal(entry.peer, entry.source)
        return None if full is None else _FULL[full]

    def _take(self, handle: bytes, user: Identity | None, now: int) -> _E | HandleRefusal:
        """Return the entry of a handle, which is used with it."""
        entry = self._entries.get(handle)
        if entry is None:
            return self._counted(HandleRefusal.UNKNOWN)
        if entry.user != user:
            # It stays: whatever another peer does takes no answer from this one.
            return self._counted(HandleRefusal.FOREIGN)
        self._remove(handle)
        if _is_expired(entry.expiry, now):
            return self._counted(HandleRefusal.EXPIRED)
        return entry

    def _remove(self, handle: bytes) -> None:
        entry = self._entries.pop(handle)
        self._shares.remove(entry.peer, entry.source)

    def _shorten(self) -> None:
        """Forget when handles expire that were used, so that these are never most of the list."""
        if len(self._by_expiry) > 2 * len(self._entries) + _AT_ONCE:
            self._by_expiry = [(entry.expiry, each) for each, entry in self._entries.items()]
            heapify(self._by_expiry)

    def _counted(self, refusal: HandleRefusal) -> HandleRefusal:
        self.refused[refusal] += 1
        return refusal


class HandleTable(_Handles[ReturnHandle]):
    """The handles that a node keeps for others.

    Args:
        limit: Most handles.
        share: Most handles of one peer.

    Attributes:
        refused: The handles that were refused, by their reasons.
    """

    __slots__ = ()

    def __init__(self, limit: int = MAX_HANDLES, share: int = MAX_HANDLES_OF_PEER) -> None:
        super().__init__(limit, share)

    def add(self, handle: bytes, entry: ReturnHandle, now: int) -> HandleRefusal | None:
        """Keep a handle; return why it is refused, or `None` if it is not.

        Args:
            handle: 16 secret random bytes.
            entry: What it stands for.
            now: The time, in Unix milliseconds.

        Raises:
            BadKey: The handle has another size.
        """
        return self._add(handle, entry, now)

    def forget_banned(self, identity: Identity) -> None:
        """Forget the handles of an identity that is not trusted any more, and those for its use.

        Of these are what it has passed to this node, what it is the source of, and what this node
        has let out of it or to it.
        """
        self._forget_all(
            [
                handle
                for handle, entry in self._entries.items()
                if identity in {entry.peer, entry.user, entry.source, *entry.engines}
            ]
        )

    def pass_back(
        self, handle: bytes, peer: Identity, reply: bytes, nonce: bytes, now: int
    ) -> PassedBack | HandleRefusal:
        """Return the answer that a relay or an exit passes back, or why it is dropped.

        Args:
            handle: The handle that came with it.
            peer: The node at the other end of the link by which it came.
            reply: The answer.
            nonce: 12 random bytes, for an exit.
            now: The time, in Unix milliseconds.
        """
        if len(reply) not in REPLY_SIZES:
            return self._counted(HandleRefusal.BAD_SIZE)
        entry = self._take(handle, peer, now)
        if isinstance(entry, HandleRefusal):
            return entry
        if entry.opens != NO_REPLY:
            data = open_answer((entry.opens,), reply)
            if data is None:
                return self._counted(HandleRefusal.TAMPERED)
            reply = seal_answer(entry.reply_key, data, nonce)
        elif entry.reply_key != NO_REPLY:
            reply = stream_xor(entry.reply_key, reply)
        return PassedBack(entry.peer, ReplyContent(entry.handle, reply), entry.reserved)

    def answer(
        self, handle: bytes, data: bytes, nonce: bytes, now: int
    ) -> PassedBack | HandleRefusal:
        """Return the answer that the far end sends, or why there is none.

        Args:
            handle: The handle of the message that it answers.
            data: What it says.
            nonce: 12 random bytes.
            now: The time, in Unix milliseconds.

        Raises:
            BadKey: The nonce has another size. The handle is not used.
            MessageTooBig: It is over the greatest bucket. The handle is not used.
        """
        check_answer(data, nonce)
        entry = self._take(handle, None, now)
        if isinstance(entry, HandleRefusal):
            return entry
        reply = seal_answer(entry.reply_key, data, nonce)
        return PassedBack(entry.peer, ReplyContent(entry.handle, reply))


class ExpectedAnswers(_Handles[ExpectedAnswer]):
    """The answers that a node waits for.

    Args:
        limit: Most answers.

    Attributes:
        refused: The handles that were refused, by their reasons.
    """

    __slots__ = ()

    def __init__(self, limit: int = MAX_EXPECTED) -> None:
        super().__init__(limit, limit + 1)

    def expect(self, handle: bytes, answer: ExpectedAnswer, now: int) -> HandleRefusal | None:
        """Wait for an answer; return why not, or `None`.

        Args:
            handle: 16 secret random bytes, which the first hop is given.
            answer: What is waited for.
            now: The time, in Unix milliseconds.

        Raises:
            BadKey: The handle has another size.
        """
        return self._add(handle, answer, now)

    def open(self, handle: bytes, peer: Identity, reply: bytes, now: int) -> Answer | HandleRefusal:
        """Return an answer that has come, or why it is dropped; it is waited for no longer.

        Args:
            handle: The handle that came with it.
            peer: The node at the other end of the link by which it came.
            reply: The answer.
            now: The time, in Unix milliseconds.
        """
        if len(reply) not in REPLY_SIZES:
            return self._counted(HandleRefusal.BAD_SIZE)
        entry = self._take(handle, peer, now)
        if isinstance(entry, HandleRefusal):
            return entry
        data = open_answer(entry.reply_keys, reply)
        if data is None:
            return self._counted(HandleRefusal.TAMPERED)
        return Answer(entry.asker, entry.asked, data, entry.way)


def _is_expired(expiry: int, now: int) -> bool:
    return expiry < now - MAX_SKEW


_FULL: Final = {
    FreshnessRefusal.SHARE_FULL: HandleRefusal.SHARE_FULL,
    FreshnessRefusal.SOURCE_FULL: HandleRefusal.SOURCE_FULL,
    FreshnessRefusal.FULL: HandleRefusal.FULL,
}
