"""One side of a rehearsal: a table with its methods, and the placement of groups of frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ._placing import (
    Places,
    chance,
    jump,
    on_ring,
    on_rings,
    remainder,
    rendezvous,
    rendezvous_small,
    weighted,
)
from ._questions import Code, MethodSet, Question
from ._resolver import Resolver
from ._tables import Numbers, OpenTable
from ._turns import Keys

__all__ = ["Candidates", "Placed", "TableResolver"]

SMALL: Final = 16
"""Frames from which a group is scored by itself."""

LARGE: Final = 4096
"""Candidates above which those of a group are looked up by themselves, without a copy."""

RING_MEMBERS: Final = 65_536
"""Candidates up to which a ring is kept (64 MB); a larger one is built in parts each time."""

_NUMBER: Final = 4
_KEPT: Final = {Code.RING: 64 * 16, Code.WEIGHTED: 8, Code.FOREIGN: 250}
_WORK: Final = {Code.ALL: 200, Code.RENDEZVOUS: 40}


@dataclass(slots=True, eq=False)
class Candidates:
    """The candidates for a tag set and the method that chooses among them.

    Attributes:
        question: The tags and the routing.
        code: The method.
        numbers: The candidates.
        kept: The data that the method prepared from the candidates, or `None`.
    """

    question: Question
    code: Code
    numbers: Numbers
    kept: Any = field(default=None)

    @property
    def size(self) -> int:
        """Bytes of the candidates and of the prepared data, also before it is prepared."""
        count, kept = len(self.numbers), _KEPT.get(self.code, 0)
        if self.code is Code.RING and count > RING_MEMBERS:
            kept = 0
        return count * (_NUMBER + kept)

    @property
    def work(self) -> int:
        """Approximate bytes needed to place the frames, besides those for each frame."""
        return self.size + len(self.numbers) * _WORK.get(self.code, 20)


@dataclass(frozen=True, slots=True)
class Placed:
    """The chosen candidates of frames.

    Attributes:
        places: The place of each frame's candidate among those of its group.
        numbers: The number of the candidate in the table.
        failed: Whether the method failed on the frame.
    """

    places: Places
    numbers: Numbers
    failed: npt.NDArray[np.bool_]


class TableResolver:
    """A resolver of groups of frames with one table and its methods.

    Args:
        table: The table.
        methods: The methods of this side.
    """

    def __init__(self, table: OpenTable, methods: MethodSet) -> None:
        self.table: Final = table
        self.methods: Final = methods
        self._resolver: Final = Resolver(table, methods)

    def answer(self, question: Question) -> Candidates:
        """Return the candidates and the method for a question."""
        return Candidates(question, self.methods.code(question), self.table.resolve(question.query))

    def place(self, answers: Sequence[Candidates], sizes: Places, keys: Keys) -> Placed:
        """Return the candidate that gets each frame.

        Args:
            answers: The answer of each group: not a multicast, and with candidates.
            sizes: The number of frames of each group, at least one.
            keys: The keys of the frames; those of a group are consecutive.
        """
        codes = np.fromiter((each.code for each in answers), np.int8, len(answers))
        many = np.fromiter((len(each.numbers) for each in answers), np.int64, len(answers))
        group = np.repeat(np.arange(len(answers)), sizes)
        places = np.zeros(len(keys), np.int64)
        failed = np.zeros(len(keys), np.bool_)
        # With one candidate there is no choice.
        codes[many == 1] = -1
        for code in np.unique(codes[codes >= 0]).tolist():
            rows = np.flatnonzero(codes[group] == code)
            if code == Code.FOREIGN:
                places[rows], failed[rows] = self._by_plug_in(answers, group[rows], keys[rows])
            else:
                places[rows] = self._placed(Code(code), answers, group[rows], many, keys[rows])
        return Placed(places, self._looked_up(answers, many, group, places), failed)

    def _placed(
        self, code: Code, answers: Sequence[Candidates], group: Places, many: Places, keys: Keys
    ) -> Places:
        if code is Code.REMAINDER:
            return remainder(keys, many[group])
        if code is Code.CHANCE:
            return chance(keys, many[group])
        if code is Code.JUMP:
            return jump(keys, many[group])
        placed = np.empty(len(keys), np.int64)
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        ends = np.append(begins[1:], len(group))
        small: list[int] = []
        for at, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            if code is Code.RENDEZVOUS and end - begin < SMALL:
                small.append(at)
                continue
            answer = answers[int(group[begin])]
            placed[begin:end] = self._alone(code, answer, keys[begin:end])
        if small:
            lengths = ends[small] - begins[small]
            rows = np.repeat(begins[small] - (np.cumsum(lengths) - lengths), lengths)
            rows += np.arange(len(rows))
            chosen = [answers[int(at)] for at in group[begins[small]]]
            placed[rows] = self._together(chosen, lengths, keys[rows])
        return placed

    def _alone(self, code: Code, answer: Candidates, keys: Keys) -> Places:
        """Place the frames of one group."""
        numbers = answer.numbers
        if code is Code.RENDEZVOUS:
            return rendezvous(keys, *self.table.words(numbers))
        if code is Code.RING:
            if len(numbers) > RING_MEMBERS:
                return on_rings(keys, self.table.rings(numbers, RING_MEMBERS))
            if answer.kept is None:
                answer.kept = self.table.ring(numbers)
            return on_ring(keys, *answer.kept)
        if answer.kept is None:
            answer.kept = self.table.weights(numbers)
        return weighted(keys, answer.kept)

    def _by_plug_in(
        self, answers: Sequence[Candidates], group: Places, keys: Keys
    ) -> tuple[Places, npt.NDArray[np.bool_]]:
        """Return the place of each frame, and whether the plug-in failed on it."""
        placed, failed = np.empty(len(keys), np.int64), np.empty(len(keys), np.bool_)
        for row, (at, key) in enumerate(zip(group.tolist(), keys.tolist(), strict=True)):
            answer = answers[at]
            if answer.kept is None:
                answer.kept = self._resolver.placer(answer.question, answer.numbers)
            placed[row], failed[row] = answer.kept(key)
        return placed, failed

    def _together(self, answers: Sequence[Candidates], sizes: Places, keys: Keys) -> Places:
        """Place the frames of many small groups by score."""
        many = np.fromiter((len(each.numbers) for each in answers), np.int64, len(answers))
        starts = np.cumsum(many) - many
        factors, summands = self.table.words(np.concatenate([each.numbers for each in answers]))
        return rendezvous_small(
            keys, np.repeat(many, sizes), np.repeat(starts, sizes), factors, summands
        )

    @staticmethod
    def _looked_up(
        answers: Sequence[Candidates], many: Places, group: Places, places: Places
    ) -> Numbers:
        """Return the numbers of the candidates at these places."""
        numbers = np.empty(len(places), np.uint32)
        large = many > LARGE
        # A large group has one unused entry among the copies.
        parts = [
            each.numbers[:1] if len(each.numbers) > LARGE else each.numbers for each in answers
        ]
        counts = np.where(large, 1, many)
        begins = np.cumsum(counts) - counts
        plain = ~large[group]
        numbers[plain] = np.concatenate(parts)[begins[group[plain]] + places[plain]]
        for at in np.flatnonzero(large).tolist():
            rows = slice(*np.searchsorted(group, (at, at + 1)).tolist())
            numbers[rows] = answers[at].numbers[places[rows]]
        return numbers
