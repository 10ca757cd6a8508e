"""One side of a rehearsal: a table, its methods, and what groups of frames come to with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ._placing import (
    Places,
    chance,
    jump,
    on_ring,
    remainder,
    rendezvous,
    rendezvous_small,
    weighted,
)
from ._questions import Code, MethodSet, Question
from ._resolver import Resolver
from ._tables import Numbers, Table
from ._turns import Keys

__all__ = ["Answer", "Side"]

SMALL: Final = 16
"""Frames of a group from which on it is scored by itself."""

LARGE: Final = 4096
"""Candidates from which on a group's are looked up by themselves, and not copied beside others."""


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

    def place(self, answers: Sequence[Answer], sizes: Places, keys: Keys) -> tuple[Places, Numbers]:
        """Return who gets each frame.

        Args:
            answers: Of each group; none is a multicast, and none is without candidates.
            sizes: How many frames each group has, at least one.
            keys: Of the frames, a group's one after the other.

        Returns:
            The place of each frame's choice among the candidates of its group, and its number.
        """
        codes = np.fromiter((each.code for each in answers), np.int8, len(answers))
        many = np.fromiter((len(each.numbers) for each in answers), np.int64, len(answers))
        group = np.repeat(np.arange(len(answers)), sizes)
        places = np.zeros(len(keys), np.int64)
        # Of one there is nothing to choose.
        codes[many == 1] = -1
        for code in np.unique(codes[codes >= 0]).tolist():
            rows = np.flatnonzero(codes[group] == code)
            places[rows] = self._placed(Code(code), answers, group[rows], many, keys[rows])
        return places, self._looked_up(answers, many, group, places)

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
            if answer.kept is None:
                answer.kept = self.table.ring(numbers)
            return on_ring(keys, *answer.kept)
        if code is Code.WEIGHTED:
            if answer.kept is None:
                answer.kept = self.table.weights(numbers)
            return weighted(keys, answer.kept)
        place, question = self._resolver.place, answer.question
        return np.array([place(question, numbers, key) for key in keys.tolist()], np.int64)

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
