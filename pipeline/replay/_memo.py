"""The answers that a process remembers, and the division of a batch into parts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ...protocol import AddressError
from ._placing import Places
from ._questions import ASKED, read_question
from ._sides import Candidates, TableResolver
from ._sums import FrameBatch, Ints

__all__ = ["MAX_PART_BYTES", "MAX_REMEMBERED_BYTES", "MAX_REMEMBERED_SETS", "Memo", "Pair", "Said"]

MAX_REMEMBERED_SETS: Final = 65_536
"""Answers that a process remembers, one for each tag set; the least recently used is removed."""

MAX_REMEMBERED_BYTES: Final = 192 * 1024 * 1024
"""Bytes of the remembered answers: 4 for each candidate, 1,000 more for a `bounded-ring`, 250 more
for a plug-in, and `SET_BYTES` for each tag set. Old answers are removed before a new one is kept;
an answer above this limit is not kept."""

MAX_PART_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the answers in use at a time, with the memory to place their frames. A larger batch is
divided into parts of at least one tag set."""

SET_BYTES: Final = 1_500
"""Bytes of the rest of an answer: the tags and a few objects."""

Pair: TypeAlias = tuple[Candidates, Candidates] | None
"""The answers of both sides for a tag set; `None` if it cannot be read."""

Words: TypeAlias = tuple[str | None, ...]
"""The columns `ASKED` of a tag set; all `None` if the lake does not have it."""

Said: TypeAlias = Mapping[int, Words]
"""The columns `ASKED` by the ids of tag sets."""

_UNSAID: Final = (None, None, None)
_NOT_KEPT: Final = object()


class Memo:
    """The remembered answers by tag set.

    Args:
        old: The current side.
        new: The candidate side.

    Attributes:
        bytes: The size of the remembered answers, as `MAX_REMEMBERED_BYTES` counts it.
    """

    def __init__(self, old: TableResolver, new: TableResolver) -> None:
        self._old = old
        self._new = new
        self._kept: OrderedDict[int, Pair] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        """Return the number of remembered tag sets."""
        return len(self._kept)

    def parts(
        self, ids: Ints, first: Places, source: FrameBatch | Said
    ) -> Iterator[tuple[int, list[Pair]]]:
        """Yield the answers for the tag sets of a batch, in parts of up to `MAX_PART_BYTES`.

        Args:
            ids: The tag sets.
            first: For each tag set the row of one of its frames.
            source: The frames, or the columns `ASKED` of all tag sets.

        Yields:
            The place of the first tag set, and the answers for it and the next ones.
        """
        said = self._said(ids, first, source)
        begin, size, found = 0, 0, list[Pair]()
        for at, each in enumerate(ids.tolist()):
            kept: Any = self._kept.get(each, _NOT_KEPT)
            if kept is _NOT_KEPT:
                # It may have been remembered when the batch began, and removed since.
                words = said.get(each)
                if words is None:
                    words = self._said(ids[at : at + 1], first[at : at + 1], source)[each]
                pair = self._answered(*words)
                # A tag set that the lake does not have may be ingested later.
                if words != _UNSAID:
                    self._keep(each, pair)
            else:
                pair = kept
                self._kept.move_to_end(each)
            work = 0 if pair is None else pair[0].work + pair[1].work
            if found and size + work > MAX_PART_BYTES:
                yield begin, found
                begin, size, found = at, 0, []
            found.append(pair)
            size += work
        if found:
            yield begin, found

    def _said(self, ids: Ints, first: Places, source: FrameBatch | Said) -> dict[int, Words]:
        """Return the columns `ASKED` of the tag sets that are not remembered."""
        listed = ids.tolist()
        missing = [at for at, each in enumerate(listed) if each not in self._kept]
        if isinstance(source, Mapping):
            return {listed[at]: source.get(listed[at], _UNSAID) for at in missing}
        rows = source.select(list(ASKED)).take(pa.array(first[missing]))
        columns: list[list[Any]] = [column.to_pylist() for column in rows.columns]
        words = zip(*columns, strict=True)
        return {listed[at]: each for at, each in zip(missing, words, strict=True)}

    def _answered(self, text: str | None, routing: str | None, method: str | None) -> Pair:
        if text is None:
            return None
        try:
            question = read_question(text, routing or "", method or "")
        except AddressError:
            return None
        if not question.query:
            return None
        return self._old.answer(question), self._new.answer(question)

    def _keep(self, tagset: int, pair: Pair) -> None:
        size, kept = _size(pair), self._kept
        if size > MAX_REMEMBERED_BYTES:
            return
        while kept and (
            len(kept) >= MAX_REMEMBERED_SETS or self.bytes + size > MAX_REMEMBERED_BYTES
        ):
            _, oldest = kept.popitem(last=False)
            self.bytes -= _size(oldest)
        kept[tagset] = pair
        self.bytes += size


def _size(pair: Pair) -> int:
    return SET_BYTES + (0 if pair is None else pair[0].size + pair[1].size)
