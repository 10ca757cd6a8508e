"""How far one partition of a query has come, in each epoch that is known of: plain values.

The last epoch is written out. Those before it are kept as few entries: ones that follow one another
and have ended share one, and one that was left in the middle has its own, with the row it goes on
from. Of an epoch that is in none of them nothing was taken, unless it is before `known_from`: then
it was forgotten, and nobody can say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = [
    "BatchEpochs",
    "BatchProgress",
    "Known",
    "known_from",
    "known_of",
    "note",
    "shorten",
    "started",
]


@dataclass(frozen=True, slots=True)
class BatchEpochs:
    """Epochs before the last one of a partition: some that have ended, or one that has not.

    Attributes:
        first: The first of them.
        last: The last of them; all between have ended as well.
        next: How many rows were taken of the one that has not ended; `None`: they have.
    """

    first: int
    last: int
    next: int | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far one partition of a query has come: a plain value, to be kept and given back.

    It has to be kept whole. Without the last two parts all epochs before the last are refused.

    Attributes:
        query: Whose rows they are.
        to: Which of the sender's destinations.
        partition: Which part.
        epoch: The last epoch there were rows of.
        next: How many of its rows have been taken.
        finished: Whether these are all.
        earlier: What was taken of epochs before it, in order. Of those in none nothing was.
        known_from: The first epoch for which `earlier` holds; what was taken of those before is
            forgotten. `None`: `epoch`.
    """

    query: str
    to: str
    partition: int
    epoch: int
    next: int
    finished: bool
    earlier: tuple[BatchEpochs, ...] = ()
    known_from: int | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one epoch.

    Attributes:
        next: How many of its rows have been taken; `None`: all, and nobody remembers how many.
        finished: Whether these are all.
    """

    next: int | None
    finished: bool


_NOTHING = Known(0, finished=False)


def started(query: str, to: str, partition: int, epoch: int) -> BatchProgress:
    """Return the progress of a partition that nothing has come of before."""
    return BatchProgress(query, to, partition, epoch, 0, finished=False, known_from=0)


def known_of(progress: BatchProgress, epoch: int, most: int) -> Known | None:
    """Return what is known of an epoch; `None`: it is forgotten.

    Args:
        progress: Of its partition.
        epoch: Which one.
        most: Entries that may be kept of earlier epochs. If there are as many, there is no room for
            one before them all: rows that were taken of it would be forgotten at once.
    """
    if epoch == progress.epoch:
        return Known(progress.next, progress.finished)
    if epoch > progress.epoch:
        return _NOTHING
    if epoch < known_from(progress):
        return None
    for each in progress.earlier:
        if each.first <= epoch <= each.last:
            return Known(each.next, finished=each.next is None)
    if len(progress.earlier) >= most and epoch < progress.earlier[0].first:
        return None
    return _NOTHING


def note(
    progress: BatchProgress, epoch: int, expected: int, most: int, *, finished: bool
) -> BatchProgress:
    """Return the progress with so many rows taken of an epoch.

    Args:
        progress: As it was.
        epoch: Which one; it is not forgotten, and has not ended before.
        expected: How many of its rows have been taken.
        most: Entries that may be kept of earlier epochs; of more the oldest are forgotten.
        finished: Whether these are all.
    """
    if epoch == progress.epoch:
        return replace(progress, next=expected, finished=finished)
    if epoch < progress.epoch:
        others = (each for each in progress.earlier if each.first != epoch)
        it = BatchEpochs(epoch, epoch, None if finished else expected)
        return shorten(replace(progress, earlier=_joined((*others, it))), most)
    earlier = progress.earlier
    if progress.finished or progress.next:
        left = None if progress.finished else progress.next
        earlier = _joined((*earlier, BatchEpochs(progress.epoch, progress.epoch, left)))
    later = replace(
        progress,
        epoch=epoch,
        next=expected,
        finished=finished,
        earlier=earlier,
        known_from=known_from(progress),
    )
    return shorten(later, most)


def shorten(progress: BatchProgress, most: int) -> BatchProgress:
    """Return the progress with the oldest epochs forgotten, if it has more entries than `most`."""
    over = len(progress.earlier) - most
    if over <= 0:
        return progress
    known = progress.earlier[over - 1].last + 1
    return replace(progress, earlier=progress.earlier[over:], known_from=known)


def known_from(progress: BatchProgress) -> int:
    """Return the first epoch that is not forgotten."""
    return progress.epoch if progress.known_from is None else progress.known_from


def _joined(entries: Iterable[BatchEpochs]) -> tuple[BatchEpochs, ...]:
    """Return entries in order, those that have ended and follow one another as one."""
    made: list[BatchEpochs] = []
    for each in sorted(entries, key=lambda entry: entry.first):
        before = made[-1] if made else None
        if (
            before is not None
            and before.next is None
            and each.next is None
            and before.last + 1 == each.first
        ):
            made[-1] = BatchEpochs(before.first, each.last)
        else:
            made.append(each)
    return tuple(made)
