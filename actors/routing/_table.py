"""The address table of a node: which mailbox is behind each address."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

from ...protocol import (
    HANDLED,
    LOCAL,
    Address,
    AddressInUse,
    AddressLike,
    Message,
    Route,
    UnknownAddress,
    address as address_of,
)
from .._errors import LimitReached
from ..runtime._cell import Cell
from ..runtime._mailbox import Target
from ..runtime._policy import NodeLimits
from ..runtime._state import RUNNING
from ._reply import Reply

__all__ = ["AddressTable", "RandomAddresses"]

SLICE: Final = 1000
"""Addresses that are looked at before the loop does other things."""

_BYTES: Final = 16
_CHUNK: Final = 256
_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class RandomAddresses:
    """Local addresses of 32 hexadecimal digits from the system's random source.

    Random bytes are read for many addresses at once, which is cheaper. Safe from any thread.
    """

    __slots__ = ("_ready",)

    def __init__(self) -> None:
        self._ready: deque[Address] = deque()

    def take(self) -> Address:
        """Return an address that has never been used."""
        try:
            return self._ready.popleft()
        except IndexError:
            digits = os.urandom(_BYTES * _CHUNK).hex().encode("ascii")
            made = [
                _new(Address, (LOCAL, digits[at : at + 2 * _BYTES]))
                for at in range(0, len(digits), 2 * _BYTES)
            ]
            address = made.pop()
            self._ready.extend(made)
            return address


class AddressTable:
    """The targets of a node by address, and the addresses of requests given up recently.

    Looking up takes no lock. Changes take `lock`, except for those of requests, each of which
    adds and removes an address of its own.

    Args:
        limits: The limits of the node.

    Attributes:
        targets: The target of each address.
        lock: The lock for changes.
        random_address: Function that makes an address that has never been used.
        refused: How often there was no place for addresses.
    """

    __slots__ = ("_given_up", "_limits", "lock", "random_address", "refused", "targets")

    def __init__(self, limits: NodeLimits) -> None:
        self._limits: Final = limits
        self.targets: Final[dict[Address, Target]] = {}
        self.lock = threading.RLock()
        self.random_address: Callable[[], Address] = RandomAddresses().take
        self.refused = 0
        self._given_up: dict[Address, None] = {}  # a dict, for its order

    # --- changes; with the lock -------------------------------------------------------

    def check_free(self, addresses: tuple[Address, ...]) -> None:
        """Check that addresses can be added.

        Raises:
            AddressInUse: A worker has one of them.
            LimitReached: The table has as many addresses as it may.
        """
        for each in addresses:
            if each in self.targets:
                raise AddressInUse(each)
        if len(self.targets) + len(addresses) > self._limits.addresses:
            self.refused += 1
            raise LimitReached("addresses", self._limits.addresses)

    def forked(self) -> list[Cell]:
        """Empty the table in the child of a fork, and return the cells that were in it."""
        self.lock = threading.RLock()  # another thread may have held it
        cells = self.cells()
        self.targets.clear()
        return cells

    # --- workers ----------------------------------------------------------------------

    def cell_at(self, address: Address) -> Cell | None:
        """Return the cell of the worker at an address, if there is one."""
        target = self.targets.get(address)
        return None if target is None else target.cell_of()

    def cell(self, address: AddressLike) -> Cell:
        """Return the cell of the worker at an address.

        Raises:
            UnknownAddress: There is no such worker.
        """
        found = self.cell_at(address_of(address))
        if found is None:
            raise UnknownAddress(address_of(address))
        return found

    def cells(self) -> list[Cell]:
        """Return the cells of all workers, in the order of spawning."""
        return _cells_of(list(self.targets.items()))

    def cells_in_slices(self) -> Iterator[list[Cell]]:
        """Yield the same in slices of `SLICE` addresses; those that there were at the first one."""
        targets = list(self.targets.items())
        for at in range(0, len(targets), SLICE):
            yield _cells_of(targets[at : at + SLICE])

    def worker_at(self, address: Address) -> Any:
        """Return the worker at an address, or `None` if there is none."""
        cell = self.cell_at(address)
        return None if cell is None else cell.worker

    def idle(self, address: Address) -> Cell | None:
        """Return the cell of a worker, if it is running and has no waiting messages.

        Code on the loop's thread, outside of turns, may then do the worker's work for a message
        at once, without passing other messages. A worker with access controls is never idle.
        """
        cell = self.targets.get(address)
        if isinstance(cell, Cell) and cell.state == RUNNING and not cell.scheduled:
            return cell
        return None

    # --- requests ---------------------------------------------------------------------

    def is_request(self, address: Address) -> bool:
        """Whether the address belongs to a waiting request."""
        return type(self.targets.get(address)) is Reply

    def give_up(self, address: Address) -> None:
        """Remember the address of a request given up, so that its answer is known as late."""
        given_up = self._given_up
        given_up[address] = None
        if len(given_up) > self._limits.late_answers:
            del given_up[next(iter(given_up))]

    def is_late(self, address: Address) -> bool:
        """Whether an address belongs to a request given up recently."""
        return address in self._given_up

    # --- links ------------------------------------------------------------------------

    def is_inside(self, address: Address) -> bool:
        """Whether an address belongs to a worker other than a link to another node."""
        cell = self.cell_at(address)
        return cell is not None and not cell.worker.leaves_node

    def link_on(self, back: Route) -> Address | None:
        """Return the address of the first link on a return route, if there is one.

        The message came over that link: the addresses in front of it were added by the node's
        own workers, and those behind it by the sender, without verification.
        """
        for address in back:
            cell = self.cell_at(address)
            if cell is None:
                if address == HANDLED:
                    continue
                return None
            if cell.worker.leaves_node:
                return address
        return None

    def peer_of(self, message: Message) -> Hashable | None:
        """Return what stands for the peer that a message came from, if it came from outside.

        That is the address of its link or connection. A message without a return route that a
        worker has passed on leads to neither; then it is what its sender may send to.
        """
        source, context = message[3], message[4]
        for address in message[1] if source is None else (source, *message[1]):
            cell = self.cell_at(address)
            if cell is None:
                break
            if cell.worker.leaves_node or cell.worker.is_connection:
                return address
        outside = None if context is None else context[4]
        return None if outside is None else outside[1]

    def link_of(self, message: Message) -> Cell | None:
        """Return the cell of the link that a message came over, if it came over one."""
        link = self.link_on(message[1])
        return None if link is None else self.cell_at(link)

    def share_of(self, message: Message) -> Cell | None:
        """Return the link that a waiting message counts for, if it came over one.

        Workers that pass it on become its source, but leave the link on its return route.
        """
        source = message[3]
        cell = None if source is None else self.cell_at(source)
        if cell is not None and cell.worker.leaves_node:
            return cell
        return self.link_of(message)


def _cells_of(targets: Iterable[tuple[Address, Target]]) -> list[Cell]:
    return [
        cell
        for address, target in targets
        if (cell := target.cell_of()) is not None and cell.addresses[0] == address
    ]
