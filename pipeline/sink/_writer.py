"""The writer that Spark calls on the driver and in each task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...protocol import NotDelivered
from .._errors import BadOption
from ._connection import open_connection
from ._errors import RowRefused, RowsNotDelivered
from ._options import SinkOptions, read_options
from ._sender import RowSender

__all__ = ["BatchWriter", "SentRows"]

RecordBatch: TypeAlias = Any
"""A `pyarrow.RecordBatch`, which has no annotations."""

_logger: Final = logging.getLogger("onward.pipeline.sink")

_ALL_HAD: Final = (
    "all %d rows of %s were dropped (%d): rows with these numbers had been taken before. That is "
    "right if this epoch had been sent to its end and is run again. If these are other rows than "
    "then, they were not taken: a new write, and a query with a new checkpoint, needs a new id"
)
_SOME_HAD: Final = (
    "of %d rows of %s, %d were dropped: rows with these numbers had been taken before. That is "
    "right if a task or this epoch is run again; other rows need an id or an epoch of their own"
)
_AT_ONCE: Final = 1000
"""Rows with their own destinations that are processed before yielding to the loop."""


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):
    """The counts of one task after all its rows were taken.

    Attributes:
        rows: Rows.
        batches: Messages they were sent in.
        again: How often a message was sent again.
        duplicates: Rows of messages that had been taken whole before this task sent them.
    """

    rows: int
    batches: int = 0
    again: int = 0
    duplicates: int = 0


class BatchWriter(DataSourceArrowWriter):
    """A writer of rows as messages: `df.write.format("onward").mode("append")`.

    Each task has one connection. There is no commit that makes rows visible together, and a failed
    job takes no message back. A repeated job sends the rows again; the receiver recognises those it
    has taken by `id`, `epoch` and partition.

    Args:
        schema: The columns of the rows.
        overwrite: Whether Spark asks to overwrite, which is refused.
        options: See `SinkOptions`.

    Raises:
        BadOption: `overwrite` is set, or an option or column is invalid.
    """

    def __init__(self, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        if overwrite:
            raise BadOption("messages that were sent cannot be overwritten: write with append")
        self.options = read_options(options, schema)

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task.

        Raises:
            SinkError: Not all rows were taken; Spark repeats the task.
        """
        context = TaskContext.get()
        partition, attempt = (
            (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        )
        return asyncio.run(_send_all(self.options, partition, attempt, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log a warning if receivers dropped rows of any task as duplicates."""
        sent = [each for each in messages if isinstance(each, SentRows)]
        rows, duplicates = sum(each.rows for each in sent), sum(each.duplicates for each in sent)
        if duplicates:
            which = f"id {self.options.id!r}, epoch {self.options.epoch}"
            _logger.warning(_ALL_HAD if duplicates == rows else _SOME_HAD, rows, which, duplicates)


async def _send_all(
    options: SinkOptions, partition: int, attempt: int, batches: Iterator[RecordBatch]
) -> SentRows:
    # Spark's iterator blocks, and the connection must be served meanwhile. So a thread waits for
    # the next rows while the previous ones are sent.
    batch = await _next(batches)
    if batch is None:
        return SentRows(0)
    async with AsyncExitStack() as stack:
        try:
            connection = await stack.enter_async_context(open_connection(options, partition))
        except NotDelivered as error:
            raise RowsNotDelivered(
                f"no row of partition {partition} was sent: {error}. Executors must reach "
                f"{options.uri}"
            ) from None
        sender = RowSender(connection, options, partition, attempt)
        stack.push_async_callback(sender.cancel)
        while batch is not None:
            following = asyncio.ensure_future(_next(batches))
            try:
                await _add(sender, options, partition, batch)
            finally:
                batch = await following
        await sender.finish()
        return SentRows(sender.rows, sender.batches, sender.again, sender.duplicates)


async def _next(batches: Iterator[RecordBatch]) -> RecordBatch | None:
    while True:
        found = await asyncio.to_thread(next, batches, None)
        if found is None or found.num_rows:
            return found


async def _add(sender: RowSender, options: SinkOptions, partition: int, batch: RecordBatch) -> None:
    payloads = _payloads(sender, options, partition, batch)
    if options.destination is not None:
        await sender.add(options.destination, payloads)
        return
    column = batch.column(batch.schema.get_field_index(options.column))
    _refuse_nulls(sender, partition, options.column, column)
    # Consecutive rows for one destination are added together.
    start, destinations = 0, column.to_pylist()
    for at in range(1, len(destinations) + 1):
        if at == len(destinations) or destinations[at] != destinations[start]:
            await sender.add(destinations[start], payloads[start:at])
            start = at
        if not at % _AT_ONCE:
            await asyncio.sleep(0)


def _payloads(
    sender: RowSender, options: SinkOptions, partition: int, batch: RecordBatch
) -> list[bytes]:
    import pyarrow as pa

    column = batch.column(batch.schema.get_field_index(options.payload))
    _refuse_nulls(sender, partition, options.payload, column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    payloads: list[bytes] = column.to_pylist()
    return payloads


def _refuse_nulls(sender: RowSender, partition: int, name: str, column: Any) -> None:
    if column.null_count:
        at = column.is_null().to_pylist().index(True)
        raise RowRefused(
            f"row {sender.rows + at} of partition {partition}: {name!r} is null. Leave such rows "
            f"out: .where('{name} is not null')"
        )
