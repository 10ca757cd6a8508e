"""`BatchWorker`: a worker that receives batches; and `serve_batches`, for services of a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Final

from ...protocol import Message, OnwardError
from ...protocol.batches import BatchOptions, BatchProgress, BatchReceiverStatistics, BatchRows
from .._worker import Worker
from ..broker import Handlers, Request
from ._taker import BatchTaker, HandleRows

__all__ = ["BATCHES", "BatchWorker", "serve_batches"]

BATCHES: Final = "onward.batches"
"""The route of requests with batches to a service of a broker (extension "Routing")."""

_OPTIONS: Final = BatchOptions()


class BatchWorker(Worker):
    """A worker that receives batches and hands each row on once, however often it is sent.

    Give it a function, or derive from it and override `handle_rows`:

    ```python
    class Printer(BatchWorker):
        async def handle_rows(self, rows: tuple[bytes, ...], batch: BatchRows) -> None:
            print(*rows)

    await node.start(Printer, address="printer")
    ```

    It handles one batch at a time; the others wait in its mailbox, with a limit in messages.
    Start it with a smaller limit (`mailbox=MailboxOptions(limit=16)`) if batches are large. It
    loses its memory when it stops or is restarted, unless its `progress` is passed on.

    Args:
        handle: The handler of rows, in place of `handle_rows`.
        options: The limits of batches and of the memory of partitions.
        progress: The progress of partitions, from an earlier worker.
    """

    def __init__(
        self,
        handle: HandleRows | None = None,
        *,
        options: BatchOptions = _OPTIONS,
        progress: Iterable[BatchProgress] = (),
    ) -> None:
        super().__init__()
        self._taker = BatchTaker(handle or self.handle_rows, options=options, progress=progress)

    def handle_rows(self, rows: tuple[bytes, ...], batch: BatchRows) -> Awaitable[None] | None:
        """Handle new rows, by `def` or `async def`, on the node's loop.

        If it raises, the error is logged, the rows count as not taken, and the sender is told
        and sends them again. So it must be atomic.

        Args:
            rows: The new rows, in order.
            batch: The batch of the rows; its `progress` is to be kept with them.
        """
        raise NotImplementedError(f"{type(self).__name__} does not override `handle_rows`")

    async def handle_message(self, message: Message) -> None:
        """Pass a batch to the taker and answer. Not to be overridden."""
        answer = await self._taker.take(message.payload)
        try:
            self.reply(message, answer)
        except OnwardError as error:
            # The rows are taken. Without an answer the sender sends them again and is told then.
            self.node.dead_letter(message, error)

    @property
    def progress(self) -> tuple[BatchProgress, ...]:
        """The progress of each partition, as plain values to be kept for a later worker."""
        return self._taker.progress

    def statistics(self) -> BatchReceiverStatistics:
        """Return the statistics."""
        return self._taker.statistics()


def serve_batches(handlers: Handlers, taker: BatchTaker, route: str = BATCHES) -> None:
    """Add a handler of batches to a service, which requesters reach by tags through a broker.

    Each destination remembers only the rows that it has taken itself. So all batches of a
    partition must be sent to the same destination, as the sink `onward` does.

    Args:
        handlers: The handlers of the service, of a client or of the broker's node.
        taker: The taker of the batches.
        route: The route of requests with batches.

    Raises:
        ValueError: There is a handler for the route already.
    """

    async def take(request: Request) -> bytes:
        return await taker.take(request.data)

    handlers.response(route)(take)
