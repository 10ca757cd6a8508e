"""Messages that wait until a rule can resolve their addresses.

They are bounded in number, bytes and age, and refused in one way, whichever rule they wait for.
The messages of one link or connection may have no more of either than is still free: one leaves
half of the room to others, two leave a third, and so on.
"""

from __future__ import annotations

import threading
from asyncio import TimerHandle
from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from math import inf
from threading import get_ident
from typing import Final

from ...protocol import Message, OnwardError, UnknownAddressType, counted
from ...protocol._closed import close_class
from ...protocol.options import check_timeout
from .._errors import Expired, Unresolved
from ..runtime._run_queue import RunQueue
from ._table import AddressTable
from ._undeliverable import Undeliverable

__all__ = ["Pending", "PendingTable"]

SPARE: Final = 64
"""Stale deadlines, beyond as many as there are messages, before they are removed."""


class Pending:
    """The answer of a rule that cannot resolve an address yet.

    The node keeps each message for which a rule returns it, in order of arrival, until the owner
    of the rule settles it with `resume` or `refuse`, or the time of the message is over. The limits
    are `NodeLimits.pending`, `pending_bytes` and `pending_timeout`; a message beyond them is
    refused with `Unresolved`. It is settled once: the owner makes another for the next look-up.
    All of it is safe from any thread.

    Args:
        timeout: The time that a message waits at most, in seconds; by default
            `NodeLimits.pending_timeout`.
    """

    __slots__ = ("_kept", "_lock", "_reason", "_settled", "_table", "_timeout")

    def __init__(self, *, timeout: float | None = None) -> None:
        self._timeout = None if timeout is None else check_timeout(timeout)
        self._kept: dict[_PendingMessage, None] = {}
        # So that a message is either kept before it is settled, or sees that it is.
        self._lock = threading.Lock()
        self._settled = False
        self._reason: str | None = None
        self._table: PendingTable | None = None

    def __len__(self) -> int:
        """Return the number of messages that wait."""
        return len(self._kept)

    def resume(self) -> None:
        """Ask the rule again for each message, as it can resolve them now."""
        self._settle(None)

    def refuse(self, reason: str = "there is no such address") -> None:
        """Refuse the messages: each is lost with `Unresolved`, and its sender is told.

        Args:
            reason: The reason, for the error.
        """
        self._settle(reason)

    def _settle(self, reason: str | None) -> None:
        with self._lock:
            self._settled, self._reason = True, reason
            table = self._table
        if table is not None:  # else no message waits, and those that a rule has in hand ask again
            table.settle(self, reason)

    def _join(self, table: PendingTable) -> bool:
        """Set the table that keeps its messages; return false if it is settled."""
        with self._lock:
            self._table = table
            return not self._settled


close_class(Pending)


class _PendingMessage:
    """A message that waits."""

    __slots__ = ("message", "peer", "pending", "size", "until")

    def __init__(
        self, message: Message, pending: Pending, peer: Hashable | None, size: int, until: float
    ) -> None:
        self.message: Final = message
        self.pending: Final = pending
        self.peer: Final = peer
        self.size: Final = size
        self.until: Final = until


