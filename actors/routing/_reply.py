"""The mailbox of one request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident
from typing import Final

from ...protocol import (
    ERROR_SOURCE,
    Message,
    OnwardError,
    RequestTimeout,
    Route,
    format_route,
    read_error_reply,
)
from .._errors import GivenUp, Refused
from ..runtime._mailbox import Target
from ..runtime._run_queue import RunQueue

__all__ = ["LATE_ANSWER", "Reply"]

LATE_ANSWER: Final = "late answer"
"""The reason of a dead letter that is the answer to a request given up."""

_ERRORS: Final = ERROR_SOURCE.value


class Reply(Target):
    """The mailbox of one request, which accepts one answer."""

    __slots__ = ("_lose", "_run_queue", "future", "onward", "timeout")

    def __init__(
        self,
        run_queue: RunQueue,
        lose: Callable[[Message, str], object],
        future: asyncio.Future[Message],
        onward: Route,
        timeout: float,
    ) -> None:
        # `queue` is never set, so that `Router.dispatch` calls `put`.
        self.queue = None
        self.future = future
        self.onward = onward
        self.timeout = timeout
        self._run_queue = run_queue
        self._lose = lose

    def put(self, message: Message) -> None:
        """Accept the answer; a second one becomes a dead letter."""
        if get_ident() != self._run_queue.thread_id:
            self._run_queue.call_on_loop(lambda: self.put(message))
        elif self.future.done():
            self._lose(message, LATE_ANSWER)
        else:
            back = message[1]
            # The test of the last address spares most answers the call.
            reply = read_error_reply(message) if back and back[-1][1] == _ERRORS else None
            context = message[4]
            if context is not None and context[1] is not None:
                instruments = self._run_queue.instruments
                if instruments is not None:
                    instruments.reply_traced(message)
            if reply is None:
                self.future.set_result(message)
            else:
                error = (Refused if reply.certain else GivenUp)(reply.address, reply.reason)
                self.future.set_exception(error)

    def expire(self) -> None:
        """Fail the request at its timeout."""
        if not self.future.done():
            target = format_route(self.onward)
            self.future.set_exception(RequestTimeout(target, f"{self.timeout:g} s"))

    def fail(self, error: OnwardError) -> bool:
        """Raise an error in the request, in place of an answer; return whether it waits still."""
        if self.future.done():
            return False
        error.lost = None  # the requester did not send the message that was lost
        self.future.set_exception(error)
        return True
