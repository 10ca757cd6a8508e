"""`Node`: a set of workers on one event loop, and what users do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Self

from ..protocol import (
    Address,
    AddressLike,
    Context,
    Message,
    OnwardError,
    RouteLike,
    address as address_of,
    check_bytes,
)
from ..protocol._closed import close_class
from ..protocol.options import check_timeout, check_value
from ._background import BackgroundNode
from ._parts import Parts
from ._transport import Listener, Transport
from .access._exposed import Exposed
from .access._guard import AccessLike
from .diagnostics._diagnostics import DiagnosticsOptions
from .instruments._composite import Instruments
from .instruments._instrument import Instrument, InstrumentT
from .instruments._statistics import NodeStatistics
from .routing._given import several
from .routing._router import from_code
from .routing._rules import Rule
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


class Node:
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
        self.parts: Final = Parts(self, name, limits, clock)
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

    # --- messages ---------------------------------------------------------------------

    def send(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike = (),
        context: Context | None = None,
    ) -> None:
        """Send a message. Safe from any thread.

        Args:
            route: The onward route.
            payload: The payload.
            return_route: The return route; none by default.
            context: The context of the message inside the node.

        Raises:
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit.
            DeliveryError: As `route`.
        """
        router = self.parts.router
        message = router.message_of(route, payload, return_route, context)
        context = message[4]
        if context is None or context[4] is None:
            router.dispatch(message)
        else:
            router.dispatch_outside(message)

    async def send_wait(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike = (),
        context: Context | None = None,
    ) -> None:
        """Send a message as `send`, but wait for room where the mailbox's policy is to wait."""
        router = self.parts.router
        await router.dispatch_outside_wait(router.message_of(route, payload, return_route, context))

    def route(self, message: Message) -> None:
        """Deliver a message to the worker at its first onward address.

        Safe from any thread; it never waits. When it returns, the message is in a mailbox,
        or a rule has taken it over, or an overflow policy has dropped it. The message counts as
        sent from outside of workers, whatever its `source`; workers use `Worker.route`.

        Raises:
            EmptyRoute: There is no onward address.
            UnknownAddress: No worker has the address.
            UnknownAddressType: There is no rule for the type of the address.
            MailboxFull: The worker does not keep up.
            AccessDenied: An access control denies it.
            RoutingLoop: Rules rewrote it too often.
            PayloadNotBytes: Its payload is not `bytes`.
            NodeStopped: The node has not started, or has stopped.
        """
        if type(message[2]) is not bytes:
            check_bytes(message[2])
        if message[3] is not None:
            message = from_code(message)
        context = message[4]
        if context is None or context[4] is None:
            self.parts.router.dispatch(message)
        else:
            self.parts.router.dispatch_outside(message)

    async def route_wait(self, message: Message) -> None:
        """Deliver a message as `route`, but wait for room where the mailbox's policy is to wait.

        Raises:
            MailboxFull: The policy is another one, or too many senders wait already.
            DeliveryError: As `route`.
        """
        check_bytes(message[2])
        await self.parts.router.dispatch_outside_wait(from_code(message))

    def request(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> Coroutine[Any, Any, Message]:
        """Send a message and wait for the answer.

        The return route is a mailbox of this one request, with a random address.

        Args:
            route: The onward route.
            payload: The payload.
            timeout: Time to wait, in seconds. It becomes the message's deadline, after
                which no worker of the node handles it.
            context: The context of the message inside the node; its deadline is kept, if it has
                one.

        Returns:
            The first answer. A further one is for an unknown address.

        Raises:
            RequestTimeout: No answer came in time; the message may still have been handled.
            MailboxFull: There was no room, or none in time where the policy is to wait.
            TooManyRequests: The node waits for as many answers as it may.
            NodeStopped: The node stopped.
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit.
            Refused: An error reply came; the message was certainly not handed over.
            GivenUp: An error reply came; the message was handed over, or may have been.
            DeliveryError: As `route`.
        """
        return self.parts.requests.request(None, route, payload, timeout, context)

    def fail_request(self, address: Address, error: OnwardError) -> bool:
        """Raise an error in a waiting request, in place of an answer. Call it on the loop.

        For rules and transports that learn that no answer will come.

        Args:
            address: The mailbox of the request: the last address of its return route.
            error: The error that `request` raises.

        Returns:
            Whether a request waits there.
        """
        return self.parts.undeliverable.fail_request(address, error)

    def lose(self, message: Message, error: OnwardError) -> None:
        """Make a message a dead letter, and report the error to its sender.

        A request of this node raises the error. Any other sender gets an error reply, if the
        node sends them. If the message is the answer to a request of this node, that request
        raises `GivenUp`. For rules and workers that have taken a message over and cannot deliver
        it. Safe from any thread.

        Args:
            message: The message.
            error: The cause; the request raises it.
        """
        self.parts.undeliverable.lose(message, error)

    def answer_error(self, message: Message, reason: str, *, certain: bool = True) -> bool:
        """Report to the sender of a message that it will not be handled. Safe from any thread.

        A request of this node raises `Refused` or `GivenUp`. Any other sender gets an error
        reply, if the node sends them and the message has a return route.

        Args:
            message: The message, as it came to the worker.
            reason: The reason, in a few words that may be disclosed to any peer.
            certain: Whether the message has certainly had no effect, so that it is safe to
                send it again.

        Returns:
            Whether the error is reported.
        """
        return self.parts.undeliverable.answer_error(message, reason, certain=certain)

    def dead_letter(self, message: Message, reason: str | OnwardError) -> None:
        """Count and keep a message that cannot be delivered. Safe from any thread.

        Args:
            message: The message.
            reason: A few words, the same for the same cause, or the error.
        """
        self.parts.undeliverable.dead_letter(message, reason)

    # --- rules ------------------------------------------------------------------------

    def add_rule(self, address_type: int, rule: Rule, *, owner: object = None) -> None:
        """Add a rule that resolves the addresses of a type.

        Args:
            address_type: 1 to 255. A worker at the same address has precedence.
            rule: Function that returns the message with its first address replaced; a list of
                such messages, for several receivers; a `Pending`, so that the node keeps the
                message until the rule can resolve it; or `None` when it has taken the message
                over. It runs on the sender's thread, must not block, and raises its errors to the
                sender. Of several messages, those that cannot be delivered are dead letters; only
                if none can is the first error raised. A rule for one of them may not return
                several again.
            owner: The owner of the rule, by default the rule itself. Only the owner can replace
                its rule.

        Raises:
            ValueError: The type is out of range.
            RuleInUse: The type has a rule of another owner.
        """
        self.parts.router.rules.add(address_type, rule, owner)

    def remove_rule(self, address_type: int, *, owner: object = None) -> bool:
        """Remove the rule for a type of address, if it is the owner's.

        Messages that wait for the rule are lost, with `UnknownAddressType`.

        Args:
            address_type: The type.
            owner: The owner of the rule; by default a rule is removed that was added without
                an owner.

        Returns:
            Whether a rule of the owner was removed.
        """
        return self.parts.router.remove_rule(address_type, owner)

    # --- transports and exposed addresses ---------------------------------------------

    def add_transport(self, transport_class: type[Transport]) -> None:
        """Add a transport without an entry point; it precedes those with one."""
        self.parts.transports.add(transport_class)

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
        return self.parts.transports.use(scheme)

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
        work = self.parts.transports.listen(uri, exposed, error_replies, options)
        return await self.parts.run_queue.on_loop(work)

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
        work = self.parts.transports.connect(uri, exposed, error_replies, options)
        return await self.parts.run_queue.on_loop(work)

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
        self.parts.guards.expose(at, address)

    def hide(self, at: AddressLike, address: AddressLike) -> bool:
        """Undo `expose`. Addresses that a link was configured to expose stay exposed.

        Args:
            at: As given to `expose`.
            address: As given to `expose`.

        Returns:
            Whether the address was exposed there.
        """
        return self.parts.guards.hide(at, address)


close_class(Node)
