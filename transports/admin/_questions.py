"""The bounds of what several processes that are one program are asked on behalf of its clients.

A process that has too many questions answers late, and one that answers late counts as missing. So
a flood of questions may not reach the processes, and no two clients take all places. What operates
the program has places of its own: an operator can end what floods it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias

from ...protocol.options import Count, SecondsOrZero, check_options
from ...protocol.security import ANONYMOUS
from ._messages import HttpError, HttpRequest
from ._parts import Answers
from ._paths import Needs

__all__ = ["QuestionLimits", "Questions"]

Client: TypeAlias = str | tuple[str, str, str]
"""What tells a client from others: its source, or the method, issuer and name of its principal."""

OF_CLIENT: Final = "client"
"""The reason for a refusal: the client has too many requests in hand."""

OF_ANONYMOUS: Final = "anonymous"
"""The reason for a refusal: all clients without a principal together have too many."""

OF_ALL: Final = "all"
"""The reason for a refusal: all clients together have too many."""

AGAIN: Final = {"retry-after": "1"}


@dataclass(frozen=True, slots=True)
class QuestionLimits:
    """The limits of requests to several processes that are one program. Times are in seconds.

    They are fixed: no option sets them. Each request is one to every process, due within 2 s, so
    more places would have them answer later and count as missing, and all that asks in turn, such
    as a console or a scraper, needs a few places only.

    Attributes:
        max_questions: Requests in hand for which the processes are asked, those that operate the
            program apart; one more is answered with status 503.
        max_questions_per_client: Of those, requests of one principal, or of one source if none is
            known; one more is answered with status 429.
        max_anonymous_questions: Of those, requests of all clients that are not authenticated; one
            more is answered with status 503.
        max_operations: Requests in hand that need the right to operate, which have these places to
            themselves; one more is answered with status 503.
        max_operations_per_client: Of those, requests of one client; one more is answered with
            status 429.
        shared_for: Time for which the answers of the processes to a question are kept for equal
            ones; 0 shares them among those that wait at the same time. Health checks, which need no
            authentication, are all answered from them: they need no place, and none is refused.
    """

    max_questions: Count = 24
    max_questions_per_client: Count = 8
    max_anonymous_questions: Count = 16
    max_operations: Count = 8
    max_operations_per_client: Count = 4
    shared_for: SecondsOrZero = 0.2

    def __post_init__(self) -> None:
        check_options(self)


_LIMITS: Final = QuestionLimits()


class _Places:
    """The places of the requests of one kind.

    Args:
        whole: Those of all clients.
        of_client: Those of one client.
        anonymous: Those of all clients that are not authenticated.
    """

    def __init__(self, whole: int, of_client: int, anonymous: int) -> None:
        self._whole = whole
        self._of_client = of_client
        self._anonymous = anonymous
        self._taken: Counter[Client] = Counter()

    def refusal(self, client: Client) -> str:
        """Return the reason for which a client gets no place; empty if it gets one."""
        if self._taken[client] >= self._of_client:
            return OF_CLIENT
        if self._taken.total() >= self._whole:
            return OF_ALL
        anonymous = sum(count for each, count in self._taken.items() if isinstance(each, str))
        return OF_ANONYMOUS if isinstance(client, str) and anonymous >= self._anonymous else ""

    def take(self, client: Client) -> None:
        """Take a place for a client."""
        self._taken[client] += 1

    def give_back(self, client: Client) -> None:
        """Give back a place of a client."""
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]


class Questions:
    """The requests in hand for which the processes are asked. Use it on one loop.

    Args:
        limits: The limits.

    Attributes:
        refused: The requests that were refused, by reason.
    """

    def __init__(self, limits: QuestionLimits = _LIMITS) -> None:
        self._limits = limits
        self._reading = _Places(
            limits.max_questions, limits.max_questions_per_client, limits.max_anonymous_questions
        )
        operations = limits.max_operations
        self._operating = _Places(operations, limits.max_operations_per_client, operations)
        self._shared: dict[str, asyncio.Task[Answers]] = {}
        self.refused: Counter[str] = Counter(dict.fromkeys(_REFUSALS, 0))

    @contextmanager
    def place(self, request: HttpRequest, needs: Needs = "read") -> Generator[None]:
        """Hold a place for a request.

        Args:
            request: The request.
            needs: What it needs.

        Raises:
            HttpError: Its client has no place left, or none is left.
        """
        places = self._operating if needs == "operate" else self._reading
        client = _client_of(request)
        reason = places.refusal(client)
        if reason:
            self.refused[reason] += 1
            raise HttpError(*_REFUSALS[reason], AGAIN)
        places.take(client)
        try:
            yield
        finally:
            places.give_back(client)

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


_REFUSALS: Final = {
    OF_CLIENT: (HTTPStatus.TOO_MANY_REQUESTS, "too many requests of this client are in hand"),
    OF_ANONYMOUS: (
        HTTPStatus.SERVICE_UNAVAILABLE,
        "too many requests of clients that are not authenticated are in hand",
    ),
    OF_ALL: (HTTPStatus.SERVICE_UNAVAILABLE, "too many requests are in hand"),
}
"""The status and the text of a refusal, by its reason."""


def _client_of(request: HttpRequest) -> Client:
    """Return what tells a client from others: its principal, or its source."""
    principal = request.principal
    if principal is None or principal.method == ANONYMOUS.method:
        return request.source
    return principal.method, principal.issuer, principal.name
