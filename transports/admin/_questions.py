"""The bounds of what several processes that are one program are asked on behalf of its clients.

A process that has too many questions answers late, and one that answers late counts as missing. So
a flood of questions may not reach the processes, and one client takes half of the places at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from ...protocol.options import Count, SecondsOrZero, check_options
from ...protocol.security import ANONYMOUS
from ._messages import HttpError, HttpRequest
from ._parts import Answers

__all__ = ["QuestionLimits", "Questions"]

OF_CLIENT: Final = "client"
"""The reason for a refusal: the client has too many requests in hand."""

OF_ALL: Final = "all"
"""The reason for a refusal: all clients together have too many."""

AGAIN: Final = {"retry-after": "1"}


@dataclass(frozen=True, slots=True)
class QuestionLimits:
    """The limits of requests to several processes that are one program. Times are in seconds.

    Attributes:
        max_questions: Requests in hand for which the processes are asked; one more is answered with
            status 503.
        max_questions_per_client: Of those, requests of one principal, or of one source if none is
            known; one more is answered with status 429.
        shared_for: Time for which the answers of the processes to a question are kept for equal
            ones; 0 shares them among those that wait at the same time. Health checks, which need no
            authentication, are all answered from them: they need no place, and none is refused.
    """

    max_questions: Count = 32
    max_questions_per_client: Count = 16
    shared_for: SecondsOrZero = 0.2

    def __post_init__(self) -> None:
        check_options(self)


_LIMITS: Final = QuestionLimits()


class Questions:
    """The requests in hand for which the processes are asked. Use it on one loop.

    Args:
        limits: The limits.

    Attributes:
        refused: The requests that were refused, by reason.
    """

    def __init__(self, limits: QuestionLimits = _LIMITS) -> None:
        self._limits = limits
        self._taken: Counter[Hashable] = Counter()
        self._shared: dict[str, asyncio.Task[Answers]] = {}
        self.refused: Counter[str] = Counter({OF_CLIENT: 0, OF_ALL: 0})

    @contextmanager
    def place(self, request: HttpRequest) -> Generator[None]:
        """Hold a place for a request.

        Raises:
            HttpError: Its client has no place left, or none is left.
        """
        client = _client_of(request)
        if self._taken[client] >= self._limits.max_questions_per_client:
            self.refused[OF_CLIENT] += 1
            text = f"{self._taken[client]} requests of this client are in hand already"
            raise HttpError(HTTPStatus.TOO_MANY_REQUESTS, text, AGAIN)
        if self._taken.total() >= self._limits.max_questions:
            self.refused[OF_ALL] += 1
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests are in hand", AGAIN)
        self._taken[client] += 1
        try:
            yield
        finally:
            self._taken[client] -= 1
            if not self._taken[client]:
                del self._taken[client]

    async def shared(self, question: str, ask: Callable[[], Awaitable[Answers]]) -> Answers:
        """Return the answers to a question, which are those to an equal one of the same time.

        Args:
            question: What tells it from others: one of a few texts, none of which a client writes.
            ask: Asks the processes.
        """
        task = self._shared.get(question)
        if task is None:
            self._shared[question] = task = asyncio.create_task(_asked(ask))
            task.add_done_callback(lambda done: self._answered(question, done))
        # A client that goes away does not take the answers from the others.
        return await asyncio.shield(task)

    def _answered(self, question: str, task: asyncio.Task[Answers]) -> None:
        kept = self._limits.shared_for
        if not kept or task.cancelled() or task.exception() is not None:
            del self._shared[question]
        else:
            task.get_loop().call_later(kept, self._shared.pop, question)


async def _asked(ask: Callable[[], Awaitable[Answers]]) -> Answers:
    return await ask()


def _client_of(request: HttpRequest) -> Hashable:
    """Return what tells a client from others: its principal, or its source."""
    principal = request.principal
    if principal is None or principal.method == ANONYMOUS.method:
        return request.source
    return principal.method, principal.issuer, principal.name
