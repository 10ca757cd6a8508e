"""How workers start, fail, restart and stop.

Each step is taken at once where user code is plain functions, and in a task of the worker
where it is coroutines or where children have to stop first. A worker in such a step is
not `RUNNING` and so takes no messages; they wait in its mailbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pykka

from ...protocol import Message, WorkerStopped
from ..pykka._inbox import adopt_identity, join_inbox, mark_stopped
from ._policy import OnFailure
from ._state import BUSY, NEW, RUNNING, STOPPED, STOPPING
from ._thread import OwnThread, coroutine_of

if TYPE_CHECKING:
    from .._worker import Worker
    from ._cell import Cell, Factory

logger = logging.getLogger("onward.actors")
_pykka_logger = logging.getLogger("pykka")


# --- start ----------------------------------------------------------------------------


def bind(cell: Cell, worker: Worker) -> None:
    """Join a worker's instance to its cell."""
    cell.worker = worker
    cell.handle = None
    if worker._needs_thread and cell.thread is None:
        cell.thread = OwnThread(str(cell))
    worker._join(cell)


def bound_handler(cell: Cell) -> Callable[[Message], object]:
    """Return what is called with each message of the worker."""
    handler = cell.worker.handle_message
    return handler if cell.thread is None else partial(cell.thread.run, handler)


def start(cell: Cell) -> None:
    """Call `on_start`; the worker takes messages when that is done."""
    cell.state = BUSY
    try:
        work = coroutine_of(cell.call(cell.worker.on_start))
    except BaseException as error:  # noqa: BLE001 - user code
        _start_failed(cell, error)
        return
    if work is None:
        _start_succeeded(cell)
    else:
        cell.suspend(work, partial(contained, _start_done, cell))


def _start_done(cell: Cell, task: asyncio.Task[Any]) -> None:
    if not cell.resumed(task):
        return
    error = task_error(task)
    if error is not None:
        _start_failed(cell, error)
        return
    _start_succeeded(cell)


def _start_succeeded(cell: Cell) -> None:
    cell.state = RUNNING
    if cell.started is not None and not cell.started.done():
        cell.started.set_result(None)
    cell.look_again()


def _start_failed(cell: Cell, error: BaseException) -> None:
    cell.failed += 1
    try:
        cell.settle(error)
    finally:  # one that did not start must never be taken for one that runs
        if cell.started is not None and not cell.started.done():
            cell.started.set_exception(error)
        else:
            log_failure(cell, error, "did not start")
        stop(cell, error, hook=False)
    if is_fatal(error):
        _spread(cell, error)


# --- failure --------------------------------------------------------------------------


def log_failure(cell: Cell, error: BaseException, what: str = "failed") -> None:
    """Log a failure of a worker with its traceback."""
    try:
        if cell.registered:
            # Users of Pykka look for these words of this logger.
            _pykka_logger.error("Unhandled exception in %s:", cell.worker, exc_info=error)
        else:
            logger.error("%s %s", cell, what, exc_info=error)
    except Exception as fault:  # noqa: BLE001 - handlers of `logging` are the user's
        cell.node.fault("logging the failure of a worker", fault)


def log_returned(cell: Cell, error: BaseException) -> None:
    """Log a failure that the caller gets as the answer."""
    _pykka_logger.info("Exception returned from %s to caller:", cell.worker, exc_info=error)


def fail(cell: Cell, error: BaseException) -> None:
    """Restart, stop or escalate, as the worker's policy says."""
    policy = cell.supervision.on_failure
    if cell.deadline is not None:
        policy = OnFailure.STOP  # it is stopping anyway
    factory = cell.factory
    if policy is OnFailure.RESTART and factory is not None and _may_restart(cell):
        log_failure(cell, error, "failed and is restarted")
        _cancel_timers(cell)
        work = _restart(cell, factory, error)
        cell.suspend(work, partial(contained, _restart_done, cell))
    elif policy is OnFailure.STOP:
        log_failure(cell, error, "failed and is stopped")
        stop(cell, error)
    elif cell.parent is None:
        log_failure(cell, error, "failed and is stopped; it has no parent that could take over")
        stop(cell, error)
    else:
        log_failure(cell, error, "failed and is stopped; its parent takes over")
        cell.parent.post(ChildFailed(error), first=True)
        stop(cell, error)


def fatal(cell: Cell, error: BaseException) -> None:
    """Stop a worker for an error that is meant for the whole program."""
    if cell.registered:
        _pykka_logger.debug("%r in %s. Stopping all actors.", error, cell.worker)
    else:
        logger.error("%s ends with %r", cell, error)
    stop(cell)
    _spread(cell, error)


