"""`BatchTaker`: a receiver of encoded batches, which hands new rows on and answers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeAlias

from ...protocol.batches import (
    BatchAnswer,
    BatchFrameError,
    BatchOptions,
    BatchProgress,
    BatchReceiver,
    BatchReceiverStatistics,
    BatchRows,
    BatchTooBig,
    Reason,
    RowBatch,
    decode_batch,
    encode_answer,
)
from ...protocol.options import Count, check_value

__all__ = ["MAX_WAITING", "MAX_WAITING_BYTES", "BatchTaker", "HandleRows"]

MAX_WAITING: Final = 256
"""Default limit of the batches in hand or waiting, of all partitions of a `BatchTaker`."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Default limit of their bytes: sixteen batches of the default largest size."""

HandleRows: TypeAlias = Callable[[tuple[bytes, ...], BatchRows], Awaitable[None] | None]
"""A handler of rows, `def` or `async def`, called with the new rows and their batch.

If it raises, the rows count as not taken and are sent again, so it must be atomic.
"""

_OPTIONS: Final = BatchOptions()
_logger: Final = logging.getLogger("onward.actors.batches")


class _Turn:
    """The lock of one partition, by which its batches are handled one after the other."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class BatchTaker:
    """A receiver of batches of any number of senders, which hands each row on once.

    The batches of a partition are handled one after the other, in order of arrival; those of
    different partitions concurrently. All methods are for one event loop.

    Args:
        handle: The handler of rows.
        options: The limits of batches and of the memory of partitions.
        progress: The progress of partitions, from an earlier taker.
        max_waiting: Batches in hand or waiting, of all partitions. More are refused (`BUSY`),
            counted, and sent again.
        max_waiting_bytes: Bytes of these batches as received; at least `options.max_bytes`, as
            a larger batch would never be taken.

    Raises:
        ValueError: `max_waiting` is below 1, or `max_waiting_bytes` below `options.max_bytes`.
    """

    def __init__(
        self,
        handle: HandleRows,
        *,
        options: BatchOptions = _OPTIONS,
        progress: Iterable[BatchProgress] = (),
        max_waiting: int = MAX_WAITING,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        check_value("options", options, BatchOptions)
        check_value("max_waiting", max_waiting, Count)
        check_value("max_waiting_bytes", max_waiting_bytes, Count)
        if max_waiting_bytes < options.max_bytes:
            raise ValueError(
                f"max_waiting_bytes must be at least the {options.max_bytes} of a batch "
                f"(BatchOptions.max_bytes), not {max_waiting_bytes}"
            )
        self._handle = handle
        self._receiver = BatchReceiver(options, progress)
        self._max_waiting = max_waiting
        self._max_bytes = max_waiting_bytes
        self._turns: dict[tuple[str, str, int], _Turn] = {}
        # The loop refers to its tasks weakly.
        self._tasks: set[asyncio.Task[BatchAnswer]] = set()
        self._waiting = 0
        self._bytes = 0

    async def take(self, payload: bytes) -> bytes:
        """Take a batch and return the encoded answer.

        Cancelling this, as when a requester disconnects, does not stop the handling of the batch.
        """
        batch = self._read(payload)
        if isinstance(batch, BatchAnswer):
            return encode_answer(batch)
        size = len(payload)
        self._waiting += 1
        self._bytes += size
        task = asyncio.get_running_loop().create_task(self._in_turn(batch))
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, size))
        return encode_answer(await asyncio.shield(task))

    def _read(self, payload: bytes) -> RowBatch | BatchAnswer:
        options = self._receiver.options
        try:
            batch = decode_batch(payload, max_rows=options.max_rows, max_bytes=options.max_bytes)
        except BatchTooBig:
            return self._receiver.refuse(Reason.TOO_BIG)
        except BatchFrameError:
            return self._receiver.refuse(Reason.BROKEN)
        if self._waiting >= self._max_waiting or self._bytes + len(payload) > self._max_bytes:
            return self._receiver.refuse(Reason.BUSY)
        return batch

    def _done(self, size: int, task: asyncio.Task[BatchAnswer]) -> None:
        self._waiting -= 1
        self._bytes -= size
        self._tasks.discard(task)

    async def _in_turn(self, batch: RowBatch) -> BatchAnswer:
        key = batch.query, batch.to, batch.partition
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = _Turn()
        turn.users += 1
        try:
            async with turn.lock:
                return await self._hand_on(batch)
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    async def _hand_on(self, batch: RowBatch) -> BatchAnswer:
        found = self._receiver.receive(batch)
        if isinstance(found, BatchAnswer):
            return found
        try:
            result = self._handle(found.rows, found)
            if inspect.isawaitable(result):
                await result
        except Exception:
            what = f"{batch.query[:100]!r}, partition {batch.partition}, epoch {batch.epoch}"
            _logger.exception(
                "rows of %s, from %d on, were not taken",
                what,
                found.first,
                extra={"event": "batch.failed"},
            )
            return self._receiver.failed(found)
        except BaseException:
            self._receiver.failed(found)
            raise
        return self._receiver.taken(found)

    @property
    def progress(self) -> tuple[BatchProgress, ...]:
        """The progress of each partition, as plain values to be kept for a later taker."""
        return self._receiver.progress

    def statistics(self) -> BatchReceiverStatistics:
        """Return the statistics."""
        return self._receiver.statistics()
