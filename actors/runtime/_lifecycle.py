"""The life cycle of workers: start, failure, restart and stop.

A step runs at once if the worker's hooks are plain functions. It runs in a task of the worker if
they are coroutines or if children have to stop first. During a step a worker is not `RUNNING`;
its messages wait in its mailbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pykka
from pykka import messages

from ...protocol import Message, WorkerStopped
from .._coroutines import coroutine_of
from ..pykka._inbox import adopt_identity, join_inbox, mark_stopped
from . import _room_elsewhere as room_elsewhere
from ._mailbox import is_envelope
from ._policy import OnFailure
from ._restart_wait import RestartWait
from ._state import BUSY, NEW, RUNNING, STOPPED, STOPPING
from ._thread import OwnThread

if TYPE_CHECKING:
    from ._cell import Cell, Factory
    from ._host import HostedActor

logger = logging.getLogger("onward.actors")
_pykka_logger = logging.getLogger("pykka")


class _Gone:
    """The place holder for the instance of a worker that has stopped; see `HostedActor`.

    Args:
        kind: The name of the worker's class.
    """

    __slots__ = ("kind",)

    leaves_node: Final = False
    is_connection: Final = False
    has_flows: Final = False

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def stop(self) -> None:
        """Ignore the request, as the worker has stopped."""

    def _inside_shrunk(self, size: int) -> None:
        """Ignore the messages that came over a link which has ended."""


def kind_of(cell: Cell) -> str:
    """Return the name of the class of a worker, also of one that has stopped."""
    worker = cell.worker
    return worker.kind if isinstance(worker, _Gone) else type(worker).__name__


# --- start ----------------------------------------------------------------------------


def bind(cell: Cell, worker: HostedActor) -> None:
    """Attach a worker's instance to its cell."""
    cell.worker = worker
    cell.handle = None
    if worker._needs_thread and cell.thread is None:
        cell.thread = OwnThread(str(cell))
    cell.host.join(cell, worker)


def bound_handler(cell: Cell) -> Callable[[Message], object]:
    """Return the function that handles each message of the worker."""
    handler: Callable[[Message], object] = cell.worker.handle_message
    if cell.thread is not None:
        handler = partial(cell.thread.run, handler)
    instruments = cell.run_queue.instruments
    if instruments is not None and instruments.handles:
        return instruments.watched(cell.worker, handler)
    return handler


def start(cell: Cell) -> None:
    """Call `on_start`; the worker handles messages when that is done."""
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
    finally:  # a worker that did not start must not remain on the table
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
            # Programs that use Pykka expect this text from this logger.
            _pykka_logger.error(
                "Unhandled exception in %s:",
                cell.worker,
                exc_info=error,
                extra={"event": "worker.failed"},
            )
        else:
            logger.error("%s %s", cell, what, exc_info=error, extra={"event": "worker.failed"})
    except Exception as fault:  # noqa: BLE001 - handlers of `logging` are the user's
        cell.run_queue.fault("logging the failure of a worker", fault)


def log_returned(cell: Cell, error: BaseException) -> None:
    """Log a failure that is returned to the caller."""
    _pykka_logger.info(
        "Exception returned from %s to caller:",
        cell.worker,
        exc_info=error,
        extra={"event": "worker.exception_returned"},
    )


def fail(cell: Cell, error: BaseException) -> None:
    """Restart, stop or escalate, by the worker's policy."""
    policy = cell.supervision.on_failure
    if cell.deadline is not None:
        policy = OnFailure.STOP  # it is being stopped already
    factory = cell.factory
    if policy is OnFailure.RESTART and factory is not None and _may_restart(cell):
        log_failure(cell, error, "failed and is restarted")
        _cancel_timers(cell)
        if cell.supervision.backoff is None:
            work = _restart(cell, factory, error)
            cell.suspend(work, partial(contained, _restart_done, cell))
        else:
            last = _stop_slowly(cell, error, hook=True)
            cell.suspend(last, partial(contained, _wait_to_restart, cell))
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
        _pykka_logger.debug(
            "%r in %s. Stopping all actors.",
            error,
            cell.worker,
            extra={"event": "worker.ended_all"},
        )
    else:
        logger.error("%s ends with %r", cell, error, extra={"event": "worker.ended"})
    stop(cell)
    _spread(cell, error)


def _spread(cell: Cell, error: BaseException) -> None:
    if cell.registered:
        # Pykka's own actors block here until all others have stopped; the loop must not block.
        pykka.ActorRegistry.stop_all(block=False)
    else:
        # Raised from a separate callback, so that no turn is left half done. If a task has
        # raised it already, the loop is ending and does not run the callback.
        cell.run_queue.loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error


class ChildFailed:
    """The failure of a child, in the queue of its parent."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def perform(self, cell: Cell) -> None:
        """Apply the parent's policy to the failure."""
        cell.raised(self._error)


