"""What a relay spends on others: rates of sources, and what it holds for them.

Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ..options import Count, Seconds, Size, check_options
from ._identities import Identity
from ._relay_policy import RelayStatus

__all__ = ["RateLimiter", "RelayHoldings", "RelayLoadLimits"]

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
            further one is dropped and counted.
        held_bytes: Bytes of these, in bytes. Beyond: as with `held_messages`.
        peer_messages: Messages that are held for one peer. Beyond: as with `held_messages`.
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


class RelayHoldings:
    """The messages that a relay holds for its peers, in number and bytes.

    Args:
        limits: The limits.

    Attributes:
        messages: The messages that are held.
        size: Their bytes.
        refused: The messages that were refused.
    """

    __slots__ = ("_limits", "_of_peer", "messages", "refused", "size")

    def __init__(self, limits: RelayLoadLimits | None = None) -> None:
        self._limits = limits or RelayLoadLimits()
        self._of_peer: dict[Identity, tuple[int, int]] = {}
        self.messages = 0
        self.size = 0
        self.refused = 0

    def held_for(self, peer: Identity) -> tuple[int, int]:
        """Return the messages that are held for a peer, and their bytes."""
        return self._of_peer.get(peer, (0, 0))

    def hold(self, peer: Identity, size: int) -> RelayStatus:
        """Count a message that is held; return `OK`, or why it is not to be.

        Args:
            peer: The next node.
            size: The bytes of the message.
        """
        messages, held = self.held_for(peer)
        limits = self._limits
        if (
            self.messages >= limits.held_messages
            or self.size + size > limits.held_bytes
            or messages >= limits.peer_messages
            or held + size > limits.peer_bytes
        ):
            self.refused += 1
            return RelayStatus.RESOURCE_LIMIT_EXCEEDED
        self._of_peer[peer] = (messages + 1, held + size)
        self.messages += 1
        self.size += size
        return RelayStatus.OK

    def release(self, peer: Identity, size: int) -> None:
        """Count off a message that was held, as it is sent or dropped.

        Args:
            peer: The next node.
            size: The bytes of the message.
        """
        messages, held = self._of_peer[peer]
        if messages == 1:
            del self._of_peer[peer]
        else:
            self._of_peer[peer] = (messages - 1, held - size)
        self.messages -= 1
        self.size -= size
