"""Running a command on an event loop until it is done, or until a signal asks it to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from ..actors import new_event_loop
from ._status import CommandError, Status

__all__ = ["Interrupted", "Pace", "StopRequest", "run"]

T = TypeVar("T")


class Interrupted(CommandError):
    """The command was stopped before it was done."""

    def __init__(self) -> None:
        super().__init__("interrupted", Status.IN_DOUBT)


class Pace(Enum):
    """The time that a stop may take."""

    AT_ONCE = "at once"
    SOON = "soon"
    """A person waits: SIGINT."""
    ORDERLY = "orderly"
    """The process is killed after half a minute: SIGTERM."""
    CONFIGURED = "configured"
    """The process has all the time of its options: SIGUSR2."""


class StopRequest:
    """A request to stop the command, made by a signal or a test."""

    def __init__(self) -> None:
        self._wished = asyncio.Event()
        self._pace = Pace.AT_ONCE
        self._is_urged = False
        self._told: Callable[[Pace], object] | None = None

    def wish(self, pace: Pace = Pace.AT_ONCE) -> None:
        """Ask the command to stop. Call it on the loop.

        Args:
            pace: The time that it may take. A second request to stop soon or orderly means at once.
        """
        if pace is not Pace.CONFIGURED:
            pace, self._is_urged = (Pace.AT_ONCE if self._is_urged else pace), True
        self._pace = pace
        self._wished.set()
        if self._told is not None:
            self._told(self._pace)

    @property
    def is_final(self) -> bool:
        """Whether a stop was asked for at another pace than the configured one."""
        return self._is_urged

    def withdraw(self) -> None:
        """Withdraw the request, as after a drain that was undone."""
        self._wished.clear()
        self._is_urged = False

    async def wait(self) -> None:
        """Wait until the command is asked to stop."""
        await self._wished.wait()

    @contextmanager
    def paces(self, told: Callable[[Pace], object]) -> Generator[None]:
        """Call a function with the pace of the request made, and of each further one."""
        self._told = told
        try:
            if self._wished.is_set():
                told(self._pace)
            yield
        finally:
            self._told = None

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


_STOPS: Final = {"SIGINT": Pace.SOON, "SIGTERM": Pace.ORDERLY}


def run(
    command: Callable[[StopRequest], Awaitable[None]],
    signals: Mapping[str, Callable[[], object]] | None = None,
) -> None:
    """Run a command on an event loop of its own, uvloop's where it is installed.

    SIGINT and SIGTERM ask it to stop; the command decides how. A server is asked by SIGUSR2, too.

    Args:
        command: The command.
        signals: The actions of a server for other signals, by name, called on the loop. `None` for
            a command that is no server.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_with_signals(command, signals))


async def _with_signals(
    command: Callable[[StopRequest], Awaitable[None]],
    signals: Mapping[str, Callable[[], object]] | None,
) -> None:
    stop = StopRequest()
    loop = asyncio.get_running_loop()
    stops = _STOPS if signals is None else {**_STOPS, "SIGUSR2": Pace.CONFIGURED}
    actions: dict[str, Callable[[], object]] = {
        **{name: partial(stop.wish, pace) for name, pace in stops.items()},
        **(signals or {}),
    }
    # Only the main thread gets signals, and only where the loop supports them.
    handled: list[int] = []
    if threading.current_thread() is threading.main_thread():
        with suppress(NotImplementedError):
            for name, act in actions.items():
                number = getattr(signal, name, None)  # not every system has all of them
                if number is not None:
                    loop.add_signal_handler(number, act)
                    handled.append(number)
    try:
        await command(stop)
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
