"""`Node`: a set of workers on one event loop, and what users do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Self

from ..protocol import (
    Address,
    AddressLike,
    address as address_of,
)
from ..protocol._closed import close_class
from ..protocol.options import check_timeout, check_value
from ._background import BackgroundNode
from ._node_places import NodePlaces
from ._parts import Parts
from .access._guard import AccessLike
from .diagnostics._diagnostics import DiagnosticsOptions
from .instruments._composite import Instruments
from .instruments._instrument import Instrument, InstrumentT
from .instruments._statistics import NodeStatistics
from .runtime._cell import Factory
from .runtime._host import HostedActor
from .runtime._policy import MailboxOptions, NodeLimits, Supervision
from .runtime._run_queue import Phase

if TYPE_CHECKING:
    import pykka


__all__ = ["Node"]

_LIMITS: Final = NodeLimits()
_DIAGNOSTICS: Final = DiagnosticsOptions()
_SUPERVISION: Final = Supervision()


class Node(NodePlaces):
    """A set of workers on one event loop, and the router between them.

    ```python
    async with Node() as node:
        await node.start(Echo, address="echo")
        answer = await node.request("echo", b"hi")
    ```

    A node runs on the event loop it is entered on. `spawn`, `send`, `route`,
    `dead_letter`, `statistics` and the look-ups may be called from any thread; coroutine
    functions from any event loop.

    Args:
        name: The name of the node in logs and statistics.
        limits: The limits of the node.
        clock: The clock of dead letters, in seconds; the loop's clock by default.
        error_replies: Whether a message that cannot be delivered is answered with an error
            reply along its return route. They leave the node only over links that permit them.
        diagnostics: The problems of workers to detect and log. By default those that cost
            nothing to detect: mailboxes that are nearly full, and routes that grow or are cut.
            With `None` there are no diagnostics.

    Attributes:
        name: As given.
        limits: As given.
        dead_letters: The messages that could not be delivered.
        parts: The parts of the node, for the packages of this project. Not for users: they change
            without notice.
    """

    def __init__(
        self,
        name: str = "node",
        *,
        limits: NodeLimits = _LIMITS,
        clock: Callable[[], float] | None = None,
        error_replies: bool = False,
        diagnostics: DiagnosticsOptions | None = _DIAGNOSTICS,
    ) -> None:
        check_value("name", name, str)
        check_value("limits", limits, NodeLimits)
        check_value("diagnostics", diagnostics, DiagnosticsOptions | None)
        self.name: Final = name
        self.limits: Final = limits
        self.parts = Parts(self, name, limits, clock)
        self.dead_letters: Final = self.parts.undeliverable.dead_letters
        self._unsubscribe: Callable[[], None] | None = None
        if diagnostics is not None:
            self.add_instrument(diagnostics.instrument(self))
        self.parts.undeliverable.error_replies.on = error_replies

    def __repr__(self) -> str:
        return f"<Node {self.name!r}>"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the node.

        Raises:
            NodeNotStarted: The node has not been started yet.
        """
        return self.parts.run_queue.loop

    # --- life -------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.parts.run_queue.open()
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.stop()

    @classmethod
    def in_background(
        cls,
        name: str = "node",
        *,
        limits: NodeLimits = _LIMITS,
        clock: Callable[[], float] | None = None,
        error_replies: bool = False,
        diagnostics: DiagnosticsOptions | None = _DIAGNOSTICS,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> BackgroundNode:
        """Make a node with its own thread, for synchronous code.

        Args:
            name: As for `Node`; also the thread's name.
            limits: As for `Node`.
            clock: As for `Node`.
            error_replies: As for `Node`.
            diagnostics: As for `Node`.
            loop_factory: Function that makes the event loop; uvloop's where it is installed.

        Returns:
            A context manager that starts and stops the node, with blocking calls.
        """
        node = cls(
            name, limits=limits, clock=clock, error_replies=error_replies, diagnostics=diagnostics
        )
        return BackgroundNode(node, loop_factory=loop_factory)

    async def stop(self, *, timeout: float = 5.0) -> None:
        """Stop the workers, the last started first, then transports and requests.

        A worker finishes the message in hand; the messages in its mailbox become dead
        letters. A worker that does not stop in half of the time left is cancelled, and if that
        does not help, given up, logged and counted. No worker can be spawned any more.
        Idempotent; a second call waits for the first.

        Args:
            timeout: Time to stop, in seconds. A quarter of it is kept for an event
                log, if there is one; that has at least 0.2 seconds.

        Raises:
            WouldDeadlock: Called by a handler of a worker of this node.
        """
        check_timeout(timeout)
        run_queue = self.parts.run_queue
        if run_queue.phase in (Phase.NOT_STARTED, Phase.CLOSED):
            run_queue.phase = Phase.CLOSED
            return
        await run_queue.on_loop(self.parts.shutdown.stop(timeout))

    # --- instruments ------------------------------------------------------------------

    @property
    def instruments(self) -> Instruments | None:
        """The instruments of the node as one, if there are any."""
        return self.parts.run_queue.instruments

    def add_instrument(self, instrument: Instrument) -> None:
        """Add an instrument, which is told from now on of what happens at the node.

        Safe from any thread. Adding it again has no effect. An instrument that raises an
        exception is logged and removed.
        """
        check_value("instrument", instrument, Instrument)
        with self.parts.table.lock:
            present = self.instruments
            given = () if present is None else present.given
            if instrument not in given:
                self._set_instruments((*given, instrument))

    def remove_instrument(self, instrument: Instrument) -> bool:
        """Remove an instrument. Safe from any thread.

        Returns:
            Whether the node had it.
        """
        with self.parts.table.lock:
            present = self.instruments
            if present is None or instrument not in present.given:
                return False
            self._set_instruments(tuple(each for each in present.given if each is not instrument))
            return True

    def find_instrument(self, kind: type[InstrumentT]) -> InstrumentT | None:
        """Return the first instrument of a class, if the node has one."""
        return None if self.instruments is None else self.instruments.find(kind)

    def _set_instruments(self, given: tuple[Instrument, ...]) -> None:
        # Made first: if that raises, the node keeps the instruments that it has.
        made = Instruments(given, self.remove_instrument) if given else None
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self.parts.run_queue.instruments = made
        self.parts.run_queue.sampler = made if made is not None and made.samples else None
        if made is not None and made.loses:
            self._unsubscribe = self.dead_letters.subscribe(
                lambda letter: made.message_lost(letter.message, letter.reason)
            )
        for cell in self.parts.table.cells():
            cell.handle = None  # it is bound anew, with the instruments that observe handlers
        if made is not None:
            made.begin()

    # --- workers ----------------------------------------------------------------------

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
        return self.parts.workers.spawn(factory, address, mailbox, supervision, access)

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
        return await self.parts.workers.start(factory, address, mailbox, supervision, access)

    async def stop_worker(self, address: AddressLike, *, timeout: float = 5.0) -> None:
        """Stop a worker once it has handled its waiting messages, and wait for its end.

        Its children stop first. A worker that does not stop in half the time is cancelled.

        Args:
            address: Any of its addresses.
            timeout: Time to stop, in seconds.

        Raises:
            UnknownAddress: There is no such worker.
            WouldDeadlock: Called by a handler of that worker, which can use `Worker.stop`.
        """
        cell = self.parts.table.cell(address)
        work = self.parts.shutdown.stop_worker(cell, check_timeout(timeout))
        await self.parts.run_queue.on_loop(work)

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
        self.parts.workers.add_address(owner, extra)

    def remove_address(self, extra: AddressLike) -> None:
        """Remove an address from its worker.

        Raises:
            UnknownAddress: No worker has the address.
            ValueError: It is the primary address.
        """
        self.parts.workers.remove_address(extra)

    def random_address(self) -> Address:
        """Return a local address that has never been used."""
        return self.parts.table.random_address()

    def has(self, address: AddressLike) -> bool:
        """Whether a worker or a waiting request has the address."""
        return address_of(address) in self.parts.table.targets

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
        return self.parts.workers.watch(address, callback)

    def ref(self, address: AddressLike) -> pykka.ActorRef[Any]:
        """Return Pykka's reference to a worker, for `tell`, `ask` and proxies.

        Raises:
            UnknownAddress: There is no such worker.
        """
        worker: HostedActor = self.parts.table.cell(address).worker
        return worker.actor_ref

    def statistics(self, *, workers: bool = True) -> NodeStatistics:
        """Return the counters of the node. Safe from any thread.

        Args:
            workers: Whether each worker's own statistics are included.
        """
        return self.parts.workers.statistics(workers=workers)


close_class(Node)
