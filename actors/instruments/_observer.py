"""What may look on while a node works: nothing by default, and then nothing is paid for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol import Address, Message, Route
    from .._worker import Worker
    from ..runtime._cell import Cell

__all__ = ["Observer", "Tracer"]


class Observer:
    """Is told what happens on a node, on its loop, where `Node.observer` is set.

    A base to derive from: every method does nothing here. None may raise or block.
    """

    __slots__ = ()

    def asks(self, source: Address | None, reply: Address, onward: Route) -> None:
        """Hear of a request: who asks (`None`: no worker), where the answer comes, where to."""

    def asked(self, reply: Address) -> None:
        """Hear that a request is over, however it ended."""

    def suspended(self, cell: Cell) -> None:
        """Hear that a worker awaits: in a handler, a timer's action, its start or its end."""

    def resumed(self, cell: Cell) -> None:
        """Hear that a worker that awaited has finished with it, or has been given up."""

    def nearly_full(self, cell: Cell, waiting: int) -> None:
        """Hear that a mailbox is near its limit: as a turn starts, or as a sender finds no room."""

    def route_cut(self, message: Message) -> None:
        """Hear of a message that is answered by a worker that is not the last of its route."""

    def long_route(self, message: Message) -> None:
        """Hear of a message that is forwarded with a return route near the limit."""


class Tracer(ABC):
    """Is given each message with a tracing text, where `Node.tracer` is set.

    Called on the node's loop, in the worker's turn. It must not block.
    """

    __slots__ = ()

    @abstractmethod
    def follow(
        self, worker: Worker, message: Message, handle: Callable[[Message], object]
    ) -> object:
        """Have a message handled, and note what there is to note.

        Args:
            worker: Whose turn it is.
            message: The message, with `context.trace`.
            handle: What handles it. To be called once, with the message or with one that
                differs from it in the context alone.

        Returns:
            What `handle` returned, or a coroutine in its place that awaits that.

        Raises:
            BaseException: What `handle` raised, and nothing else.
        """
