"""A worker that keeps its messages for a test."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from ...protocol import AddressLike, Message, counted
from ...protocol.options import check_timeout
from .._worker import Worker

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["MAX_PROBED", "Answer", "Probe"]

MAX_PROBED: Final = 10_000
"""Default of the most messages that a `Probe` keeps; more become dead letters with the reason
"probe full"."""

Answer: TypeAlias = Callable[[Message], bytes | None]
"""The reply of a probe to a message: a payload, or `None` for no reply."""


class Probe(Worker):
    """A worker that keeps its messages, in order, and sends messages for a test.

    ```python
    probe = await Probe.on(node, "probe")
    probe.send("relay => echo", b"hi")  # its own address is the return route
    assert (await probe.next()).payload == b"hi"
    ```

    Its methods are for the node's loop.

    Args:
        limit: Most messages kept; more become dead letters with the reason "probe full".
        answer: A function that returns the reply to each message; no replies by default. Its
            exceptions are failures of this worker.

    Attributes:
        messages: The messages received, oldest first.
    """

    def __init__(self, *, limit: int = MAX_PROBED, answer: Answer | None = None) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self._limit = limit
        self._answer = answer
        self._read = 0
        self._changed: deque[asyncio.Future[None]] = deque()

    @classmethod
    async def on(
        cls,
        node: Node,
        address: AddressLike | None = None,
        *,
        limit: int = MAX_PROBED,
        answer: Answer | None = None,
    ) -> Self:
        """Start a probe on a node.

        Args:
            node: The node.
            address: Its address; a random one by default.
            limit: As for the class.
            answer: As for the class.

        Raises:
            AddressInUse: Another worker has the address.
        """
        probe = cls(limit=limit, answer=answer)
        await node.start(lambda: probe, address=address)
        return probe

    @property
    def payloads(self) -> list[bytes]:
        """The payloads of the messages received, oldest first."""
        return [message.payload for message in self.messages]

    def handle_message(self, message: Message) -> None:
        """Keep a message, and reply to it if the probe has an answer."""
        if len(self.messages) >= self._limit:
            self.node.dead_letter(message, "probe full")
            return
        self.messages.append(message)
        while self._changed:
            waiter = self._changed.popleft()
            if not waiter.done():
                waiter.set_result(None)
        if self._answer is not None:
            payload = self._answer(message)
            if payload is not None:
                self.reply(message, payload)

    async def next(self, timeout: float = 5.0) -> Message:
        """Wait for the next message: each is returned once.

        Args:
            timeout: The longest time to wait, in seconds.

        Raises:
            TimeoutError: None came in time.
        """
        await self._until(self._read + 1, timeout)
        self._read += 1
        return self.messages[self._read - 1]

    async def count(self, number: int, timeout: float = 5.0) -> list[Message]:
        """Wait until a number of messages have been received in all; `next` goes on behind them.

        Args:
            number: The number of messages.
            timeout: The longest time to wait for all of them, in seconds.

        Returns:
            The first messages, as many as the number.

        Raises:
            TimeoutError: They did not all come in time.
            ValueError: The number is more than the probe keeps.
        """
        if number > self._limit:
            raise ValueError(f"{number} messages are more than the {self._limit} it keeps")
        await self._until(number, timeout)
        self._read = max(self._read, number)
        return self.messages[:number]

    def clear(self) -> None:
        """Forget the messages received."""
        self.messages.clear()
        self._read = 0

    async def _until(self, number: int, timeout: float) -> None:
        try:
            async with asyncio.timeout(check_timeout(timeout)):
                while len(self.messages) < number:
                    changed = asyncio.get_running_loop().create_future()
                    self._changed.append(changed)
                    await changed
        except TimeoutError:
            came = f"{len(self.messages)} of {counted(number, 'message')} came to {self.address}"
            last = f", the last with {self.messages[-1].payload[:64]!r}" if self.messages else ""
            raise TimeoutError(f"{came} in {timeout:g} s{last}") from None
