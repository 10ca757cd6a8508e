"""`BatchWorker`: an address at which batches are taken; and the same for a service of a broker."""

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
"""What a request to a service of a broker asks for when it brings a batch (extension "Routing")."""

_OPTIONS: Final = BatchOptions()


class BatchWorker(Worker):
    """Takes batches and hands each row on once, however often it is sent.

    Give it a function, or derive from it and override `handle_rows`:

    ```python
    class Printer(BatchWorker):
        async def handle_rows(self, rows: tuple[bytes, ...], batch: BatchRows) -> None:
            print(*rows)

    await node.start(Printer, address="printer")
    ```

    It handles one batch at a time; the others wait in its mailbox, whose limit is in messages:
    start it with a smaller one (`mailbox=Mailbox(limit=16)`) where batches are large. What it
    remembers it forgets when it stops or is restarted, unless the next one is given its `progress`.

    Args:
        handle: What is done with rows, in place of `handle_rows`.
        options: How much it takes and remembers.
        progress: How far partitions had come, of a worker before it.
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
        """Do something with rows; `def` or `async def`, on the node's loop.

        If it raises, that is logged, the rows count as not taken, and the sender is told and sends
        them again. So do all of it or nothing.

        Args:
            rows: The rows that are new, in order.
            batch: What they are of; its `progress` is what to keep with them.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what to do with rows")

    async def handle_message(self, message: Message) -> None:
        """Take a batch and answer. Not to be overridden."""
        answer = await self._taker.take(message.payload)
        try:
            self.reply(message, answer)
        except OnwardError as error:
            # The rows are taken. The sender hears nothing, sends them again and is told then.
            self.node.dead_letter(message, error)

    @property
    def progress(self) -> tuple[BatchProgress, ...]:
        """How far each partition has come: plain values, to be kept and given to the next one."""
        return self._taker.progress

    def statistics(self) -> BatchReceiverStatistics:
        """Return the figures at this moment."""
        return self._taker.statistics()


def serve_batches(handlers: Handlers, taker: BatchTaker, route: str = BATCHES) -> None:
    """Have handlers of a service take batches, so that a query of tags through a broker reaches it.

    Each destination remembers what it has taken itself. So all that is sent of a partition has to
    come to the same one: the sink `onward` sees to that.

    Args:
        handlers: Of the service; a client's, or those of a service of the broker's node.
        taker: What takes them.
        route: What requests with batches ask for.

    Raises:
        ValueError: There is a handler for the route already.
    """

    async def take(request: Request) -> bytes:
        return await taker.take(request.data)

    handlers.response(route)(take)
