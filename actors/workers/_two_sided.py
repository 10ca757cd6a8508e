"""`TwoSidedWorker`: a worker with an address for clients and one for the other end."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ...protocol import Address, Message
from .._worker import Worker
from ..runtime._state import NEW

if TYPE_CHECKING:
    from .._node import Node
    from ..runtime._cell import Cell

__all__ = ["TwoSidedWorker", "add_addresses"]


class TwoSidedWorker(Worker):
    """A worker with two addresses and a handler for each: a base for proxies, pipes, sessions.

    ```
                        ┌────────────────────┐
    clients ──▶  outer  │ handle_outer       │
                        │       handle_inner │  inner  ◀── the other end, and answers
                        └────────────────────┘
    ```

    A worker between two parties has to know which of them sent a message, by a field that cannot
    be forged: the address that the message came to.

    The outer address is the one it is spawned with. The inner address is the second one it is
    spawned with, or random, and so known only to workers that have received it. Both stay over a
    restart. A subclass overrides `handle_outer` and `handle_inner`, by `def` or `async def`, and
    not `handle_message`.
    """

    _outer: Address
    _inner: Address

    def _join(self, cell: Cell) -> None:
        add_addresses(self.node, cell, 1)
        super()._join(cell)
        self._outer, self._inner = cell.addresses[:2]

    @property
    def outer(self) -> Address:
        """The address for clients, which is the primary address."""
        return self._outer

    @property
    def inner(self) -> Address:
        """The address for the other end, to be left on the return route towards it."""
        return self._inner

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Pass a message to the handler of its side. Any address but the inner one is outer."""
        if message[0][0] == self._inner:
            return self.handle_inner(message)
        return self.handle_outer(message)

    def handle_outer(self, message: Message) -> Awaitable[None] | None:
        """Handle a message to the outer address. By default it is a dead letter, "unhandled"."""
        return super().handle_message(message)

    def handle_inner(self, message: Message) -> Awaitable[None] | None:
        """Handle a message to the inner address. By default it is a dead letter, "unhandled"."""
        return super().handle_message(message)


def add_addresses(node: Node, cell: Cell, count: int) -> None:
    """Add random addresses to a worker that is being made, behind its primary one.

    Addresses that it has already are kept, as given when spawned or from before a restart.

    Raises:
        LimitReached: The node has as many addresses as it may. A restart fails with that.
    """
    for _ in range(count + 1 - len(cell.addresses)):
        made = node.random_address()
        if cell.state == NEW:  # not registered yet, so all its addresses will be
            cell.addresses = (*cell.addresses, made)
        else:
            node.add_address(cell.address, made)
