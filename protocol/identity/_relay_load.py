"""What a relay spends on others: rates of sources, and what it holds for them.

Times are seconds of the caller's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush, heapreplace
from typing import Final, TypeAlias

from ..options import Count, Size, check_options
from ._identities import Identity
from ._relay_policy import RelayStatus

__all__ = ["HoldingRefusal", "RateLimiter", "RelayHoldings", "RelayLoadLimits"]

_AT_ONCE: Final = 16
"""Most sources that are looked at to forget them, for one message."""


@dataclass(frozen=True, slots=True)
class RelayLoadLimits:
    """Limits of what a relay spends on others.

    Attributes:
        rate: Messages that a source may send each second in the long run. Beyond: they are dropped
            and counted.
        burst: Messages that a source may send at once. Beyond: as with `rate`.
        sources: Sources that have sent of late, until each might send `burst` messages again.
            Beyond: a message of a further one is dropped and counted.
        held_messages: Messages that are held for all peers, as they wait for a link. Beyond: a
            further one is dropped and counted. What one node before this one has sent of them is
            at most as much as is free; and what one source behind it has sent, as much as is free
            beside all of that node.
        held_bytes: Bytes of these, in bytes. Beyond: as with `held_messages`.
        peer_messages: Messages that are held for one peer. Beyond: as with `held_messages`, with
            the same shares.
        peer_bytes: Bytes of these, in bytes. Beyond: as with `held_messages`.

    Raises:
        ValueError: A value is out of its range.
    """

    rate: Count = 200
    burst: Count = 400
    sources: Count = 16_384
    held_messages: Count = 16_384
    held_bytes: Size = 64 * 1024 * 1024
    peer_messages: Count = 1024
    peer_bytes: Size = 8 * 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)


class RateLimiter:
    """The rates of sources: each may send `burst` messages at once, and `rate` in each second.

    A source is what the caller can hold responsible: the node at the other end of a link, as the
    keys of a layer cost nothing. It is forgotten once it may send `burst` messages again, as one
    that never sent may do that too: so a flood of new sources is in the way of others no longer
    than each of them has credit to gain.

    Args:
        limits: The limits.

    Attributes:
        refused: The messages that were refused.
    """

    __slots__ = ("_full_at", "_limits", "_order", "refused")

    def __init__(self, limits: RelayLoadLimits | None = None) -> None:
        self._limits = limits or RelayLoadLimits()
        # The time at which a source may send `burst` messages again; and a heap with each once, by
        # that time or by an earlier one.
        self._full_at: Final[dict[Identity, float]] = {}
        self._order: Final[list[tuple[float, Identity]]] = []
        self.refused = 0

    def __len__(self) -> int:
        return len(self._full_at)

    def spend(self, source: Identity, now: float) -> RelayStatus:
        """Count a message of a source; return `OK`, or why it is refused.

        Args:
            source: The source.
            now: The time, in seconds.
        """
        self._forget(now)
        found = self._full_at.get(source)
        if found is None and len(self._full_at) >= self._limits.sources:
            return self._refuse()
        # A bucket by the time at which it is full: each message takes 1/rate of a second of it.
        full_at = max(found or now, now) + 1 / self._limits.rate
        if full_at - now > self._limits.burst / self._limits.rate + 1e-9:
            return self._refuse()
        self._full_at[source] = full_at
        if found is None:
            heappush(self._order, (full_at, source))
        return RelayStatus.OK

    def _forget(self, now: float) -> None:
        """Forget the sources that may send `burst` again: they are as those that never sent."""
        for _ in range(_AT_ONCE):
            if not self._order or self._order[0][0] > now:
                return
            _, source = self._order[0]
            full_at = self._full_at[source]
            if full_at > now:
                heapreplace(self._order, (full_at, source))
            else:
                heappop(self._order)
                del self._full_at[source]

    def _refuse(self) -> RelayStatus:
        self.refused += 1
        return RelayStatus.RESOURCE_LIMIT_EXCEEDED


class HoldingRefusal(StrEnum):
    """The reason for which a relay does not hold a message. As a value, the text for people."""

    FULL = "as much is held as may be"
    NEXT_FULL = "as much is held for the next node as may be"
    PREVIOUS_FULL = "the node before has used its share of what is held"
    SOURCE_FULL = "the source has used its share of what is held"


class _Held:
    """The messages that are held within one limit, and what they come from.

    Each part is at most as much as is free beside all that it is a part of: with a flood by one
    node, half is left for others, and with one by two, a third.
    """

    __slots__ = ("_messages", "_of", "_size")

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._size = size
        # Messages and bytes: of all, of the nodes before this one, and of the sources behind these.
        self._of: dict[_Part, tuple[int, int]] = {}

    def held(self, part: _Part = ()) -> tuple[int, int]:
        """Return the messages of a part that are held, and their bytes."""
        return self._of.get(part, (0, 0))

    def refused(self, parts: tuple[_Part, ...], size: int) -> int | None:
        """Return which of the parts that a message is of has no room; `None` if all have."""
        free, free_size = self._messages, self._size
        for number, part in enumerate(parts):
            messages, held = self.held(part)
            if messages >= free or held + size > free_size:
                return number
            free -= messages
            free_size -= held
        return None

    def add(self, parts: tuple[_Part, ...], size: int) -> None:
        for part in parts:
            messages, held = self.held(part)
            self._of[part] = messages + 1, held + size

    def remove(self, parts: tuple[_Part, ...], size: int) -> None:
        for part in parts:
            messages, held = self._of[part]
            if messages == 1:
                del self._of[part]
            else:
                self._of[part] = messages - 1, held - size


class RelayHoldings:
    """The messages that a relay holds for its peers, in number and bytes.

    Args:
        limits: The limits.

    Attributes:
        refused: The messages that were refused, by their reasons.
    """

    __slots__ = ("_all", "_limits", "_of_peer", "refused")

    def __init__(self, limits: RelayLoadLimits | None = None) -> None:
        self._limits = limits or RelayLoadLimits()
        self._all = _Held(self._limits.held_messages, self._limits.held_bytes)
        self._of_peer: dict[Identity, _Held] = {}
        self.refused = dict.fromkeys(HoldingRefusal, 0)

    @property
    def messages(self) -> int:
        """The messages that are held."""
        return self._all.held()[0]

    @property
    def size(self) -> int:
        """Their bytes."""
        return self._all.held()[1]

    def held_for(self, peer: Identity) -> tuple[int, int]:
        """Return the messages that are held for a peer, and their bytes."""
        found = self._of_peer.get(peer)
        return (0, 0) if found is None else found.held()

    def hold(
        self, peer: Identity, size: int, previous: Identity, source: Identity | None = None
    ) -> HoldingRefusal | None:
        """Count a message that is held; return why it is not to be, or `None`.

        Args:
            peer: The next node.
            size: The bytes of the message.
            previous: The node that it came from.
            source: The source of the message, if it is not that node.
        """
        parts = _parts(previous, source)
        found = self._of_peer.get(peer)
        if found is None:
            found = _Held(self._limits.peer_messages, self._limits.peer_bytes)
        for held, reasons in ((self._all, _OF_ALL), (found, _OF_PEER)):
            part = held.refused(parts, size)
            if part is not None:
                self.refused[reasons[part]] += 1
                return reasons[part]
        self._of_peer[peer] = found
        found.add(parts, size)
        self._all.add(parts, size)
        return None

    def release(
        self, peer: Identity, size: int, previous: Identity, source: Identity | None = None
    ) -> None:
        """Count off a message that was held, as it is sent or dropped; see `hold`."""
        parts, found = _parts(previous, source), self._of_peer[peer]
        found.remove(parts, size)
        if not found.held()[0]:
            del self._of_peer[peer]
        self._all.remove(parts, size)


_Part: TypeAlias = tuple[Identity, ...]
_OF_ALL: Final = (
    HoldingRefusal.FULL,
    HoldingRefusal.PREVIOUS_FULL,
    HoldingRefusal.SOURCE_FULL,
)
_OF_PEER: Final = (HoldingRefusal.NEXT_FULL, *_OF_ALL[1:])


def _parts(previous: Identity, source: Identity | None) -> tuple[_Part, ...]:
    """Return what a message is a part of, all that is held first."""
    if source is None:
        return (), (previous,)
    return (), (previous,), (previous, source)
