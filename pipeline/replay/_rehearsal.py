"""Frames in, sums out: a batch of hops resolved with both sides, and what moved."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...protocol import AddressError
from ...protocol.broker import RoutingType
from ...protocol.eventlog import Flag
from ._placing import Places
from ._questions import Code, MethodSet, Question, read_question
from ._sides import Answer, Side
from ._tables import open_table
from ._turns import Keys, turns_of

__all__ = ["FRAMES", "MAX_REMEMBERED_MEMBERS", "MAX_REMEMBERED_SETS", "SUMS", "Plan", "Rehearsal"]

MAX_REMEMBERED_SETS: Final = 65_536
"""Tag sets whose answers a process remembers; the one not asked for longest is forgotten."""

MAX_REMEMBERED_MEMBERS: Final = 16_000_000
"""Candidates in all of those together, 4 bytes each; at least the last one's are remembered."""

FRAMES: Final = (
    "tagset_id",
    "epoch",
    "seq",
    "shard_hash",
    "flags",
    "weight",
    "text",
    "routing",
    "method",
)
"""The columns of what is rehearsed: of `hops`, and of the tag set of each."""

SUMS: Final = (
    "tagset_id bigint, route_id bigint, frames bigint, moved bigint, lost bigint, gained bigint,"
    " unknown bigint, frames_old bigint, frames_new bigint, routes_old bigint, routes_new bigint"
)
"""What a batch comes to: rows of a tag set as a whole (`route_id` null), and of its routes."""

_COLUMNS: Final = (
    "tagset_id",
    "route_id",
    "frames",
    "moved",
    "lost",
    "gained",
    "unknown",
    "frames_old",
    "frames_new",
    "routes_old",
    "routes_new",
)
_BY_KEY: Final = int(Flag.STICKY)
Ints = npt.NDArray[np.int64]
Batch = Any
"""A `pyarrow.RecordBatch`, which has no annotations."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared; sent to the executors.

    Attributes:
        table: Where the table as it is lies, for the executors.
        candidate: Where the other one lies.
        shard_old: The broker's default method for shard requests as it is; `None` for ours.
        shard_new: As it would be.
        method_old: The same for unicast requests.
        method_new: As it would be.
    """

    table: str
    candidate: str
    shard_old: str | None = None
    shard_new: str | None = None
    method_old: str | None = None
    method_new: str | None = None


