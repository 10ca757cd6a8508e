"""`Node`: a table of workers, the rules for other types of address, and one run queue."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

import pykka

from ..protocol import (
    LOCAL,
    MAX_ROUTE_LENGTH,
    Address,
    AddressInUse,
    AddressLike,
    Context,
    DeliveryError,
    Message,
    NodeStopped,
    OnwardError,
    PayloadTooBig,
    Route,
    RouteLike,
    RouteTooLong,
    UnknownAddress,
    UnknownAddressType,
    WorkerStopped,
    address as address_of,
    route as route_of,
)
from . import _lifecycle as lifecycle
from ._background import BackgroundNode
from ._cell import Cell, Factory, RoomLater, Target
from ._dead_letters import DeadLetters
from ._errors import LimitReached, RoutingLoop, WouldDeadlock
from ._policy import Mailbox, NodeLimits, OnFailure, Supervision
from ._requests import LATE_ANSWER, RandomAddresses, Requests
from ._state import NEW, RUNNING, STOPPING
from ._statistics import NodeStatistics
from ._transport import Listener, Transport, Transports

if TYPE_CHECKING:
    from ._worker import Worker

__all__ = ["Node", "Rule"]

T = TypeVar("T")

Rule: TypeAlias = Callable[[Message], Message | None]
"""Gives a message back with its first address replaced; `None`: it took the message over."""

_LIMITS: Final = NodeLimits()
_MAILBOX: Final = Mailbox()
_SUPERVISION: Final = Supervision()
_LIKE_PYKKA: Final = Supervision(OnFailure.STOP)

_IDLE, _OPEN, _CLOSING, _CLOSED = range(4)


class Node:
    """The workers of one place, and the router between them.

    ```python
    async with Node() as node:
        await node.start(Echo, address="echo")
        answer = await node.request("echo", b"hi")
    ```

    A node lives on the event loop it is entered on. `spawn`, `send`, `route`, `deliver`,
    `dead_letter`, `statistics` and the look-ups may be called from any thread; coroutine
    functions from any event loop.

    Args:
        name: For people; it is in logs and statistics.
        limits: How far everything in the node may grow.
        clock: What stamps dead letters, in seconds; the loop's clock by default.

    Attributes:
        name: As given.
        limits: As given.
        dead_letters: What could not be delivered.
    """

    def __init__(
        self,
        name: str = "node",
        *,
        limits: NodeLimits = _LIMITS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self.limits = limits
        self.clock = clock or self._loop_time
        self.dead_letters = DeadLetters(
            keep=limits.dead_letters, reasons=limits.dead_letter_reasons, clock=self.clock
        )
        self.abandoned = 0
        # What `Cell`, `Requests` and the lifecycle share with the node.
        self.table: dict[Address, Target] = {}
        self.lock = threading.RLock()
        self.context = copy_context()
        self.random_address = RandomAddresses().take
        self._ready: deque[Target] = deque()
        self._awake = False
        self._state = _IDLE
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._rules: dict[int, Rule] = {}
        self._requests = Requests(self)
        self._transports = Transports(self)
        self._stopped: asyncio.Future[None] | None = None
        self._workers = 0
        self._retired = [0, 0, 0, 0, 0]

    def __repr__(self) -> str:
        return f"<Node {self.name!r}>"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop it lives on.

        Raises:
            NodeStopped: It has not been entered yet.
        """
        if self._loop is None:
            raise NodeStopped(self.name, "not started")
        return self._loop

    # --- life -------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._state != _IDLE:
            raise NodeStopped(self.name, "a node can be started once")
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self.context = copy_context()
        self._state = _OPEN
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
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> BackgroundNode:
        """Make a node with a thread of its own, for plain synchronous code.

        Args:
            name: As for `Node`; also the thread's name.
            limits: As for `Node`.
            clock: As for `Node`.
            loop_factory: What makes the event loop; uvloop's where it is installed.

        Returns:
            A context manager that starts and stops the node, with blocking calls.
        """
        return BackgroundNode(cls(name, limits=limits, clock=clock), loop_factory=loop_factory)

    async def stop(self, *, timeout: float = 5.0) -> None:
        """Stop everything: workers, the last started first, then transports and requests.

        A worker finishes the message in hand; what waits in its mailbox becomes dead
        letters. One that does not stop in half of the time left is cancelled, and if that
        does not help given up, logged and counted. Nothing can be spawned any more.
        Idempotent; a second call waits for the first.

        Args:
            timeout: How long it may take, in seconds.

        Raises:
            WouldDeadlock: Called by a handler of a worker of this node.
        """
        if self._state in (_IDLE, _CLOSED):
            self._state = _CLOSED
            return
        await self._on_loop(self._stop(timeout))

    async def _stop(self, timeout: float) -> None:
        loop = self.loop
        cells = self._cells()
        if any(cell.task is asyncio.current_task() for cell in cells):
            raise WouldDeadlock("Node.stop()")
        if self._stopped is not None:
            await asyncio.shield(self._stopped)
            return
        self._stopped = loop.create_future()
        self._state = _CLOSING
        deadline = loop.time() + timeout
        try:
            tops = [cell for cell in reversed(cells) if cell.parent is None]
            await lifecycle.stop_in_order(tops, deadline)
            for transport in self._transports.take_all():
                await self._stop_transport(transport, deadline)
            self._requests.fail_all(self.name)
        finally:
            self._state = _CLOSED
            self._stopped.set_result(None)

    async def _stop_transport(self, transport: Transport, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(max(deadline, self.loop.time() + 0.1)):
                await transport.stop()
        except Exception:
            lifecycle.logger.exception("the transport %r did not stop", transport.scheme)

    async def stop_worker(self, address: AddressLike, *, timeout: float = 5.0) -> None:
        """Stop a worker once it has handled what waits for it, and wait until it has.

        Its children stop before it. One that does not stop in half the time is cancelled.

        Args:
            address: Any of its addresses.
            timeout: How long it may take, in seconds.

        Raises:
            UnknownAddress: There is no such worker.
            WouldDeadlock: Called by a handler of that worker; it has `Worker.stop`.
        """
        await self._on_loop(self._stop_worker(self._cell(address), timeout))

    async def _stop_worker(self, cell: Cell, timeout: float) -> None:
        if cell.task is not None and cell.task is asyncio.current_task():
            raise WouldDeadlock("Node.stop_worker()")
        await lifecycle.stop_within(cell, self.loop.time() + timeout, drain=True)

    # --- workers ----------------------------------------------------------------------

    def spawn(
        self,
        factory: Factory,
        *,
        address: AddressLike | Iterable[AddressLike] | None = None,
        mailbox: Mailbox = _MAILBOX,
        supervision: Supervision = _SUPERVISION,
    ) -> Address:
        """Make a worker and register it; `on_start` is its first turn.

        Args:
            factory: What makes the worker: a class, a partial, a lambda. It is called at
                once on this thread, and again for a restart.
            address: Its address or addresses, the primary one first; all are registered or
                none. By default one of 32 random hexadecimal digits.
            mailbox: How many messages may wait, and what happens at that limit.
            supervision: What happens when it fails.

        Returns:
            Its primary address.

        Raises:
            AddressInUse: Another worker has one of the addresses.
            LimitReached: The node has as many addresses as it may.
            NodeStopped: The node has not started, or is stopping.
        """
        return self._spawn(factory, address, mailbox, supervision, None).address

    async def start(
        self,
        factory: Factory,
        *,
        address: AddressLike | Iterable[AddressLike] | None = None,
        mailbox: Mailbox = _MAILBOX,
        supervision: Supervision = _SUPERVISION,
    ) -> Address:
        """Spawn a worker and wait until it has started; raises what `on_start` raises."""
        return await self._on_loop(self._start(factory, address, mailbox, supervision, None))

    def spawn_child(
        self,
        parent: Cell,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: Mailbox,
        supervision: Supervision,
    ) -> Address:
        """Do what `Worker.spawn` says."""
        return self._spawn(factory, address, mailbox, supervision, parent).address

    async def start_child(
        self,
        parent: Cell,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: Mailbox,
        supervision: Supervision,
    ) -> Address:
        """Do what `Worker.start_child` says."""
        return await self._on_loop(self._start(factory, address, mailbox, supervision, parent))

    async def _start(
        self,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: Mailbox,
        supervision: Supervision,
        parent: Cell | None,
    ) -> Address:
        cell = self._spawn(factory, address, mailbox, supervision, parent)
        if cell.state == NEW:
            cell.started = self.loop.create_future()
            await cell.started
        return cell.address

    def adopt(self, worker: Worker) -> None:
        """Run a worker that was started as in Pykka."""
        cell = Cell(self, (self.random_address(),), None, _MAILBOX, _LIKE_PYKKA, None)
        cell.registered = True
        self._admit(cell, worker)

    def _spawn(
        self,
        factory: Factory,
        address: AddressLike | Iterable[AddressLike] | None,
        mailbox: Mailbox,
        supervision: Supervision,
        parent: Cell | None,
    ) -> Cell:
        addresses = self._addresses(address)
        if parent is not None and parent.state >= STOPPING:
            raise WorkerStopped(parent.address)
        self._check_free(addresses)
        cell = Cell(self, addresses, factory, mailbox, supervision, parent)
        self._admit(cell, factory())
        return cell

    def _admit(self, cell: Cell, worker: Worker) -> None:
        if self._state != _OPEN:
            raise NodeStopped(self.name)
        lifecycle.bind(cell, worker)
        has_start = worker._has_start()
        cell.state = NEW if has_start else RUNNING
        cell.scheduled = has_start
        with self.lock:
            self._check_free(cell.addresses)
            for each in cell.addresses:
                self.table[each] = cell
            self._workers += 1
        if cell.parent is not None:
            if cell.parent.children is None:
                cell.parent.children = {}
            cell.parent.children[cell] = None
        lifecycle.join_inbox(worker, cell)
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
        """Give a worker one more address.

        Args:
            owner: An address it has.
            extra: The new one.

        Raises:
            UnknownAddress: There is no such worker.
            AddressInUse: A worker has the new address already.
            LimitReached: The node has as many addresses as it may.
        """
        added = address_of(extra)
        with self.lock:
            cell = self._cell(owner)
            self._check_free((added,))
            self.table[added] = cell
            cell.addresses = (*cell.addresses, added)

    def remove_address(self, extra: AddressLike) -> None:
        """Take an address from its worker.

        Raises:
            UnknownAddress: No worker has it.
            ValueError: It is the primary address.
        """
        removed = address_of(extra)
        with self.lock:
            cell = self._cell(removed)
            if removed == cell.address:
                raise ValueError(f"{removed} is the primary address of {cell}")
            cell.addresses = tuple(each for each in cell.addresses if each != removed)
            del self.table[removed]

    def has(self, address: AddressLike) -> bool:
        """Tell whether a worker, or a request's mailbox, has the address."""
        return address_of(address) in self.table

    def is_ephemeral(self, address: Address) -> bool:
        """Tell whether the address is that of a request waiting for its answer."""
        return address in self._requests

    def ref(self, address: AddressLike) -> pykka.ActorRef[Any]:
        """Return Pykka's ref to a worker, for `tell`, `ask` and proxies.

        Raises:
            UnknownAddress: There is no such worker.
        """
        worker = self._cell(address).worker
        assert worker is not None
        return worker.actor_ref

    def _cell(self, address: AddressLike) -> Cell:
        found = self.table.get(address_of(address))
        if not isinstance(found, Cell):
            raise UnknownAddress(address_of(address))
        return found

    def _cells(self) -> list[Cell]:
        return [
            target
            for address, target in list(self.table.items())
            if isinstance(target, Cell) and target.addresses[0] == address
        ]

    def forget(self, cell: Cell) -> None:
        """Take a stopped worker off the table and keep its counts."""
        with self.lock:
            for each in cell.addresses:
                if self.table.get(each) is cell:
                    del self.table[each]
            self._workers -= 1
            for index, count in enumerate(_counts(cell)):
                self._retired[index] += count

    # --- messages ---------------------------------------------------------------------

    def route(self, message: Message) -> None:
        """Hand a message to the worker its first onward address leads to.

        Safe from any thread; it never waits. When it returns the message is in a mailbox,
        or a rule has taken it over, or an overflow policy has dropped it.

        Raises:
            EmptyRoute: There is no onward address.
            UnknownAddress: No worker has the address.
            UnknownAddressType: There is no rule for the type of the address.
            MailboxFull: The worker does not keep up.
            RoutingLoop: Rules rewrote it too often.
            NodeStopped: The node has not started, or has stopped.
        """
        onward = message[0]
        target = self.table.get(onward[0]) if onward else None
        if target is None:
            self._reroute(message)
            return
        queue = target.queue
        if queue is None or len(queue) >= target.limit:
            target.put(message)
            return
        queue.append(message)
        if not target.scheduled:
            target.scheduled = True
            self._ready.append(target)
            if not self._awake:
                self._wake()

    def _reroute(self, message: Message) -> None:
        if self._state in (_IDLE, _CLOSED):
            raise NodeStopped(self.name)
        first = message.to
        for _ in range(self.limits.reroutes + 1):
            target = self.table.get(first)
            if target is not None:
                target.put(message)
                return
            rule = self._rule(first)
            if rule is None:
                self._unknown(message, first)
                return
            rewritten = rule(message)
            if rewritten is None:
                return
            message, first = rewritten, rewritten.to
        raise RoutingLoop(first, f"more than {self.limits.reroutes} times")

    def _rule(self, address: Address) -> Rule | None:
        rule = self._rules.get(address.type)
        if rule is None and address.type != LOCAL:
            with self.lock:
                transport = self._transports.for_type(address.type)
            if transport is None:
                raise UnknownAddressType(address)
            rule = self._rules[address.type]
        return rule

    def _unknown(self, message: Message, first: Address) -> None:
        if not self._requests.is_late(first):
            raise UnknownAddress(first)
        # Whoever answers cannot know that nobody waits any more; it is no error of theirs.
        self.dead_letter(message, LATE_ANSWER)

    async def route_wait(self, message: Message) -> None:
        """Do as `route`, but wait for room where the mailbox's policy is to wait.

        Raises:
            MailboxFull: The policy is another, or too many senders wait already.
            DeliveryError: As `route`.
        """
        try:
            self.route(message)
        except RoomLater as full:
            await self._on_loop(_put_when_room(full))

    def deliver(self, message: Message) -> bool:
        """Do as `route` for a message whose sender cannot be told of an error.

        For messages from outside. What cannot be delivered becomes a dead letter.

        Returns:
            Whether it was delivered.
        """
        onward, back = message[0], message[1]
        try:
            if max(len(onward), len(back)) > MAX_ROUTE_LENGTH:
                raise RouteTooLong(max(len(onward), len(back)), MAX_ROUTE_LENGTH)
            if onward and self._requests.is_late(onward[0]):
                raise _LateAnswer(onward[0])
            self.route(message)
        except OnwardError as error:
            self.dead_letter(message, error)
            return False
        return True

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
            route: Where to.
            payload: What.
            return_route: The way back; none by default.
            context: What travels with it inside the node.

        Raises:
            PayloadTooBig: The payload is over the limit.
            DeliveryError: As `route`.
        """
        self.check_payload(payload)
        back = self.route_of(return_route)
        self.route(Message(self.route_of(route), back, payload, None, context))

    async def send_wait(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike = (),
        context: Context | None = None,
    ) -> None:
        """Do as `send`, but wait for room where the mailbox's policy is to wait."""
        self.check_payload(payload)
        back = self.route_of(return_route)
        await self.route_wait(Message(self.route_of(route), back, payload, None, context))

    async def request(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> Message:
        """Send a message and wait for the answer.

        The return route is a mailbox of this one request, with a random address.

        Args:
            route: Where to.
            payload: What.
            timeout: How long to wait, in seconds.
            context: What travels with it inside the node.

        Returns:
            The first message that comes back. A further one has no such address.

        Raises:
            RequestTimeout: Nothing came back in time; it may still have been handled.
            MailboxFull: There was no room, in time where the policy is to wait.
            TooManyRequests: The node waits for as many answers as it may.
            NodeStopped: The node stopped.
            PayloadTooBig: The payload is over the limit.
            DeliveryError: As `route`.
        """
        return await self.request_from(None, route, payload, timeout, context)

    async def request_from(
        self,
        source: Address | None,
        route: RouteLike,
        payload: bytes,
        timeout: float,
        context: Context | None,
    ) -> Message:
        """Do what `request` says, for a worker."""
        if self._state in (_IDLE, _CLOSED):
            raise NodeStopped(self.name)
        self.check_payload(payload)
        work = self._requests.request(self.route_of(route), payload, timeout, source, context)
        return await self._on_loop(work)

    def fail_request(self, address: Address, error: OnwardError) -> bool:
        """Raise an error where a request waits, in place of an answer. Call it on the loop.

        For rules and transports that learn that no answer will come.

        Args:
            address: The mailbox of the request: the last step of its way back.
            error: What `request` is to raise.

        Returns:
            Whether a request waits there.
        """
        return self._requests.fail(address, error)

    def dead_letter(self, message: Message, reason: str | OnwardError) -> None:
        """Count and keep a message that cannot be delivered. Safe from any thread.

        Args:
            message: The message.
            reason: Why: a few words, the same for the same cause, or the error.
        """
        self.dead_letters.add(message, reason if isinstance(reason, str) else words_for(reason))

    def check_payload(self, payload: bytes) -> None:
        """Check the size of a payload.

        Raises:
            PayloadTooBig: It is over the limit.
        """
        if len(payload) > self.limits.payload:
            raise PayloadTooBig(len(payload), self.limits.payload)

    @staticmethod
    def route_of(given: RouteLike) -> Route:
        """Make a route of anything that reads as one; texts are read once and remembered."""
        if isinstance(given, str):
            return _parsed(given)
        return route_of(given)

    # --- rules and transports ---------------------------------------------------------

    def add_rule(self, address_type: int, rule: Rule) -> None:
        """Have a function resolve the addresses of a type, in place of any other.

        Args:
            address_type: 1 to 255. A worker that has the very address comes first.
            rule: Gives a message back with its first address replaced, or returns `None`
                when it has taken the message over. It runs on the sender's thread, must not
                block, and what it raises the sender gets.

        Raises:
            ValueError: The type is out of range.
        """
        if not LOCAL < address_type <= 255:
            raise ValueError(f"{address_type} is no address type a rule can be for")
        self._rules[address_type] = rule

    def remove_rule(self, address_type: int) -> None:
        """Remove the rule for a type of address, if there is one."""
        self._rules.pop(address_type, None)

    def add_transport(self, transport_class: type[Transport]) -> None:
        """Use a transport that is not in an entry point, before any that is."""
        self._transports.add(transport_class)
        if transport_class.address_type is not None:
            self._transports.make(transport_class)

    async def listen(
        self, uri: str, *, expose: Iterable[AddressLike] = (), **options: Any
    ) -> Listener:
        """Accept connections at a URI.

        Args:
            uri: Where; its scheme says by which transport.
            expose: The local addresses that are reachable from outside; none by default.
            **options: What the transport understands.

        Raises:
            UnknownScheme: There is no transport for the scheme.
        """
        exposed = frozenset(map(address_of, expose))
        return await self._on_loop(self._listen(uri, exposed, options))

    async def connect(
        self, uri: str, *, expose: Iterable[AddressLike] = (), **options: Any
    ) -> Address:
        """Connect to a URI.

        Args:
            uri: Where to; its scheme says by which transport.
            expose: The local addresses that the other side can reach; none by default.
            **options: What the transport understands.

        Returns:
            The address of the connection's worker: put it in front of a route.

        Raises:
            UnknownScheme: There is no transport for the scheme.
        """
        exposed = frozenset(map(address_of, expose))
        return await self._on_loop(self._connect(uri, exposed, options))

    async def _listen(self, uri: str, expose: frozenset[Address], options: Any) -> Listener:
        return await self._transport(uri).listen(uri, expose=expose, **options)

    async def _connect(self, uri: str, expose: frozenset[Address], options: Any) -> Address:
        return await self._transport(uri).connect(uri, expose=expose, **options)

    def _transport(self, uri: str) -> Transport:
        if self._state != _OPEN:
            raise NodeStopped(self.name)
        with self.lock:
            return self._transports.for_uri(uri)

    # --- the run queue ----------------------------------------------------------------

    def schedule(self, target: Target) -> None:
        """Append to the run queue. The caller has set `scheduled`."""
        self._ready.append(target)
        if not self._awake:
            self._wake()

    def _wake(self) -> None:
        # Two threads may both come here: a second drain finds nothing to do.
        self._awake = True
        try:
            self.call_on_loop(self._drain)
        except RuntimeError:
            # The loop was closed without stopping the node. Nobody will handle these.
            self._awake = False
            while self._ready:
                lifecycle.close_late(self._ready.popleft())

    def _drain(self) -> None:
        ready = self._ready
        left = self.limits.drain
        try:
            while ready and left > 0:
                left -= ready.popleft().turn()
        finally:
            if ready:
                self.loop.call_soon(self._drain, context=self.context)
            else:
                self._awake = False
                # A sender that saw the flag just before it was cleared counts on this.
                if ready:
                    self._wake()

    def on_loop_thread(self) -> bool:
        """Tell whether this thread is the one the node's loop runs on."""
        return threading.get_ident() == self._thread_id

    def call_on_loop(self, function: Callable[[], object]) -> None:
        """Have the loop call a function soon. From any thread."""
        loop = self.loop
        if threading.get_ident() == self._thread_id:
            loop.call_soon(function, context=self.context)
        else:
            loop.call_soon_threadsafe(function, context=self.context)

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._loop:
            return await work
        if self._loop is None:
            work.close()
            raise NodeStopped(self.name, "not started")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _loop_time(self) -> float:
        return self.loop.time()

    # --- statistics -------------------------------------------------------------------

    def statistics(self, *, workers: bool = True) -> NodeStatistics:
        """Return what is counted. Safe from any thread.

        Args:
            workers: Whether each worker's own statistics are included.
        """
        cells = self._cells()
        totals = [sum(column) for column in zip(self._retired, *map(_counts, cells), strict=True)]
        by_reason = self.dead_letters.by_reason
        return NodeStatistics(
            name=self.name,
            worker_count=self._workers,
            requests=len(self._requests),
            handled=totals[0],
            failed=totals[1],
            refused=totals[2],
            dropped=totals[3],
            restarts=totals[4],
            abandoned=self.abandoned,
            dead_letters=sum(by_reason.values()),
            dead_letter_reasons=by_reason,
            workers=tuple(cell.statistics() for cell in cells) if workers else (),
        )


class _LateAnswer(UnknownAddress):
    reason = LATE_ANSWER


async def _put_when_room(full: RoomLater) -> None:
    while True:
        await full.cell.room()
        try:
            full.cell.put(full.message)
        except RoomLater as again:
            full = again
        else:
            return


def _counts(cell: Cell) -> tuple[int, int, int, int, int]:
    return cell.handled, cell.failed, cell.refused, cell.dropped, cell.restarts


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Route:
    return route_of(text)


def words_for(error: OnwardError) -> str:
    """Return the few words an error is counted under."""
    if isinstance(error, DeliveryError):
        return error.reason
    name = type(error).__name__
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
