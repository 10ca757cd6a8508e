"""The sender of a task's rows: in order, within a window, and again until answered.

```
rows ──▶ a buffer for each destination ──▶ batches, numbered by their rows ──▶ `window` at a time
                                                                                  └─ and again
```

A batch that overtakes the previous one is refused by the receiver (`GAP`) and sent again after
that one. A receiver that refuses a batch although all before it were taken has forgotten them, or
is another one: the task fails, and is repeated from its first row.

A receiver that does not keep up is no failure: see `BatchWindow`. A task waits for it up to
`timeout` after the last batch that was taken; `retries` counts other failures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from ...actors import Refused
from ...protocol import (
    AddressError,
    InDoubt,
    MailboxFull,
    NotDelivered,
    OnwardError,
    RequestTimeout,
)
from ...protocol.batches import (
    BatchAnswer,
    BatchStatus,
    BatchTooBig,
    Reason,
    RowBatch,
    decode_answer,
    encode_batch,
)
from ...transports.client import RequestRejected
from ._connection import BatchConnection
from ._errors import RowRefused, RowsInDoubt, RowsNotDelivered, SinkError
from ._flow import BatchWindow
from ._options import SinkOptions

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "RowSender"]

FIRST_PAUSE: Final = 0.05
"""The pause before the first retry of a failed batch, in seconds; each further one is doubled."""

LONGEST_PAUSE: Final = 5.0
"""The longest pause before a retry, in seconds."""

_HOPELESS: Final = {
    Reason.BROKEN: "it reads no such batches: is it a BatchWorker of a version that does?",
    Reason.TOO_BIG: "its limit is lower: make chunkRows or chunkBytes smaller, or its BatchOptions "
    "larger",
    Reason.CHANGED: "the rows of this epoch are not those that were sent before: the same epoch "
    "must give the same rows in the same order (no rand(), no repartition without keys, the same "
    "number of partitions)",
    Reason.FORGOTTEN: "it remembers so many epochs (BatchOptions.max_epochs and max_ended_bytes), "
    "and does not know any more whether it has taken rows of this one. It may have had all of "
    "them: look there first, and write nothing again but what is missing, with an id of its own. "
    "Run an epoch that failed again before many others",
}
_TEMPORARY: Final = {
    Reason.BUSY: "it has more in hand than it may",
    Reason.FAILED: "what handles the rows there has failed; its log says why",
}


class _Stream:
    """The rows and batches for one destination."""

    __slots__ = ("first", "flow", "previous", "rows", "size", "to")

    def __init__(self, to: str, window: int) -> None:
        self.to = to
        self.flow = BatchWindow(window)
        self.first = 0
        self.rows: list[bytes] = []
        self.size = 0
        self.previous: asyncio.Task[None] | None = None


class RowSender:
    """A sender of one task's rows: `add` them, then `finish`; `cancel` after an error.

    Args:
        connection: The connection.
        options: The options.
        partition: The number of the partition.
        attempt: The number of the task's attempt.

    Attributes:
        rows: Rows that were added.
        batches: Batches that were made of them.
        again: How often a batch was sent again.
        duplicates: Rows of batches that had been taken whole before this task sent them.
    """

    def __init__(
        self, connection: BatchConnection, options: SinkOptions, partition: int, attempt: int
    ) -> None:
        self.rows = 0
        self.batches = 0
        self.again = 0
        self.duplicates = 0
        self._connection = connection
        self._options = options
        self._partition = partition
        self._attempt = attempt
        self._streams: dict[str, _Stream] = {}
        self._buffered = 0
        self._window = asyncio.Semaphore(options.window)
        self._out: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    async def add(self, to: str, rows: Sequence[bytes]) -> None:
        """Add rows for a destination; wait while the window is full.

        Raises:
            SinkError: One of these or of the earlier rows cannot be delivered.
        """
        stream = self._streams.get(to) or self._new_stream(to)
        most, limit = self._options.chunk_rows, self._options.chunk_bytes
        at = 0
        while at < len(rows):
            some = rows[at : at + most - len(stream.rows)]
            size = sum(map(len, some))
            if stream.rows and stream.size + size > limit:
                # Not all fit with the waiting rows: fill up the batch and send it first.
                some, size = _fitting(some, limit - stream.size)
            elif size > limit:
                some, size = _fitting(some, limit)
                some = some or rows[at : at + 1]  # larger than `chunk_bytes`: alone
                size = size or len(some[0])
            stream.rows.extend(some)
            stream.size += size
            self._buffered += size
            self.rows += len(some)
            at += len(some)
            if len(stream.rows) >= most or stream.size >= limit or at < len(rows):
                await self._send(stream, last=False)
        if self._buffered > self._options.max_buffered:
            for each in list(self._streams.values()):
                if each.rows:
                    await self._send(each, last=False)

    def _new_stream(self, to: str) -> _Stream:
        most = self._options.max_destinations
        if len(self._streams) >= most:
            raise RowRefused(
                f"partition {self._partition} has rows for more than {most} destinations, the "
                f"next is {to[:100]!r}: repartition by {self._options.column!r}, or raise "
                "maxDestinations"
            )
        try:
            self._connection.check(to)
        except (AddressError, OnwardError) as error:
            raise RowRefused(
                f"row {self.rows} of partition {self._partition}: {to[:100]!r} is no "
                f"{self._options.column}: {error}"
            ) from None
        stream = self._streams[to] = _Stream(to, self._options.window)
        return stream

    async def finish(self) -> None:
        """Send the buffered rows, and wait for all answers.

        Raises:
            SinkError: Rows could not be delivered.
        """
        for stream in self._streams.values():
            await self._send(stream, last=True)
        while self._out and self._error is None:
            await asyncio.wait(self._out, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # their callbacks
        self._check()

    async def cancel(self) -> None:
        """Cancel the unanswered batches."""
        for task in self._out:
            task.cancel()
        await asyncio.gather(*self._out, return_exceptions=True)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _send(self, stream: _Stream, *, last: bool) -> None:
        await self._window.acquire()
        self._check()
        options = self._options
        batch = RowBatch(
            options.id,
            self._partition,
            options.epoch,
            stream.first,
            tuple(stream.rows),
            last,
            stream.to,
            self._attempt,
        )
        try:
            payload = encode_batch(batch)
        except BatchTooBig as error:
            raise RowRefused(
                f"{self._rows(batch)}: {error}. One of {max(map(len, batch.rows))} bytes is the "
                "largest: a row that large cannot be a message, leave it out or store it elsewhere"
            ) from None
        self._buffered -= stream.size
        stream.first, stream.rows, stream.size = batch.end, [], 0
        self.batches += 1
        task = asyncio.ensure_future(
            self._deliver(stream, batch, payload, stream.previous, self.batches)
        )
        stream.previous = task
        self._out.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._out.discard(task)
        self._window.release()
        if not task.cancelled() and task.exception() is not None:
            self._error = self._error or task.exception()

    async def _deliver(
        self,
        stream: _Stream,
        batch: RowBatch,
        payload: bytes,
        previous: asyncio.Task[None] | None,
        number: int,
    ) -> None:
        asked, tries, doubt = 0, 0, False
        flow = stream.flow
        while True:
            await flow.enter(number)
            settled, taken = previous is None or previous.done(), flow.taken
            asked += 1
            self.again += asked > 1
            try:
                answer = decode_answer(await self._connection.ask(batch.to, payload))
                if answer.done:
                    flow.progress()
                    if answer.status is BatchStatus.DUPLICATE and not doubt:
                        self.duplicates += len(batch.rows)
                    return
                slow = answer.reason is Reason.BUSY
                overtook = answer.reason is Reason.GAP and not settled
                trouble = "" if overtook else self._trouble(batch, answer)
            except NotDelivered as error:
                slow, overtook = _not_now(error), False
                trouble = str(error)
            except InDoubt as error:
                # Other batches were taken meanwhile: the receiver is slow, not gone.
                slow = isinstance(error, RequestTimeout) and flow.taken > taken
                trouble, overtook, doubt = str(error), False, True
            except OnwardError as error:
                raise RowRefused(
                    f"{self._rows(batch)}: what is there takes no batches ({error}). Give the "
                    "route of a BatchWorker, or tags of a service with serve_batches"
                ) from None
            finally:
                flow.leave()
            if overtook and previous is not None:
                await asyncio.wait((previous,))
                if self._error is not None:
                    return  # the task fails with this error
            elif slow:
                waited = flow.push_back()
                if waited >= self._options.timeout:
                    trouble += f". None was taken for {waited:.0f} s (timeout)"
                    raise self._given_up(batch, trouble, asked, doubt=doubt)
            else:
                if tries >= self._options.retries:
                    raise self._given_up(batch, trouble, asked, doubt=doubt)
                await asyncio.sleep(min(FIRST_PAUSE * 2**tries, LONGEST_PAUSE))
                tries += 1

    def _trouble(self, batch: RowBatch, answer: BatchAnswer) -> str:
        """Return the reason for which a refused batch is worth a retry.

        Raises:
            SinkError: The batch will not be taken.
        """
        reason = answer.reason
        if reason in _TEMPORARY:
            return _TEMPORARY[reason]
        if reason is Reason.GAP:
            raise RowsInDoubt(
                f"{self._rows(batch)}: the receiver expects row {answer.next}, though those before "
                "were taken. It was restarted or has forgotten, or this is another one than "
                "before. Run again, rows are sent from the first on; this receiver has not had them"
            )
        raise RowRefused(f"{self._rows(batch)} were refused: {_HOPELESS[reason]}")

    def _given_up(self, batch: RowBatch, trouble: str, asked: int, *, doubt: bool) -> SinkError:
        kind, what = (
            (RowsInDoubt, "may or may not have been taken")
            if doubt
            else (RowsNotDelivered, "were not taken")
        )
        return kind(
            f"{self._rows(batch)} {what}: {trouble}. Sent {asked} times. Run the job again with "
            "the same id and epoch, best before the next epoch: a receiver that remembers knows "
            "what it has taken, and takes the rest"
        )

    def _rows(self, batch: RowBatch) -> str:
        if not batch.rows:
            rows = f"the end, after {batch.first} rows,"
        elif len(batch.rows) == 1:
            rows = f"row {batch.first}"
        else:
            rows = f"rows {batch.first} to {batch.end - 1}"
        return (
            f"{rows} of partition {batch.partition}, epoch {batch.epoch}, for {batch.to[:100]!r} "
            f"at {self._options.uri}"
        )


def _not_now(error: NotDelivered) -> bool:
    """Whether the receiver of a batch does not keep up, or is not there just now."""
    if isinstance(error, Refused):  # by a node along the route, with its reason
        return error.detail == MailboxFull.reason
    return isinstance(error, RequestRejected | MailboxFull)


def _fitting(rows: Sequence[bytes], room: int) -> tuple[Sequence[bytes], int]:
    """Return the first rows that fit into a number of bytes, and their size."""
    size = 0
    for count, row in enumerate(rows):
        if size + len(row) > room:
            return rows[:count], size
        size += len(row)
    return rows, size
