"""Access to the workers of a node: access controls and exposed addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, cast

from ...protocol import (
    Address,
    AddressLike,
    Context,
    Message,
    NotExposed,
    Outside,
    Route,
    UnknownAddress,
    address as address_of,
)
from ..access._exposures import Exposures
from ..access._guard import GuardedMailbox, OutboundGuard, WorkerAccess
from ..runtime._cell import Cell
from ..runtime._mailbox import Target
from ..runtime._policy import NodeLimits
from ._router import Router

if TYPE_CHECKING:
    from .._worker import Worker
    from .._workers import Workers

__all__ = ["Guarding"]

# The constructor of a NamedTuple calls this, at three times the cost.
_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class Guarding(Router):
    """A router with access controls and exposed addresses.

    Args:
        name: The name of the node.
        limits: The limits of the node.
        clock: The clock of dead letters, in seconds; the loop's clock by default.
    """

    def __init__(self, name: str, limits: NodeLimits, clock: Callable[[], float] | None) -> None:
        super().__init__(name, limits, clock)
        self._exposures = Exposures(limits.exposed)
        self._guarded: dict[Cell, WorkerAccess] = {}
        self._checked: dict[Target | None, OutboundGuard] = {}

    def _cell(self, address: AddressLike) -> Cell:
        found = _cell_of(self.table.get(address_of(address)))
        if found is None:
            raise UnknownAddress(address_of(address))
        return found

    def _cells(self) -> list[Cell]:
        return [
            cell
            for address, target in list(self.table.items())
            if (cell := _cell_of(target)) is not None and cell.addresses[0] == address
        ]

    def _target(self, cell: Cell, address: Address) -> Target:
        """Return the target for an address of a worker."""
        guarded = self._guarded.get(cell)
        return cell if guarded is None else guarded.target(address)

    def sender_for(self, cell: Cell) -> Workers | OutboundGuard:
        """Return the object that a worker sends through: a guard, or the node if there is none."""
        checked = self._checked.get(cell)
        if checked is not None:
            return checked
        guarded = self._guarded.get(cell)
        sender = None if guarded is None else guarded.sender
        return cast("Workers", self) if sender is None else sender

    # --- messages from outside ----------------------------------------------------------

    def let_in(self, message: Message) -> None:
        """Carry a message from outside that has a further address behind the first.

        The messages that its worker passes on are checked. A message with one address needs no
        check.
        """
        first = message[0][0]
        if self.table.get(first) not in self._checked:
            self.guard(first)
        self.carry(message)

    def guard(self, first: Address) -> None:
        """Check from now on the messages that the worker of an address passes on.

        Workers that get no messages from outside are not slowed down by checks.
        """
        cell = _cell_of(self.table.get(first))
        if cell is None or cell in self._checked or cell.worker.leaves_node:
            return
        guarded = self._guarded.get(cell)
        sender = None if guarded is None else guarded.sender
        if sender is None:
            sender = OutboundGuard(cast("Workers", self), None)
        self._checked[cell] = sender
        below = cell.worker._out
        if below is cast("Workers", self):
            cell.worker._out = sender
        else:
            cast("OutboundGuard", below).settle(sender)  # a traced message is in hand

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
                self.dead_letters.denied += 1
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

    def is_inside(self, address: Address) -> bool:
        """Whether an address belongs to a worker other than a link to another node."""
        cell = _cell_of(self.table.get(address))
        return cell is not None and not cell.worker.leaves_node

    def link_on(self, back: Route) -> Address | None:
        """Return the address of the first link on a return route, if there is one.

        The message came over that link: the addresses in front of it were added by the node's
        own workers, and those behind it by the sender, without verification.
        """
        for address in back:
            cell = _cell_of(self.table.get(address))
            if cell is None:
                return None
            if cell.worker.leaves_node:
                return address
        return None

    def share_of(self, message: Message) -> Cell | None:
        """Return the link that a waiting message counts for, if it came over one.

        Workers that pass it on become its source, but leave the link on its return route.
        """
        source = message[3]
        cell = None if source is None else self._cell_at(source)
        if cell is None or not cell.worker.leaves_node:
            link = self.link_on(message[1])
            cell = None if link is None else self._cell_at(link)
        return cell

    def origin_of(self, message: Message) -> Worker | None:
        """Return the link that a message came over, if it came over one."""
        link = self.link_on(message[1])
        cell = None if link is None else _cell_of(self.table.get(link))
        return None if cell is None else cell.worker

    def _cell_at(self, address: Address) -> Cell | None:
        return _cell_of(self.table.get(address))

    def worker_at(self, address: Address) -> Worker | None:
        """Return the worker at an address, if there is one."""
        cell = self._cell_at(address)
        return None if cell is None else cell.worker

    def expose(self, at: AddressLike, address: AddressLike) -> None:
        """Allow the peer of a link to send to a worker. Safe from any thread.

        For workers that are made for a peer while the node runs. The permission ends with
        the worker, and with the link or listener. Idempotent.

        Args:
            at: The address of a link, or of a listener for all its present and future links.
            address: The address of the worker to expose.

        Raises:
            UnknownAddress: There is no such worker, or no such link or listener.
            LimitReached: `NodeLimits.exposed` addresses are exposed there.
        """
        with self.lock:
            exposed = address_of(address)
            self._cell(exposed)
            place = self._cell(at)
            if not place.worker.leaves_node and place.address not in self._exposures.listeners:
                raise _NoSuchPlace(address_of(at))
            self._exposures.add(place.address, exposed)

    def hide(self, at: AddressLike, address: AddressLike) -> bool:
        """Undo `expose`. Addresses that a link was configured to expose stay exposed.

        Args:
            at: As given to `expose`.
            address: As given to `expose`.

        Returns:
            Whether the address was exposed there.
        """
        with self.lock:
            cell = _cell_of(self.table.get(address_of(at)))
            return cell is not None and self._exposures.remove(cell.address, address_of(address))

    def is_exposed(self, address: Address, at: tuple[Address, ...]) -> bool:
        """Whether `expose` has exposed an address at one of these places. For links."""
        return self._exposures.has(address, at)

    def lets_error_replies(self, at: tuple[Address, ...]) -> bool:
        """Whether error replies may be sent at one of these places. For links."""
        return any(each in self._exposures.error_replies for each in at)


class _NoSuchPlace(UnknownAddress):
    reason: ClassVar[str] = "no such link or listener"


def _cell_of(target: Target | None) -> Cell | None:
    if isinstance(target, GuardedMailbox):
        return target.cell
    return target if isinstance(target, Cell) else None