def _spread(cell: Cell, error: BaseException) -> None:
    if cell.registered:
        # Pykka's own actors wait here for all others, which on one loop would be for ever.
        pykka.ActorRegistry.stop_all(block=False)
    else:
        # Out of the loop from a callback of its own, so that no turn is left half done. A
        # task has let it out already: then this finds a loop that is ending.
        cell.node.loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error


class ChildFailed:
    """The failure of a child, handled as the parent's own."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def perform(self, cell: Cell) -> None:
        """Apply the parent's policy."""
        cell.raised(self._error)


# --- restart --------------------------------------------------------------------------


def _may_restart(cell: Cell) -> bool:
    now = cell.node.loop.time()
    if cell.failures is None:
        cell.failures = deque()
    failures = cell.failures
    while failures and failures[0] <= now - cell.supervision.within:
        failures.popleft()
    failures.append(now)
    return len(failures) <= cell.supervision.max_restarts


async def _restart(cell: Cell, factory: Factory, error: BaseException) -> None:
    await _stop_slowly(cell, error, hook=True)
    old, worker = cell.worker, factory()
    adopt_identity(old, worker)
    bind(cell, worker)
    join_inbox(worker, cell)
    started = coroutine_of(cell.call(worker.on_start))
    if started is not None:
        await started


def _restart_done(cell: Cell, task: asyncio.Task[Any]) -> None:
    if not cell.resumed(task):
        return
    error = task_error(task)
    if error is not None:
        cell.failed += 1
        try:
            cell.settle(error)
        finally:
            fail(cell, error)
        return
    cell.restarts += 1
    cell.look_again()


# --- stop -----------------------------------------------------------------------------


class Stop:
    """The request to stop, in its place among the messages."""

    __slots__ = ()

    def perform(self, cell: Cell) -> None:
        """Stop the worker."""
        stop(cell)


def stop(cell: Cell, error: BaseException | None = None, *, hook: bool = True) -> None:
    """Stop a worker that has nothing in hand.

    Args:
        cell: Whose worker.
        error: The failure that is the cause: then `on_failure` is called, not `on_stop`.
        hook: Whether either is called at all.
    """
    cell.state = STOPPING
    try:
        work = _begin_stop(cell, error, hook=hook)
    except Exception as fault:  # noqa: BLE001 - or it would never be off the table
        cell.node.fault("stopping a worker", fault)
        work = None
    if work is None:
        close(cell)
    else:
        cell.suspend(work, partial(contained, _stop_done, cell))
        cell.state = STOPPING


def _begin_stop(
    cell: Cell, error: BaseException | None, *, hook: bool
) -> Coroutine[Any, Any, None] | None:
    """Begin to stop a worker; return what is left to await."""
    _cancel_timers(cell)
    mark_stopped(cell)
    if cell.children:
        return _stop_slowly(cell, error, hook=hook)
    result = _last_words(cell, error) if hook else None
    return None if result is None else _finish(cell, result)


def _stop_done(cell: Cell, task: asyncio.Task[Any]) -> None:
    if cell.resumed(task):
        error = task_error(task)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            _last_words_failed(cell, error)
        close(cell)


async def _stop_slowly(cell: Cell, error: BaseException | None, *, hook: bool) -> None:
    if cell.children:
        await _stop_children(cell)
    result = _last_words(cell, error) if hook else None
    if result is not None:
        await _finish(cell, result)


async def _stop_children(cell: Cell) -> None:
    now = cell.node.loop.time()
    left = (cell.deadline - now) / 2 if cell.deadline else cell.node.limits.stop_timeout
    await stop_in_order(reversed(list(cell.children or ())), now + left)


def _last_words(cell: Cell, error: BaseException | None) -> Coroutine[Any, Any, object] | None:
    """Call `on_stop` or `on_failure`; return what is left to await."""
    worker = cell.worker
    try:
        if error is None:
            result = cell.call(worker.on_stop)
        else:
            result = cell.call(worker.on_failure, type(error), error, error.__traceback__)
    except BaseException as failure:  # noqa: BLE001 - user code
        _last_words_failed(cell, failure)
        return None
    return coroutine_of(result)


async def _finish(cell: Cell, last_words: Coroutine[Any, Any, object]) -> None:
    try:
        await last_words
    except Exception as failure:  # noqa: BLE001 - user code
        _last_words_failed(cell, failure)


def _last_words_failed(cell: Cell, failure: BaseException) -> None:
    cell.failed += 1
    cell.settle(failure)
    log_failure(cell, failure, "failed to stop")
    if is_fatal(failure):
        _spread(cell, failure)


def close(cell: Cell) -> None:
    """Take a worker off the table; what waits becomes dead letters."""
    if cell.state == STOPPED:
        return
    cell.state = STOPPED
    for step in _CLOSING:
        try:
            step(cell)
        except Exception as error:  # noqa: BLE001 - the steps after it are for others
            cell.node.fault("closing a worker", error)


