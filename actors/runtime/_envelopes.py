"""The messages of Pykka's `tell` and `ask` in the turns of a worker."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka
from pykka import messages
from pykka._envelope import Envelope

from . import _failures as failures, _stopping as stopping
from ._state import RUNNING

if TYPE_CHECKING:
    from ._cell import Cell

__all__ = ["receive"]


def receive(cell: Cell, envelope: Envelope[Any]) -> None:
    """Handle a message of `tell` or `ask`, and answer it."""
    message, future = envelope.message, envelope.reply_to
    if isinstance(message, messages._ActorStop):
        # It stays in the queue and is answered when the worker has stopped.
        cell.post(envelope, first=True)
        stopping.stop(cell)
        return
    cell.handled += 1
    try:
        result = cell.call(cell.worker._handle_receive, message)
        done = partial(_done, future=future)
        if cell.suspend(result, partial(failures.contained, done, cell)):
            return
    except BaseException as error:
        if future is None:
            raise
        _answer_error(cell, future, error)
        if failures.is_fatal(error):
            raise
    else:
        if future is not None:
            future.set(result)


def _done(cell: Cell, task: asyncio.Task[Any], future: pykka.Future[Any] | None) -> None:
    alive = cell.resumed(task)
    error = failures.task_error(task)
    if error is None:
        if future is not None:
            future.set(task.result())
    elif future is not None:
        _answer_error(cell, future, error)
    if alive:
        if error is not None and (future is None or failures.is_fatal(error)):
            cell.raised(error)
        if cell.state == RUNNING:
            cell.turn()


def _answer_error(cell: Cell, future: pykka.Future[Any], error: BaseException) -> None:
    cell.settle(error)  # the caller did not send the message that was lost
    future.set_exception((type(error), error, error.__traceback__))
    if not failures.is_fatal(error):
        cell.failed += 1
        failures.log_returned(cell, error)
