"""The parts of a node, and how they are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ._shutdown import Shutdown
from ._transports import Transports
from ._workers import Workers
from .access._guards import Guards
from .routing._requests import Requests
from .routing._table import AddressTable
from .routing._undeliverable import Undeliverable
from .runtime._policy import NodeLimits
from .runtime._run_queue import RunQueue
from .runtime._slices import Slices

if TYPE_CHECKING:
    from ._node import Node

__all__ = ["Parts"]


class Parts:
    """The parts of a node: `node.parts`, for the packages of this project and not for users.

    Each part knows only those above it, so that it can be tested without a node.

    Args:
        node: The node, for its workers and transports to know.
        name: The name of the node.
        limits: The limits of the node.
        clock: The clock of dead letters, in seconds; the loop's clock by default.

    Attributes:
        run_queue: The targets that are to have a turn, and the event loop.
        table: The addresses and their targets.
        undeliverable: Dead letters, error replies, and the return of messages to their senders.
        guards: Access controls, exposed addresses, and the checks of messages from outside.
        router: The delivery of messages by the table and the rules.
        requests: The requests that wait for an answer.
        workers: The workers: their registration and removal.
        transports: The transports, by scheme and address type.
        shutdown: The stop of the node and of its workers.
        reports: The rows that workers of this project have for an operator, by the question.
        long_rows: Rows of theirs that are read in slices, which are dataclasses.
        long_reports: The figures of theirs that are read in slices, by the question.
    """

    __slots__ = (
        "guards",
        "long_reports",
        "long_rows",
        "reports",
        "requests",
        "router",
        "run_queue",
        "shutdown",
        "table",
        "transports",
        "undeliverable",
        "workers",
    )

    def __init__(
        self, node: Node, name: str, limits: NodeLimits, clock: Callable[[], float] | None
    ) -> None:
        self.run_queue: Final = RunQueue(name, limits)
        self.table: Final = AddressTable(limits)
        self.undeliverable: Final = Undeliverable(self.run_queue, self.table, clock)
        self.guards: Final = Guards(self.run_queue, self.table, self.undeliverable)
        self.router: Final = self.guards.router
        self.requests: Final = Requests(self.router)
        self.workers: Final = Workers(node, self.guards, self.requests)
        self.transports: Final = Transports(node, self.guards)
        self.shutdown: Final = Shutdown(self.router, self.requests, self.transports)
        self.reports: Final[dict[str, Callable[[], list[dict[str, Any]]]]] = {}
        self.long_rows: Final[dict[str, Callable[[], Slices[Sequence[object]]]]] = {}
        self.long_reports: Final[dict[str, Callable[[], Slices[dict[str, Any]]]]] = {}
        # The three that look down: an error reply is a message, and so on.
        self.undeliverable.error_replies.send = self.router.dispatch_or_lose
        self.router.rules.load = self.transports.load_type
        self.run_queue.on_loop_closed = self.workers.give_up_all
