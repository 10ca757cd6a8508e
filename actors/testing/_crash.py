"""The end of a node as a lost process ends: no worker is asked and no peer is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime import _closing as closing
from ..runtime._run_queue import Phase

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["crash"]


def crash(node: Node) -> None:
    """End a node as `kill -9` ends a process. Call it on the node's loop.

    No worker is asked to stop: `on_stop` is not called, messages in mailboxes are not handled,
    and running handlers are cancelled where they await. Sending raises `NodeStopped` from then on.
    Requests that this node waits for raise `NodeStopped`, as a test may await one. The node
    cannot be started again.

    Code in this process cannot be killed, so there are two differences: `finally` blocks of a
    cancelled handler still run, and tasks started by a worker go on until they send something.
    Transports are not asked to stop either: close open sockets after the call.
    """
    if node.parts.run_queue.phase in (Phase.NOT_STARTED, Phase.CLOSED):
        node.parts.run_queue.phase = Phase.CLOSED
        return
    node.parts.run_queue.phase = (
        Phase.CLOSED
    )  # nothing is sent any more, not even by cancelled handlers
    node.parts.requests.close(node.name)
    cells = node.parts.table.cells()
    tasks = [cell.task for cell in cells]  # closing a cell forgets its task
    for cell in cells:
        closing.close(cell)
    for task in tasks:
        if task is not None:
            task.cancel()
