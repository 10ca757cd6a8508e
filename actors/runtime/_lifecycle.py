"""The life cycle of workers: start, failure and restart.

A step runs at once if the worker's hooks are plain functions. It runs in a task of the worker if
they are coroutines or if children have to stop first. During a step a worker is not `RUNNING`;
its messages wait in its mailbox.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pykka import messages

from ...protocol import Message
from .._coroutines import coroutine_of
from ..pykka._inbox import adopt_identity, join_inbox
from ._closing import cancel_timers
from ._failures import contained, is_fatal, log_ended, log_failure, spread, task_error
from ._mailbox import is_envelope
from ._policy import OnFailure
from ._restart_wait import RestartWait
from ._state import BUSY, RUNNING
from ._stopping import Stop, stop, stop_children, stop_slowly
from ._thread import OwnThread

if TYPE_CHECKING:
    from ._cell import Cell, Factory
    from ._host import HostedActor


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
        spread(cell, error)


# --- failure --------------------------------------------------------------------------


def fail(cell: Cell, error: BaseException) -> None:
    """Restart, stop or escalate, by the worker's policy."""
    policy = cell.supervision.on_failure
    if cell.deadline is not None:
        policy = OnFailure.STOP  # it is being stopped already
    factory = cell.factory
    if policy is OnFailure.RESTART and factory is not None and _may_restart(cell):
        log_failure(cell, error, "failed and is restarted")
        cancel_timers(cell)
        if cell.supervision.backoff is None:
            work = _restart(cell, factory, error)
            cell.suspend(work, partial(contained, _restart_done, cell))
        else:
            last = stop_slowly(cell, error, hook=True)
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
    log_ended(cell, error)
    stop(cell)
    spread(cell, error)


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
    await stop_slowly(cell, error, hook=True)
    await _begin_anew(cell, factory)


async def _begin_anew(cell: Cell, factory: Factory) -> None:
    # What the failed instance has begun since it failed must not outlive it.
    if cell.children:
        await stop_children(cell)
    cancel_timers(cell)
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
