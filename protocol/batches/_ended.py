"""The set of epochs that have ended, as bytes: exact, however far apart the numbers are.

The bytes are a 64-bit Roaring bitmap in the portable format
(https://github.com/RoaringBitmap/RoaringFormatSpec), none for the empty set. Epochs that follow one
another take a few bytes together; every other one takes 2 bytes each, the time in seconds every ten
minutes as well, the time in milliseconds every minute 10, and numbers at random 22. So what is kept
is bounded in bytes and not in epochs. A set is read for each question and not kept beside its
bytes: that takes some microseconds, and only a late epoch or a new one has a question.
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

__all__ = ["MIN_ENDED_BYTES", "has_ended", "with_ended", "within"]

MIN_ENDED_BYTES: Final = 64
"""Bytes that any two epochs have room in: the least that a limit may be."""

_SHARE: Final = 8
"""At the limit one part in so many is forgotten at once, so that this is not done for each."""


def has_ended(ended: bytes, epoch: int) -> bool:
    """Return whether an epoch is in the set."""
    return bool(ended) and epoch in BitMap64.deserialize(ended)


def with_ended(ended: bytes, epoch: int, most: int) -> tuple[bytes, int]:
    """Return the set with one epoch more, and the epoch before which some were forgotten, or 0.

    Args:
        ended: The set.
        epoch: Which one has ended; it is not forgotten, though all others may be before it.
        most: Bytes it may have; of more the oldest epochs are forgotten.
    """
    epochs = BitMap64.deserialize(ended) if ended else BitMap64()
    epochs.add(epoch)
    return _shortened(epochs, most, epoch)


def within(ended: bytes, most: int) -> tuple[bytes, int]:
    """Return a set that was given with the oldest forgotten, and the epoch before which, or 0.

    Raises:
        ValueError: The bytes are no such set.
    """
    if not ended:
        return ended, 0
    try:
        epochs = BitMap64.deserialize(ended)
    except ValueError:
        raise ValueError("its `ended` is no bitmap: give it as it was kept") from None
    if not epochs:
        return b"", 0
    return (ended, 0) if len(ended) <= most else _shortened(epochs, most, epochs.max())


def _shortened(epochs: BitMap64, most: int, kept: int) -> tuple[bytes, int]:
    epochs.run_optimize()
    written, known = epochs.serialize(), 0
    while len(written) > most:
        # At least two, as one of them may be the one that is kept.
        known = epochs[max(2, len(epochs) // _SHARE)]
        epochs.remove_range(0, known)
        epochs.add(kept)
        epochs.run_optimize()
        written = epochs.serialize()
    return written, known
