"""Padding to buckets, so that the size of what is sealed says little about its length.

What is padded is its length as four bytes, itself, and zeros. It is as long as one of a few
buckets, so all that fits in a bucket looks alike. The zeros are checked: each padded text has one
spelling, and nothing can be hidden behind what it says.
"""

from __future__ import annotations

import struct
from hmac import compare_digest
from typing import Final

from ._errors import MessageTooBig

__all__ = ["BUCKETS", "bucket_of", "padded", "padded_size", "unpadded"]

BUCKETS: Final = tuple(1024 << step for step in range(7))
"""Sizes that something is padded to, in bytes: 1, 2, 4, 8, 16, 32 and 64 KiB."""

LENGTH_SIZE: Final = 4
"""Bytes of the length before what is padded."""


def bucket_of(size: int) -> int:
    """Return the smallest bucket that has room for `size` bytes.

    Raises:
        MessageTooBig: There is none.
    """
    for bucket in BUCKETS:
        if size <= bucket:
            return bucket
    raise MessageTooBig(size, BUCKETS[-1])


def padded_size(size: int) -> int:
    """Return the bytes that a record of a link is filled to: a bucket, or a multiple of the last.

    Args:
        size: Its bytes, at most `MAX_RECORD`.
    """
    if size > BUCKETS[-1]:
        return -(-size // BUCKETS[-1]) * BUCKETS[-1]
    return bucket_of(size)


def padded(data: bytes, room: int) -> bytes:
    """Return `data` with its length before it and zeros behind it, `room` bytes in all.

    Raises:
        MessageTooBig: There is no room for it.
    """
    zeros = room - LENGTH_SIZE - len(data)
    if zeros < 0:
        raise MessageTooBig(LENGTH_SIZE + len(data), room)
    return b"".join((struct.pack(">I", len(data)), data, bytes(zeros)))


def unpadded(text: bytes) -> bytes | None:
    """Return what was padded, or `None` for whatever is wrong.

    All bytes behind the length are looked at in any case, and there is one outcome: what differs is
    no help to guess.
    """
    if len(text) < LENGTH_SIZE:
        return None
    (length,) = struct.unpack_from(">I", text)
    end = min(LENGTH_SIZE + length, len(text))
    fits = end == LENGTH_SIZE + length
    rest = text[end:]
    zero = compare_digest(rest, bytes(len(rest)))
    return text[LENGTH_SIZE:end] if fits & zero else None
