"""An event loop with a clock that jumps to the next timer when no callback is ready.

An hour of a test's timers takes a millisecond, and two timers never race, as no time passes
while code runs. A wait that cannot end is an error at once, not a test that hangs.
"""

from __future__ import annotations

import asyncio
import functools
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

from ...protocol import OnwardError

__all__ = [
    "EPOCH",
    "MAX_PASSES",
    "MAX_VIRTUAL_TIME",
    "Deadlock",
    "VirtualLoop",
    "run_virtual",
    "virtual_time",
]

P = ParamSpec("P")
T = TypeVar("T")

EPOCH: Final = 1000.0
"""The time of a virtual loop's clock at its start, in seconds."""

MAX_VIRTUAL_TIME: Final = 10_000_000.0
"""Default of the longest time that a virtual loop runs, in virtual seconds: 115 days. Then it
raises `Deadlock`: timers fire again and again, without an end."""

MAX_PASSES: Final = 1_000_000
"""Most passes of a virtual loop between two steps of its clock. Then it raises `Deadlock`: there is
always another callback, and no timer gets its turn."""

_NAMED: Final = 20  # tasks that an error names

_NO_THREADS: Final = (
    "a virtual loop is for code on one thread: its clock would not wait for another; "
    "use a real loop where there are threads"
)


class Deadlock(OnwardError):
    """All tasks wait, and no event that could wake them will happen.

    Attributes:
        why: The reason for the error.
        waiting: The tasks that wait, and where: at most 20 of them.
    """

    def __init__(self, why: str, waiting: tuple[str, ...] = ()) -> None:
        super().__init__(why, waiting)
        self.why = why
        self.waiting = waiting

    def __str__(self) -> str:
        return "\n  ".join((self.why, *self.waiting))


class _Clock:
    def __init__(self, max_time: float) -> None:
        self.now = EPOCH
        self.end = EPOCH + max_time

    def advance(self, seconds: float) -> None:
        if self.now + seconds > self.end:
            over = f"after {self.end - EPOCH:,.0f} virtual seconds there is no end in sight"
            raise Deadlock(over, _waiting())
        self.now += seconds


class _VirtualSelector(selectors.DefaultSelector):
    """A selector that advances the clock instead of sleeping."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock
        self._passes = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        self._passes += 1
        if self._passes > MAX_PASSES:
            self._passes = 0  # for the cleanup
            raise Deadlock(f"{MAX_PASSES:,} passes, and there is always more to do", _waiting())
        if ready or timeout == 0:
            return ready
        self._passes = 0
        if timeout is None:
            raise Deadlock("everything waits, and no timer is set", _waiting())
        self._clock.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with its own clock, in seconds; it starts at `EPOCH`.

    It is for code on one thread. Another thread, a process or the network takes no virtual time, so
    its results come too late or not at all. Executors, `asyncio.to_thread`, look-ups of host names
    and `ThreadWorker` raise `RuntimeError` on it.

    Args:
        max_time: The longest time it may run, in virtual seconds; then it raises `Deadlock`.

    Attributes:
        no_threads: The error text of workers that would use a thread.
    """

    no_threads: ClassVar[str] = _NO_THREADS

    def __init__(self, max_time: float = MAX_VIRTUAL_TIME) -> None:
        self._virtual_clock = _Clock(max_time)
        super().__init__(_VirtualSelector(self._virtual_clock))

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._virtual_clock.now

    @property
    def _clock_resolution(self) -> float:
        """The time by which asyncio may call a timer early, in seconds: none on this clock."""
        return math.ulp(self._virtual_clock.now)

    @_clock_resolution.setter
    def _clock_resolution(self, seconds: float) -> None:
        """Ignore the resolution of the clock of the machine."""

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> Any:
        """Raise an error: a virtual loop has no threads.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(_NO_THREADS)


def run_virtual(main: Coroutine[Any, Any, T], *, max_time: float = MAX_VIRTUAL_TIME) -> T:
    """Run a coroutine on a virtual loop.

    Args:
        main: The coroutine.
        max_time: The longest time it may take, in virtual seconds.

    Raises:
        Deadlock: It waits for an event that cannot happen, or takes longer.
    """
    with asyncio.Runner(loop_factory=functools.partial(VirtualLoop, max_time)) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Return a plain function that runs a coroutine function, such as a test, on a virtual loop.

    ```python
    @virtual_time
    async def test_an_hour_is_nothing() -> None:
        await asyncio.sleep(3600)
    ```
    """

    @functools.wraps(test)
    def run(*args: P.args, **named: P.kwargs) -> None:
        run_virtual(test(*args, **named))

    return run


def _waiting() -> tuple[str, ...]:
    """Return the tasks of the running loop and where they wait, sorted by name."""
    # Asyncio keeps them in a set: sorted, two runs give the same text.
    tasks = sorted(asyncio.all_tasks(), key=lambda task: (len(task.get_name()), task.get_name()))
    named = [_where(task) for task in tasks[:_NAMED]]
    if len(tasks) > _NAMED:
        named.append(f"and {len(tasks) - _NAMED} more")
    return tuple(named)


def _where(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    name = getattr(coroutine, "__qualname__", type(coroutine).__name__)
    frames = task.get_stack(limit=1)
    if not frames:
        return f"{task.get_name()}: {name}"
    code = frames[-1].f_code
    return f"{task.get_name()}: {name}, at {code.co_filename}:{frames[-1].f_lineno}"
