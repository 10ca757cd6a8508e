"""What a soak asks the broker: does it still hold anything of the requests there were?"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from _soakload import PATIENCE
from _soakpeer import Peer
from _wire import ERROR, STREAM_ID, request_frame

__all__ = ["MANAGEMENT", "Question", "growth", "held_by_requests", "routes_of_the_gone"]

MANAGEMENT: Final = "onward.management"
SETTLING: Final = 10.0
"""Seconds the broker is given to forget what is over."""
AGAIN: Final = 0.1
"""Seconds from one look to the next."""
WARM_UP, LEAST_WARM_UP = 0.2, 90.0
"""Share of the run, and seconds, before memory is looked at."""


class Question(Peer):
    """Asks the broker's management."""

    def __init__(self) -> None:
        super().__init__("soak-observer")
        self._next = 1
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, what: str) -> Any:
        """Return the answer, read from JSON."""
        stream_id, self._next = self._next, self._next + 2
        written = bytearray(request_frame(MANAGEMENT, what.encode()))
        written[STREAM_ID.start : STREAM_ID.stop] = stream_id.to_bytes(4)
        answer = self._answers[stream_id] = asyncio.get_running_loop().create_future()
        self.send(bytes(written))
        async with asyncio.timeout(PATIENCE):
            return await answer

    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        if kind == ERROR:
            self._answers.pop(stream_id).set_exception(RuntimeError(body[4:].decode()))
        else:
            self._answers.pop(stream_id).set_result(json.loads(body))

    async def settled(self, look: Callable[[], Awaitable[list[str]]], patience: float) -> list[str]:
        """Look again and again until nothing is wrong, or for so long; return what is wrong."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while True:
            wrong = await look()
            if not wrong or loop.time() >= deadline:
                return wrong
            await asyncio.sleep(AGAIN)


async def held_by_requests(question: Question, patience: float = SETTLING) -> list[str]:
    """Say what the broker holds of requests, when all have ended and everybody is still there.

    A stream goes with its connection, so it has to be asked while connections are open.
    """

    async def look() -> list[str]:
        rows: list[dict[str, Any]] = await question.ask("routes")
        wrong = [
            f"{row['outstanding']} requests outstanding with {row['peer']}"
            for row in rows
            # The management's own row has the question that is being answered.
            if row["service"] != MANAGEMENT and row["outstanding"]
        ]
        figures = await question.ask("statistics")
        if figures["waiting"]:
            wrong.append(f"{figures['waiting']} requests waiting")
        # One is that of this very question.
        if figures["streams"] != 1:
            wrong.append(f"{figures['streams'] - 1} streams in the tables")
        return wrong

    return await question.settled(look, patience)


async def routes_of_the_gone(question: Question, patience: float = SETTLING) -> list[str]:
    """Say which routes are left when all but the question's own connection has closed."""

    async def look() -> list[str]:
        rows: list[dict[str, Any]] = await question.ask("routes")
        left = [row for row in rows if row["service"] not in {MANAGEMENT, question.name}]
        return [f"{len(left)} routes of those who have gone"] if left else []

    return await question.settled(look, patience)


def growth(memory: Sequence[tuple[float, int]]) -> float:
    """Return the slope of memory after the warm-up, in KiB a minute.

    Args:
        memory: Seconds since the start, and bytes.
    """
    if not memory:
        return 0.0
    start_at = max(memory[-1][0] * WARM_UP, LEAST_WARM_UP)
    late = [(passed, held) for passed, held in memory if passed >= start_at]
    if len(late) < 3:
        return 0.0
    slope = statistics.linear_regression([at for at, _ in late], [held for _, held in late]).slope
    return slope * 60 / 1024
