"""`Node`: an address table, rules for other address types, and one run queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

from ..protocol import LOCAL, Address, AddressLike
from ..protocol.options import check_timeout, check_value
from ._background import BackgroundNode
from ._errors import WouldDeadlock
from ._log import shown
from ._several import several
from ._transport import Listener, Transport, Transports
from ._workers import Workers
from .access._exposed import Exposed
from .instruments._instrument import Instrument, Instruments, InstrumentT
from .instruments._options import DiagnosticsOptions
from .routing._router import Rule
from .runtime import _lifecycle as lifecycle
from .runtime._cell import Cell
from .runtime._policy import NodeLimits
from .runtime._run_queue import Phase

__all__ = ["Node"]

_LIMITS: Final = NodeLimits()
_DIAGNOSTICS: Final = DiagnosticsOptions()

EXPOSED_WITHIN: Final = 1.0
"""Seconds after which an exposed address without a worker is logged."""

LAST_SHARE: Final = 0.25
"""The part of the time to stop that is kept for workers that stop last."""

LAST_SECONDS: Final = 0.2
"""Seconds that the workers that stop last have at least."""


class Node(Workers):
    """A set of workers on one event loop, and the router between them.

    ```python
    async with Node() as node:
        await node.start(Echo, address="echo")
        answer = await node.request("echo", b"hi")
    ```

    A node runs on the event loop it is entered on. `spawn`, `send`, `route`, `deliver`,
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
        super().__init__(name, limits, clock)
        self._unsubscribe: Callable[[], None] | None = None
        if diagnostics is not None:
            self.add_instrument(diagnostics.instrument(self))
        self.error_replies.on = error_replies
        self._transports = Transports(self)
        self._stopped: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Node {self.name!r}>"

    # --- life -------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._open()
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
        if self.phase in (Phase.NOT_STARTED, Phase.CLOSED):
            self.phase = Phase.CLOSED
            return
        await self._on_loop(self._stop(timeout))

    async def _stop(self, timeout: float) -> None:
        loop = self.loop
        cells = self._cells()
        if any(cell.task is asyncio.current_task() for cell in cells):
            raise WouldDeadlock(
                "Node.stop()", "waits for the handler that awaits it; stop the node from outside"
            )
        if self._stopped is not None:
            await asyncio.shield(self._stopped)
            return
        self._stopped = loop.create_future()
        self.phase = Phase.CLOSING
        deadline = loop.time() + timeout
        try:
            tops = [cell for cell in reversed(cells) if cell.parent is None]
            last = [cell for cell in tops if cell.worker.stops_last]
            # Part of the time is kept for the workers that stop last.
            sooner = deadline - timeout * LAST_SHARE if last else deadline
            await lifecycle.stop_in_order([cell for cell in tops if cell not in last], sooner)
            for transport in self._transports.take_all():
                await self._stop_transport(transport, sooner)
            self._rules.pending.close()
            self._requests.close(self.name)
            await lifecycle.stop_in_order(last, max(deadline, loop.time() + LAST_SECONDS))
        finally:
            self.phase = Phase.CLOSED
            self._stopped.set_result(None)

    async def _stop_transport(self, transport: Transport, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(max(deadline, self.loop.time() + 0.1)):
                await transport.stop()
        except Exception:  # noqa: BLE001 - the others have to be stopped too
            lifecycle.logger.exception("the transport %r did not stop", transport.scheme)

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
        work = self._stop_worker(self._cell(address), check_timeout(timeout))
        await self._on_loop(work)

    async def _stop_worker(self, cell: Cell, timeout: float) -> None:
        if cell.task is not None and cell.task is asyncio.current_task():
            raise WouldDeadlock(
                "Node.stop_worker()", "waits for the handler that awaits it; use Worker.stop"
            )
        await lifecycle.stop_within(cell, self.loop.time() + timeout, drain=True)

    # --- instruments ------------------------------------------------------------------

    def add_instrument(self, instrument: Instrument) -> None:
        """Add an instrument, which is told from now on of what happens at the node.

        Safe from any thread. Adding it again has no effect. An instrument that raises an
        exception is logged and removed.
        """
        check_value("instrument", instrument, Instrument)
        with self.lock:
            present = self.instruments
            given = () if present is None else present.given
            if instrument not in given:
                self._set_instruments((*given, instrument))

    def remove_instrument(self, instrument: Instrument) -> bool:
        """Remove an instrument. Safe from any thread.

        Returns:
            Whether the node had it.
        """
        with self.lock:
            present = self.instruments
            if present is None or instrument not in present.given:
                return False
            self._set_instruments(tuple(each for each in present.given if each is not instrument))
            return True

    def find_instrument(self, kind: type[InstrumentT]) -> InstrumentT | None:
        """Return the first instrument of a class, if the node has one."""
        return None if self.instruments is None else self.instruments.find(kind)

    def _set_instruments(self, given: tuple[Instrument, ...]) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        made = self.instruments = Instruments(given, self.remove_instrument) if given else None
        if made is not None and made.loses:
            self._unsubscribe = self.dead_letters.subscribe(
                lambda letter: made.message_lost(letter.message, letter.reason)
            )
        for cell in self._cells():
            cell.handle = None  # it is bound anew, with the instruments that observe handlers
        if made is not None:
            made.begin()

    # --- rules and transports ---------------------------------------------------------

    def add_transport(self, transport_class: type[Transport]) -> None:
        """Add a transport without an entry point; it precedes those with one."""
        self._transports.add(transport_class)

    def transport(self, scheme: str) -> Transport:
        """Return the node's transport for a scheme; load and make it if necessary.

        With it, options can be set for addresses in routes, which have no place for them.
        Safe from any thread.

        Args:
            scheme: A scheme, such as `tcp`, or a URI.

        Raises:
            UnknownScheme: There is no transport for the scheme.
            NodeStopped: The node has not started, or is stopping.
        """
        if self.phase is not Phase.OPEN:
            raise self.stopped_error()
        with self.lock:
            return self._transports.for_uri(scheme)

    async def listen(
        self,
        uri: str,
        *,
        expose: Iterable[AddressLike] = (),
        allow: Iterable[AddressLike] = (),
        error_replies: bool = False,
        **options: Any,
    ) -> Listener:
        """Accept connections at a URI.

        Args:
            uri: The URI to listen at; its scheme selects the transport.
            expose: The local addresses that are reachable from outside; none by default. An
                address that no worker has a second later is logged as a warning.
            allow: The addresses that messages from outside may visit behind exposed workers,
                besides the exposed ones. In a value, `*` stands for any text: `"order-*"`,
                `"1#10.0.0.*:4000"`. None by default, so that no peer can make this node connect
                to places of its choice.
            error_replies: Whether error replies of this node may go to the peers.
            **options: The options of the transport.

        Raises:
            UnknownScheme: There is no transport for the scheme.
            TypeError: `expose` or `allow` is one address and not several, or there is no such
                option.
        """
        exposed = Exposed(several("expose", expose), several("allow", allow))
        return await self._on_loop(self._listen(uri, exposed, error_replies, options))

    async def connect(
        self,
        uri: str,
        *,
        expose: Iterable[AddressLike] = (),
        allow: Iterable[AddressLike] = (),
        error_replies: bool = False,
        **options: Any,
    ) -> Address:
        """Connect to a URI.

        Args:
            uri: The URI to connect to; its scheme selects the transport.
            expose: The local addresses that the peer can reach; none by default.
            allow: As for `listen`.
            error_replies: Whether error replies of this node may go to the peer.
            **options: The options of the transport.

        Returns:
            The address of the link: put it in front of a route.

        Raises:
            UnknownScheme: There is no transport for the scheme.
            TypeError: `expose` or `allow` is one address and not several, or there is no such
                option.
        """
        exposed = Exposed(several("expose", expose), several("allow", allow))
        return await self._on_loop(self._connect(uri, exposed, error_replies, options))

    async def _listen(
        self,
        uri: str,
        expose: Exposed,
        error_replies: bool,
        options: Any,
    ) -> Listener:
        listener = await self.transport(uri).listen(uri, expose=expose, **options)
        self._look_at_exposed(expose, listener.uri)
        self._note(listener.address, self._exposures.listeners)
        if error_replies:
            self._note(listener.address, self._exposures.error_replies)
        return listener

    async def _connect(
        self,
        uri: str,
        expose: Exposed,
        error_replies: bool,
        options: Any,
    ) -> Address:
        address = await self.transport(uri).connect(uri, expose=expose, **options)
        self._look_at_exposed(expose, uri)
        if error_replies:
            self._note(address, self._exposures.error_replies)
        return address

    def _look_at_exposed(self, exposed: frozenset[Address], uri: str) -> None:
        """Log exposed addresses that no worker has a little later: a name may be misspelt."""
        if self._missing(exposed):
            # A program may listen first and spawn the workers then.
            self.loop.call_later(EXPOSED_WITHIN, self._tell_missing, exposed, uri)

    def _tell_missing(self, exposed: frozenset[Address], uri: str) -> None:
        missing = self._missing(exposed)
        if missing and self.phase is Phase.OPEN:
            text = "node %r exposes addresses at %s that no worker has: %s"
            names = ", ".join(map(str, missing))
            lifecycle.logger.warning(text, self.name, shown(uri), shown(names))

    def _missing(self, exposed: frozenset[Address]) -> list[Address]:
        expected = self._exposures.expected
        return sorted(
            each
            for each in exposed
            if each.type == LOCAL and each not in expected and not self.has(each)
        )

    def _note(self, at: Address, places: set[Address]) -> None:
        with self.lock:
            if self.has(at):  # or the entry would outlive the worker
                places.add(at)

    def _load_rule(self, address_type: int) -> Rule | None:
        with self.lock:
            self._transports.for_type(address_type)
        return self._rules.made.get(address_type)
