"""The end of a worker: the steps that remove it from its node, whatever it was doing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol import WorkerStopped
from ..pykka._inbox import mark_stopped
from . import _room_elsewhere as room_elsewhere
from ._state import STOPPED

if TYPE_CHECKING:
    from ._cell import Cell


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


def cancel_timers(cell: Cell) -> None:
    """Cancel the timers of a worker, and its wait before a restart."""
    if cell.restart_wait is not None:
        cell.restart_wait.cancel()
    for timer in list(cell.timers or ()):
        timer.cancel()


_CLOSING: Final[tuple[Callable[[Cell], None], ...]] = (
    _leave_task,
    _lose_in_hand,
    _close_children,
    mark_stopped,
    cancel_timers,
    _leave_node,
    _give_up_waiting,
    _flush,
    _serve_lines,
    _leave_thread,
    _release_waiting,
    _release_instance,
)
"""The steps that close a worker, in order. No step depends on an earlier one."""
