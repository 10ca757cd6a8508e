"""How the traffic is spread over time, and what became of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from onward.protocol import OnwardError

TICKS = 180
"""Steps of the traffic."""

ANSWERED = "answered"
"""How a request ends well."""

TICK = 0.1
"""Seconds from one step to the next; where the machine is busy they take longer."""


async def ticks() -> AsyncGenerator[int]:
    """Yield the number of each step, at its time or after."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for number in range(TICKS):
        await asyncio.sleep(max(0.0, begin + number * TICK - loop.time()))
        yield number


class Tally:
    """The counts of requests by how they ended for the requester.

    Attributes:
        sent: How many.
        ended: How many ended in which way.
        circles: How many messages were sent in a circle.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.ended: Counter[str] = Counter()
        self.circles = 0

    @property
    def answered(self) -> int:
        """How many ended well."""
        return self.ended[ANSWERED]

    async def of(self, request: Coroutine[Any, Any, object]) -> None:
        """Make a request; an error is one of the ends that there are."""
        self.sent += 1
        try:
            await request
        except OnwardError as error:
            self.ended[type(error).__name__] += 1
        else:
            self.ended[ANSWERED] += 1
