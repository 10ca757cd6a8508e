"""What a relay spends on others: rates of sources, and what it holds for them.

Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from ..options import Count, Seconds, Size, check_options
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
        idle: Time after which a source that sends nothing is forgotten, in seconds.
        sources: Sources of which the rate is known. Beyond: a message of a new source is dropped
            and counted, until one is idle.
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
    idle: Seconds = 60.0
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
    keys of a layer cost nothing.

    Args:
        limits: The limits.

    Attributes:
        refused: The messages that were refused.
    """

    __slots__ = ("_limits", "_sources", "refused")

    def __init__(self, limits: RelayLoadLimits | None = None) -> None:
        self._limits = limits or RelayLoadLimits()
        # The time at which a source may send again without credit, and its last message; the one
        # that has sent longest ago is the first.
        self._sources: OrderedDict[Identity, tuple[float, float]] = OrderedDict()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._sources)

    def spend(self, source: Identity, now: float) -> RelayStatus:
        """Count a message of a source; return `OK`, or why it is refused.

        Args:
            source: The source.
            now: The time, in seconds.
        """
        self._forget_idle(now)
        found = self._sources.get(source)
        if found is None and len(self._sources) >= self._limits.sources:
            return self._refuse()
        # A bucket by the time at which it is full: each message takes 1/rate of a second of it.
        full_at = max(found[0] if found else now, now) + 1 / self._limits.rate
        if full_at - now > self._limits.burst / self._limits.rate + 1e-9:
            return self._refuse()
        self._sources[source] = (full_at, now)
        self._sources.move_to_end(source)
        return RelayStatus.OK

    def _forget_idle(self, now: float) -> None:
        for _ in range(_AT_ONCE):
            source = next(iter(self._sources), None)
            if source is None:
                return
            full_at, last = self._sources[source]
            if now - last < self._limits.idle or full_at > now:
                return
            del self._sources[source]

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
