"""A filter of route ids (a Bloom filter): it says of an id "not here" or "perhaps here".

A zone tells others which routes it has, for requests that name one. Ids as such would take 16 bytes
for each route; the filter takes 10 bits, and is wrong about one id in a hundred that the zone does
not have. It is never wrong about one that it has.

Clients choose the ids of their routes. So the places of an id depend on a salt, which is new in
each filter: no set of ids can be chosen that fills the filter, or that it takes for others.

| bytes | a filter |
| --- | --- |
| 16 | salt |
| 4 | number of bits, a multiple of 64 |
| 4 | number of places of an id, 1 to 16 |
| … | the bits: bit n is bit n mod 8 of byte n div 8, bit 0 being the one of value 1 |

The places of an id: the BLAKE2b hash of 16 bytes with the salt as its key is read as two numbers of
8 bytes, a and b; place i, from 0, is (a + i·b) mod the number of bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import Annotated, Final, TypeAlias

from ..options import Range
from ._errors import ClusterFrameError

__all__ = ["FILTER_SALT_SIZE", "FilterSize", "RouteFilter"]

FILTER_SALT_SIZE: Final = 16
"""Bytes of a filter's salt."""

_HEAD: Final = Struct(">16sII")
_HASH: Final = Struct(">QQ")
_BITS_OF_ID: Final = 10
_PLACES: Final = 7
"""Places that make the fewest mistakes with 10 bits for each id."""
_MOST_PLACES: Final = 16
_WORD: Final = 64

FilterSize: TypeAlias = Annotated[int, Range(least=1024, most=1 << 28, unit="bytes")]
"""The size of a filter, in bytes."""


class RouteFilter:
    """A set of route ids that takes some others for members, and never misses one.

    Args:
        salt: `FILTER_SALT_SIZE` random bytes.
        bits: The bits, a multiple of 8 bytes.
        places: Places of an id.
    """

    __slots__ = ("_bits", "_count", "_places", "_salt")

    def __init__(self, salt: bytes, bits: bytearray, places: int = _PLACES) -> None:
        self._salt = salt
        self._bits = bits
        self._count = 8 * len(bits)
        self._places = places

    @classmethod
    def for_ids(cls, count: int, salt: bytes, most: int) -> RouteFilter:
        """Make an empty filter for a number of ids, of at most `most` bytes."""
        words = max(1, -(-count * _BITS_OF_ID // _WORD))
        return cls(salt, bytearray(min(8 * words, most // 8 * 8)))

    @classmethod
    def parse(cls, data: bytes, most: int) -> RouteFilter:
        """Read a filter.

        Args:
            data: All of it.
            most: Bytes that its bits may have.

        Raises:
            ClusterFrameError: It is none, or has more bytes.
        """
        if len(data) != cls.check_head(data, most):
            raise ClusterFrameError("a filter of route ids with another size than it says")
        salt, _, places = _HEAD.unpack_from(data)
        return cls(salt, bytearray(data[_HEAD.size :]), places)

    @staticmethod
    def check_head(data: bytes, most: int) -> int:
        """Check the beginning of a filter; return the size that all of it has to have.

        Raises:
            ClusterFrameError: It is none of a filter, or of one that is too big.
        """
        if len(data) < _HEAD.size:
            raise ClusterFrameError("a filter of route ids is cut short")
        _, count, places = _HEAD.unpack_from(data)
        if not count or count % _WORD or not 0 < places <= _MOST_PLACES:
            raise ClusterFrameError("a filter of route ids that cannot be used")
        if count > 8 * most:
            raise ClusterFrameError(f"a filter of route ids of more than {most} bytes")
        return int(_HEAD.size + count // 8)

    def serialize(self) -> bytes:
        """Write it."""
        return _HEAD.pack(self._salt, self._count, self._places) + self._bits

    def add(self, ids: Iterable[bytes]) -> None:
        """Add ids of 16 bytes."""
        bits, count, places = self._bits, self._count, range(self._places)
        for each in ids:
            at, step = self._start(each)
            for _ in places:
                bits[at >> 3] |= 1 << (at & 7)
                at = (at + step) % count

    def may_have(self, route_id: bytes) -> bool:
        """Whether an id may have been added; true for all that were."""
        bits, count = self._bits, self._count
        at, step = self._start(route_id)
        for _ in range(self._places):
            if not bits[at >> 3] & 1 << (at & 7):
                return False
            at = (at + step) % count
        return True

    def _start(self, route_id: bytes) -> tuple[int, int]:
        first, step = _HASH.unpack(blake2b(route_id, digest_size=16, key=self._salt).digest())
        return first % self._count, step % self._count
