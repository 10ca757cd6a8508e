"""A load of requests, in an open or a closed loop, and what has become of them.

In an open loop requests are due at fixed times, whether the earlier ones are answered or not, as
those of independent clients are. A latency counts from the time at which the request was due, so a
server that stalls shows in all requests that were due meanwhile, even those that the load could
only send later: there is no coordinated omission. In a closed loop each of a number of clients
sends its next request when one is answered, so a stalled server is asked less.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from ..protocol import InDoubt, NotDelivered, OnwardError, RequestTimeout
from ._histogram import Histogram

__all__ = ["End", "LoadPlan", "Measured", "Send", "generate", "kind_of"]

MAX_IN_FLIGHT: Final = 10_000
"""The maximum number of requests in flight; those that are due meanwhile are sent later, and their
latency counts from when they were due."""

SLACK: Final = 0.002
"""Seconds by which a timer of the event loop may be late: such a delay is not the server's, and a
latency does not count from before it."""

AT_ONCE: Final = 64
"""Requests that are sent before answers are read, when many are due."""

Send: TypeAlias = Callable[[int, "Measured"], Awaitable[None]]
"""A function that makes a request with a number, and returns when it is answered."""


class End(Enum):
    """The ways in which a request ends."""

    ANSWERED = "answered"
    REJECTED = "rejected"
    """REJECTED, 0x202: no destination has processed it."""

    CANCELED = "canceled"
    """CANCELED, 0x203: a destination may have processed it."""

    ERROR = "errors"
    """Another error of the destination or of the broker."""

    TIMEOUT = "timeouts"
    LOST = "lost"
    """The connection was lost meanwhile."""

    NOT_SENT = "not sent"
    """There was no connection, or the time was over before it could be sent."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The plan of a load: its loop, and its end.

    Attributes:
        rate: Requests per second of an open loop; `None` for a closed loop.
        window: Requests in flight of each client of a closed loop.
        duration: The longest time in which requests are sent, in seconds; `None`: no limit.
        count: The maximum number of requests; `None`: no limit.
    """

    rate: float | None = None
    window: int = 1
    duration: float | None = None
    count: int | None = None


@dataclass(slots=True)
class Measured:
    """The figures of a load so far.

    Attributes:
        latencies: How long the answered requests took.
        firsts: How long it took until the first element of a stream.
        ends: The requests by how they have ended.
        elements: The elements of streams.
        received: The bytes of the answers.
        sent: The requests sent.
        seconds: The time from the first request to the end of the last one.
        late: The longest time by which a request was sent after it was due, in seconds.
        problems: The texts of errors, of the first ones.
    """

    latencies: Histogram = field(default_factory=Histogram)
    firsts: Histogram = field(default_factory=Histogram)
    ends: Counter[End] = field(default_factory=Counter[End])
    elements: int = 0
    received: int = 0
    sent: int = 0
    seconds: float = 0.0
    late: float = 0.0
    problems: Counter[str] = field(default_factory=Counter[str])


MAX_PROBLEMS: Final = 20
"""The maximum number of different texts of errors that are kept."""


async def generate(
    plan: LoadPlan, clients: Sequence[Send], clock: Callable[[], float], measured: Measured
) -> None:
    """Send requests as planned, and measure them, until all have ended.

    Args:
        plan: The plan; it has a duration, a count, or both.
        clients: The functions that make requests, one for each client. They take turns.
        clock: The clock, in seconds.
        measured: The results, which are there even if it is cancelled.
    """
    load = _Load(plan, clients, clock, measured)
    try:
        await (load.closed() if plan.rate is None else load.open(plan.rate))
    finally:
        measured.seconds = clock() - load.began


class _Load:
    """A load that is generated.

    Attributes:
        began: When it began.
    """

    def __init__(
        self,
        plan: LoadPlan,
        clients: Sequence[Send],
        clock: Callable[[], float],
        measured: Measured,
    ) -> None:
        self._plan = plan
        self._clients = clients
        self._clock = clock
        self._measured = measured
        self._number = 0
        self.began = clock()

    # --- open loop --------------------------------------------------------------------------

    async def open(self, rate: float) -> None:
        """Send a request each time one is due."""
        plan, clock = self._plan, self._clock
        wholes = [] if plan.count is None else [plan.count]
        if plan.duration is not None:
            wholes.append(max(1, round(rate * plan.duration)))
        total = min(wholes)
        room = asyncio.Semaphore(MAX_IN_FLIGHT)
        async with asyncio.TaskGroup() as group:
            for number in range(total):
                due = self.began + number / rate
                early = due - clock()
                if early > 0:
                    await asyncio.sleep(early)
                elif number % AT_ONCE == 0:
                    await asyncio.sleep(0)
                await room.acquire()
                group.create_task(self._due(number, due, room))

    async def _due(self, number: int, due: float, room: asyncio.Semaphore) -> None:
        try:
            now = self._clock()
            late = now - due
            self._measured.late = max(self._measured.late, late)
            await self._one(number, due if late > SLACK else now)
        finally:
            room.release()

    # --- closed loop ------------------------------------------------------------------------

    async def closed(self) -> None:
        """Send requests, so that each client has its window in flight."""
        async with asyncio.TaskGroup() as group:
            for client in range(len(self._clients)):
                for _ in range(self._plan.window):
                    group.create_task(self._chain(client))

    async def _chain(self, client: int) -> None:
        plan, clients = self._plan, len(self._clients)
        end = None if plan.duration is None else self.began + plan.duration
        while plan.count is None or self._number < plan.count:
            now = self._clock()
            if end is not None and now >= end:
                return
            number, self._number = self._number, self._number + 1
            await self._one(number * clients + client, now)
            # A client without a connection fails at once: others have to run meanwhile.
            await asyncio.sleep(0)

    # --- one request ------------------------------------------------------------------------

    async def _one(self, number: int, since: float) -> None:
        measured = self._measured
        measured.sent += 1
        try:
            await self._clients[number % len(self._clients)](number, measured)
        except OnwardError as error:
            measured.ends[kind_of(error)] += 1
            text = f"{type(error).__name__}: {error}"
            if text in measured.problems or len(measured.problems) < MAX_PROBLEMS:
                measured.problems[text] += 1
        else:
            measured.ends[End.ANSWERED] += 1
            measured.latencies.add(self._clock() - since)


def kind_of(error: OnwardError) -> End:
    """Return how a request with an error has ended."""
    # The client library is a slow import; it is there if there is such an error.
    from ..transports.client import RequestCanceled, RequestRejected

    if isinstance(error, RequestTimeout):
        return End.TIMEOUT
    if isinstance(error, RequestRejected):
        return End.REJECTED
    if isinstance(error, RequestCanceled):
        return End.CANCELED
    if isinstance(error, NotDelivered):
        return End.NOT_SENT
    return End.LOST if isinstance(error, InDoubt) else End.ERROR
