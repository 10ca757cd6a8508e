"""The packing of hops: the bytes of `HOP`, in fewer fields.

Each field costs the same to pack, however small it is. Fields that are equal for many hops are
packed together, once.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

__all__ = ["MAX_FIELD", "PACKED_HOP", "codes_of"]

PACKED_HOP: Final = Struct("<QqQQI16sIII")
"""The fields of `Hop`, with `kind` to `flags` in one, from `codes_of`, and `origin` to `tagset` as
bytes, from `SegmentDictionary.learn`."""

MAX_FIELD: Final = (1 << 32) - 1
"""Most microseconds and most bytes in a hop."""


def codes_of(kind: int, outcome: int, hop: int = 0, flags: int = 0) -> int:
    """Pack the four codes of a hop, one byte each."""
    return kind | outcome << 8 | hop << 16 | flags << 24
