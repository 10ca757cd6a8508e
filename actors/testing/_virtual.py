"""An event loop whose clock jumps to the next timer as soon as nothing else is to do.

An hour of a test's timers takes a millisecond, and two timers never race, as no time passes
while code runs. A wait that nothing can end is an error at once, not a test that hangs.
"""

from __future__ import annotations

import asyncio
import functools
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
"""What the clock of a virtual loop shows at first, in seconds."""

MAX_VIRTUAL_TIME: Final = 10_000_000.0
"""Longest that a virtual loop runs unless it is told otherwise, in virtual seconds: 115 days.
Then it raises `Deadlock`: something goes off again and again, and nothing comes of it."""

MAX_PASSES: Final = 1_000_000
"""Most passes of a virtual loop between two steps of its clock. Then it raises `Deadlock`: what it
does never comes to an end, and no timer gets its turn."""

_NAMED: Final = 20  # tasks that an error names

_NO_THREADS: Final = (
    "a virtual loop is for code on one thread: its clock would not wait for another; "
    "use a real loop where there are threads"
)


class Deadlock(OnwardError):
    """Everything waits, and nothing that could end it will happen.

    Attributes:
        why: What was found.
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
    """A selector that lets the clock jump where the real one would sleep."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock
        self._passes = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        self._passes += 1
        if self._passes > MAX_PASSES:
            self._passes = 0  # for what cleans up
            raise Deadlock(f"{MAX_PASSES:,} passes, and there is always more to do", _waiting())
        if ready or timeout == 0:
            return ready
        self._passes = 0
        if timeout is None:
            raise Deadlock("everything waits, and no timer is set", _waiting())
        self._clock.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock of its own, in seconds; it starts at `EPOCH`.

    Only for code on one thread: what another thread, a process or the network does takes no
    time here, and so comes too late or not at all. Executors, `asyncio.to_thread`, look-ups of
    host names and `ThreadWorker` raise `RuntimeError` on it.

    Args:
        max_time: How long it may run, in virtual seconds; then `Deadlock` is raised out of it.

    Attributes:
        no_threads: What workers raise that would use a thread.
    """

    no_threads: ClassVar[str] = _NO_THREADS

    def __init__(self, max_time: float = MAX_VIRTUAL_TIME) -> None:
        self._virtual_clock = _Clock(max_time)
        super().__init__(_VirtualSelector(self._virtual_clock))

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._virtual_clock.now

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> Any:
        """Refuse.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(_NO_THREADS)


def run_virtual(main: Coroutine[Any, Any, T], *, max_time: float = MAX_VIRTUAL_TIME) -> T:
    """Run a coroutine on a virtual loop.

    Args:
        main: What to run.
        max_time: How long it may take, in virtual seconds.

    Raises:
        Deadlock: It waits for something that cannot happen, or for longer than it may.
    """
    with asyncio.Runner(loop_factory=functools.partial(VirtualLoop, max_time)) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a coroutine function a plain one that runs on a virtual loop: a test.

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
    """Name the tasks of the running loop and where they wait, in the order of their names."""
    # Asyncio keeps them in a set: sorted, two runs say the same.
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
