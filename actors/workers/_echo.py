"""`Echo` and `Replier`: workers that answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from ...protocol import Message
from ...protocol.payloads import PayloadError
from .._typed import BAD_PAYLOAD
from .._worker import Worker

__all__ = ["Answer", "Echo", "Replier"]

Answer: TypeAlias = Callable[[bytes], bytes | Coroutine[Any, Any, bytes | None] | None]
"""A function, `def` or `async def`, from a payload to the answer; `None` is no answer."""


class Echo(Worker):
    """A worker that answers every message with its own payload.

    ```
    [echo] <- [back…]        becomes        [back…] <- [echo]
    ```

    A message without a return route becomes a dead letter.
    """

    def handle_message(self, message: Message) -> None:
        """Answer a message."""
        self.reply(message, message.payload)


class Replier(Worker):
    """A worker that answers every message by a function of its payload.

    ```
    [replier] <- [back…] payload        becomes        [back…] <- [replier] answer(payload)
    ```

    If the function raises `PayloadError`, the payload is at fault: the message becomes a dead
    letter, "bad payload", and the sender is told as by a `TypedWorker`. Any other exception is a
    failure of the worker.

    Args:
        answer: The function. A `def` runs on the node's loop and must not block.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Answer a message, if the function returns an answer."""
        try:
            result = self._answer(message.payload)
        except PayloadError as error:
            self._refuse(message, error)
            return None
        if isinstance(result, Coroutine):
            return self._answer_later(message, result)
        if result is not None:
            self.reply(message, result)
        return None

    async def _answer_later(
        self, message: Message, work: Coroutine[Any, Any, bytes | None]
    ) -> None:
        try:
            result = await work
        except PayloadError as error:
            self._refuse(message, error)
            return
        if result is not None:
            self.reply(message, result)

    def _refuse(self, message: Message, error: PayloadError) -> None:
        self.node.dead_letter(message, BAD_PAYLOAD)
        self.node.answer_error(message, str(error))
