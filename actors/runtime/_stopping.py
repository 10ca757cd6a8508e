"""The stop of a worker: its children first, then its last words, within a time.

It runs at once if `on_stop` is a plain function and there are no children, else in a task of the
worker. A worker that does not stop in time is cancelled, and then given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from .._coroutines import coroutine_of
from ..pykka._inbox import mark_stopped
from . import _room_elsewhere as room_elsewhere
from ._closing import cancel_timers, close
from ._failures import contained, is_fatal, log_failure, logger, spread, task_error
from ._state import NEW, RUNNING, STOPPED, STOPPING

if TYPE_CHECKING:
    from ._cell import Cell


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
    cancel_timers(cell)
    mark_stopped(cell)
    if cell.children:
        return stop_slowly(cell, error, hook=hook)
    result = _last_words(cell, error) if hook else None
    return None if result is None else _finish(cell, result)


def _stop_done(cell: Cell, task: asyncio.Task[Any]) -> None:
    if cell.resumed(task):
        error = task_error(task)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            _last_words_failed(cell, error)
        close(cell)


async def stop_slowly(cell: Cell, error: BaseException | None, *, hook: bool) -> None:
    """Stop the children of a worker, and call its last hook; see `stop`."""
    if cell.children:
        await stop_children(cell)
    result = _last_words(cell, error) if hook else None
    if result is not None:
        await _finish(cell, result)


async def stop_children(cell: Cell) -> None:
    """Stop the children of a worker, the last one first, within half of its own time."""
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
        spread(cell, failure)


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
