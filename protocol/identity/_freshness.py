"""Whether a message of the network is fresh: its expiry, and why one is refused.

Times are Unix milliseconds. The clocks of two nodes may differ by `MAX_SKEW`.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from typing import Final, TypeVar

from ._identities import Identity

__all__ = ["MAX_SKEW", "MAX_TTL", "FreshnessRefusal", "PeerShares", "expiry_refusal"]

MAX_TTL: Final = 600_000
"""Most time for which a message of the network may be valid, in milliseconds. Beyond: it is
refused."""
MAX_SKEW: Final = 30_000
"""Most time by which the clocks of two nodes may differ, in milliseconds. Beyond: a message is
refused as expired, or for an expiry that is too late."""


class FreshnessRefusal(StrEnum):
    """The reason for which a message is refused as not fresh. As a value, the text for people."""

    NO_EXPIRY = "a message of the network needs an expiry"
    EXPIRED = "it has expired"
    TOO_LONG = "its expiry is too late"
    AHEAD = "its id is of a time to come"
    BEFORE_START = "it may have been received before this node was started"
    FORGOTTEN = "it may have been received before, and be forgotten"
    REPEATED = "it was received before"
    TOO_OLD = "its id is below the window"
    SHARE_FULL = "the peer has used its share of what is remembered"
    SOURCE_FULL = "the source has used its share of what the peer may have"
    FULL = "as much is remembered as may be"


def expiry_refusal(expiry: int, now: int) -> FreshnessRefusal | None:
    """Return why an expiry is refused; `None` if it is not.

    Both edges are accepted: an expiry that is `MAX_SKEW` ago, and one in `MAX_TTL + MAX_SKEW`.

    Args:
        expiry: The expiry of the message, in Unix milliseconds.
        now: The time, in Unix milliseconds.
    """
    if expiry < now - MAX_SKEW:
        return FreshnessRefusal.EXPIRED
    if expiry > now + MAX_TTL + MAX_SKEW:
        return FreshnessRefusal.TOO_LONG
    return None


class PeerShares:
    """The number of entries of a table that each peer has used, so that none can use all.

    A peer may pass on what others have sent. Such a *source* may have as many entries as its peer
    has left: one has half of the share at most, two have two thirds, so that others find some.

    Args:
        limit: Most entries of all peers.
        share: Most entries of one peer.

    Attributes:
        used: The entries of all peers.
    """

    __slots__ = ("_limit", "_of_peer", "_of_source", "_share", "used")

    def __init__(self, limit: int, share: int) -> None:
        self._limit = limit
        self._share = share
        self._of_peer: dict[Identity, int] = {}
        self._of_source: dict[tuple[Identity, Identity], int] = {}
        self.used = 0

    def used_by(self, peer: Identity) -> int:
        """Return the entries of a peer."""
        return self._of_peer.get(peer, 0)

    def refusal(self, peer: Identity, source: Identity | None = None) -> FreshnessRefusal | None:
        """Return why a peer may have no further entry; `None` if it may.

        Args:
            peer: The peer.
            source: The source that the entry is of, if it is not the peer itself.
        """
        used = self.used_by(peer)
        if used >= self._share:
            return FreshnessRefusal.SHARE_FULL
        if self.used >= self._limit:
            return FreshnessRefusal.FULL
        if source is not None and self._of_source.get((peer, source), 0) >= self._share - used:
            return FreshnessRefusal.SOURCE_FULL
        return None

    def add(self, peer: Identity, source: Identity | None = None) -> None:
        """Count an entry of a peer, and of a source behind it."""
        self._of_peer[peer] = self.used_by(peer) + 1
        if source is not None:
            self._of_source[peer, source] = self._of_source.get((peer, source), 0) + 1
        self.used += 1

    def remove(self, peer: Identity, source: Identity | None = None) -> None:
        """Count an entry off that was added so; what has none is forgotten."""
        _count_off(self._of_peer, peer)
        if source is not None:
            _count_off(self._of_source, (peer, source))
        self.used -= 1


_K = TypeVar("_K", bound=Hashable)


def _count_off(counts: dict[_K, int], key: _K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