def _leave_task(cell: Cell) -> None:
    if cell.task is not None:
        cell.task = None
        if cell.node.observer is not None:
            cell.node.observer.resumed(cell)


def _lose_in_hand(cell: Cell) -> None:
    message, cell.in_hand = cell.in_hand, None
    if message is not None:
        cell.mishandled(message, None)


def _close_children(cell: Cell) -> None:
    for child in list(cell.children or ()):
        # Its stop was cut short; it must not outlive its parent.
        cell.node.dead_letters.abandoned += 1
        close(child)


def _leave_node(cell: Cell) -> None:
    if cell.parent is not None and cell.parent.children is not None:
        cell.parent.children.pop(cell, None)
    cell.node.forget(cell)


def _give_up_waiting(cell: Cell) -> None:
    """Lose what waits for room elsewhere."""
    cell.wait_no_more()


def _flush(cell: Cell) -> None:
    """Answer what is left in the mailbox."""
    cell.flush()


def _serve_lines(cell: Cell) -> None:
    """Refuse what waits for room in the mailbox."""
    cell.serve_lines()


def _leave_thread(cell: Cell) -> None:
    cell.handle = None
    if cell.thread is not None:
        cell.thread.quit()


def _release_waiting(cell: Cell) -> None:
    """Tell whoever waits for the worker to have started, or to have stopped."""
    started, done = cell.started, cell.done
    if started is not None and not started.done():
        started.set_exception(WorkerStopped(cell.address))
    if done is not None and not done.done():
        done.set_result(None)


def contained(
    done: Callable[[Cell, asyncio.Task[Any]], object], cell: Cell, task: asyncio.Task[Any]
) -> None:
    """Call what is to follow a task of a worker, and have the worker go on whatever that raises."""
    try:
        done(cell, task)
    except BaseException as error:
        cell.recover(error)
        if not isinstance(error, Exception):
            raise


def _cancel_timers(cell: Cell) -> None:
    for timer in list(cell.timers or ()):
        timer.cancel()


_CLOSING: Final[tuple[Callable[[Cell], None], ...]] = (
    _leave_task,
    _lose_in_hand,
    _close_children,
    mark_stopped,
    _cancel_timers,
    _leave_node,
    _give_up_waiting,
    _flush,
    _serve_lines,
    _leave_thread,
    _release_waiting,
)
"""What is done for a worker that has stopped, in order. None depends on one before it."""


async def stop_in_order(stopping: Iterable[Cell], deadline: float) -> None:
    """Stop workers one after the other, without handling what is left in their mailboxes."""
    for number, cell in enumerate(stopping):
        await stop_within(cell, deadline, drain=False)
        if number % 1000 == 999:
            await asyncio.sleep(0)


async def stop_within(cell: Cell, deadline: float, *, drain: bool) -> None:
    """Stop a worker, by force if it does not stop by itself.

    A worker may use half of the time that is left; then what it does is cancelled, and it
    may use half of the rest; then it is given up: off the table, reported and counted. So
    one that hangs never takes all the time from the others.

    Args:
        cell: Whose worker.
        deadline: When it has to be over, on the loop's clock.
        drain: Whether the messages waiting for it are handled first.
    """
    if cell.state == STOPPED:
        return
    cell.deadline = deadline
    if cell.state == NEW and not drain:
        stop(cell, hook=False)
    elif cell.state == RUNNING and not (drain and cell.queue):
        cell.scheduled = True
        stop(cell)
    elif cell.state != STOPPING:
        cell.post(Stop(), first=not drain)
        if not drain:
            cell.wait_no_more()
    if await _stopped_in_half(cell, deadline):
        return
    logger.warning("%s does not stop in time and is cancelled", cell)
    if cell.state != STOPPING:
        cell.post(Stop(), first=True)
    cell.wait_no_more()
    if cell.task is not None:
        cell.task.cancel()
    if await _stopped_in_half(cell, deadline):
        return
    logger.error("%s cannot be stopped and is given up", cell)
    cell.node.dead_letters.abandoned += 1
    close(cell)


async def _stopped_in_half(cell: Cell, deadline: float) -> bool:
    # A property of the cell that other tasks change; the early way out saves a task switch.
    if cell.state != STOPPED:
        left = max(0.0, deadline - cell.node.loop.time())
        await asyncio.wait([cell.when_done()], timeout=left / 2)
    return cell.state == STOPPED


def task_error(task: asyncio.Task[Any]) -> BaseException | None:
    """Return what a task raised; cancelling a handler fails that one message."""
    if task.cancelled():
        return asyncio.CancelledError("the handler was cancelled")
    return task.exception()


def is_fatal(error: BaseException) -> bool:
    """Tell whether an error is meant for the whole program."""
    return not isinstance(error, Exception | asyncio.CancelledError)
