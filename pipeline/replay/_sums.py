"""The sums of frames that were resolved with both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._placing import Places

__all__ = ["SUMS", "Batch", "Ints", "Routed", "Sums"]

SUMS: Final = (
    "tagset_id bigint, route_id bigint, frames bigint, moved bigint, lost bigint, gained bigint,"
    " nowhere bigint, unknown bigint, own bigint, stale bigint, failed bigint,"
    " frames_old bigint, frames_new bigint, routes_old bigint, routes_new bigint"
)
"""What a batch comes to: rows of a tag set as a whole (`route_id` null), and of its routes."""

_COLUMNS: Final = tuple(column.split()[0] for column in SUMS.split(","))
Ints = npt.NDArray[np.int64]
Batch = Any
"""A `pyarrow.RecordBatch`, which has no annotations."""


@dataclass(frozen=True, slots=True)
class Routed:
    """Who gets each frame that goes to one, on one side.

    Attributes:
        keys: Who it is, as the lake names routes.
        there: Whether there is anybody.
        numbers: Who it is, in the table.
        failed: Whether the method failed on the frame.
        counts: For each tag set, how many could get its frames.
    """

    keys: Ints
    there: npt.NDArray[np.bool_]
    numbers: Ints
    failed: npt.NDArray[np.bool_]
    counts: Ints


class Sums:
    """The sums of some tag sets of a batch, as they come together.

    Args:
        ids: The tag sets.
        group: For each frame the place of its tag set, in order.
        weights: For how many each frame stands.
        ended_well: For each frame whether it was delivered on that day.
    """

    def __init__(
        self, ids: Ints, group: Places, weights: Ints, ended_well: npt.NDArray[np.bool_]
    ) -> None:
        self.group: Final = group
        self._ids = ids
        self._weights = weights
        self._delivered = weights * ended_well
        self._frames = _by_group(group, weights, len(ids))
        self._rows: list[dict[str, Ints]] = []
        self._nulls: list[npt.NDArray[np.bool_]] = []

    def total(self, known: npt.NDArray[np.bool_], own: npt.NDArray[np.bool_]) -> None:
        """Count the frames of each tag set, and apart those that are not resolved.

        Args:
            known: Whether the lake knows the tag set, and it can be read.
            own: Whether it is a broker's own services that it asks for.
        """
        self._add(
            self._ids,
            None,
            frames=np.where(known & ~own, self._frames, 0),
            unknown=np.where(known, 0, self._frames),
            own=np.where(own, self._frames, 0),
        )

    def routes(self, old: Routed, new: Routed, keep: npt.NDArray[np.bool_]) -> None:
        """Count who got what of the frames that go to one, and what moved."""
        group, weights, count = self.group, self._weights, len(self._ids)
        both, neither = old.there & new.there, ~old.there & ~new.there
        self._add(
            self._ids[keep],
            None,
            moved=_by_group(group, weights * (both & (old.keys != new.keys)), count)[keep],
            lost=_by_group(group, weights * (old.there & ~new.there), count)[keep],
            gained=_by_group(group, weights * (new.there & ~old.there), count)[keep],
            nowhere=_by_group(group, weights * neither, count)[keep],
            stale=_by_group(group, self._delivered * ~old.there, count)[keep],
            failed=_by_group(group, weights * (old.failed | new.failed), count)[keep],
            routes_old=old.counts[keep],
            routes_new=new.counts[keep],
        )
        for name, side in (("frames_old", old), ("frames_new", new)):
            rows = np.flatnonzero(side.there)
            if not len(rows):
                continue
            width = int(side.numbers.max()) + 1
            pairs = group[rows] * width + side.numbers[rows]
            order = np.argsort(pairs, kind="stable")
            sorted_pairs = pairs[order]
            begins = np.flatnonzero(np.diff(sorted_pairs, prepend=-1))
            sums = np.add.reduceat(weights[rows][order], begins)
            heads = rows[order][begins]
            self._add(self._ids[group[heads]], side.keys[heads], **{name: sums})

    def all(self, at: int, old: Ints, new: Ints) -> None:
        """Count a multicast: it moves if others get it."""
        frames = int(self._frames[at])
        same = len(old) == len(new) and bool(np.array_equal(np.sort(old), np.sort(new)))
        tagset = self._ids[at : at + 1]
        self._add(
            tagset,
            None,
            moved=np.array([frames if len(old) and len(new) and not same else 0]),
            lost=np.array([frames if len(old) and not len(new) else 0]),
            gained=np.array([frames if len(new) and not len(old) else 0]),
            nowhere=np.array([0 if len(old) or len(new) else frames]),
            stale=np.array([0 if len(old) else int(self._delivered[self.group == at].sum())]),
            routes_old=np.array([len(old)]),
            routes_new=np.array([len(new)]),
        )
        self._add(np.repeat(tagset, len(old)), old, frames_old=np.full(len(old), frames))
        self._add(np.repeat(tagset, len(new)), new, frames_new=np.full(len(new), frames))

    def _add(self, tagsets: Ints, routes: Ints | None, **sums: Ints) -> None:
        count = len(tagsets)
        zeros = np.zeros(count, np.int64)
        row = {name: sums.get(name, zeros) for name in _COLUMNS[2:]}
        self._rows.append(
            {"tagset_id": tagsets, "route_id": zeros if routes is None else routes, **row}
        )
        self._nulls.append(np.full(count, routes is None))

    def batch(self) -> Batch:
        """Return the sums as rows."""
        nulls = np.concatenate(self._nulls)
        columns = {name: np.concatenate([row[name] for row in self._rows]) for name in _COLUMNS}
        arrays = [
            pa.array(columns[name], pa.int64(), mask=nulls if name == "route_id" else None)
            for name in _COLUMNS
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(_COLUMNS))


def _by_group(group: Places, weights: Ints, count: int) -> Ints:
    # Not `bincount`, which adds floats: these are exact.
    sums = np.zeros(count, np.int64)
    if len(group):
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        sums[group[begins]] = np.add.reduceat(weights, begins)
    return sums
