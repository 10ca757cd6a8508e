"""The messages of a link that is not up, and their sending once it is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from ._arrivals import size_of

if TYPE_CHECKING:
    from ...protocol import Message

__all__ = ["Backlog"]


class Backlog:
    """A bounded queue of messages that wait for a link to be up.

    They are sent as fast as the other end reads, since unwritten bytes have a limit of their own.
    Messages that come meanwhile wait in the mailbox of the link.

    Args:
        most: The maximum number of messages.
        most_bytes: The maximum of their bytes, routes included. A single message may have more.
    """

    __slots__ = ("_bytes", "_messages", "_most", "_most_bytes", "_sent")

    def __init__(self, most: int, most_bytes: int) -> None:
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._sent: asyncio.Future[None] | None = None  # while `send` runs

    def __len__(self) -> int:
        return len(self._messages)

    def keep(self, message: Message) -> bool:
        """Append a message, and return whether there was room."""
        size = size_of(message)
        waiting = len(self._messages)
        if waiting >= self._most or (waiting and self._bytes + size > self._most_bytes):
            return False
        self._messages.append(message)
        self._bytes += size
        return True

    def take(self) -> Message:
        """Take the oldest message."""
        message = self._messages.popleft()
        self._bytes -= size_of(message)
        return message

    def take_all(self) -> Iterator[Message]:
        """Take the messages one by one, until the queue is empty."""
        while self._messages:
            yield self.take()

    # --- sending --------------------------------------------------------------------------

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Mark the start of sending; call it before `send`."""
        self._sent = loop.create_future()

    async def send(
        self, write: Callable[[Message], Awaitable[None] | None], done: Callable[[], bool]
    ) -> None:
        """Send the messages until the queue is empty or `done` is true.

        Args:
            write: Sends one message; returns an awaitable for the next one to wait for, or `None`.
            done: Whether sending has to end; the messages left stay in the queue.
        """
        while self._messages and not done():
            wait = write(self.take())
            if wait is not None:
                await wait

    def end(self) -> None:
        """Mark the end of sending; call it after `send`."""
        sent, self._sent = self._sent, None
        if sent is not None and not sent.done():
            sent.set_result(None)

    async def sent(self) -> None:
        """Wait until sending has ended."""
        while self._sent is not None:
            # Shielded: other workers wait for the same future.
            await asyncio.shield(self._sent)
