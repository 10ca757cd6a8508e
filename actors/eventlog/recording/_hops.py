"""What a hop is packed from: the bytes of `HOP`, in fewer fields.

Each field costs as much to pack as the next, however small it is. What is the same for many hops
is put together before, and once.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

__all__ = ["MAX_FIELD", "PACKED_HOP", "codes_of"]

PACKED_HOP: Final = Struct("<QqQQI16sIII")
"""The fields of `Hop`, with those from `kind` to `flags` in one, from `codes_of`, and those from
`origin` to `tagset` as the bytes that they are, from `SegmentDictionary.learn`."""

MAX_FIELD: Final = (1 << 32) - 1
"""Most microseconds, and most bytes, that a hop can tell of."""


def codes_of(kind: int, outcome: int, hop: int = 0, flags: int = 0) -> int:
    """Put the four codes of a hop together, one byte each."""
    return kind | outcome << 8 | hop << 16 | flags << 24
