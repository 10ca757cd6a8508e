"""The placement of many frames at once, bit for bit as by the methods of `protocol.broker`.

A *group* is the consecutive frames of one tag set. Methods that need only the number of candidates
work on all groups at once. The others work group by group, or, for small groups, on all pairs of a
frame and a candidate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from ._turns import Keys, fractions

__all__ = [
    "Places",
    "chance",
    "jump",
    "on_ring",
    "on_rings",
    "remainder",
    "rendezvous",
    "rendezvous_small",
    "weighted",
]

Places = npt.NDArray[np.int64]
"""For each frame the place of a candidate among those of its group."""

_JUMP: Final = np.uint64(2862933555777941757)
_ONE: Final = np.uint64(1)

MAX_PAIRS: Final = 1_000_000
"""Pairs of a frame and a candidate that are scored at once: 8 MB for each column."""


def remainder(keys: Keys, counts: Places) -> Places:
    """Place frames by the remainder: `Modulo`, and `RoundRobin` by turns."""
    return (keys % counts.astype(np.uint64)).astype(np.int64)


def chance(keys: Keys, counts: Places) -> Places:
    """Place frames by chance: `Random`."""
    return (fractions(keys) * counts).astype(np.int64)


def jump(keys: Keys, counts: Places) -> Places:
    """Place frames by jump consistent hash: `Jump`."""
    bucket = np.zeros(len(keys), np.int64)
    left = np.arange(len(keys))
    key, at = keys.copy(), np.zeros(len(keys), np.int64)
    limit = counts
    while len(left):
        bucket[left] = at
        key = key * _JUMP + _ONE
        step = 2.0**31 / ((key >> np.uint64(33)) + _ONE).astype(np.float64)
        at = ((at + 1) * step).astype(np.int64)
        on = at < limit
        left, key, at, limit = left[on], key[on], at[on], limit[on]
    return bucket


def rendezvous(
    keys: Keys, factors: npt.NDArray[np.uint64], summands: npt.NDArray[np.uint64]
) -> Places:
    """Place the frames of one group by their highest score: `Rendezvous`.

    Args:
        keys: The keys of the frames.
        factors: The factors of the candidates, in the order of their ids.
        summands: The summands of the candidates.
    """
    rows = max(1, MAX_PAIRS // len(factors))
    parts = [
        np.argmax(keys[at : at + rows, None] * factors[None, :] + summands[None, :], axis=1)
        for at in range(0, len(keys), rows)
    ]
    return np.concatenate(parts)


def rendezvous_small(
    keys: Keys,
    counts: Places,
    starts: Places,
    factors: npt.NDArray[np.uint64],
    summands: npt.NDArray[np.uint64],
) -> Places:
    """Place frames of many small groups by their highest score: `Rendezvous`.

    Args:
        keys: The keys of the frames.
        counts: For each frame, the number of its candidates.
        starts: For each frame, the index of its first candidate in `factors` and `summands`.
        factors: The factors of all candidates.
        summands: The summands of all candidates.
    """
    placed = np.empty(len(keys), np.int64)
    ends = np.cumsum(counts)
    at = 0
    while at < len(keys):
        base = ends[at] - counts[at]
        stop = max(at + 1, int(np.searchsorted(ends, base + MAX_PAIRS, "right")))
        some = slice(at, stop)
        placed[some] = _scored(keys[some], counts[some], starts[some], factors, summands)
        at = stop
    return placed


def _scored(
    keys: Keys,
    counts: Places,
    starts: Places,
    factors: npt.NDArray[np.uint64],
    summands: npt.NDArray[np.uint64],
) -> Places:
    begins = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    member = np.repeat(starts, counts) + within
    scores = np.repeat(keys, counts) * factors[member] + summands[member]
    best = np.flatnonzero(scores == np.repeat(np.maximum.reduceat(scores, begins), counts))
    # Of equal scores the first counts: the lowest id.
    first = np.searchsorted(best, begins, "left")
    return within[best[first]]


def on_ring(keys: Keys, points: npt.NDArray[np.uint64], owners: npt.NDArray[np.int64]) -> Places:
    """Place the frames of one group on a ring without load: `BoundedRing`."""
    return owners[np.searchsorted(points, keys, "left") % len(points)]


def on_rings(
    keys: Keys, rings: Iterable[tuple[int, npt.NDArray[np.uint64], npt.NDArray[np.int64]]]
) -> Places:
    """Place the frames of one group as `on_ring` does, on a ring in parts.

    Args:
        keys: The keys of the frames.
        rings: For each part the place of its first candidate, its points and their owners; in the
            order of the candidates.
    """
    placed = np.zeros(len(keys), np.int64)
    nearest = np.zeros(len(keys), np.uint64)
    for number, (start, points, owners) in enumerate(rings):
        at = np.searchsorted(points, keys, "left") % len(points)
        # The distance on the ring; of equal points the first candidate's counts.
        far = points[at] - keys
        closer = far < nearest if number else np.ones(len(keys), np.bool_)
        nearest[closer] = far[closer]
        placed[closer] = owners[at][closer] + start
    return placed


def weighted(keys: Keys, weights: npt.NDArray[np.float64]) -> Places:
    """Place the frames of one group by chance, by weight: `Weighted`."""
    shares = np.cumsum(weights)
    if not shares[-1] > 0:
        return remainder(keys, np.full(len(keys), len(weights)))
    at = np.searchsorted(shares, fractions(keys) * shares[-1], "right")
    placed: Places = np.minimum(at, np.flatnonzero(weights > 0)[-1])
    return placed
