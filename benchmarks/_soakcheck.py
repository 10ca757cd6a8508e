"""The checks of a soak that the broker holds nothing of ended requests."""

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
"""Seconds for the broker to release ended requests."""
AGAIN: Final = 0.1
"""Seconds between two checks."""
WARM_UP = 0.2
"""The share of the run before memory is measured."""


class Question(Peer):
    """A client of the broker's management service."""

    def __init__(self) -> None:
        super().__init__("soak-observer")
        self._next = 1
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, what: str) -> Any:
        """Return the answer, decoded from JSON."""
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
        """Repeat a check until it finds nothing or time is up; return its findings."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while True:
            wrong = await look()
            if not wrong or loop.time() >= deadline:
                return wrong
            await asyncio.sleep(AGAIN)


async def held_by_requests(
    question: Question, patience: float = SETTLING, rest: int = 1
) -> list[str]:
    """Return what the broker holds of requests after all have ended, with all peers connected.

    The streams of a connection end with it, so this has to run while connections are open.

    Args:
        question: A client of the broker.
        patience: How long to wait until nothing is held, in seconds.
        rest: The streams that the broker has at rest: that of the question, and in a cluster those
            for the routes of others.
    """

    async def look() -> list[str]:
        rows: list[dict[str, Any]] = await question.ask("routes")
        wrong = [
            f"{row['outstanding']} requests outstanding with {row['peer']}"
            for row in rows
            # The management's own row counts the request in progress.
            if row["service"] != MANAGEMENT and row["outstanding"]
        ]
        figures = await question.ask("statistics")
        if figures["waiting"]:
            wrong.append(f"{figures['waiting']} requests waiting")
        if figures["streams"] != rest:
            wrong.append(f"{figures['streams'] - rest} streams in the tables")
        return wrong

    return await question.settled(look, patience)


async def routes_of_the_gone(question: Question, patience: float = SETTLING) -> list[str]:
    """Return the remaining routes after all connections but that of `question` have closed."""

    async def look() -> list[str]:
        rows: list[dict[str, Any]] = await question.ask("routes")
        left = [row for row in rows if row["service"] not in {MANAGEMENT, question.name}]
        return [f"{len(left)} routes of destinations that have gone"] if left else []

    return await question.settled(look, patience)


def growth(memory: Sequence[tuple[float, int]], least: float) -> float:
    """Return the slope of memory after the warm-up, in KiB a minute.

    Args:
        memory: Pairs of seconds since the start, and bytes.
        least: The least seconds of the warm-up.
    """
    if not memory:
        return 0.0
    start_at = max(memory[-1][0] * WARM_UP, least)
    late = [(passed, held) for passed, held in memory if passed >= start_at]
    if len(late) < 3:
        return 0.0
    slope = statistics.linear_regression([at for at, _ in late], [held for _, held in late]).slope
    return slope * 60 / 1024
