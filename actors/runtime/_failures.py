"""The failures of workers: what is logged, and what ends more than the worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pykka

if TYPE_CHECKING:
    from ._cell import Cell

logger: Final = logging.getLogger("onward.actors")
_pykka_logger: Final = logging.getLogger("pykka")


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


def log_ended(cell: Cell, error: BaseException) -> None:
    """Log an error of a worker that is meant for the whole program."""
    if cell.registered:
        _pykka_logger.debug(
            "%r in %s. Stopping all actors.",
            error,
            cell.worker,
            extra={"event": "worker.ended_all"},
        )
    else:
        logger.error("%s ends with %r", cell, error, extra={"event": "worker.ended"})


def spread(cell: Cell, error: BaseException) -> None:
    """End the program, or all actors of Pykka, by an error that is meant for it."""
    if cell.registered:
        # Pykka's own actors block here until all others have stopped; the loop must not block.
        pykka.ActorRegistry.stop_all(block=False)
    else:
        # Raised from a separate callback, so that no turn is left half done. If a task has
        # raised it already, the loop is ending and does not run the callback.
        cell.run_queue.loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error


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


def task_error(task: asyncio.Task[Any]) -> BaseException | None:
    """Return the exception of a task; a cancelled handler fails its one message."""
    if task.cancelled():
        return asyncio.CancelledError("the handler was cancelled")
    return task.exception()


def is_fatal(error: BaseException) -> bool:
    """Whether an error is meant for the whole program."""
    return not isinstance(error, Exception | asyncio.CancelledError)
