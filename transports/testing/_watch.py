"""A case on a thread of its own, and a watch for a blocked event loop."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from ._stage import expect

__all__ = ["MAX_BLOCKED", "run_watched"]

MAX_BLOCKED: Final = 1.0
"""The maximum duration of one step of an event loop, in seconds."""

_LOOK: Final = 0.05  # seconds between two checks
_LATE: Final = 2 * _LOOK  # a later check is ignored: the machine is busy
_STANDARD: Final = tuple(sysconfig.get_path(each) for each in ("stdlib", "platstdlib"))


def run_watched(
    main: Callable[[], Coroutine[Any, Any, None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    patience: float,
) -> None:
    """Run a coroutine on its own event loop, and check that nothing blocks the loop.

    Args:
        main: The coroutine function.
        loop_factory: The factory of the event loop.
        patience: The seconds to wait for a blocked loop, after which its thread is abandoned.

    Raises:
        AssertionError: A step took longer than `MAX_BLOCKED`; the text names the place.
        BaseException: The coroutine raised it.
    """
    run = _Run(main, loop_factory)
    thread = threading.Thread(target=run.run, name="conformance", daemon=True)
    thread.start()
    where = ""
    waited = 0.0
    while not run.over.is_set():
        blocked = _look(run, thread)
        where = where or blocked
        waited = waited + _LOOK if blocked else 0.0
        expect(waited < patience, f"the event loop is blocked for good, {where}")
    thread.join()
    expect(not where, f"the event loop was blocked for {MAX_BLOCKED:g} s, {where}")
    if run.error is not None:
        raise run.error


class _Run:
    """The run of a coroutine on the thread."""

    def __init__(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        loop_factory: Callable[[], asyncio.AbstractEventLoop],
    ) -> None:
        self._main = main
        self._loop_factory = loop_factory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answered = True
        self.missed = 0  # checks since the loop was asked and has not answered
        self.over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run the coroutine, and store its exception."""
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                self._loop = runner.get_loop()
                runner.run(self._main())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self.error = error
        finally:
            self.over.set()

    def ask(self) -> None:
        """Ask the loop for a sign of life, unless it has been asked."""
        loop = self._loop
        if self._answered and loop is not None:
            self.missed = 0
            self._answered = False
            with suppress(RuntimeError):  # closed meanwhile
                loop.call_soon_threadsafe(self._answer)
        else:
            self.missed += 1

    def _answer(self) -> None:
        self._answered = True


def _look(run: _Run, thread: threading.Thread) -> str:
    """Wait for the next check; return the place where the loop is blocked, or ""."""
    began = time.monotonic()
    if run.over.wait(_LOOK) or time.monotonic() - began > _LATE:
        return ""
    run.ask()
    if run.missed * _LOOK < MAX_BLOCKED:
        return ""
    frame = sys._current_frames().get(thread.ident or 0)
    stack = traceback.extract_stack(frame)
    own = [each for each in stack if not each.filename.startswith(_STANDARD)]
    last = own[-1] if own else stack[-1]
    return f"in {last.name} at {last.filename}:{last.lineno}"
