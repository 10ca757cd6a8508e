"""The sums of frames that were resolved with both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._placing import Places

__all__ = ["SUMS", "FrameBatch", "Ints", "Routed", "Sums"]

SUMS: Final = (
    "tagset_id bigint, route_id bigint, frames bigint, moved bigint, lost bigint, gained bigint,"
    " nowhere bigint, unknown bigint, own bigint, stale bigint, failed bigint, samples bigint,"
    " frames_old bigint, frames_new bigint, routes_old bigint, routes_new bigint"
)
"""The sums of a batch: a row for each tag set (`route_id` null), and one for each of its routes."""

_COLUMNS: Final = tuple(column.split()[0] for column in SUMS.split(","))
Ints = npt.NDArray[np.int64]
FrameBatch = Any
"""A `pyarrow.RecordBatch`, which has no annotations."""


@dataclass(frozen=True, slots=True)
class Routed:
    """The route of each unicast or shard frame on one side.

    Attributes:
        keys: The lake's id of the route.
        there: Whether the frame has a route.
        numbers: The number of the route in the table.
        failed: Whether the method failed on the frame.
        counts: The number of candidates of each tag set.
    """

    keys: Ints
    there: npt.NDArray[np.bool_]
    numbers: Ints
    failed: npt.NDArray[np.bool_]
    counts: Ints


@dataclass(frozen=True, slots=True)
class _RouteSums:
    """The frames of some tag sets for each route.

    Attributes:
        group: The place of the tag set.
        keys: The lake's id of the route.
        old: The frames that the route gets with the current table.
        new: The frames that it gets with the candidate table.
    """

    group: Ints
    keys: Ints
    old: Ints
    new: Ints


class Sums:
    """The sums of some tag sets of a batch while they are added up.

    Args:
        ids: The tag sets.
        group: For each frame the place of its tag set, in order.
        weights: The weight of each frame.
        ended_well: Whether each frame was delivered on that day.
    """

    def __init__(
        self, ids: Ints, group: Places, weights: Ints, ended_well: npt.NDArray[np.bool_]
    ) -> None:
        self.group: Final = group
        self._ids = ids
        self._weights = weights
        self._delivered = weights * ended_well
        self._frames = _by_group(group, weights, len(ids))
        self._whole = {name: np.zeros(len(ids), np.int64) for name in _COLUMNS[2:]}
        self._routes: list[_RouteSums] = []

    def total(self, known: npt.NDArray[np.bool_], own: npt.NDArray[np.bool_]) -> None:
        """Count the frames of each tag set, and separately those that are not resolved.

        Args:
            known: Whether the tag set is in the lake and can be read.
            own: Whether the tag set asks for one of the broker's own services.
        """
        self._whole["frames"] = np.where(known & ~own, self._frames, 0)
        samples = np.bincount(self.group, minlength=len(self._ids))
        self._whole["samples"] = np.where(known & ~own, samples, 0)
        self._whole["unknown"] = np.where(known, 0, self._frames)
        self._whole["own"] = np.where(own, self._frames, 0)

    def routes(self, old: Routed, new: Routed, keep: npt.NDArray[np.bool_]) -> None:
        """Count the unicast and shard frames of each route, and those that moved."""
        group, weights, count = self.group, self._weights, len(self._ids)
        both, neither = old.there & new.there, ~old.there & ~new.there
        counted = {
            "moved": weights * (both & (old.keys != new.keys)),
            "lost": weights * (old.there & ~new.there),
            "gained": weights * (new.there & ~old.there),
            "nowhere": weights * neither,
            "stale": self._delivered * ~old.there,
            "failed": weights * (old.failed | new.failed),
        }
        for name, values in counted.items():
            self._whole[name][keep] = _by_group(group, values, count)[keep]
        for name, side in (("old", old), ("new", new)):
            self._whole[f"routes_{name}"][keep] = side.counts[keep]
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
            self._add(name, group[heads], side.keys[heads], sums)

    def all(self, at: int, old: Ints, new: Ints) -> None:
        """Count a multicast; it moves if its routes change."""
        frames, whole = int(self._frames[at]), self._whole
        same = len(old) == len(new) and bool(np.array_equal(np.sort(old), np.sort(new)))
        whole["moved"][at] = frames if len(old) and len(new) and not same else 0
        whole["lost"][at] = frames if len(old) and not len(new) else 0
        whole["gained"][at] = frames if len(new) and not len(old) else 0
        whole["nowhere"][at] = 0 if len(old) or len(new) else frames
        whole["stale"][at] = 0 if len(old) else int(self._delivered[self.group == at].sum())
        for name, keys in (("old", old), ("new", new)):
            whole[f"routes_{name}"][at] = len(keys)
            self._add(name, np.full(len(keys), at), keys, np.full(len(keys), frames))

    def _add(self, side: str, group: Ints, keys: Ints, frames: Ints) -> None:
        none = np.zeros(len(keys), np.int64)
        old, new = (frames, none) if side == "old" else (none, frames)
        self._routes.append(_RouteSums(group, keys, old, new))

    def batch(self) -> FrameBatch:
        """Return the sums as rows."""
        count, routes = len(self._ids), _merged(self._routes)
        columns = {
            "tagset_id": np.concatenate([self._ids, self._ids[routes.group]]),
            "route_id": np.concatenate([np.zeros(count, np.int64), routes.keys]),
        }
        of_routes = {"frames_old": routes.old, "frames_new": routes.new}
        none = np.zeros(len(routes.keys), np.int64)
        for name, values in self._whole.items():
            columns[name] = np.concatenate([values, of_routes.get(name, none)])
        nulls = np.arange(count + len(none)) < count
        arrays = [
            pa.array(columns[name], pa.int64(), mask=nulls if name == "route_id" else None)
            for name in _COLUMNS
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(_COLUMNS))


def _merged(some: list[_RouteSums]) -> _RouteSums:
    """Merge the rows of both sides for each route of a tag set: most routes are on both."""
    group, keys, old, new = (
        np.concatenate([np.empty(0, np.int64), *columns])
        for columns in (
            [each.group for each in some],
            [each.keys for each in some],
            [each.old for each in some],
            [each.new for each in some],
        )
    )
    if not len(keys):
        return _RouteSums(group, keys, old, new)
    order = np.lexsort((keys, group))
    group, keys = group[order], keys[order]
    begins = np.flatnonzero(np.concatenate([[True], (np.diff(group) != 0) | (np.diff(keys) != 0)]))
    return _RouteSums(
        group[begins],
        keys[begins],
        np.add.reduceat(old[order], begins),
        np.add.reduceat(new[order], begins),
    )


def _by_group(group: Places, weights: Ints, count: int) -> Ints:
    # Not `bincount`, which adds floats: these are exact.
    sums = np.zeros(count, np.int64)
    if len(group):
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        sums[group[begins]] = np.add.reduceat(weights, begins)
    return sums
