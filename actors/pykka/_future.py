"""`LoopFuture`: the result of `ask`, for threads that block and coroutines that await.

Pykka's own future blocks in both cases. Here a blocking `get` on an event loop's thread
raises at once, awaiting never blocks, and `map` and similar methods are computed when the
value is set rather than inside `get`.
"""

from __future__ import annotations

import asyncio
import functools
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar, cast

import pykka

from ...protocol.options import check_timeout
from .._errors import WouldDeadlock

__all__ = ["LoopFuture", "check_may_block"]

T = TypeVar("T")
J = TypeVar("J")
M = TypeVar("M")
R = TypeVar("R")

ExcInfo: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
_Outcome: TypeAlias = tuple[Any, BaseException | None, TracebackType | None]

# One lock for all futures: it is held for a few instructions, and a lock for each future would
# cost more than the rest of it.
_lock: Final = threading.Lock()


class LoopFuture(pykka.Future[T]):
    """A future value, for threads and for coroutines."""

    def __init__(self) -> None:
        super().__init__()
        self._outcome: _Outcome | None = None
        self._callbacks: list[Callable[[], object]] | None = None

    def get(self, *, timeout: float | None = None) -> T:
        """Return the value; block until it is set.

        Args:
            timeout: Time to wait, in seconds; `None` waits for ever, 0 not at all.

        Raises:
            pykka.Timeout: The value is not set in time.
            WouldDeadlock: The value is not set and this thread runs an event loop.
            Exception: The exception that was set.
        """
        if self._get_hook is not None:
            return super().get(timeout=timeout)
        if self._outcome is None:
            if timeout is not None:
                check_timeout(timeout)
            if timeout != 0:
                check_may_block("Future.get()")
            arrived = threading.Event()
            if self._on_outcome(arrived.set) and not arrived.wait(timeout):
                raise pykka.Timeout(f"{timeout} seconds")
        return self._value()

    def set(self, value: T | None = None) -> None:
        """Set the value.

        Raises:
            queue.Full: There is a value, an exception or a get-hook already.
        """
        self._settle((value, None, None))

    def set_exception(self, exc_info: ExcInfo | None = None) -> None:
        """Set the exception that `get` and `await` raise; the current one by default.

        Raises:
            queue.Full: There is a value, an exception or a get-hook already.
        """
        kind, error, traceback = exc_info or sys.exc_info()
        if error is None:
            error = (kind or RuntimeError)()
        self._settle((None, error, traceback))

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        """Set a function that computes the value for `get`, called once with the timeout.

        Awaiting such a future runs the function on a thread of the loop's executor.

        Raises:
            queue.Full: There is a value or an exception already.
        """
        if self._outcome is not None:
            raise queue.Full
        super().set_get_hook(func)

    def filter(self: LoopFuture[Iterable[J]], func: Callable[[J], bool]) -> LoopFuture[Iterable[J]]:
        """Return a future of the items for which the function is true."""
        return self._then(lambda items: [item for item in items if func(item)])

    def join(self, *futures: pykka.Future[Any]) -> LoopFuture[Iterable[Any]]:
        """Return a future of the list of the values of this future and others."""
        sources = (self, *futures)
        joined: LoopFuture[Iterable[Any]] = LoopFuture()
        if not all(isinstance(each, LoopFuture) and not each._get_hook for each in sources):
            joined.set_get_hook(lambda timeout: [each.get(timeout=timeout) for each in sources])
            return joined
        missing = len(sources)

        def one_arrived() -> None:
            nonlocal missing
            with _lock:
                missing -= 1
                last = missing == 0
            if last:
                joined._compute(lambda: [each.get(timeout=0) for each in sources])

        for each in cast("tuple[LoopFuture[Any], ...]", sources):
            if not each._on_outcome(one_arrived):
                one_arrived()
        return joined

    def map(self, func: Callable[[T], M]) -> LoopFuture[M]:
        """Return a future of the function's result for the value."""
        return self._then(func)

    def reduce(self: LoopFuture[Iterable[J]], func: Callable[[R, J], R], *args: R) -> LoopFuture[R]:
        """Return a future of the items folded from the left."""
        return self._then(lambda items: functools.reduce(func, items, *args))

    def __await__(self) -> Generator[Any, None, T]:
        loop = asyncio.get_running_loop()
        if self._get_hook is not None:
            return (yield from loop.run_in_executor(None, self.get).__await__())
        if self._outcome is None:
            arrived: asyncio.Future[None] = loop.create_future()
            if self._on_outcome(functools.partial(_wake, loop, arrived)):
                yield from arrived
        return self._value()

    __iter__ = __await__

    def _then(self, func: Callable[[Any], Any]) -> LoopFuture[Any]:
        result: LoopFuture[Any] = LoopFuture()
        if self._get_hook is not None:
            result.set_get_hook(lambda timeout: func(self.get(timeout=timeout)))
            return result

        def arrived() -> None:
            result._compute(lambda: func(self._value()))

        if not self._on_outcome(arrived):
            arrived()
        return result

    def _compute(self, func: Callable[[], T]) -> None:
        try:
            value = func()
        except Exception:  # noqa: BLE001 - raised again by `get`
            self.set_exception()
        else:
            self.set(value)

    def _settle(self, outcome: _Outcome) -> None:
        with _lock:
            if self._outcome is not None or self._get_hook is not None:
                raise queue.Full
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def _on_outcome(self, callback: Callable[[], object]) -> bool:
        """Add a callback for the outcome; return false if there is an outcome already."""
        with _lock:
            if self._outcome is not None:
                return False
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(callback)
            return True

    def _value(self) -> T:
        if self._outcome is None:
            raise AssertionError("the outcome is not there yet")
        value, error, traceback = self._outcome
        if error is not None:
            # The traceback of an exception would get longer each time it is raised.
            raise error.with_traceback(traceback)
        return cast("T", value)


def check_may_block(call: str) -> None:
    """Check that this thread runs no event loop.

    Raises:
        WouldDeadlock: This thread runs an event loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WouldDeadlock(call)


def _wake(loop: asyncio.AbstractEventLoop, arrived: asyncio.Future[None]) -> None:
    def wake() -> None:
        if not arrived.done():
            arrived.set_result(None)

    try:
        loop.call_soon_threadsafe(wake)
    except RuntimeError:
        # The loop that waited is closed.
        return
