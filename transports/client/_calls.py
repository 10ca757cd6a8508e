"""Admission, timeouts and retries of a client's requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from ...actors.broker.table._leaving import BROKER_DRAINS
from ...protocol import LinkDown, NotDelivered, RequestTimeout, counted
from ._errors import RequestRejected

if TYPE_CHECKING:
    from ._link import ClientLink
    from ._options import ClientOptions
    from ._pool import Pool

__all__ = ["Admission", "Calls", "Tries"]

T = TypeVar("T")


class Admission:
    """The limits on the requests in flight and on the requests that wait for admission.

    Attributes:
        waiting: Requests that wait.
        inside: Requests in flight.

    Args:
        options: `max_in_flight` and `max_waiting`.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.waiting = 0
        self.inside = 0
        self._max_waiting = options.load.max_waiting
        self._places = asyncio.Semaphore(options.load.max_in_flight)

    async def enter(self) -> None:
        """Wait for admission; `leave` has to follow.

        Raises:
            NotDelivered: Too many requests wait already.
        """
        if self._places.locked() and self.waiting >= self._max_waiting:
            raise NotDelivered("the client", f"{counted(self.waiting, 'request')} waiting already")
        self.waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        self.inside += 1

    def leave(self) -> None:
        """End a request in flight."""
        self.inside -= 1
        self._places.release()


class Tries:
    """The tries of one request.

    Attributes:
        sent: Whether it has been handed to a socket, and was not refused since.
        since: When it was sent last, in seconds of the loop's clock.
        admitted: Whether it was admitted.
        error: The error of the last failed try.
        count: Failed tries.
        link: The connection of the last try.
        once: Whether REJECTED is final.

    Args:
        once: Whether the request itself has a time to wait for a destination.
    """

    __slots__ = ("admitted", "count", "error", "link", "once", "sent", "since")

    def __init__(self, *, once: bool) -> None:
        self.sent = False
        self.since = 0.0
        self.admitted = False
        self.error: NotDelivered | None = None
        self.count = 0
        self.link: ClientLink | None = None
        self.once = once


class Calls:
    """The sending of a client's requests, shared by all interactions.

    Attributes:
        admission: The requests in flight.
        requests: Requests made.
        retried: Tries after the first of a request.
        timeouts: Requests, or elements of one, that timed out.

    Args:
        pool: The connections.
        options: Times and limits.
    """

    def __init__(self, pool: Pool, options: ClientOptions) -> None:
        self.admission = Admission(options)
        self.requests = 0
        self.retried = 0
        self.timeouts = 0
        self._pool = pool
        self._retry = options.retry

    @asynccontextmanager
    async def in_time(self, tries: Tries, timeout: float | None) -> AsyncGenerator[asyncio.Timeout]:
        """Limit the time of the context. The limit can be rescheduled meanwhile.

        Raises:
            RequestTimeout: The time is over, and the request was sent.
            NotDelivered: The time is over, and no destination has the request.
        """
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                yield limit
        except TimeoutError:
            if not limit.expired():
                raise
            self.timeouts += 1
            text = f"{timeout:g} s"
            if tries.sent:
                raise RequestTimeout("the destination", text) from None
            if tries.error is not None:
                raise tries.error from None
            if not tries.admitted:
                many = counted(self.admission.inside, "request")
                why = f"{many} in flight, and none ended in {text}"
                raise NotDelivered("the client", why) from None
            why = f"no connection took the request in {text}: {self._pool.obstacle()}"
            raise LinkDown("the broker", why) from None

    async def enter(self, tries: Tries) -> None:
        """Wait for admission; `admission.leave` has to follow.

        Raises:
            NotDelivered: Too many requests wait already.
        """
        await self.admission.enter()
        tries.admitted = True

    async def send(self, tries: Tries, attempt: Callable[[ClientLink], T]) -> T:
        """Send a request on a connection, with retries.

        Raises:
            NotDelivered: `max_tries` tries failed.
        """
        while True:
            link = await self._pool.take()
            tries.link = link
            tries.since = link.loop.time()
            try:
                result = attempt(link)
            except NotDelivered as error:
                await self.again(tries, error)
            else:
                tries.sent = True
                return result

    async def again(self, tries: Tries, error: NotDelivered) -> None:
        """Wait before another try of a request that was certainly not processed.

        Raises:
            NotDelivered: The error given, after `max_tries` tries, or if the broker has waited for
                a destination already.
        """
        tries.sent = False
        tries.error = error
        tries.count += 1
        if tries.count >= self._retry.max_tries or self._has_waited(tries, error):
            raise error
        if isinstance(error, RequestRejected) and error.text == BROKER_DRAINS and tries.link:
            self._pool.drains(tries.link)
        self.retried += 1
        await asyncio.sleep(self._retry.backoff.wait(tries.count - 1))

    def _has_waited(self, tries: Tries, error: NotDelivered) -> bool:
        if not isinstance(error, RequestRejected):
            return False
        took = asyncio.get_running_loop().time() - tries.since
        return tries.once or took > self._retry.within

    async def ask(
        self,
        tries: Tries,
        timeout: float | None,
        attempt: Callable[[ClientLink], T],
        outcome: Callable[[T], Awaitable[object]] | None = None,
    ) -> object:
        """Make a request with at most one answer.

        Args:
            tries: The tries of the request, none yet.
            timeout: Seconds for the request; `None`: no limit.
            attempt: Sends it on a connection.
            outcome: Waits for the answer, if there is one.

        Raises:
            OnwardError: The request failed; see `Client`.
        """
        self.requests += 1
        async with self.in_time(tries, timeout):
            await self.enter(tries)
            try:
                while True:
                    sent = await self.send(tries, attempt)
                    if outcome is None:
                        return None
                    try:
                        return await outcome(sent)
                    except NotDelivered as error:
                        await self.again(tries, error)
            finally:
                self.admission.leave()
