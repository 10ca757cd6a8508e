"""The progress of a partition of a query, in each epoch that is remembered: plain values.

The last epoch is written out. Those before it are kept as two things: the ones that have ended as a
set of their numbers, and each that was left in the middle with the row it goes on from. Of an epoch
that is in neither nothing was taken, unless it is before `known_from`: some epochs there were
forgotten, so whether rows of it were taken is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ._ended import has_ended, with_ended, within

__all__ = [
    "BatchEpoch",
    "BatchProgress",
    "Known",
    "forgot",
    "known_of",
    "note",
    "shorten",
    "started",
]


@dataclass(frozen=True, slots=True)
class BatchEpoch:
    """An epoch before the last one of a partition that has not ended.

    Attributes:
        epoch: Its number.
        next: How many of its rows were taken.
    """

    epoch: int
    next: int


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The progress of one partition of a query: a plain value, to be stored and restored.

    Store all of it. Without the last three fields all epochs before the last are refused.

    Attributes:
        query: The name of the query.
        to: The sender's name for the destination.
        partition: The number of the partition.
        epoch: The last epoch that rows arrived of.
        next: How many of its rows have been taken.
        finished: Whether these are all.
        earlier: The epochs before it that were left in the middle, in order.
        ended: The epochs before it of which all was taken: a 64-bit Roaring bitmap in the portable
            format, none: `b""`.
        known_from: The first epoch of which absence from both means that no rows were taken. Of
            absent epochs before it this is unknown. `None`: `epoch`.
    """

    query: str
    to: str
    partition: int
    epoch: int
    next: int
    finished: bool
    earlier: tuple[BatchEpoch, ...] = ()
    ended: bytes = b""
    known_from: int | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """The state of one epoch.

    Attributes:
        next: Number of rows that have been taken; `None`: all of them, the number is forgotten.
        finished: Whether these are all rows of the epoch.
    """

    next: int | None
    finished: bool


_NOTHING: Final = Known(0, finished=False)
_ALL: Final = Known(None, finished=True)


def started(query: str, to: str, partition: int, epoch: int) -> BatchProgress:
    """Return the progress of a partition that nothing has come of before."""
    return BatchProgress(query, to, partition, epoch, 0, finished=False, known_from=0)


def known_of(progress: BatchProgress, epoch: int) -> Known | None:
    """Return what is known of an epoch; `None`: it may be forgotten."""
    if epoch == progress.epoch:
        return Known(progress.next, progress.finished)
    if epoch > progress.epoch:
        return _NOTHING
    for each in progress.earlier:
        if each.epoch == epoch:
            return Known(each.next, finished=False)
    if has_ended(progress.ended, epoch):
        return _ALL
    return None if epoch < _known_from(progress) else _NOTHING


def note(
    progress: BatchProgress,
    epoch: int,
    expected: int,
    max_epochs: int,
    max_ended_bytes: int,
    *,
    finished: bool,
) -> BatchProgress:
    """Return the progress with so many rows taken of an epoch.

    Args:
        progress: As it was.
        epoch: Which one; it is not forgotten, and has not ended before. It will not be forgotten
            by this either.
        expected: How many of its rows have been taken.
        max_epochs: Epochs left in the middle that may be kept; of more the oldest are forgotten.
        max_ended_bytes: Bytes of those that have ended; of more the oldest are forgotten.
        finished: Whether these are all.
    """
    if epoch == progress.epoch:
        return replace(progress, next=expected, finished=finished)
    if epoch > progress.epoch:
        left = progress
        progress = replace(
            progress,
            epoch=epoch,
            next=expected,
            finished=finished,
            known_from=_known_from(progress),
        )
        if not left.finished and not left.next:
            return progress  # nothing was taken of it
        epoch, expected, finished = left.epoch, left.next, left.finished
    others = [each for each in progress.earlier if each.epoch != epoch]
    if not finished:
        return _kept(progress, [*others, BatchEpoch(epoch, expected)], max_epochs, epoch)
    ended, known = with_ended(progress.ended, epoch, max_ended_bytes)
    known = max(known, _known_from(progress))
    return replace(progress, earlier=tuple(others), ended=ended, known_from=known)


def shorten(progress: BatchProgress, max_epochs: int, max_ended_bytes: int) -> BatchProgress:
    """Return progress that was given with the oldest epochs forgotten, if it has more than it may.

    Raises:
        ValueError: Its `ended` is no bitmap.
    """
    ended, known = within(progress.ended, max_ended_bytes)
    if known:
        progress = replace(progress, ended=ended, known_from=max(known, _known_from(progress)))
    if len(progress.earlier) <= max_epochs:
        return progress
    return _kept(progress, progress.earlier, max_epochs, None)


def forgot(before: BatchProgress, after: BatchProgress, epoch: int) -> bool:
    """Return whether epochs were forgotten when one was noted."""
    if _known_from(after) > _known_from(before):
        return True
    kept = {epoch, *(each.epoch for each in after.earlier)}
    return any(each.epoch not in kept for each in before.earlier)


def _known_from(progress: BatchProgress) -> int:
    return progress.epoch if progress.known_from is None else progress.known_from


def _kept(
    progress: BatchProgress, entries: Iterable[BatchEpoch], most: int, noted: int | None
) -> BatchProgress:
    """Return the progress with these entries, without the oldest of those that are too many."""
    earlier = sorted(entries, key=lambda entry: entry.epoch)
    known = _known_from(progress)
    while len(earlier) > most:
        # Not the one that rows have just come of, though it be the oldest: they are its answer's.
        oldest = earlier.pop(1 if earlier[0].epoch == noted else 0)
        known = max(known, oldest.epoch + 1)
    return replace(progress, earlier=tuple(earlier), known_from=known)
