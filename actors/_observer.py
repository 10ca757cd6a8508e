"""What may look on while a node works: nothing by default, and then nothing is paid for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..protocol import Address, Message, Route
    from ._cell import Cell

__all__ = ["Observer"]


class Observer:
    """Is told what happens on a node, on its loop, where `Node.observer` is set.

    A base to derive from: every method does nothing here. None may raise or block.
    """

    __slots__ = ()

    def asks(self, source: Address | None, reply: Address, onward: Route) -> None:
        """Hear of a request: who asks (`None`: no worker), where the answer comes, where to."""

    def asked(self, reply: Address) -> None:
        """Hear that a request is over, however it ended."""

    def suspended(self, cell: Cell, message: Message) -> None:
        """Hear that a handler awaits, with this message in hand."""

    def resumed(self, cell: Cell) -> None:
        """Hear that a handler that awaited is done."""

    def nearly_full(self, cell: Cell, waiting: int) -> None:
        """Hear at the start of a turn that a mailbox is near its limit."""

    def long_route(self, message: Message) -> None:
        """Hear of a message that is forwarded with a return route near the limit."""
