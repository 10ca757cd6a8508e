"""The tags of the sealed layers that a relay has opened, so that it opens none twice.

A tag is made of the ephemeral key of the layer, which is drawn anew for each. It is recorded after
the layer was opened: an observer that puts the same key before other bytes uses up nothing.

A relay that is started knows no tags from before. Layers have no ids, so nothing but the expiry
could tell them apart, and to refuse for ten minutes all that expires by then would stop the relay.
With a new encryption key it opens none of them. With the same key it may pass one on once more,
which the next relay or the receiver refuses; one that has to rule that out gives a floor.
"""

from __future__ import annotations

import hashlib
from heapq import heappop, heappush
from typing import Final, NewType

from ._freshness import MAX_SKEW, MAX_TTL, FreshnessRefusal, PeerShares, expiry_refusal
from ._identities import Identity

__all__ = [
    "LAYER_TAG_SIZE",
    "MAX_LAYER_TAGS",
    "MAX_LAYER_TAGS_OF_PEER",
    "LayerTag",
    "LayerTags",
    "layer_tag",
]

LAYER_TAG_SIZE: Final = 16
"""Bytes of the tag of a layer."""
MAX_LAYER_TAGS: Final = 131_072
"""Most tags of layers that are remembered until their expiry. Beyond: a layer is refused and
counted, as to forget a tag would allow its layer once more. As many are remembered beside them if
the clock is set back: those of a time to come. Beyond: they stay among the others."""
MAX_LAYER_TAGS_OF_PEER: Final = 32_768
"""Most of these tags by one peer. Beyond: a layer by this peer is refused and counted. A source
behind the peer has as many as the peer has left."""

_AT_ONCE: Final = 256
"""Most tags that are forgotten for one layer."""

LayerTag = NewType("LayerTag", bytes)
"""The tag of a sealed layer: 16 bytes."""


def layer_tag(ephemeral_key: bytes) -> LayerTag:
    """Return the tag of a layer: the first 16 bytes of the SHA-256 of the `enc` of its HPKE."""
    return LayerTag(hashlib.sha256(ephemeral_key).digest()[:LAYER_TAG_SIZE])


class LayerTags:
    """The tags of the layers that were opened and are not expired.

    Args:
        floor: The expiry at or before which layers are refused, in Unix milliseconds.
        limit: Most tags.
        share: Most tags of one peer.

    Attributes:
        floor: The same, as it has risen with the tags that were forgotten; all of these are
            expired, so that nothing is refused for it unless the clock is set back.
        refused: The layers that were refused, by their reasons.
    """

    __slots__ = ("_aside", "_by_expiry", "_limit", "_origins", "_shares", "floor", "refused")

    def __init__(
        self,
        floor: int = 0,
        limit: int = MAX_LAYER_TAGS,
        share: int = MAX_LAYER_TAGS_OF_PEER,
    ) -> None:
        self.floor = floor
        self._limit = limit
        # Without an origin: of before the clock was set back, so many as `_aside` says.
        self._origins: dict[LayerTag, tuple[Identity, Identity | None] | None] = {}
        self._aside = 0
        self._by_expiry: list[tuple[int, LayerTag]] = []
        self._shares = PeerShares(limit, share)
        self.refused = dict.fromkeys(FreshnessRefusal, 0)

    def __len__(self) -> int:
        return len(self._origins)

    def check(self, tag: LayerTag, expiry: int, now: int) -> FreshnessRefusal | None:
        """Return why a layer is refused before it is opened; `None` if it is not.

        Args:
            tag: The tag of the layer.
            expiry: Its expiry, in Unix milliseconds.
            now: The time, in Unix milliseconds.
        """
        return self._counted(self._refusal(tag, expiry, now))

    def record(
        self,
        tag: LayerTag,
        expiry: int,
        peer: Identity,
        now: int,
        source: Identity | None = None,
    ) -> FreshnessRefusal | None:
        """Record a layer that was opened; return why it is refused, or `None` if it was new.

        Args:
            tag: The tag of the layer.
            expiry: Its expiry, in Unix milliseconds.
            peer: The node at the other end of the link by which it came.
            now: The time, in Unix milliseconds.
            source: The source of the layer, if it is not the peer itself.
        """
        self.forget_expired(now)
        refusal = self._refusal(tag, expiry, now) or self._shares.refusal(peer, source)
        if refusal is None:
            self._origins[tag] = peer, source
            self._shares.add(peer, source)
            heappush(self._by_expiry, (expiry, tag))
        return self._counted(refusal)

    def clock_set_back(self, now: int) -> None:
        """Go on by a clock that was set back: the tags stay, and the floor is of a time to come.

        A layer of which the tag was forgotten may be opened once more, as after a restart. Tags
        that expire later than any may now are in the share of no peer any more, which would else
        be used for as long as the clock was set back by.

        Args:
            now: The time, in Unix milliseconds.
        """
        self.floor = 0
        for expiry, tag in self._by_expiry:
            origin = self._origins[tag]
            if (
                origin is not None
                and expiry > now + MAX_TTL + MAX_SKEW
                and self._aside < self._limit
            ):
                self._shares.remove(*origin)
                self._origins[tag] = None
                self._aside += 1

    def forget_expired(self, now: int) -> None:
        """Forget tags of layers that are expired, some in each call; `record` does so as well.

        Args:
            now: The time, in Unix milliseconds.
        """
        for _ in range(_AT_ONCE):
            if not self._by_expiry or self._by_expiry[0][0] >= now - MAX_SKEW:
                return
            expiry, tag = heappop(self._by_expiry)
            origin = self._origins.pop(tag)
            if origin is None:
                self._aside -= 1
            else:
                self._shares.remove(*origin)
            self.floor = max(self.floor, expiry)

    def _refusal(self, tag: LayerTag, expiry: int, now: int) -> FreshnessRefusal | None:
        if (refusal := expiry_refusal(expiry, now)) is not None:
            return refusal
        if tag in self._origins:
            return FreshnessRefusal.REPEATED
        return FreshnessRefusal.FORGOTTEN if expiry <= self.floor else None

    def _counted(self, refusal: FreshnessRefusal | None) -> FreshnessRefusal | None:
        if refusal is not None:
            self.refused[refusal] += 1
        return refusal
