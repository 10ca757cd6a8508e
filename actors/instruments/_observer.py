"""Observers and tracers of a node; without one there is no overhead."""

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
    """A base class of observers, which are called on a node's loop if `Node.observer` is set.

    The methods do nothing by default. They must not raise or block.
    """

    __slots__ = ()

    def asks(self, source: Address | None, reply: Address, onward: Route) -> None:
        """Observe a request, with the requester (or `None`), the mailbox and the onward route."""

    def asked(self, reply: Address) -> None:
        """Observe the end of a request, with any outcome."""

    def suspended(self, cell: Cell) -> None:
        """Observe that a worker awaits, in a handler, a timer's action, its start or its end."""

    def resumed(self, cell: Cell) -> None:
        """Observe that a worker no longer awaits, or has been given up."""

    def nearly_full(self, cell: Cell, waiting: int) -> None:
        """Observe a mailbox near its limit, at the start of a turn or for a refused message."""

    def route_cut(self, message: Message) -> None:
        """Observe a message that is answered by a worker that is not the last of its route."""

    def long_route(self, message: Message) -> None:
        """Observe a message that is forwarded with a return route near the limit."""


class Tracer(ABC):
    """A tracer of the messages with a tracing text, used if `Node.tracer` is set.

    Called on the node's loop, in the worker's turn. It must not block.
    """

    __slots__ = ()

    @abstractmethod
    def follow(
        self, worker: Worker, message: Message, handle: Callable[[Message], object]
    ) -> object:
        """Call the handler of a message, and trace it.

        Args:
            worker: The worker that handles the message.
            message: The message, with `context.trace`.
            handle: The handler. It must be called once, with the message or with one that
                differs from it in the context only.

        Returns:
            The result of `handle`, or a coroutine in its place that awaits it.

        Raises:
            BaseException: The exception of `handle`, and no other.
        """
