"""Batches sent to a receiver, and what it may answer."""

from __future__ import annotations

from pyroaring import BitMap64

from onward.protocol.batches import (
    BatchAnswer,
    BatchProgress,
    BatchReceiver,
    BatchStatus,
    Reason,
    RowBatch,
)

__all__ = ["accepted", "batch", "duplicate", "numbers", "refused", "take"]


def batch(
    first: int, *rows: bytes, last: bool = False, epoch: int = 0, partition: int = 0
) -> RowBatch:
    return RowBatch("q", partition, epoch, first, rows, last)


def take(receiver: BatchReceiver, sent: RowBatch) -> tuple[tuple[bytes, ...], BatchAnswer]:
    """Send a batch; return the rows that were handed on, and the answer."""
    found = receiver.receive(sent)
    if isinstance(found, BatchAnswer):
        return (), found
    return found.rows, receiver.taken(found)


def numbers(progress: BatchProgress) -> list[int]:
    """The epochs that have ended, before the last."""
    return list(BitMap64.deserialize(progress.ended)) if progress.ended else []


def accepted(expected: int) -> BatchAnswer:
    return BatchAnswer(BatchStatus.ACCEPTED, expected)


def duplicate(expected: int) -> BatchAnswer:
    return BatchAnswer(BatchStatus.DUPLICATE, expected)


def refused(reason: Reason, expected: int) -> BatchAnswer:
    return BatchAnswer(BatchStatus.REFUSED, expected, reason)
