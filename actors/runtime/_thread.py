"""The thread of a `ThreadWorker`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from .._coroutines import is_coroutine

if TYPE_CHECKING:
    from ._mailbox import Mailbox

__all__ = ["OwnThread"]

_Job: TypeAlias = (
    "tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, asyncio.Future[Any]]"
)


class OwnThread:
    """A thread that runs a worker's code, one call at a time, and may block.

    The worker's cell awaits each call before it makes the next, so the queue of calls
    never holds more than one call and the request to quit.

    Args:
        name: Name of the thread.

    Attributes:
        calls: Number of calls made so far.
        kept: Number of the call that made the last message that a link keeps.
        stop_waiting: Function that ends its wait for room in a mailbox, if it waits.
        waits_for: The mailbox in which a link's message waits for room, and the thread with it.
        ending: Whether it may no longer wait for room.

    The attributes are for the thread of the node's loop.

    Raises:
        RuntimeError: The running event loop has an attribute `no_threads`, with this text,
            because threads do not share its clock.
    """

    def __init__(self, name: str) -> None:
        no_threads = _no_threads()
        if no_threads is not None:
            raise RuntimeError(no_threads)
        self.calls = 0
        self.kept = 0
        self.stop_waiting: Callable[[], object] | None = None
        self.waits_for: Mailbox | None = None
        self.ending = False
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # A daemon: a handler that hangs must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Whether the calling code runs on this thread."""
        return threading.current_thread() is self._thread

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on the thread; if it returns a coroutine, run that there too.

        Cancelling this does not interrupt the function, as a thread cannot be interrupted.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self.calls += 1
        self._jobs.put((function, args, loop, answer))
        return await answer

    def quit(self) -> None:
        """End the thread after its current call."""
        self._jobs.put(None)

    def _run(self) -> None:
        # The runner makes its event loop on first use; most such workers have no coroutines.
        runner = asyncio.Runner()
        while (job := self._jobs.get()) is not None:
            function, args, loop, answer = job
            value: Any = None
            error: BaseException | None = None
            try:
                value = function(*args)
                if is_coroutine(value):
                    value = runner.run(value)
            except BaseException as raised:  # noqa: BLE001 - handed to the worker's cell
                error = raised
            with contextlib.suppress(RuntimeError):  # the node's loop is closed
                loop.call_soon_threadsafe(_settle, answer, value, error)
            del job, function, args, value, error
        runner.close()


def _no_threads() -> str | None:
    """Return why the running event loop cannot use threads, if it cannot."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # the worker is made on another thread than the loop's
        return None
    why: str | None = getattr(loop, "no_threads", None)
    return why


def _settle(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    elif isinstance(error, StopIteration):
        # A future cannot hold a `StopIteration`.
        answer.set_exception(RuntimeError(f"{error!r} from a handler"))
    else:
        answer.set_exception(error)
