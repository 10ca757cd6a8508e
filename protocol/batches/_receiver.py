"""The receiving end of batches: its memory of the rows that were taken.

For each partition of each query (and each of the sender's destinations) it knows of each epoch the
number of the row that is expected next, and whether it has ended. By the first rule that applies:

| a batch | answer |
| --- | --- |
| of a partition that has rows in hand | refused, `BUSY` |
| of an epoch that may be forgotten | refused, `FORGOTTEN` |
| of an epoch before the last that has ended | duplicate |
| that goes on where its epoch has ended, or ends before | refused, `CHANGED` |
| with rows that have all been taken | duplicate |
| that begins behind the row expected next, which is 0 in a new epoch | refused, `GAP` |
| else | those of its rows that are new are handed on |

So rows may be sent again at any time, from any row and in batches of any size, and by two senders
at once: each is handed on once, those of an epoch in order, as long as the receiver lives and
remembers. That holds only if the same query, partition and epoch has the same rows in the same
order each time.

**A later epoch may begin before an earlier one has ended.** The rest of that one may have been
taken by another receiver, in place of this one, or its sender has failed and repeats it later. The
receiver cannot distinguish these cases. So the earlier epoch keeps its state, is counted
(`unfinished`), and its rows are handed on once when they arrive, after those of the later one. The
same holds for an earlier epoch without any rows so far. A row that was not taken is never answered
as a duplicate.

How much is kept of epochs is bounded, of those left in the middle (`max_epochs`) and of those that
have ended (`max_ended_bytes`). The latter need few bytes whether or not their numbers are
consecutive: a partition without rows in an epoch sends nothing of it. A batch of a forgotten epoch
is refused, as the rows taken of it are unknown; so is a new epoch before a forgotten one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ..options import Count, Range, check_options
from ._ended import MIN_ENDED_BYTES
from ._frames import MAX_BATCH, MAX_ROWS, BatchAnswer, BatchStatus, Reason, RowBatch
from ._progress import BatchProgress, forgot, known_of, note, shorten, started

__all__ = [
    "BatchOptions",
    "BatchReceiver",
    "BatchReceiverStatistics",
    "BatchRows",
]


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Limits of the receiving end of batches.

    Attributes:
        max_partitions: Partitions that are remembered, of all queries together. At the limit the
            one that nothing came for the longest is forgotten, and counted: what is sent again of
            it is taken for new if it begins at row 0, and refused (`GAP`) if not. One that has
            rows in hand is not forgotten; if all have, a new one is refused (`BUSY`).
        max_rows: Rows of a batch. More are refused (`TOO_BIG`) before they are read.
        max_bytes: Bytes of a batch, all of it. More are refused likewise.
        max_epochs: Epochs of a partition before its last that were left in the middle. At the limit
            the oldest is forgotten, and counted: what is sent again of it is refused (`FORGOTTEN`),
            and so is what comes of epochs before it that were not known. One takes at most 150
            bytes, all of them together with these defaults 24 MB.
        max_ended_bytes: Bytes of the set of a partition's epochs before its last that have ended.
            These are known exactly, without a gap or with many. At the limit the oldest eighth is
            forgotten, counted once, and refused likewise; so of the last that ended 4 KiB have at
            least 1,700 when it is every other one, 380 that are the time in milliseconds every
            minute, 160 that are any numbers, and 16 million that follow one another. All of them
            together are with these defaults at most 42 MB.

    Raises:
        ValueError: A limit is below 1 (`max_ended_bytes`: 64), or over what a batch may have.
    """

    max_partitions: Count = 10_000
    max_rows: Annotated[int, Range(least=1, most=MAX_ROWS)] = 10_000
    max_bytes: Annotated[int, Range(least=1, most=MAX_BATCH)] = 4 * 1024 * 1024
    max_epochs: Count = 16
    max_ended_bytes: Annotated[int, Range(least=MIN_ENDED_BYTES)] = 4096

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Rows to be handed on: those of a batch that are new.

    Attributes:
        batch: The batch.
        rows: Its new rows, at least one.
        progress: The progress of the partition with these rows. A consumer that stores it in one
            transaction with the effects of the rows, in place of the progress stored for the same
            query, destination and partition, and restores it after a restart, takes each row once
            over restarts too.
    """

    batch: RowBatch
    rows: tuple[bytes, ...]
    progress: BatchProgress

    @property
    def first(self) -> int:
        """The number of the first of the new rows."""
        return self.batch.end - len(self.rows)


@dataclass(frozen=True, slots=True)
class BatchReceiverStatistics:
    """The receiving end of batches at one moment.

    Attributes:
        partitions: Partitions it remembers.
        in_hand: Those of them that have rows in hand.
        rows: Rows that were handed on.
        duplicates: Rows that were not, as they had been before.
        refused: Batches that were refused, by the name of the reason.
        forgotten: Partitions that were forgotten because of the limit.
        unfinished: Epochs that had not come to their end here when a later one began: the rest
            went to another receiver, or has not been taken yet.
        forgotten_epochs: How often the oldest epochs of a partition were forgotten because of the
            limit.
    """

    partitions: int
    in_hand: int
    rows: int
    duplicates: int
    refused: dict[str, int]
    forgotten: int
    unfinished: int
    forgotten_epochs: int


class _Place:
    """The progress of one partition, and its rows in hand."""

    __slots__ = ("in_hand", "progress")

    def __init__(self, progress: BatchProgress) -> None:
        self.progress = progress
        self.in_hand: BatchRows | None = None


_Key: TypeAlias = tuple[str, str, int]
_OPTIONS: Final = BatchOptions()


class BatchReceiver:
    """The receiving end of batches, for all queries and partitions.

    `receive` says what to do with a batch. If that is to hand rows on, `taken` or `failed` follows.

    It remembers as long as it lives. After a restart rows that are sent again from the first on are
    taken for new, unless it is given the `progress` it had.

    Args:
        options: Its limits.
        progress: The progress of partitions before, the least recently used first; of more than
            `max_partitions` the first are forgotten, of more epochs than there may be the oldest.

    Raises:
        ValueError: A progress is not as it was kept: its `ended` cannot be read.
    """

    __slots__ = (
        "_duplicates",
        "_forgotten",
        "_forgotten_epochs",
        "_in_hand",
        "_options",
        "_places",
        "_refused",
        "_rows",
        "_unfinished",
    )

    def __init__(
        self, options: BatchOptions = _OPTIONS, progress: Iterable[BatchProgress] = ()
    ) -> None:
        self._options = options
        self._places: OrderedDict[_Key, _Place] = OrderedDict()
        self._in_hand = 0
        self._rows = 0
        self._duplicates = 0
        self._refused: dict[Reason, int] = {}
        self._forgotten = 0
        self._unfinished = 0
        self._forgotten_epochs = 0
        for each in progress:
            self._make_room()
            kept = shorten(each, options.max_epochs, options.max_ended_bytes)
            self._forgotten_epochs += kept is not each
            self._places[each.query, each.to, each.partition] = _Place(kept)

    @property
    def options(self) -> BatchOptions:
        """The options of the receiver."""
        return self._options

    def receive(self, batch: RowBatch) -> BatchRows | BatchAnswer:
        """Return the rows that are to be handed on, or the answer if there are none."""
        key = batch.query, batch.to, batch.partition
        place = self._places.get(key)
        if place is None:
            if batch.first:
                return self.refuse(Reason.GAP)
            if not self._make_room():
                return self.refuse(Reason.BUSY)
            place = self._places[key] = _Place(started(*key, batch.epoch))
        self._places.move_to_end(key)
        known = known_of(place.progress, batch.epoch)
        if place.in_hand is not None:
            return self.refuse(Reason.BUSY, 0 if known is None else known.next or 0)
        if known is None:
            return self.refuse(Reason.FORGOTTEN)
        if known.next is None:
            return self._duplicate(batch, batch.end)
        return self._go_on(place, batch, known.next, finished=known.finished)

    def _go_on(
        self, place: _Place, batch: RowBatch, expected: int, *, finished: bool
    ) -> BatchRows | BatchAnswer:
        end = batch.end
        if (finished and end > expected) or (
            batch.last and (end < expected or (finished and end != expected))
        ):
            return self.refuse(Reason.CHANGED, expected)
        if finished or (end <= expected and not batch.last):
            return self._duplicate(batch, expected)
        if batch.first > expected:
            return self.refuse(Reason.GAP, expected)
        self._duplicates += expected - batch.first
        progress = note(
            place.progress,
            batch.epoch,
            end,
            self._options.max_epochs,
            self._options.max_ended_bytes,
            finished=batch.last,
        )
        if end == expected:  # it says no more than that this is the end
            self._note(place, progress, batch.epoch)
            return BatchAnswer(BatchStatus.ACCEPTED, expected)
        place.in_hand = BatchRows(batch, batch.rows[expected - batch.first :], progress)
        self._in_hand += 1
        return place.in_hand

    def _note(self, place: _Place, progress: BatchProgress, epoch: int) -> None:
        before, place.progress = place.progress, progress
        self._unfinished += progress.epoch > before.epoch and not before.finished
        self._forgotten_epochs += forgot(before, progress, epoch)

    def taken(self, rows: BatchRows) -> BatchAnswer:
        """Record that rows were handed on; return the answer to their batch.

        Raises:
            ValueError: These rows are not in hand.
        """
        place = self._put_down(rows)
        self._rows += len(rows.rows)
        self._note(place, rows.progress, rows.batch.epoch)
        return BatchAnswer(BatchStatus.ACCEPTED, rows.batch.end)

    def failed(self, rows: BatchRows) -> BatchAnswer:
        """Record that rows were not handed on; return the answer to their batch.

        Raises:
            ValueError: These rows are not in hand.
        """
        self._put_down(rows)
        return self.refuse(Reason.FAILED, rows.first)

    def _put_down(self, rows: BatchRows) -> _Place:
        place = self._places.get((rows.batch.query, rows.batch.to, rows.batch.partition))
        if place is None or place.in_hand is not rows:
            raise ValueError("these rows are not in hand")
        place.in_hand = None
        self._in_hand -= 1
        return place

    def refuse(self, reason: Reason, expected: int = 0) -> BatchAnswer:
        """Count a batch that is refused, such as one that cannot be read; return the answer."""
        self._refused[reason] = self._refused.get(reason, 0) + 1
        return BatchAnswer(BatchStatus.REFUSED, expected, reason)

    def _duplicate(self, batch: RowBatch, expected: int) -> BatchAnswer:
        self._duplicates += len(batch.rows)
        return BatchAnswer(BatchStatus.DUPLICATE, expected)

    def _make_room(self) -> bool:
        """Forget one partition if there is no room for another; return whether there is room."""
        if len(self._places) < self._options.max_partitions:
            return True
        oldest = next((key for key, place in self._places.items() if place.in_hand is None), None)
        if oldest is None:
            return False
        del self._places[oldest]
        self._forgotten += 1
        return True

    @property
    def progress(self) -> tuple[BatchProgress, ...]:
        """The progress of each partition, the least recently used first."""
        return tuple(place.progress for place in self._places.values())

    def statistics(self) -> BatchReceiverStatistics:
        """Return the figures at this moment."""
        return BatchReceiverStatistics(
            partitions=len(self._places),
            in_hand=self._in_hand,
            rows=self._rows,
            duplicates=self._duplicates,
            refused={reason.name: count for reason, count in sorted(self._refused.items())},
            forgotten=self._forgotten,
            unfinished=self._unfinished,
            forgotten_epochs=self._forgotten_epochs,
        )
