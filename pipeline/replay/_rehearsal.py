"""The rehearsal of a batch of hops: each frame resolved on both sides, and the sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...protocol.broker import RoutingType
from ...protocol.eventlog import Flag
from ._memo import Memo, Pair, Said
from ._placing import Places
from ._questions import ASKED, Code, MethodSet, Question, is_own
from ._sides import Candidates, TableResolver
from ._sums import FrameBatch, Ints, Routed, Sums
from ._tables import open_table
from ._turns import Keys, turns_of

__all__ = ["FRAMES", "Rehearsal", "RehearsalPlan"]

FRAMES: Final = (
    "tagset_id",
    "epoch",
    "seq",
    "shard_hash",
    "flags",
    "weight",
    "delivered",
    *ASKED,
)
"""The columns of the frames to rehearse: of `hops`, and of the tag set of each. `delivered` is 1
for a frame with the outcome `DELIVER`, else 0."""

_BY_KEY: Final = int(Flag.STICKY)


@dataclass(frozen=True, slots=True)
class RehearsalPlan:
    """The tables and methods to compare; sent to the executors.

    Attributes:
        table: The path of the current table, for the executors.
        candidate: The path of the candidate table.
        shard_old: The broker's current method for shard requests; `None` for the built-in default.
        shard_new: The candidate method for shard requests.
        method_old: The broker's current method for unicast requests.
        method_new: The candidate method for unicast requests.
    """

    table: str
    candidate: str
    shard_old: str | None = None
    shard_new: str | None = None
    method_old: str | None = None
    method_new: str | None = None


class Rehearsal:
    """Both sides of a plan, opened in this process, and the remembered answers.

    Attributes:
        old: The current table and methods.
        new: The candidate table and methods.
        memo: The candidates of each tag set.

    Raises:
        TableUnreadable: A table cannot be opened.
        BadMethod: A method is not installed here.
    """

    def __init__(self, plan: RehearsalPlan) -> None:
        self.old: Final = TableResolver(
            open_table(plan.table), MethodSet(plan.method_old, plan.shard_old)
        )
        self.new: Final = TableResolver(
            open_table(plan.candidate), MethodSet(plan.method_new, plan.shard_new)
        )
        self.memo: Final = Memo(self.old, self.new)

    def sums(self, batch: FrameBatch, said: Said | None = None) -> Iterator[FrameBatch]:
        """Resolve the frames of a batch, and yield the sums in one part or more.

        Args:
            batch: The columns `FRAMES`.
            said: The columns `ASKED` by the ids of tag sets; the batch does not need them then.

        Yields:
            The columns of `SUMS`.
        """
        tagsets = _ints(batch, "tagset_id")
        ids, first, inverse = np.unique(tagsets, return_index=True, return_inverse=True)
        # The frames of a group are consecutive.
        order = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse, minlength=len(ids)))
        for begin, answers in self.memo.parts(ids, first, batch if said is None else said):
            end = begin + len(answers)
            rows = order[ends[begin - 1] if begin else 0 : ends[end - 1]]
            yield self._part(ids[begin:end], inverse[rows] - begin, answers, batch.take(rows))

    def _part(
        self, ids: Ints, group: Places, answers: list[Pair], frames: FrameBatch
    ) -> FrameBatch:
        sizes = np.bincount(group, minlength=len(ids))
        known = np.array([each is not None for each in answers], np.bool_)
        own = np.array(
            [each is not None and is_own(each[0].question) for each in answers], np.bool_
        )
        shards = np.array(
            [each is not None and _is_shard(each[0].question) for each in answers], np.bool_
        )
        keys = self._keys(frames, shards[group])
        made = Sums(ids, group, _ints(frames, "weight"), _ints(frames, "delivered") != 0)
        made.total(known, own)
        resolved = [None if mine else each for each, mine in zip(answers, own, strict=True)]
        self._singles(resolved, sizes, keys, made)
        self._multicasts(resolved, made)
        return made.batch()

    def _keys(self, frames: FrameBatch, shards: npt.NDArray[np.bool_]) -> Keys:
        turns = turns_of(_ints(frames, "epoch"), _ints(frames, "seq"))
        hashes = _ints(frames, "shard_hash").view(np.uint64)
        sticky = (_ints(frames, "flags") & _BY_KEY) != 0
        return np.where(shards | sticky, hashes, turns)

    # --- unicast and shard --------------------------------------------------------------------

    def _singles(
        self,
        answers: list[Pair],
        sizes: Places,
        keys: Keys,
        made: Sums,
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
        side: TableResolver,
        answers: list[Candidates | None],
        keep: npt.NDArray[np.bool_],
        sizes: Places,
        keys: Keys,
        group: Places,
    ) -> Routed:
        """Return the route of each unicast or shard frame; none for the others."""
        routed = Routed(
            np.zeros(len(keys), np.int64),
            np.zeros(len(keys), np.bool_),
            np.zeros(len(keys), np.int64),
            np.zeros(len(keys), np.bool_),
            np.array([0 if each is None else len(each.numbers) for each in answers], np.int64),
        )
        some = keep & (routed.counts > 0)
        rows = np.flatnonzero(some[group])
        if len(rows):
            picked = [each for at, each in enumerate(answers) if some[at] and each is not None]
            placed = side.place(picked, sizes[some], keys[rows])
            routed.there[rows] = True
            routed.numbers[rows] = placed.numbers
            routed.failed[rows] = placed.failed
            routed.keys[rows] = side.table.keys(placed.numbers)
        return routed

    # --- multicast ----------------------------------------------------------------------------

    def _multicasts(self, answers: list[Pair], made: Sums) -> None:
        for at, each in enumerate(answers):
            if each is not None and each[0].code is Code.ALL:
                old = self.old.table.keys(each[0].numbers)
                made.all(at, old, self.new.table.keys(each[1].numbers))


def _is_shard(question: Question) -> bool:
    return question.routing is RoutingType.SHARD


def _ints(batch: FrameBatch, name: str) -> Ints:
    column: Ints = batch.column(name).to_numpy(zero_copy_only=False)
    return column.astype(np.int64, copy=False)