# --- restart --------------------------------------------------------------------------


def _may_restart(cell: Cell) -> bool:
    now = cell.run_queue.loop.time()
    if cell.failures is None:
        cell.failures = deque()
    failures = cell.failures
    while failures and failures[0] <= now - cell.supervision.within:
        failures.popleft()
    failures.append(now)
    return len(failures) <= cell.supervision.max_restarts


def _wait_to_restart(cell: Cell, task: asyncio.Task[Any]) -> None:
    """Begin the wait before a restart, when the failed instance has ended."""
    if not cell.resumed(task):
        return
    backoff, factory, error = cell.supervision.backoff, cell.factory, task_error(task)
    if backoff is None or factory is None:
        raise AssertionError("unexpected wait for a restart")
    if error is not None:
        _restart_failed(cell, error)
        return
    cell.state = BUSY
    if cell.restart_wait is None:
        cell.restart_wait = RestartWait(cell, backoff, partial(_restart_now, cell, factory))
    if cell.deadline is None:
        cell.restart_wait.begin()
        stop_waiting(cell)  # a request to stop may have come before the wait
    else:  # it is being stopped: its messages are handled first
        _restart_now(cell, factory)


def stop_waiting(cell: Cell) -> None:
    """End the wait before a restart if the worker has been requested to stop.

    The messages before the request are handled first; without any, no instance is made.
    """
    wait = cell.restart_wait
    if wait is None or not wait.is_waiting:
        return
    asked = [_is_stop(item) for item in list(cell.queue or ())]
    if any(asked):
        if asked[0]:
            stop(cell, hook=False)
        else:
            wait.end()


def _is_stop(item: object) -> bool:
    if is_envelope(item):
        return isinstance(item.message, messages._ActorStop)
    return type(item) is Stop


def _restart_now(cell: Cell, factory: Factory) -> None:
    cell.suspend(_begin_anew(cell, factory), partial(contained, _restart_done, cell))


async def _restart(cell: Cell, factory: Factory, error: BaseException) -> None:
    await _stop_slowly(cell, error, hook=True)
    await _begin_anew(cell, factory)


async def _begin_anew(cell: Cell, factory: Factory) -> None:
    # What the failed instance has begun since it failed must not outlive it.
    if cell.children:
        await _stop_children(cell)
    _cancel_timers(cell)
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
        _restart_failed(cell, error)
        return
    cell.restarts += 1
    cell.look_again()


def _restart_failed(cell: Cell, error: BaseException) -> None:
    cell.failed += 1
    try:
        cell.settle(error)
    finally:
        fail(cell, error)


# --- stop -----------------------------------------------------------------------------


class Stop:
    """A request to stop, queued among the messages."""

    __slots__ = ()

    def perform(self, cell: Cell) -> None:
        """Stop the worker."""
        stop(cell)


def stop(cell: Cell, error: BaseException | None = None, *, hook: bool = True) -> None:
    """Stop a worker that has no message in hand.

    Args:
        cell: The cell of the worker.
        error: The failure that is the cause; with it `on_failure` is called, not `on_stop`.
        hook: Whether `on_stop` or `on_failure` is called.
    """
    cell.state = STOPPING
    try:
        work = _begin_stop(cell, error, hook=hook)
    except Exception as fault:  # noqa: BLE001 - or the worker would stay on the table
        cell.run_queue.fault("stopping a worker", fault)
        work = None
    if work is None:
        close(cell)
    else:
        cell.suspend(work, partial(contained, _stop_done, cell))
        cell.state = STOPPING


def _begin_stop(
    cell: Cell, error: BaseException | None, *, hook: bool
) -> Coroutine[Any, Any, None] | None:
    """Begin to stop a worker; return the coroutine that completes it, if one is needed."""
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
    now = cell.run_queue.loop.time()
    left = (cell.deadline - now) / 2 if cell.deadline else cell.run_queue.limits.stop_timeout
    await stop_in_order(reversed(list(cell.children or ())), now + left)


def _last_words(cell: Cell, error: BaseException | None) -> Coroutine[Any, Any, object] | None:
    """Call `on_stop` or `on_failure`; return its coroutine, if it is one."""
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
    """Remove a worker from the table and dead-letter its queue."""
    if cell.state == STOPPED:
        return
    cell.state = STOPPED
    for step in _CLOSING:
        try:
            step(cell)
        except Exception as error:  # noqa: BLE001 - the other steps must run too
            cell.run_queue.fault("closing a worker", error)


def _leave_task(cell: Cell) -> None:
    if cell.task is not None:
        cell.task = None
        if cell.run_queue.instruments is not None:
            cell.run_queue.instruments.worker_resumed(cell.worker)


def _lose_in_hand(cell: Cell) -> None:
    message, cell.in_hand = cell.in_hand, None
    if message is not None:
        cell.mishandled(message, None)


