"""Fast reading of the numbers in frames.

Interpreted, one call of `struct` beats ten steps of our own. Compiled, it is the other way
round: to index bytes costs next to nothing there, and a call of `struct` makes a tuple and its
numbers. So these functions are what compiled modules call, bound when they are compiled;
interpreted modules find `struct`'s in their place. All raise where the bytes end too early.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

__all__ = ["OWN", "unpack_header", "unpack_u24", "unpack_u32"]


def unpack_header(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Return the length (high byte, low bytes), the stream id, and type and flags."""
    return (
        data[at],
        data[at + 1] << 8 | data[at + 2],
        data[at + 3] << 24 | data[at + 4] << 16 | data[at + 5] << 8 | data[at + 6],
        data[at + 7] << 8 | data[at + 8],
    )


def unpack_u24(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 24 bits: its high byte and its low bytes."""
    return data[at], data[at + 1] << 8 | data[at + 2]


def unpack_u32(data: bytes, at: int) -> tuple[int]:
    """Return a number of 32 bits."""
    return (data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3],)


OWN: Final = (unpack_header, unpack_u24, unpack_u32)
"""The functions of this module, which its names stand for in compiled modules only."""

if __file__.endswith(".py"):  # pragma: no branch - compiled code is not measured
    for _own, _format in zip(OWN, (">BHIH", ">BH", ">I"), strict=True):
        globals()[_own.__name__] = Struct(_format).unpack_from
