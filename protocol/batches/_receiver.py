"""Which rows are new: what the receiving end of batches remembers.

For each partition of each query (and each of the sender's destinations) it knows the last epoch and
the number of the row that is expected next. By the first rule that applies:

| a batch | answer |
| --- | --- |
| of a partition that has rows in hand | refused, `BUSY` |
| of an epoch before the last | duplicate |
| of a partition not known, or of a new epoch, that does not begin at row 0 | refused, `GAP` |
| that goes on where its epoch has ended, or ends before | refused, `CHANGED` |
| whose rows have all been taken | duplicate |
| that begins behind the row expected next | refused, `GAP` |
| else | those of its rows that are new are handed on |

So rows may be sent again at any time, from any row and in batches of any size, and by two senders
at once: each is handed on once, in order, as long as the receiver lives and remembers. That holds
only if the same query, partition and epoch has the same rows in the same order each time.

A sender begins an epoch once all rows of the one before were answered for, by this receiver or by
another that took its place. So a later epoch that begins says that the one before is over: if it
had not come to its end here, the rest of it was taken elsewhere. That is counted, and what comes
late of it is a duplicate like all that is of an old epoch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from ._frames import MAX_BATCH, MAX_ROWS, Batch, BatchAnswer, Reason, Status

__all__ = [
    "BatchOptions",
    "BatchProgress",
    "BatchReceiver",
    "BatchReceiverStatistics",
    "BatchRows",
]


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How much the receiving end of batches takes and remembers.

    Attributes:
        max_partitions: Partitions that are remembered, of all queries together. At the limit the
            one that nothing came for the longest is forgotten, and counted: what is sent again of
            it is taken for new if it begins at row 0, and refused (`GAP`) if not. One that has
            rows in hand is not forgotten; if all have, a new one is refused (`BUSY`).
        max_rows: Rows of a batch. More are refused (`TOO_BIG`) before they are read.
        max_bytes: Bytes of a batch, all of it. More are refused likewise.

    Raises:
        ValueError: A limit is below 1, or over what a batch may have.
    """

    max_partitions: int = 10_000
    max_rows: int = 10_000
    max_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.max_partitions < 1:
            raise ValueError(f"max_partitions must be at least 1, not {self.max_partitions}")
        if not 1 <= self.max_rows <= MAX_ROWS:
            raise ValueError(f"max_rows must be from 1 to {MAX_ROWS}, not {self.max_rows}")
        if not 1 <= self.max_bytes <= MAX_BATCH:
            raise ValueError(f"max_bytes must be from 1 to {MAX_BATCH}, not {self.max_bytes}")


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far one partition of a query has come: a plain value, to be kept and given back.

    Attributes:
        query: Whose rows they are.
        to: Which of the sender's destinations.
        partition: Which part.
        epoch: The last epoch there were rows of.
        next: How many of its rows have been taken.
        finished: Whether these are all.
    """

    query: str
    to: str
    partition: int
    epoch: int
    next: int
    finished: bool


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Rows to be handed on: those of a batch that are new.

    Attributes:
        batch: The batch.
        rows: Its new rows, at least one.
    """

    batch: Batch
    rows: tuple[bytes, ...]

    @property
    def first(self) -> int:
        """The number of the first of the new rows."""
        return self.batch.end - len(self.rows)

    @property
    def progress(self) -> BatchProgress:
        """How far the partition has come with them.

        Who keeps it together with what the rows did, in one transaction, and gives it back after
        a restart, takes each row once over restarts too.
        """
        batch = self.batch
        return BatchProgress(
            batch.query, batch.to, batch.partition, batch.epoch, batch.end, batch.last
        )


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
            went to another receiver.
    """

    partitions: int
    in_hand: int
    rows: int
    duplicates: int
    refused: dict[str, int]
    forgotten: int
    unfinished: int


class _Place:
    """How far one partition has come."""

    __slots__ = ("epoch", "finished", "in_hand", "next")

    def __init__(self, epoch: int, expected: int = 0, *, finished: bool = False) -> None:
        self.epoch = epoch
        self.next = expected
        self.finished = finished
        self.in_hand: BatchRows | None = None


_Key: TypeAlias = tuple[str, str, int]
_OPTIONS: Final = BatchOptions()


class BatchReceiver:
    """The receiving end of batches, for all queries and partitions.

    `receive` says what to do with a batch. If that is to hand rows on, `taken` or `failed` follows.

    It remembers as long as it lives. After a restart rows that are sent again from the first on are
    taken for new, unless it is given the `progress` it had.

    Args:
        options: How much it remembers.
        progress: How far partitions had come before, the longest unused first; of more than
            `max_partitions` the first are forgotten.
    """

    __slots__ = (
        "_duplicates",
        "_forgotten",
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
        for each in progress:
            self._make_room()
            place = _Place(each.epoch, each.next, finished=each.finished)
            self._places[each.query, each.to, each.partition] = place

    @property
    def options(self) -> BatchOptions:
        """What it was made with."""
        return self._options

    def receive(self, batch: Batch) -> BatchRows | BatchAnswer:
        """Return the rows that are to be handed on, or the answer if there are none."""
        place = self._places.get(_key(batch))
        if place is not None:
            self._places.move_to_end(_key(batch))
            if place.in_hand is not None:
                return self.refuse(Reason.BUSY, place.next)
            if batch.epoch < place.epoch:
                return self._duplicate(batch, batch.end)
        if place is None or batch.epoch > place.epoch:
            if batch.first:
                return self.refuse(Reason.GAP, 0)
            if place is None and not self._make_room():
                return self.refuse(Reason.BUSY, 0)
            # After a failover the rest of the epoch before went to another receiver; refused, the
            # query could never go on here, as a sender does not go back to an epoch that is done.
            self._unfinished += place is not None and not place.finished
            place = self._places[_key(batch)] = _Place(batch.epoch)
            self._places.move_to_end(_key(batch))
        return self._go_on(place, batch)

    def _go_on(self, place: _Place, batch: Batch) -> BatchRows | BatchAnswer:
        end, expected = batch.end, place.next
        if (place.finished and end > expected) or (
            batch.last and (end < expected or (place.finished and end != expected))
        ):
            return self.refuse(Reason.CHANGED, expected)
        if place.finished or (end <= expected and not batch.last):
            return self._duplicate(batch, expected)
        if batch.first > expected:
            return self.refuse(Reason.GAP, expected)
        self._duplicates += expected - batch.first
        if end == expected:  # it says no more than that this is the end
            place.finished = True
            return BatchAnswer(Status.ACCEPTED, expected)
        place.in_hand = BatchRows(batch, batch.rows[expected - batch.first :])
        self._in_hand += 1
        return place.in_hand

    def taken(self, rows: BatchRows) -> BatchAnswer:
        """Note that rows were handed on; return the answer to their batch.

        Raises:
            ValueError: These rows are not in hand.
        """
        place = self._put_down(rows)
        self._rows += len(rows.rows)
        place.next = rows.batch.end
        place.finished = rows.batch.last
        return BatchAnswer(Status.ACCEPTED, place.next)

    def failed(self, rows: BatchRows) -> BatchAnswer:
        """Note that rows were not handed on; return the answer to their batch.

        Raises:
            ValueError: These rows are not in hand.
        """
        return self.refuse(Reason.FAILED, self._put_down(rows).next)

    def _put_down(self, rows: BatchRows) -> _Place:
        place = self._places.get(_key(rows.batch))
        if place is None or place.in_hand is not rows:
            raise ValueError("these rows are not in hand")
        place.in_hand = None
        self._in_hand -= 1
        return place

    def refuse(self, reason: Reason, expected: int = 0) -> BatchAnswer:
        """Count a batch that is refused, such as one that cannot be read; return the answer."""
        self._refused[reason] = self._refused.get(reason, 0) + 1
        return BatchAnswer(Status.REFUSED, expected, reason)

    def _duplicate(self, batch: Batch, expected: int) -> BatchAnswer:
        self._duplicates += len(batch.rows)
        return BatchAnswer(Status.DUPLICATE, expected)

    def _make_room(self) -> bool:
        """Forget one partition if there is no room for another; return whether there is."""
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
        """How far each partition has come, the longest unused first."""
        return tuple(
            BatchProgress(query, to, partition, place.epoch, place.next, place.finished)
            for (query, to, partition), place in self._places.items()
        )

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
        )


def _key(batch: Batch) -> _Key:
    return batch.query, batch.to, batch.partition
