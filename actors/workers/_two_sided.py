"""`TwoSidedWorker`: an address for those outside, and one for the other end."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ...protocol import Address, Message
from .._worker import Worker
from ..runtime._state import NEW

if TYPE_CHECKING:
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

    Who stands between two parties has to tell which of them a message comes from, and nothing in a
    message that anybody can write says so. The address it came to does.

    The outer address is the one it is spawned with. The inner one is random, so nobody knows it
    who has not been sent it; or it is the second of two that it is spawned with. Both stay over
    a restart. Override `handle_outer` and `handle_inner`, `def` or `async def`; not
    `handle_message`.
    """

    _outer: Address
    _inner: Address

    def _join(self, cell: Cell) -> None:
        add_addresses(cell, 1)
        super()._join(cell)
        self._outer, self._inner = cell.addresses[:2]

    @property
    def outer(self) -> Address:
        """The address for those outside; it is the primary one."""
        return self._outer

    @property
    def inner(self) -> Address:
        """The address for the other end: to be left on the return route towards it."""
        return self._inner

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Tell the sides apart. Any address but the inner one is outside."""
        if message[0][0] == self._inner:
            return self.handle_inner(message)
        return self.handle_outer(message)

    def handle_outer(self, message: Message) -> Awaitable[None] | None:
        """Handle a message to the outer address. By default it is a dead letter, "unhandled"."""
        return super().handle_message(message)

    def handle_inner(self, message: Message) -> Awaitable[None] | None:
        """Handle a message to the inner address. By default it is a dead letter, "unhandled"."""
        return super().handle_message(message)


def add_addresses(cell: Cell, count: int) -> None:
    """Give a worker that is being made random addresses behind its primary one.

    Those that it has already stay: it was spawned with them, or is being restarted.

    Raises:
        LimitReached: The node has as many addresses as it may. A restart fails with that.
    """
    for _ in range(count + 1 - len(cell.addresses)):
        made = cell.node.random_address()
        if cell.state == NEW:  # not registered yet, and then with all the addresses it has
            cell.addresses = (*cell.addresses, made)
        else:
            cell.node.add_address(cell.address, made)