class PendingTable:
    """The messages of a node that wait for a rule.

    Args:
        run_queue: The run queue of the node, with its limits.
        table: The address table of the node.
        undeliverable: For the messages that are refused.
        again: Function that has a message resolved again, with the time until which it may wait.

    Attributes:
        refused: How often there was no place for a message.
        refused_bytes: How often there was a place, but not for its bytes.
    """

    __slots__ = (
        "_again",
        "_all",
        "_bytes",
        "_deadlines",
        "_last",
        "_lock",
        "_peers",
        "_run_queue",
        "_table",
        "_timer",
        "_undeliverable",
        "refused",
        "refused_bytes",
    )

    def __init__(
        self,
        run_queue: RunQueue,
        table: AddressTable,
        undeliverable: Undeliverable,
        again: Callable[[Message, float], object],
    ) -> None:
        self._run_queue: Final = run_queue
        self._table: Final = table
        self._undeliverable: Final = undeliverable
        self._again: Final = again
        self._lock = threading.RLock()
        self._all: dict[_PendingMessage, None] = {}
        self._bytes = 0
        # The number and bytes of the messages that came from each peer.
        self._peers: dict[Hashable, tuple[int, int]] = {}
        # Deadlines, soonest first; some are of messages that no longer wait.
        self._deadlines: list[tuple[float, int, _PendingMessage]] = []
        self._last = 0
        self._timer: TimerHandle | None = None
        self.refused = 0
        self.refused_bytes = 0

    @property
    def size(self) -> int:
        """The bytes of the waiting messages, routes included."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._all)

    def keep(self, message: Message, pending: Pending, until: float = inf) -> bool:
        """Keep a message until its rule is asked again.

        Args:
            message: The message.
            pending: The answer of the rule.
            until: The time until which it may wait at most, if it has waited before.

        Returns:
            Whether it is kept; if not, the rule has to be asked again at once.

        Raises:
            Unresolved: There is no room for it, or the rule refuses it.
        """
        run_queue, limits = self._run_queue, self._run_queue.limits
        timeout = limits.pending_timeout if pending._timeout is None else pending._timeout
        context = message[4]
        due = None if context is None else context[0]
        until = min(until, run_queue.loop.time() + timeout, inf if due is None else due)
        size = _size_of(message)
        peer = self._table.peer_of(message)
        with self._lock:
            if not pending._join(self):
                if pending._reason is not None:
                    raise Unresolved(message.to, pending._reason)
                return False
            self._check_room(message, peer, size)
            kept = _PendingMessage(message, pending, peer, size, until)
            pending._kept[kept] = None
            self._all[kept] = None
            self._count(kept, 1)
            self._last += 1
            soonest = not self._deadlines or until < self._deadlines[0][0]
            heappush(self._deadlines, (until, self._last, kept))
        if soonest:
            self._arm_soon()
        return True

    def _check_room(self, message: Message, peer: Hashable | None, size: int) -> None:
        limits = self._run_queue.limits
        free, free_bytes = limits.pending - len(self._all), limits.pending_bytes - self._bytes
        number, held = (0, 0) if peer is None else self._peers.get(peer, (0, 0))
        if free < 1 or number >= free:
            self.refused += 1
        elif held + size > free_bytes:
            self.refused_bytes += 1
        else:
            return
        raise Unresolved(message.to, f"{counted(len(self._all), 'message')} wait for rules")

    def _count(self, kept: _PendingMessage, sign: int) -> None:
        self._bytes += sign * kept.size
        if kept.peer is not None:
            number, held = self._peers.get(kept.peer, (0, 0))
            if number + sign:
                self._peers[kept.peer] = (number + sign, held + sign * kept.size)
            else:
                del self._peers[kept.peer]

    def _take(self, kept: _PendingMessage) -> bool:
        """Remove a message; return whether it has still been there."""
        with self._lock:
            if kept not in self._all:
                return False
            del self._all[kept]
            del kept.pending._kept[kept]
            self._count(kept, -1)
            if len(self._deadlines) > 2 * len(self._all) + SPARE:
                self._deadlines = [each for each in self._deadlines if each[2] in self._all]
                heapify(self._deadlines)
            return True

    def settle(self, pending: Pending, reason: str | None) -> None:
        """Ask the rule again for the messages of a `Pending`, or refuse them."""
        with self._lock:
            waiting = tuple(pending._kept)
        if waiting and get_ident() != self._run_queue.thread_id:
            self._run_queue.call_on_loop(lambda: self._settle(waiting, reason))
        else:
            self._settle(waiting, reason)

    def _settle(self, waiting: tuple[_PendingMessage, ...], reason: str | None) -> None:
        for kept in waiting:
            if self._take(kept):
                if reason is None:
                    self._again(kept.message, kept.until)
                else:
                    self._lose(kept, Unresolved(kept.message.to, reason))

    def _lose(self, kept: _PendingMessage, error: OnwardError) -> None:
        self._undeliverable.lose(kept.message, error)

    def remove_type(self, address_type: int) -> None:
        """Refuse the messages for a type of address, because its rule is removed."""
        for kept in tuple(self._all):
            to = kept.message.to
            if to.type == address_type and self._take(kept):
                self._lose(kept, UnknownAddressType(to))

    def close(self) -> None:
        """Refuse all messages, because the node stops."""
        if self._timer is not None:
            self._timer.cancel()
        for kept in tuple(self._all):
            if self._take(kept):
                self._lose(kept, self._run_queue.stopped_error())

    def forked(self) -> None:
        """Drop all messages in the child of a fork; they wait on in the parent."""
        self._lock = threading.RLock()
        self._all.clear()

    # --- deadlines --------------------------------------------------------------------

    def _arm_soon(self) -> None:
        if get_ident() == self._run_queue.thread_id:
            self._arm()
        else:
            self._run_queue.call_on_loop(self._arm)

    def _arm(self) -> None:
        """Set the timer for the first deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            deadlines = self._deadlines
            while deadlines and deadlines[0][2] not in self._all:
                heappop(deadlines)
            if deadlines:
                self._timer = self._run_queue.loop.call_at(deadlines[0][0], self._expire)

    def _expire(self) -> None:
        # A loop's timer may be early by less than the resolution of its clock.
        timer = self._timer
        now = max(self._run_queue.loop.time(), timer.when() if timer is not None else 0.0)
        overdue: list[_PendingMessage] = []
        with self._lock:
            while self._deadlines and self._deadlines[0][0] <= now:
                overdue.append(heappop(self._deadlines)[2])
        for kept in overdue:
            if self._take(kept):
                context, to = kept.message[4], kept.message.to
                due = None if context is None else context[0]
                expired = due is not None and due <= now
                self._lose(kept, Expired(to) if expired else Unresolved(to, "not in time"))
        self._arm()


def _size_of(message: Message) -> int:
    routes = (*message[0], *message[1])
    return len(message[2]) + sum(len(address[1]) for address in routes)
