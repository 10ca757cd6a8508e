"""The end of a node as a lost process ends: nobody is asked and nothing is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime import _lifecycle as lifecycle
from ..runtime._run_queue import Phase

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["crash"]


def crash(node: Node) -> None:
    """End a node as `kill -9` ends a process. Call it on the node's loop.

    No worker is asked to stop: `on_stop` is not called, what waits in mailboxes is not handled,
    and what is in hand is cut off where it awaits. Sending raises `NodeStopped` from then on.
    Requests that this node waits for raise `NodeStopped`, as a test may await one. The node
    cannot be started again.

    Two things are beyond it, as code that runs in this process cannot be killed: `finally` blocks
    of a handler that is cut off are still run, and tasks that a worker has made itself go on
    until they send something. Transports are not asked to stop either: whoever calls this with
    sockets open has to close them.
    """
    if node.phase in (Phase.NOT_STARTED, Phase.CLOSED):
        node.phase = Phase.CLOSED
        return
    node.phase = Phase.CLOSED  # nothing is sent any more, whatever is cut off tries
    node._requests.close(node.name)
    cells = node._cells()
    tasks = [cell.task for cell in cells]  # closing a cell forgets its task
    for cell in cells:
        lifecycle.close(cell)
    for task in tasks:
        if task is not None:
            task.cancel()