class Rehearsal:
    """Both sides of a plan, opened in this process, and the answers it remembers.

    Raises:
        TableUnreadable: A table cannot be opened.
        BadMethod: There is no such method here.
    """

    def __init__(self, plan: Plan) -> None:
        self.old: Final = Side(open_table(plan.table), MethodSet(plan.method_old, plan.shard_old))
        self.new: Final = Side(
            open_table(plan.candidate), MethodSet(plan.method_new, plan.shard_new)
        )
        self._answers: OrderedDict[int, tuple[Answer, Answer] | None] = OrderedDict()
        self._members = 0

    def sums(self, batch: Batch) -> Batch:
        """Resolve the frames of a batch, and return what they come to.

        Args:
            batch: The columns `FRAMES`.

        Returns:
            The columns of `SUMS`.
        """
        tagsets = _ints(batch, "tagset_id")
        ids, first, inverse = np.unique(tagsets, return_index=True, return_inverse=True)
        # A group's frames one after the other.
        order = np.argsort(inverse, kind="stable")
        sizes = np.bincount(inverse, minlength=len(ids))
        answers = self._all_answers(ids, first, batch)
        known = np.array([each is not None for each in answers], np.bool_)
        shards = np.array(
            [each is not None and _is_shard(each[0].question) for each in answers], np.bool_
        )
        weights = _ints(batch, "weight")[order]
        keys = self._keys(batch, order, np.repeat(shards, sizes))
        made = _Sums(ids, np.repeat(np.arange(len(ids)), sizes), weights)
        made.total(known)
        self._singles(answers, sizes, keys, made)
        self._multicasts(answers, made)
        return made.batch()

    def _keys(self, batch: Batch, order: Places, shards: npt.NDArray[np.bool_]) -> Keys:
        turns = turns_of(_ints(batch, "epoch"), _ints(batch, "seq"))[order]
        hashes = _ints(batch, "shard_hash")[order].view(np.uint64)
        sticky = (_ints(batch, "flags")[order] & _BY_KEY) != 0
        return np.where(shards | sticky, hashes, turns)

    # --- what is remembered -------------------------------------------------------------------

    def _all_answers(
        self, ids: Ints, first: Places, batch: Batch
    ) -> list[tuple[Answer, Answer] | None]:
        kept = self._answers
        listed = ids.tolist()
        missing = [at for at, each in enumerate(listed) if each not in kept]
        rows = batch.select(["text", "routing", "method"]).take(pa.array(first[missing]))
        columns: list[list[Any]] = [column.to_pylist() for column in rows.columns]
        made = {
            listed[at]: self._answered(*said)
            for at, said in zip(missing, zip(*columns, strict=True), strict=True)
        }
        found = [made[each] if each in made else kept[each] for each in listed]
        for each in listed:
            if each in made:
                self._keep(each, made[each])
            else:
                kept.move_to_end(each)
        self._make_room()
        return found

    def _answered(
        self, text: str | None, routing: str | None, method: str | None
    ) -> tuple[Answer, Answer] | None:
        if text is None:
            return None
        try:
            question = read_question(text, routing or "", method or "")
        except AddressError:
            return None
        if not question.query:
            return None
        return self.old.answer(question), self.new.answer(question)

    def _keep(self, tagset: int, answers: tuple[Answer, Answer] | None) -> None:
        self._answers[tagset] = answers
        self._members += _members(answers)

    def _make_room(self) -> None:
        kept = self._answers
        while len(kept) > MAX_REMEMBERED_SETS or (
            self._members > MAX_REMEMBERED_MEMBERS and len(kept) > 1
        ):
            _, oldest = kept.popitem(last=False)
            self._members -= _members(oldest)

    # --- what goes to one ---------------------------------------------------------------------

    def _singles(
        self,
        answers: list[tuple[Answer, Answer] | None],
        sizes: Places,
        keys: Keys,
        made: _Sums,
    ) -> None:
        chosen = [
            at
            for at, each in enumerate(answers)
            if each is not None and each[0].code is not Code.ALL
        ]
        group = made.group
        keep = np.zeros(len(answers), np.bool_)
        keep[chosen] = True
        old = self._routed(
            self.old, [each and each[0] for each in answers], keep, sizes, keys, group
        )
        new = self._routed(
            self.new, [each and each[1] for each in answers], keep, sizes, keys, group
        )
        made.routes(old, new, keep)

    @staticmethod
    def _routed(
        side: Side,
        answers: list[Answer | None],
        keep: npt.NDArray[np.bool_],
        sizes: Places,
        keys: Keys,
        group: Places,
    ) -> _Routed:
        """Return who gets each frame that goes to one; nobody for the others."""
        routed = _Routed(
            np.zeros(len(keys), np.int64),
            np.zeros(len(keys), np.bool_),
            np.zeros(len(keys), np.int64),
            np.array([0 if each is None else len(each.numbers) for each in answers], np.int64),
        )
        some = keep & (routed.counts > 0)
        rows = np.flatnonzero(some[group])
        if len(rows):
            picked = [each for at, each in enumerate(answers) if some[at] and each is not None]
            _, numbers = side.place(picked, sizes[some], keys[rows])
            routed.there[rows] = True
            routed.numbers[rows] = numbers
            routed.keys[rows] = side.table.keys(numbers)
        return routed

    # --- what goes to all ---------------------------------------------------------------------

    def _multicasts(self, answers: list[tuple[Answer, Answer] | None], made: _Sums) -> None:
        for at, each in enumerate(answers):
            if each is not None and each[0].code is Code.ALL:
                old = self.old.table.keys(each[0].numbers)
                made.all(at, old, self.new.table.keys(each[1].numbers))


@dataclass(frozen=True, slots=True)
class _Routed:
    """Who gets each frame: in the lake's words, if anybody, in the table's; and how many could."""

    keys: Ints
    there: npt.NDArray[np.bool_]
    numbers: Ints
    counts: Ints


class _Sums:
    """The sums of a batch, as they come together."""

    def __init__(self, ids: Ints, group: Places, weights: Ints) -> None:
        self.group: Final = group
        self._ids = ids
        self._weights = weights
        self._frames = _by_group(group, weights, len(ids))
        self._rows: list[dict[str, Ints]] = []
        self._nulls: list[npt.NDArray[np.bool_]] = []

    def total(self, known: npt.NDArray[np.bool_]) -> None:
        """Count the frames of each tag set, and those of tag sets that nobody knows."""
        self._add(
            self._ids,
            None,
            frames=np.where(known, self._frames, 0),
            unknown=np.where(known, 0, self._frames),
        )

    def routes(self, old: _Routed, new: _Routed, keep: npt.NDArray[np.bool_]) -> None:
        """Count who got what of the frames that go to one, and what moved."""
        group, weights, count = self.group, self._weights, len(self._ids)
        both = old.there & new.there
        self._add(
            self._ids[keep],
            None,
            moved=_by_group(group, weights * (both & (old.keys != new.keys)), count)[keep],
            lost=_by_group(group, weights * (old.there & ~new.there), count)[keep],
            gained=_by_group(group, weights * (new.there & ~old.there), count)[keep],
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


def _is_shard(question: Question) -> bool:
    return question.routing is RoutingType.SHARD


def _members(answers: tuple[Answer, Answer] | None) -> int:
    return 0 if answers is None else len(answers[0].numbers) + len(answers[1].numbers)


def _ints(batch: Batch, name: str) -> Ints:
    column: Ints = batch.column(name).to_numpy(zero_copy_only=False)
    return column.astype(np.int64, copy=False)
