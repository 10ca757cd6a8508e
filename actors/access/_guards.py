"""The access controls and exposed addresses of a node."""

from __future__ import annotations

from typing import ClassVar, Final

from ...protocol import (
    Address,
    AddressLike,
    Context,
    Message,
    NotExposed,
    Outside,
    UnknownAddress,
    address as address_of,
)
from ..routing._router import Passage, Router
from ..routing._table import AddressTable
from ..routing._undeliverable import Undeliverable
from ..runtime._cell import Cell
from ..runtime._mailbox import Target
from ..runtime._run_queue import RunQueue
from ._exposures import Exposures
from ._guard import AccessLike, OutboundGuard, WorkerAccess

__all__ = ["Guards"]

# The constructor of a NamedTuple calls this, at three times the cost.
_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class Guards(Passage):
    """The guards of a node's workers, and the addresses exposed while it runs.

    Args:
        run_queue: The run queue of the node.
        table: The address table.
        undeliverable: For the count of denied messages.

    Attributes:
        exposures: The addresses exposed while the node runs.
        router: The router that guarded workers send through.
    """

    __slots__ = ("_checked", "_dead_letters", "_guarded", "_table", "exposures", "router")

    def __init__(
        self, run_queue: RunQueue, table: AddressTable, undeliverable: Undeliverable
    ) -> None:
        self._table: Final = table
        self._dead_letters: Final = undeliverable.dead_letters
        self._guarded: dict[Cell, WorkerAccess] = {}
        self._checked: dict[Target | None, OutboundGuard] = {}
        self.exposures: Final = Exposures(run_queue.limits.exposed)
        self.router: Final = Router(run_queue, table, undeliverable, self)

    # --- access controls --------------------------------------------------------------

    def add(self, cell: Cell, access: AccessLike) -> None:
        """Add the access controls of a worker, before its addresses are in the table.

        Raises:
            ValueError: An address is named that the worker does not have.
        """
        self._guarded[cell] = WorkerAccess(self.router, cell, access)

    def forget(self, cell: Cell) -> None:
        """Remove the guards and exposures of a worker that stops."""
        self._guarded.pop(cell, None)
        self._checked.pop(cell, None)
        for each in cell.addresses:
            self.exposures.forget(each)

    def target(self, cell: Cell, address: Address) -> Target:
        """Return the target for an address of a worker."""
        guarded = self._guarded.get(cell)
        return cell if guarded is None else guarded.target(address)

    def sender_for(self, cell: Cell) -> OutboundGuard | None:
        """Return the guard that a worker sends through in place of the router, if there is one."""
        checked = self._checked.get(cell)
        if checked is not None:
            return checked
        guarded = self._guarded.get(cell)
        return None if guarded is None else guarded.sender

    # --- messages from outside ----------------------------------------------------------

    def let_in(self, message: Message) -> None:
        """Dispatch a message from outside that has a further address behind the first.

        The messages that its worker passes on are checked. A message with one address needs no
        check.
        """
        first = message[0][0]
        if self._table.targets.get(first) not in self._checked:
            self.guard(first)
        self.router.dispatch(message)

    def guard(self, first: Address) -> None:
        """Check from now on the messages that the worker of an address passes on.

        Workers that get no messages from outside are not slowed down by checks.
        """
        cell = self._table.cell_at(first)
        if cell is None or cell in self._checked or cell.worker.leaves_node:
            return
        guarded = self._guarded.get(cell)
        sender = None if guarded is None else guarded.sender
        if sender is None:
            sender = OutboundGuard(self.router, None)
        self._checked[cell] = sender
        cell.worker._send_through(sender)

    def pass_on(self, message: Message) -> Message:
        """Return a message with its permissions for the next hop, if it is from outside.

        Raises:
            NotExposed: It is from outside and may not be sent to its first address.
        """
        context = message[4]
        if context is None:
            return message
        outside = context[4]
        if outside is None or not message[0]:
            return message
        onward = message[0]
        given, allows = outside
        # Addresses in front of the given ones were added by workers and rules of this node,
        # which may send to any address.
        if len(onward) <= given:
            if not allows(onward[0]):
                self._dead_letters.denied += 1
                error = NotExposed(onward[0])
                error.lost = message  # it belongs to another sender in any case
                raise error
            given = len(onward) - 1
            outside = _new(Outside, (given, allows))
            context = _new(Context, (context[0], context[1], context[2], context[3], outside))
            message = _new(Message, (onward, message[1], message[2], message[3], context))
        if given:
            self.guard(onward[0])
        return message

    # --- addresses exposed while the node runs ------------------------------------------

    def expose(self, at: AddressLike, address: AddressLike) -> None:
        """Allow the peer of a link to send to a worker; see `Node.expose`.

        Raises:
            UnknownAddress: There is no such worker, or no such link or listener.
            LimitReached: `NodeLimits.exposed` addresses are exposed there.
        """
        with self._table.lock:
            exposed = address_of(address)
            self._table.cell(exposed)
            place = self._table.cell(at)
            if not place.worker.leaves_node and place.address not in self.exposures.listeners:
                raise _NoSuchPlace(address_of(at))
            self.exposures.add(place.address, exposed)

    def hide(self, at: AddressLike, address: AddressLike) -> bool:
        """Undo `expose`; return whether the address was exposed there."""
        with self._table.lock:
            cell = self._table.cell_at(address_of(at))
            return cell is not None and self.exposures.remove(cell.address, address_of(address))

    def is_exposed(self, address: Address, at: tuple[Address, ...]) -> bool:
        """Whether `expose` has exposed an address at one of these places. For links."""
        return self.exposures.has(address, at)

    def lets_error_replies(self, at: tuple[Address, ...]) -> bool:
        """Whether error replies may be sent at one of these places. For links."""
        return any(each in self.exposures.error_replies for each in at)


class _NoSuchPlace(UnknownAddress):
    reason: ClassVar[str] = "no such link or listener"
