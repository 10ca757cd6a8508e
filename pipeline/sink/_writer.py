"""`BatchWriter`: what Spark calls, once on the driver and once in each task."""

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
from ._errors import RowRefused, RowsNotDelivered
from ._options import SinkOptions, read_options
from ._sender import Sender
from ._ways import open_way

__all__ = ["BatchWriter", "SentRows"]

RecordBatch: TypeAlias = Any
"""A `pyarrow.RecordBatch`; the checkers know nothing of it."""

_logger: Final = logging.getLogger("onward.pipeline.sink")

_ALL_HAD: Final = (
    "all %d rows of %s were dropped (%d): rows with these numbers had been taken before. That is "
    "right if this epoch had been sent to its end and is run again. If these are other rows than "
    "then, nobody has got them: a new write, and a query with a new checkpoint, needs a new id"
)
_SOME_HAD: Final = (
    "of %d rows of %s, %d were dropped: rows with these numbers had been taken before. That is "
    "right if a task or this epoch is run again; other rows need an id or an epoch of their own"
)
_AT_ONCE: Final = 1000
"""Rows with destinations of their own that are looked at before the loop does other things."""


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):
    """What one task has sent, all of it taken.

    Attributes:
        rows: Rows.
        batches: Messages they were sent in.
        again: How often a message was sent again.
        duplicates: Rows of messages whose rows had all been taken before this task sent them.
    """

    rows: int
    batches: int = 0
    again: int = 0
    duplicates: int = 0


class BatchWriter(DataSourceArrowWriter):
    """Sends rows as messages: `df.write.format("onward").mode("append")`.

    Each task has one connection. What is sent is sent: there is no commit that makes rows visible
    together, and nothing is taken back when the job fails. A job that is run again sends the rows
    again; who takes them knows those it had by `id`, `epoch` and partition.

    Args:
        schema: The columns of the rows.
        overwrite: Whether what was there is to be replaced, which messages cannot do.
        options: See `SinkOptions`.

    Raises:
        BadOption: They cannot be sent that way.
    """

    def __init__(self, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        if overwrite:
            raise BadOption("messages that were sent cannot be overwritten: write with append")
        self.options = read_options(options, schema)

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task.

        Raises:
            SinkError: Not all were taken; Spark runs the task again.
        """
        context = TaskContext.get()
        partition, attempt = (
            (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        )
        return asyncio.run(_send_all(self.options, partition, attempt, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Look at what all tasks have sent: rows that were dropped are not dropped in silence."""
        sent = [each for each in messages if isinstance(each, SentRows)]
        rows, duplicates = sum(each.rows for each in sent), sum(each.duplicates for each in sent)
        if duplicates:
            which = f"id {self.options.id!r}, epoch {self.options.epoch}"
            _logger.warning(_ALL_HAD if duplicates == rows else _SOME_HAD, rows, which, duplicates)


async def _send_all(
    options: SinkOptions, partition: int, attempt: int, batches: Iterator[RecordBatch]
) -> SentRows:
    # Rows come from Spark by a blocking call, and the connection has to live meanwhile; so a thread
    # waits for the next ones while those before are sent.
    batch = await _next(batches)
    if batch is None:
        return SentRows(0)
    async with AsyncExitStack() as stack:
        try:
            way = await stack.enter_async_context(open_way(options, partition))
        except NotDelivered as error:
            raise RowsNotDelivered(
                f"no row of partition {partition} was sent: {error}. Executors must reach "
                f"{options.uri}"
            ) from None
        sender = Sender(way, options, partition, attempt)
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


async def _add(sender: Sender, options: SinkOptions, partition: int, batch: RecordBatch) -> None:
    payloads = _payloads(sender, options, partition, batch)
    if options.destination is not None:
        await sender.add(options.destination, payloads)
        return
    column = batch.column(batch.schema.get_field_index(options.column))
    _refuse_nulls(sender, partition, options.column, column)
    # Rows for one destination after the other are added together.
    start, destinations = 0, column.to_pylist()
    for at in range(1, len(destinations) + 1):
        if at == len(destinations) or destinations[at] != destinations[start]:
            await sender.add(destinations[start], payloads[start:at])
            start = at
        if not at % _AT_ONCE:
            await asyncio.sleep(0)


def _payloads(
    sender: Sender, options: SinkOptions, partition: int, batch: RecordBatch
) -> list[bytes]:
    import pyarrow as pa

    column = batch.column(batch.schema.get_field_index(options.payload))
    _refuse_nulls(sender, partition, options.payload, column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    payloads: list[bytes] = column.to_pylist()
    return payloads


def _refuse_nulls(sender: Sender, partition: int, name: str, column: Any) -> None:
    if column.null_count:
        at = column.is_null().to_pylist().index(True)
        raise RowRefused(
            f"row {sender.rows + at} of partition {partition}: {name!r} is null. Leave such rows "
            f"out: .where('{name} is not null')"
        )
