"""The workers of a node: their registration, removal and statistics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from ..protocol import (
    Address,
    AddressInUse,
    AddressLike,
    WorkerStopped,
    address as address_of,
)
from ..protocol.options import check_value
from ._errors import LimitReached
from .access._guard import AccessLike, WorkerAccess
from .instruments._statistics import NodeStatistics
from .pykka._inbox import join_inbox, leave_behind
from .routing._guarding import Guarding
from .runtime import _lifecycle as lifecycle
from .runtime._cell import Cell, Factory
from .runtime._policy import MailboxOptions, NodeLimits, OnFailure, Supervision
from .runtime._run_queue import Phase
from .runtime._state import NEW, RUNNING, STOPPED, STOPPING

if TYPE_CHECKING:
    import pykka

    from ._node import Node
    from ._worker import Worker

__all__ = ["Workers"]

_MAILBOX: Final = MailboxOptions()
_SUPERVISION: Final = Supervision()
_LIKE_PYKKA: Final = Supervision(OnFailure.STOP)


class Workers(Guarding):
    """A router with workers. `Node` is the only class derived from it.

    Args:
        name: The name of the node.
        limits: The limits of the node.
        clock: The clock of dead letters, in seconds; the loop's clock by default.
    """

    def __init__(self, name: str, limits: NodeLimits, clock: Callable[[], float] | None) -> None:
        super().__init__(name, limits, clock)
        # The sums of `_counts` of the stopped workers, and the number of workers not stopped.
        self._retired = [0, 0, 0, 0, 0, 0]
        self._watches: dict[Cell, int] = {}
        self._losses: dict[Cell, list[Callable[[], object]]] = {}

    def spawn(
        self,
        factory: Factory,
        *,
        address: AddressLike | Iterable[AddressLike] | None = None,
        mailbox: MailboxOptions | None = None,
        supervision: Supervision = _SUPERVISION,
        access: AccessLike | None = None,
    ) -> Address:
        """Make a worker and register it; `on_start` is its first turn.

        Args:
            factory: The function that makes the worker: a class, a partial, a lambda. It is
                called at once on this thread, and again for a restart.
            address: Its address or addresses, the primary one first; all are registered or
                none. By default one of 32 random hexadecimal digits.
            mailbox: The limits and the overflow policy of its mailbox; by default
                `Worker.default_mailbox` of its class.
            supervision: The policy after a failure.
            access: The access controls, for all its addresses or for each named one. Messages
                sent from an address without a name pass the control of the primary one. `None`
                permits all messages.

        Returns:
            Its primary address.

        Raises:
            AddressInUse: Another worker has one of the addresses.
            LimitReached: The node has as many addresses as it may.
            NodeStopped: The node has not started, or is stopping.
        """
        return self._spawn(factory, address, mailbox, supervision, None, access).address

    async def start(
        self,
        factory: Factory,
        *,
        address: AddressLike | Iterable[AddressLike] | None = None,
        mailbox: MailboxOptions | None = None,
        supervision: Supervision = _SUPERVISION,
        access: AccessLike | None = None,
    ) -> Address:
        """Spawn a worker and wait until it has started; raise any error of `on_start`."""
        work = self._start(factory, address, mailbox, supervision, None, access)
        return await self._on_loop(work)

    def spawn_child(
        self,
        parent: Cell,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: MailboxOptions | None,
        supervision: Supervision,
        access: AccessLike | None,
    ) -> Address:
        """Spawn a child of a worker; see `Worker.spawn`."""
        return self._spawn(factory, address, mailbox, supervision, parent, access).address

    async def start_child(
        self,
        parent: Cell,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: MailboxOptions | None,
        supervision: Supervision,
        access: AccessLike | None,
    ) -> Address:
        """Spawn a child of a worker and wait until it has started; see `Worker.start_child`."""
        work = self._start(factory, address, mailbox, supervision, parent, access)
        return await self._on_loop(work)

    async def _start(
        self,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: MailboxOptions | None,
        supervision: Supervision,
        parent: Cell | None,
        access: AccessLike | None,
    ) -> Address:
        cell = self._spawn(factory, address, mailbox, supervision, parent, access)
        if cell.state == NEW:
            cell.started = self.loop.create_future()
            await cell.started
        return cell.address

    def adopt(self, worker: Worker) -> None:
        """Run a worker that was started as in Pykka."""
        cell = Cell(cast("Node", self), (self.random_address(),), None, _MAILBOX, _LIKE_PYKKA, None)
        cell.registered = True
        self._admit(cell, worker)

    def _spawn(
        self,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: MailboxOptions | None,
        supervision: Supervision,
        parent: Cell | None,
        access: AccessLike | None,
    ) -> Cell:
        if mailbox is not None:
            check_value("mailbox", mailbox, MailboxOptions)
        check_value("supervision", supervision, Supervision)
        addresses = self._addresses(address)
        if parent is not None and parent.state >= STOPPING:
            raise WorkerStopped(parent.address)
        self._check_free(addresses)
        given = mailbox or _MAILBOX
        cell = Cell(cast("Node", self), addresses, factory, given, supervision, parent)
        if access is None:
            self._admit(cell, self._made(cell, factory, mailbox))
            return cell
        self._guarded[cell] = WorkerAccess(self, cell, access)
        try:
            self._admit(cell, self._made(cell, factory, mailbox))
        except BaseException:
            del self._guarded[cell]
            raise
        return cell

    @staticmethod
    def _made(cell: Cell, factory: Factory, mailbox: MailboxOptions | None) -> Worker:
        worker = factory()
        if mailbox is None:
            cell.take_mailbox(worker.default_mailbox)
        return worker

    def _admit(self, cell: Cell, worker: Worker) -> None:
        if self.phase is not Phase.OPEN:
            raise self.stopped_error()
        lifecycle.bind(cell, worker)
        has_start = worker._has_start()
        cell.state = NEW if has_start else RUNNING
        cell.scheduled = has_start
        with self.lock:
            self._check_free(cell.addresses)
            for each in cell.addresses:
                self.table[each] = self._target(cell, each)
            self._retired[-1] += 1
        if cell.parent is not None:
            if cell.parent.children is None:
                cell.parent.children = {}
            cell.parent.children[cell] = None
        join_inbox(worker, cell)
        if has_start:
            self.schedule(cell)

    def _check_free(self, addresses: tuple[Address, ...]) -> None:
        for each in addresses:
            if each in self.table:
                raise AddressInUse(each)
        if len(self.table) + len(addresses) > self.limits.addresses:
            raise LimitReached("addresses", self.limits.addresses)

    def _addresses(self, given: AddressLike | Iterable[AddressLike] | None) -> tuple[Address, ...]:
        if given is None:
            return (self.random_address(),)
        if isinstance(given, Address | str | bytes):
            return (address_of(given),)
        addresses = tuple(dict.fromkeys(map(address_of, given)))
        if not addresses:
            raise ValueError("a worker needs an address")
        return addresses

    def add_address(self, owner: AddressLike, extra: AddressLike) -> None:
        """Add an address to a worker.

        Args:
            owner: An address of the worker.
            extra: The new address.

        Raises:
            UnknownAddress: There is no such worker.
            AddressInUse: A worker has the new address already.
            LimitReached: The node has as many addresses as it may.

        Access controls of the whole worker apply to the new address too.
        """
        added = address_of(extra)
        with self.lock:
            cell = self._cell(owner)
            self._check_free((added,))
            cell.addresses = (*cell.addresses, added)
            self.table[added] = self._target(cell, added)

    def remove_address(self, extra: AddressLike) -> None:
        """Remove an address from its worker.

        Raises:
            UnknownAddress: No worker has the address.
            ValueError: It is the primary address.
        """
        removed = address_of(extra)
        with self.lock:
            cell = self._cell(removed)
            if removed == cell.address:
                raise ValueError(f"{removed} is the primary address of {cell}")
            cell.addresses = tuple(each for each in cell.addresses if each != removed)
            del self.table[removed]
            self._exposures.forget(removed)

    def has(self, address: AddressLike) -> bool:
        """Whether a worker or a waiting request has the address."""
        return address_of(address) in self.table

    def idle(self, address: Address) -> Cell | None:
        """Return the cell of a worker, if it is running and has no waiting messages.

        Code on the loop's thread, outside of turns, may then do the worker's work for a message
        at once, without passing other messages.
        """
        cell = self.table.get(address)
        if isinstance(cell, Cell) and cell.state == RUNNING and not cell.scheduled:
            return cell
        return None

    def is_ephemeral(self, address: Address) -> bool:
        """Whether the address belongs to a waiting request."""
        return address in self._requests

    def watch(self, address: AddressLike, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function once, on the loop, when a worker has stopped. Call it on the loop.

        A restart is no stop, as the address stays.

        Args:
            address: Any address of the worker.
            callback: The function; its exceptions are logged by the loop.

        Returns:
            A function that ends the watch.

        Raises:
            UnknownAddress: There is no such worker.
        """
        cell = self._cell(address)
        done = cell.when_done()

        def stopped(_: object) -> None:
            callback()

        done.add_done_callback(stopped)
        self._watches[cell] = self._watches.get(cell, 0) + 1

        def unwatch() -> None:
            if done.remove_done_callback(stopped) and cell in self._watches:
                self._watches[cell] -= 1
                if not self._watches[cell]:
                    del self._watches[cell]

        return unwatch

    def watch_losses(
        self, address: AddressLike, callback: Callable[[], object]
    ) -> Callable[[], None]:
        """Call a function each time a link loses its connection. Call it on the loop.

        A link that reconnects keeps its address, but the peer's state for the lost connection
        is gone.

        Args:
            address: The address of a link; for another worker the function is never called.
            callback: The function.

        Returns:
            A function that ends the watch.

        Raises:
            UnknownAddress: There is no such worker.
        """
        hooks = self._losses.setdefault(self._cell(address), [])
        hooks.append(callback)

        def unwatch() -> None:
            if callback in hooks:
                hooks.remove(callback)

        return unwatch

    def tell_loss(self, address: Address) -> None:
        """Call the callbacks for a lost connection of a link. For links."""
        cell = self._cell_at(address)
        for callback in tuple(self._losses.get(cell, ())) if cell is not None else ():
            callback()

    def is_watched(self, address: AddressLike) -> bool:
        """Whether a callback waits for the end of a worker."""
        return self._cell(address) in self._watches

    def ref(self, address: AddressLike) -> pykka.ActorRef[Any]:
        """Return Pykka's reference to a worker, for `tell`, `ask` and proxies.

        Raises:
            UnknownAddress: There is no such worker.
        """
        return self._cell(address).worker.actor_ref

    def forget(self, cell: Cell) -> None:
        """Remove a stopped worker from the table and keep its counts."""
        with self.lock:
            for each in cell.addresses:
                self.table.pop(each, None)  # no error, as the rest must be done
            self._guarded.pop(cell, None)
            self._checked.pop(cell, None)
            self._watches.pop(cell, None)
            self._losses.pop(cell, None)
            self._retired[-1] -= 1
            for index, count in enumerate(_counts(cell)):
                self._retired[index] += count
            for each in cell.addresses:
                self._exposures.forget(each)
        instruments = self.instruments
        if instruments is not None:
            instruments.worker_stopped(cell.worker)

    def _give_up_all(self) -> None:
        for cell in self._cells():
            try:
                cell.give_up()
            except Exception as error:  # noqa: BLE001 - the others must be given up too
                self.fault("giving up a worker", error)
        self._rules.pending.close()

    def forked(self) -> None:
        """Drop all workers without dead letters in a forked process; they run on in its parent."""
        super().forked()
        # Another thread may have held a lock when the process was forked.
        self.lock = threading.RLock()
        self.dead_letters.forked()
        self._rules.pending.forked()
        cells, self.table = self._cells(), {}
        self._retired[-1] = 0
        for cell in cells:
            cell.state = STOPPED
            cell.queue = None
            leave_behind(cell.worker)

    # --- statistics -------------------------------------------------------------------

    def statistics(self, *, workers: bool = True) -> NodeStatistics:
        """Return the counters of the node. Safe from any thread.

        Args:
            workers: Whether each worker's own statistics are included.
        """
        cells = self._cells()
        totals = [
            sum(column) for column in zip(self._retired[:-1], *map(_counts, cells), strict=True)
        ]
        by_reason = self.dead_letters.by_reason
        return NodeStatistics(
            name=self.name,
            worker_count=self._retired[-1],
            requests=self._requests.count,
            pending=len(self._rules.pending),
            handled=totals[0],
            failed=totals[1],
            refused=totals[2],
            dropped=totals[3],
            restarts=totals[4],
            abandoned=self.dead_letters.abandoned,
            dead_letters=sum(by_reason.values()),
            dead_letter_reasons=by_reason,
            denied=self.dead_letters.denied,
            error_replies=self.error_replies.sent,
            error_replies_dropped=self.error_replies.dropped,
            routes_cut=self.dead_letters.routes_cut,
            workers=tuple(cell.statistics() for cell in cells) if workers else (),
        )


def _counts(cell: Cell) -> tuple[int, int, int, int, int]:
    return cell.handled, cell.failed, cell.refused, cell.dropped, cell.restarts
