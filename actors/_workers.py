"""The workers of a node: their registration, removal and statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ..protocol import (
    Address,
    AddressLike,
    Message,
    OnwardError,
    WorkerStopped,
    address as address_of,
)
from ..protocol.options import check_value
from .access._guard import AccessLike
from .access._guards import Guards
from .instruments._statistics import NodeStatistics
from .pykka._inbox import join_inbox, leave_behind
from .routing._requests import Requests
from .runtime import _lifecycle as lifecycle
from .runtime._cell import Cell, Factory
from .runtime._host import Host, HostedActor
from .runtime._policy import MailboxOptions, OnFailure, Supervision
from .runtime._run_queue import Phase
from .runtime._slices import Slices, whole
from .runtime._state import NEW, RUNNING, STOPPED
from .runtime._turn_times import MAX_KINDS, OTHER_KIND

if TYPE_CHECKING:
    from ._node import Node

__all__ = ["Workers"]

_Hooks: TypeAlias = tuple[Callable[[], object], Callable[[], object] | None]
_MAILBOX: Final = MailboxOptions()
_LIKE_PYKKA: Final = Supervision(OnFailure.STOP)


class Workers(Host):
    """The workers of a node, and the host of their cells.

    Args:
        node: The node, for its workers to know.
        guards: The guards of the node, with its router.
        requests: The requests of the node, for the statistics.
    """

    __slots__ = (
        "_disconnected",
        "_guards",
        "_losses",
        "_node",
        "_requests",
        "_retired",
        "_retired_by_kind",
        "_router",
        "_run_queue",
        "_table",
        "_undeliverable",
        "_watches",
    )

    def __init__(self, node: Node, guards: Guards, requests: Requests) -> None:
        self._node: Final = node
        self._guards: Final = guards
        self._requests: Final = requests
        self._router: Final = guards.router
        self._run_queue: Final = guards.router.run_queue
        self._table: Final = guards.router.addresses
        self._undeliverable: Final = guards.router.undeliverable
        # The sums of `_counts` of the stopped workers, and the number of workers not stopped.
        self._retired = [0, 0, 0, 0, 0, 0]
        self._retired_by_kind: dict[str, list[int]] = {}
        self._watches: dict[Cell, int] = {}
        self._losses: dict[Cell, list[_Hooks]] = {}
        # The links without a connection that make another one, and tell of it.
        self._disconnected: set[Cell] = set()

    # --- spawning ---------------------------------------------------------------------

    def spawn(
        self,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: MailboxOptions | None,
        supervision: Supervision,
        access: AccessLike | None,
        parent: Cell | None = None,
    ) -> Address:
        """Make a worker and register it; see `Node.spawn` and `Worker.spawn`."""
        return self._spawn(factory, address, mailbox, supervision, access, parent).address

    async def start(
        self,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: MailboxOptions | None,
        supervision: Supervision,
        access: AccessLike | None,
        parent: Cell | None = None,
    ) -> Address:
        """Spawn a worker and wait until it has started; raise any error of `on_start`."""
        work = self._start(factory, address, mailbox, supervision, access, parent)
        return await self._run_queue.on_loop(work)

    async def _start(
        self,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: MailboxOptions | None,
        supervision: Supervision,
        access: AccessLike | None,
        parent: Cell | None,
    ) -> Address:
        cell = self._spawn(factory, address, mailbox, supervision, access, parent)
        if cell.state == NEW:
            cell.started = self._run_queue.loop.create_future()
            await cell.started
        return cell.address

    def adopt(self, worker: HostedActor) -> None:
        """Run a worker that was started as in Pykka."""
        own = (self._table.random_address(),)
        cell = Cell(self._run_queue, self, own, None, _MAILBOX, _LIKE_PYKKA, None)
        cell.registered = True
        self._admit(cell, worker)

    def _spawn(
        self,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: MailboxOptions | None,
        supervision: Supervision,
        access: AccessLike | None,
        parent: Cell | None,
    ) -> Cell:
        if mailbox is not None:
            check_value("mailbox", mailbox, MailboxOptions)
        check_value("supervision", supervision, Supervision)
        addresses = self._addresses(address)
        if parent is not None and parent.is_stopping:
            raise WorkerStopped(parent.address)
        self._table.check_free(addresses)
        given = mailbox or _MAILBOX
        cell = Cell(self._run_queue, self, addresses, factory, given, supervision, parent)
        if access is None:
            self._admit(cell, self._made(cell, factory, mailbox))
            return cell
        self._guards.add(cell, access)
        try:
            self._admit(cell, self._made(cell, factory, mailbox))
        except BaseException:
            self._guards.forget(cell)
            raise
        return cell

    @staticmethod
    def _made(cell: Cell, factory: Factory, mailbox: MailboxOptions | None) -> HostedActor:
        worker = factory()
        if mailbox is None:
            cell.take_mailbox(worker.default_mailbox)
        return worker

    def _admit(self, cell: Cell, worker: HostedActor) -> None:
        if self._run_queue.phase is not Phase.OPEN:
            raise self._run_queue.stopped_error()
        lifecycle.bind(cell, worker)
        has_start = worker._has_start()
        cell.state = NEW if has_start else RUNNING
        cell.scheduled = has_start
        with self._table.lock:
            self._table.check_free(cell.addresses)
            for each in cell.addresses:
                self._table.targets[each] = self._guards.target(cell, each)
            self._retired[-1] += 1
        if cell.parent is not None:
            if cell.parent.children is None:
                cell.parent.children = {}
            cell.parent.children[cell] = None
        join_inbox(worker, cell)
        if has_start:
            self._run_queue.schedule(cell)

    def _addresses(self, given: AddressLike | Iterable[AddressLike] | None) -> tuple[Address, ...]:
        if given is None:
            return (self._table.random_address(),)
        if isinstance(given, Address | str | bytes):
            return (address_of(given),)
        addresses = tuple(dict.fromkeys(map(address_of, given)))
        if not addresses:
            raise ValueError("a worker needs an address")
        return addresses

    def add_address(self, owner: AddressLike, extra: AddressLike) -> None:
        """Add an address to a worker; see `Node.add_address`."""
        added = address_of(extra)
        table = self._table
        with table.lock:
            cell = table.cell(owner)
            table.check_free((added,))
            cell.addresses = (*cell.addresses, added)
            table.targets[added] = self._guards.target(cell, added)

    def remove_address(self, extra: AddressLike) -> None:
        """Remove an address from its worker; see `Node.remove_address`."""
        removed = address_of(extra)
        table = self._table
        with table.lock:
            cell = table.cell(removed)
            if removed == cell.address:
                raise ValueError(f"{removed} is the primary address of {cell}")
            cell.addresses = tuple(each for each in cell.addresses if each != removed)
            del table.targets[removed]
            self._guards.exposures.forget(removed)

    # --- the host of cells --------------------------------------------------------------

    def join(self, cell: Cell, worker: HostedActor) -> None:
        """Give a new instance of a worker its node and its address."""
        worker._use(self._node, self._guards.sender_for(cell) or self._router)
        worker._join(cell)

    def abandon(self) -> None:
        """Count a worker that did not stop in time, or could not."""
        self._undeliverable.dead_letters.abandoned += 1

    def lose(self, message: Message, error: OnwardError) -> None:
        """Make a message a dead letter, and report the error to its sender."""
        self._undeliverable.lose(message, error)

    def dead_letter(self, message: Message, reason: str | OnwardError) -> None:
        """Make a message a dead letter."""
        self._undeliverable.dead_letter(message, reason)

    def return_to_sender(
        self, message: Message | None, error: OnwardError, own: tuple[Address, ...]
    ) -> bool:
        """Lose the message of an error that a worker has raised, and report it to its sender."""
        return self._undeliverable.return_to_sender(message, error, own)

    def link_of(self, message: Message) -> Cell | None:
        """Return the link that a message came over, if it came over one."""
        return self._table.link_of(message)

    def share_of(self, message: Message) -> Cell | None:
        """Return the link that a waiting message counts for, if it came over one."""
        return self._table.share_of(message)

    def forget(self, cell: Cell) -> None:
        """Remove a stopped worker from the table and keep its counts."""
        with self._table.lock:
            for each in cell.addresses:
                self._table.targets.pop(each, None)  # no error, as the rest must be done
            self._watches.pop(cell, None)
            self._losses.pop(cell, None)
            self._disconnected.discard(cell)
            self._retired[-1] -= 1
            self._retire(cell)
            self._guards.forget(cell)
        instruments = self._run_queue.instruments
        if instruments is not None:
            instruments.worker_stopped(cell.worker)

    def _retire(self, cell: Cell) -> None:
        kind, kinds = type(cell.worker).__name__, self._retired_by_kind
        if kind not in kinds and len(kinds) >= MAX_KINDS:
            kind = OTHER_KIND
        of_kind = kinds.setdefault(kind, [0, 0, 0, 0, 0])
        for index, count in enumerate(_counts(cell)):
            self._retired[index] += count
            of_kind[index] += count

    # --- watches ------------------------------------------------------------------------

    def watch(self, address: AddressLike, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function once, on the loop, when a worker has stopped; see `Node.watch`."""
        cell = self._table.cell(address)
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
        self,
        address: AddressLike,
        callback: Callable[[], object],
        connected: Callable[[], object] | None = None,
    ) -> Callable[[], None]:
        """Call a function each time a link loses its connection. Call it on the loop.

        A link that reconnects keeps its address, but the peer's state for the lost connection
        is gone.

        Args:
            address: The address of a link; for another worker the function is never called.
            callback: The function.
            connected: Called each time the link has another connection, if it makes some.

        Returns:
            A function that ends the watch.

        Raises:
            UnknownAddress: There is no such worker.
        """
        hooks = self._losses.setdefault(self._table.cell(address), [])
        hook = callback, connected
        hooks.append(hook)

        def unwatch() -> None:
            if hook in hooks:
                hooks.remove(hook)

        return unwatch

    def tell_loss(self, address: Address, *, reconnects: bool = False) -> None:
        """Call the callbacks for a lost connection of a link. For links.

        Args:
            address: The address of the link.
            reconnects: Whether it makes another connection, and calls `tell_connected` then.
        """
        cell = self._table.cell_at(address)
        if cell is None:
            return
        if reconnects:
            self._disconnected.add(cell)
        for callback, _ in tuple(self._losses.get(cell, ())):
            callback()

    def tell_connected(self, address: Address) -> None:
        """Call the callbacks for another connection of a link. For links that have lost one."""
        cell = self._table.cell_at(address)
        if cell is None or cell not in self._disconnected:
            return
        self._disconnected.remove(cell)
        for _, connected in tuple(self._losses.get(cell, ())):
            if connected is not None:
                connected()

    def is_disconnected(self, address: Address) -> bool:
        """Whether a link has lost its connection, and will tell once it has another one."""
        return self._table.cell_at(address) in self._disconnected

    def is_watched(self, address: AddressLike) -> bool:
        """Whether a callback waits for the end of a worker."""
        return self._table.cell(address) in self._watches

    # --- the end of the loop, or of the process ----------------------------------------

    def give_up_all(self) -> None:
        """Close every worker, and lose what waits, because the loop was closed."""
        for cell in self._table.cells():
            try:
                cell.give_up()
            except Exception as error:  # noqa: BLE001 - the others must be given up too
                self._run_queue.fault("giving up a worker", error)
        self._router.pending.close()

    def forked(self) -> None:
        """Drop all workers without dead letters in a forked process; they run on in its parent."""
        self._run_queue.forked()
        self._undeliverable.dead_letters.forked()
        self._router.pending.forked()
        self._retired[-1] = 0
        for cell in self._table.forked():
            cell.state = STOPPED
            cell.queue = None
            leave_behind(cell.worker)

    # --- statistics -------------------------------------------------------------------

    @property
    def retired_by_kind(self) -> Mapping[str, Sequence[int]]:
        """Handled, failed, refused and dropped messages, and restarts, of stopped workers by class.

        There are at most `MAX_KINDS` classes, and `OTHER_KIND` for the rest.
        """
        return self._retired_by_kind

    def statistics(self, *, workers: bool = True) -> NodeStatistics:
        """Return the counters of the node; see `Node.statistics`."""
        found = whole(self.figures())
        if not workers:
            return found
        return replace(found, workers=tuple(cell.statistics() for cell in self._table.cells()))

    def figures(self) -> Slices[NodeStatistics]:
        """Return the counters of the node, without those of each worker, in slices."""
        totals = self._retired[:-1]
        for number, part in enumerate(self._table.cells_in_slices()):
            if number:
                yield
            totals = [sum(column) for column in zip(totals, *map(_counts, part), strict=True)]
        dead_letters = self._undeliverable.dead_letters
        error_replies = self._undeliverable.error_replies
        by_reason = dead_letters.by_reason
        return NodeStatistics(
            name=self._run_queue.name,
            worker_count=self._retired[-1],
            requests=self._requests.count,
            pending=len(self._router.pending),
            handled=totals[0],
            failed=totals[1],
            refused=totals[2],
            dropped=totals[3],
            restarts=totals[4],
            abandoned=dead_letters.abandoned,
            dead_letters=sum(by_reason.values()),
            dead_letter_reasons=by_reason,
            denied=dead_letters.denied,
            error_replies=error_replies.sent,
            error_replies_dropped=error_replies.dropped,
            routes_cut=dead_letters.routes_cut,
            workers=(),
        )


def _counts(cell: Cell) -> tuple[int, int, int, int, int]:
    return cell.handled, cell.failed, cell.refused, cell.dropped, cell.restarts