def _close_children(cell: Cell) -> None:
    for child in list(cell.children or ()):
        # Its stop was interrupted; it must not outlive its parent.
        cell.host.abandon()
        close(child)


def _leave_node(cell: Cell) -> None:
    if cell.parent is not None and cell.parent.children is not None:
        cell.parent.children.pop(cell, None)
    cell.host.forget(cell)


def _give_up_waiting(cell: Cell) -> None:
    """Drop the worker's messages that wait for room in other mailboxes."""
    room_elsewhere.wait_no_more(cell)


def _flush(cell: Cell) -> None:
    """Answer or dead-letter the items left in the mailbox."""
    cell.flush()


def _serve_lines(cell: Cell) -> None:
    """Refuse the messages that wait for room in the mailbox."""
    cell.serve_lines()


def _leave_thread(cell: Cell) -> None:
    cell.handle = None
    if cell.thread is not None:
        cell.thread.quit()


def _release_waiting(cell: Cell) -> None:
    """Resolve the futures for the worker's start and stop."""
    started, done = cell.started, cell.done
    if started is not None and not started.done():
        started.set_exception(WorkerStopped(cell.address))
    if done is not None and not done.done():
        done.set_result(None)


def _release_instance(cell: Cell) -> None:
    """Release the worker's instance.

    The two refer to each other; without this they would wait for the cycle collector.
    """
    cell.factory = None
    cell.worker = _Gone(kind_of(cell))


def contained(
    done: Callable[[Cell, asyncio.Task[Any]], object], cell: Cell, task: asyncio.Task[Any]
) -> None:
    """Call the callback of a worker's task; recover the worker from any exception of it."""
    try:
        done(cell, task)
    except BaseException as error:
        cell.recover(error)
        if not isinstance(error, Exception):
            raise


def _cancel_timers(cell: Cell) -> None:
    if cell.restart_wait is not None:
        cell.restart_wait.cancel()
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
    _release_instance,
)
"""The steps that close a worker, in order. No step depends on an earlier one."""


async def stop_in_order(stopping: Iterable[Cell], deadline: float) -> None:
    """Stop workers one after the other, without handling the messages left in their mailboxes."""
    for number, cell in enumerate(stopping):
        await stop_within(cell, deadline, drain=False)
        if number % 1000 == 999:
            await asyncio.sleep(0)


async def stop_within(cell: Cell, deadline: float, *, drain: bool) -> None:
    """Stop a worker, by force if it does not stop in time.

    A worker has half of the time that is left. Then its task is cancelled, and it has half of
    the rest. Then it is given up: removed from the table, logged and counted. So a worker that
    hangs leaves time for the others.

    Args:
        cell: The cell of the worker.
        deadline: The time by which it must have stopped, on the loop's clock.
        drain: Whether its waiting messages are handled first.
    """
    if cell.state == STOPPED:
        return
    cell.deadline = deadline
    wait = cell.restart_wait
    if wait is not None and wait.is_waiting and not (drain and cell.queue):
        stop(cell, hook=False)  # there is no instance to be told
    elif wait is not None and wait.is_waiting:
        cell.post(Stop())
        wait.end()
    elif cell.state == NEW and not drain:
        stop(cell, hook=False)
    elif cell.state == RUNNING and not (drain and cell.queue):
        cell.scheduled = True
        stop(cell)
    elif cell.state != STOPPING:
        cell.post(Stop(), first=not drain)
        if not drain:
            room_elsewhere.wait_no_more(cell)
    if await _stopped_in_half(cell, deadline):
        return
    logger.warning(
        "%s does not stop in time and is cancelled", cell, extra={"event": "worker.stop_timeout"}
    )
    if cell.state != STOPPING:
        cell.post(Stop(), first=True)
    room_elsewhere.wait_no_more(cell)
    if cell.task is not None:
        cell.task.cancel()
    if await _stopped_in_half(cell, deadline):
        return
    logger.error("%s cannot be stopped and is given up", cell, extra={"event": "worker.given_up"})
    cell.host.abandon()
    close(cell)


async def _stopped_in_half(cell: Cell, deadline: float) -> bool:
    # Other tasks change the state of the cell; the first check saves a task switch.
    if cell.state != STOPPED:
        left = max(0.0, deadline - cell.run_queue.loop.time())
        await asyncio.wait([cell.when_done()], timeout=left / 2)
    return cell.state == STOPPED


def task_error(task: asyncio.Task[Any]) -> BaseException | None:
    """Return the exception of a task; a cancelled handler fails its one message."""
    if task.cancelled():
        return asyncio.CancelledError("the handler was cancelled")
    return task.exception()


def is_fatal(error: BaseException) -> bool:
    """Whether an error is meant for the whole program."""
    return not isinstance(error, Exception | asyncio.CancelledError)
