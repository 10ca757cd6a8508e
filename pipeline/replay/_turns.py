"""Turns: a pseudo-random number for each frame, computed from its place in the log.

At a broker, round robin, random choice and sticky keys depend on earlier requests. A rehearsal
resolves frames in no order and in many processes, so it has no such state. Instead, the *turn* of a
frame is a hash of its number in the log. It is the same in every process and selects each
destination equally often. So a frame moves only if the change moves it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Keys", "fraction", "fractions", "next_turn", "turn_of", "turns_of"]

Keys = npt.NDArray[np.uint64]
"""64-bit numbers that select a candidate, one for each frame."""

_MASK: Final = 2**64 - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB


def turn_of(epoch: int, seq: int) -> int:
    """Return the turn of a frame, 64 bits.

    Args:
        epoch: The epoch of the log.
        seq: The number of the frame in the epoch.
    """
    return _mixed(seq ^ (epoch << 40) & _MASK)


def next_turn(turn: int) -> int:
    """Return another number for the same frame, for a method that draws lots again."""
    return _mixed(turn)


def _mixed(value: int) -> int:
    # SplitMix64: each bit of the input changes half of the bits of the output.
    value = (value + _GOLDEN) & _MASK
    value = (value ^ value >> 30) * _FIRST & _MASK
    value = (value ^ value >> 27) * _SECOND & _MASK
    return value ^ value >> 31


def turns_of(epochs: npt.NDArray[np.int64], seqs: npt.NDArray[np.int64]) -> Keys:
    """Return the turns of many frames: the same as `turn_of` of each."""
    value = seqs.astype(np.uint64) ^ (epochs.astype(np.uint64) << np.uint64(40))
    value = value + np.uint64(_GOLDEN)
    value = (value ^ value >> np.uint64(30)) * np.uint64(_FIRST)
    value = (value ^ value >> np.uint64(27)) * np.uint64(_SECOND)
    mixed: Keys = value ^ value >> np.uint64(31)
    return mixed


def fraction(turn: int) -> float:
    """Return a turn as a number of 0 or more and less than 1."""
    return (turn >> 11) * 2.0**-53


def fractions(turns: Keys) -> npt.NDArray[np.float64]:
    """Return many turns as numbers: the same as `fraction` of each."""
    made: npt.NDArray[np.float64] = (turns >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return made
