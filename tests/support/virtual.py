"""An event loop whose clock jumps to the next timer as soon as nothing else is to do.

Tests of timers run on it: an hour of theirs takes a millisecond, and two timers never
race, as no time passes while code runs. A wait that nothing can end is an error at once,
not a test that hangs.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

__all__ = ["Deadlock", "VirtualLoop", "run_virtual", "virtual_time"]

P = ParamSpec("P")
T = TypeVar("T")


class Deadlock(Exception):
    """Everything waits, and there is no timer that could end it."""


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0


class _VirtualSelector(selectors.DefaultSelector):
    """A selector that lets the clock jump where the real one would sleep."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock("everything waits, and no timer is set")
        self._clock.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock of its own, in seconds; it starts at 1000.

    Only for code on one thread: what another thread does takes no time here.
    """

    def __init__(self) -> None:
        self._virtual_clock = _Clock()
        super().__init__(_VirtualSelector(self._virtual_clock))

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._virtual_clock.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a virtual loop.

    Raises:
        Deadlock: It waits for something that cannot happen.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a coroutine function a test that runs on a virtual loop."""

    @functools.wraps(test)
    def run(*args: P.args, **named: P.kwargs) -> None:
        run_virtual(test(*args, **named))

    return run
