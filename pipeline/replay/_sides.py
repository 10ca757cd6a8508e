"""One side of a rehearsal: a table, its methods, and what groups of frames come to with them."""

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
from ._tables import Numbers, Table
from ._turns import Keys

__all__ = ["Answer", "Placed", "Side"]

SMALL: Final = 16
"""Frames of a group from which on it is scored by itself."""

LARGE: Final = 4096
"""Candidates from which on a group's are looked up by themselves, and not copied beside others."""

RING_MEMBERS: Final = 65_536
"""Candidates up to which a ring is kept, 64 MB then; of more it is made in parts, each time."""

_NUMBER: Final = 4
_KEPT: Final = {Code.RING: 64 * 16, Code.WEIGHTED: 8, Code.FOREIGN: 250}
_WORK: Final = {Code.ALL: 200, Code.RENDEZVOUS: 40}


@dataclass(slots=True, eq=False)
class Answer:
    """Who can get the frames of a tag set, and how one of them is chosen.

    Attributes:
        question: What is asked for.
        code: How one is chosen.
        numbers: The candidates.
        kept: What the method has prepared of them, once it has.
    """

    question: Question
    code: Code
    numbers: Numbers
    kept: Any = field(default=None)

    @property
    def size(self) -> int:
        """Bytes of the candidates and of what is prepared of them, whether it has been or not."""
        count, kept = len(self.numbers), _KEPT.get(self.code, 0)
        if self.code is Code.RING and count > RING_MEMBERS:
            kept = 0
        return count * (_NUMBER + kept)

    @property
    def work(self) -> int:
        """Bytes that placing the frames takes, about, besides those for each frame."""
        return self.size + len(self.numbers) * _WORK.get(self.code, 20)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where frames go.

    Attributes:
        places: The place of each frame's choice among the candidates of its group.
        numbers: Its number.
        failed: Whether the method failed on the frame.
    """

    places: Places
    numbers: Numbers
    failed: npt.NDArray[np.bool_]


class Side:
    """Resolves groups of frames with one table and its methods.

    Args:
        table: The table.
        methods: What may choose.
    """

    def __init__(self, table: Table, methods: MethodSet) -> None:
        self.table: Final = table
        self.methods: Final = methods
        self._resolver: Final = Resolver(table, methods)

    def answer(self, question: Question) -> Answer:
        """Return who can get the frames of a tag set."""
        return Answer(question, self.methods.code(question), self.table.resolve(question.query))

    def place(self, answers: Sequence[Answer], sizes: Places, keys: Keys) -> Placed:
        """Return who gets each frame.

        Args:
            answers: Of each group; none is a multicast, and none is without candidates.
            sizes: How many frames each group has, at least one.
            keys: Of the frames, a group's one after the other.
        """
        codes = np.fromiter((each.code for each in answers), np.int8, len(answers))
        many = np.fromiter((len(each.numbers) for each in answers), np.int64, len(answers))
        group = np.repeat(np.arange(len(answers)), sizes)
        places = np.zeros(len(keys), np.int64)
        failed = np.zeros(len(keys), np.bool_)
        # Of one there is nothing to choose.
        codes[many == 1] = -1
        for code in np.unique(codes[codes >= 0]).tolist():
            rows = np.flatnonzero(codes[group] == code)
            if code == Code.FOREIGN:
                places[rows], failed[rows] = self._by_plug_in(answers, group[rows], keys[rows])
            else:
                places[rows] = self._placed(Code(code), answers, group[rows], many, keys[rows])
        return Placed(places, self._looked_up(answers, many, group, places), failed)

    def _placed(
        self, code: Code, answers: Sequence[Answer], group: Places, many: Places, keys: Keys
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

    def _alone(self, code: Code, answer: Answer, keys: Keys) -> Places:
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
        self, answers: Sequence[Answer], group: Places, keys: Keys
    ) -> tuple[Places, npt.NDArray[np.bool_]]:
        """Place frame by frame, and say on which of them a plug-in failed."""
        placed, failed = np.empty(len(keys), np.int64), np.empty(len(keys), np.bool_)
        for row, (at, key) in enumerate(zip(group.tolist(), keys.tolist(), strict=True)):
            answer = answers[at]
            if answer.kept is None:
                answer.kept = self._resolver.placer(answer.question, answer.numbers)
            placed[row], failed[row] = answer.kept(key)
        return placed, failed

    def _together(self, answers: Sequence[Answer], sizes: Places, keys: Keys) -> Places:
        """Place the frames of many small groups by score."""
        many = np.fromiter((len(each.numbers) for each in answers), np.int64, len(answers))
        starts = np.cumsum(many) - many
        factors, summands = self.table.words(np.concatenate([each.numbers for each in answers]))
        return rendezvous_small(
            keys, np.repeat(many, sizes), np.repeat(starts, sizes), factors, summands
        )

    @staticmethod
    def _looked_up(
        answers: Sequence[Answer], many: Places, group: Places, places: Places
    ) -> Numbers:
        """Return the numbers of the candidates at these places."""
        numbers = np.empty(len(places), np.uint32)
        large = many > LARGE
        # What is large gives room to one that is not looked at.
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
