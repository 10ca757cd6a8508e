"""Running a command on an event loop until it is done, or until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ..actors import new_event_loop
from ._status import CommandError, Status

__all__ = ["Interrupted", "StopRequest", "run"]

T = TypeVar("T")


class Interrupted(CommandError):
    """The command was stopped before it was done."""

    def __init__(self) -> None:
        super().__init__("interrupted", Status.IN_DOUBT)


class StopRequest:
    """A request to stop the command, made by a signal or a test."""

    def __init__(self) -> None:
        self._wished = asyncio.Event()

    def wish(self) -> None:
        """Ask the command to stop. Call it on the loop."""
        self._wished.set()

    async def wait(self) -> None:
        """Wait until the command is asked to stop."""
        await self._wished.wait()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine, and cancel it if the command is asked to stop.

        Raises:
            Interrupted: It was cancelled.
        """
        task = asyncio.ensure_future(work)
        wished = asyncio.ensure_future(self._wished.wait())
        try:
            await asyncio.wait({task, wished}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Interrupted
        finally:
            for each in (task, wished):
                each.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await each


def run(command: Callable[[StopRequest], Awaitable[None]]) -> None:
    """Run a command on an event loop of its own, uvloop's where it is installed.

    SIGINT and SIGTERM ask it to stop; the command decides how.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_with_signals(command))


async def _with_signals(command: Callable[[StopRequest], Awaitable[None]]) -> None:
    stop = StopRequest()
    loop = asyncio.get_running_loop()
    # Only the main thread gets signals, and only where the loop supports them.
    handled: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        with suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.wish)
                handled.append(number)
    try:
        await command(stop)
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
