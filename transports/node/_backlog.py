"""What a link keeps while it is not up, and how that is sent once it is."""

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
    """Messages that wait for a link to be up, in order.

    They are sent as fast as the other end reads, and not all at once: what waits to be written has
    a bound of its own. Those that come meanwhile wait for their turn, in the mailbox of the link.

    Args:
        most: How many messages may wait.
        most_bytes: How many bytes they may have together, routes included; one alone may have
            more.
    """

    __slots__ = ("_bytes", "_messages", "_most", "_most_bytes", "_sent")

    def __init__(self, most: int, most_bytes: int) -> None:
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._sent: asyncio.Future[None] | None = None  # while it is being sent

    def __len__(self) -> int:
        return len(self._messages)

    def keep(self, message: Message) -> bool:
        """Keep a message; tell whether there was room."""
        size = size_of(message)
        waiting = len(self._messages)
        if waiting >= self._most or (waiting and self._bytes + size > self._most_bytes):
            return False
        self._messages.append(message)
        self._bytes += size
        return True

    def take(self) -> Message:
        """Take the one that came first."""
        message = self._messages.popleft()
        self._bytes -= size_of(message)
        return message

    def take_all(self) -> Iterator[Message]:
        """Take one after another, until there are none."""
        while self._messages:
            yield self.take()

    # --- being sent -----------------------------------------------------------------------

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say that `send` is about to be called."""
        self._sent = loop.create_future()

    async def send(
        self, write: Callable[[Message], Awaitable[None] | None], done: Callable[[], bool]
    ) -> None:
        """Send what is kept, until there is none left or something has happened.

        Args:
            write: Sends one; returns what to await before the next, or `None`.
            done: Tells that no more are to be sent: what is left stays.
        """
        while self._messages and not done():
            wait = write(self.take())
            if wait is not None:
                await wait

    def end(self) -> None:
        """Say that `send` is over."""
        sent, self._sent = self._sent, None
        if sent is not None and not sent.done():
            sent.set_result(None)

    async def sent(self) -> None:
        """Wait until it has been sent, or given up."""
        while self._sent is not None:
            # Shielded: a worker that is cancelled must not cancel what others wait for.
            await asyncio.shield(self._sent)
