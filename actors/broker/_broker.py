"""The broker: a worker that holds the tag index and registers destinations."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import random
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...protocol import (
    TAGS,
    Address,
    AddressLike,
    DeliveryError,
    NodeStopped,
    NotDelivered,
    UnknownAddress,
    WorkerFailed,
    address,
)
from ...protocol._closed import close_class
from ...protocol.broker import (
    OWNER_KEY,
    Dialect,
    Entry,
    RouteAdd,
    RouteRemove,
    RouteSetup,
    SnapshotRoute,
    TagList,
    TagSet,
    WellKnownKey,
    check_default_tags,
    make_tags,
    with_owner,
)
from ...protocol.options import check_value
from ...protocol.security import ANONYMOUS, Action, NotAllowed, Principal
from .._errors import LimitReached
from .._worker import Worker
from ..runtime._policy import MailboxOptions
from ..runtime._slices import Slices, whole
from ..security import Authorization
from ._drain import Drain, DrainPart, DrainSteps
from ._exchange import Exchange, requester_of
from ._management import MANAGEMENT_SERVICE, AdminAnswers, management
from ._options import BrokerOptions, DrainOptions, WaitingOptions
from ._reports import BrokerStatistics, Figures, LimitUse, ReportedListener, Reports
from ._tally import RequestTally
from .local._handlers import Handlers
from .table._events import BrokerEvent
from .table._explain import Resolution, explain
from .table._index import TagIndexWorker
from .table._leaving import NOT_ALLOWED, WITHDRAWN, WORKER_STOPPED
from .table._peers import RESERVED_SERVICES
from .table._remote import AnyRoute, own_route
from .table._route import BrokerRoute, Destination, RouteStatistics, readable, told_owner
from .table._selector import Ask

if TYPE_CHECKING:
    from .._node import Node
    from ..routing._dead_letters import DeadLetter

__all__ = ["Broker", "Registration"]

DEFAULT_ADDRESS: Final = "broker"

_MANAGEMENT: Final = (int(WellKnownKey.SERVICE_NAME), MANAGEMENT_SERVICE)


def _checked(service: str, route_id: UUID | None) -> UUID:
    """Return the route id, or a new one, if a ROUTE_SETUP can carry it and the name."""
    identity = route_id or uuid.uuid4()
    RouteSetup(identity.bytes, service).serialize(Dialect.SPECIFICATION)
    return identity


class Registration:
    """A handle for a destination in the table, which withdraws it."""

    __slots__ = ("_broker", "_entry")

    def __init__(self, broker: Broker, entry: Entry[AnyRoute]) -> None:
        self._broker = broker
        self._entry = entry

    @property
    def _route(self) -> BrokerRoute:
        return own_route(self._entry)

    @property
    def route_id(self) -> UUID:
        """The destination's identity."""
        return UUID(bytes=self._entry.route_id)

    @property
    def address(self) -> Address:
        """The address of the worker that takes its requests."""
        return self._entry.target.to

    @property
    def current(self) -> bool:
        """Whether it is still in the table and has not been replaced."""
        return self._broker.index.table.get(self._entry.route_id) is self._entry

    def pass_over(self) -> None:
        """Prefer other destinations from now on, where a request can go to another."""
        self._route.pass_over()

    def suspend(self) -> bool:
        """Hide the destination, as its session is suspended; return False if it has left."""
        return self._broker.index.suspend(self._entry)

    def resume(self) -> bool:
        """Show the destination again; return False if it has left meanwhile."""
        resumed = self._broker.index.resume(self._entry)
        if resumed is not None:
            self._entry = resumed
        return resumed is not None

    def on_leave(self, callback: Callable[[], None]) -> None:
        """Set the one function that is called when the destination leaves the table."""
        self._route.unwatch = callback

    def withdraw(self, reason: str = WITHDRAWN) -> bool:
        """Remove the destination from the table at once.

        Args:
            reason: Why, in a few words, for the event log.

        Returns:
            Whether it was still in the table. A destination that has been replaced was not;
            its replacement stays.
        """
        return self._broker.index.leave(self._entry, reason)


close_class(Registration)


class Broker(Worker):
    """A worker that routes requests to destinations by tags.

    Attach one to a node. Workers of the node can then register as destinations and send to
    addresses of type 32. Listeners with this broker add connections as destinations and
    requesters:

        async with Node("edge") as node:
            broker = await Broker.attach(node)
            broker.register("echo", service="echo", tags={"region": "eu"})
            reply = await node.request("32#service=echo region=eu", b"hi")

    Attributes:
        broker_id: The identity of this broker.
        index: The worker that holds the routing table.
        tally: The counts of the requests of its connections.
        forwarded: The counts of the requests that other brokers have forwarded to this one, which
            are in the `tally` of the other.
        events: The broker's events: `events.subscribe()` yields destinations that join and
            leave, and requests that are rejected or lost.
        authorization: The decisions on what the peers of connections may register and request;
            `None`: all of them may do anything.
        operations: The operations of the program, by name, such as `drain`. The management service
            offers them to principals that may `operate`; without authorization, to none.
        admin: The answers of the admin interface, for questions to the management service; `None`:
            there are none.
        events_of_all: The events of all processes of which this broker is one, for those that
            watch them at a listener that the processes share; `None`: it is a broker alone.
    """

    def __init__(
        self,
        options: BrokerOptions = BrokerOptions(),  # noqa: B008 - frozen
        authorization: Authorization | None = None,
        broker_id: uuid.UUID | None = None,
    ) -> None:
        check_value("options", options, BrokerOptions)
        super().__init__()
        self.options = options
        self.authorization = authorization
        self.broker_id = broker_id or uuid.uuid4()
        self.index = TagIndexWorker(options, self.broker_id.bytes)
        self.events = self.index.events
        self.tally = RequestTally()
        self.forwarded = RequestTally()
        self._lost = 0
        self._reports = Reports(options.max_reports)
        self._unsubscribe: Callable[[], None] | None = None
        self.operations: dict[str, Callable[[], Awaitable[object]]] = {}
        self.admin: AdminAnswers | None = None
        self.events_of_all: Callable[[], AsyncIterator[BrokerEvent]] | None = None
        self._parts: dict[DrainPart, None] = {}
        self._drain: Drain | None = None
        self._draining: asyncio.Task[bool] | None = None
        self._unwatch: Callable[[], None] | None = None

    @classmethod
    async def attach(
        cls,
        node: Node,
        options: BrokerOptions = BrokerOptions(),  # noqa: B008 - frozen
        *,
        address: AddressLike = DEFAULT_ADDRESS,
        authorization: Authorization | None = None,
        broker_id: uuid.UUID | None = None,
    ) -> Broker:
        """Start a broker on a node.

        Args:
            node: The node.
            options: The limits of the broker.
            address: The address of its worker.
            authorization: The decisions on what the peers of connections may do; by default all of
                them may do anything. Workers of the node always may.
            broker_id: Its identity, for a broker that takes the place of one that has ended; by
                default a new one.

        Raises:
            AddressInUse: The node has a worker at this address already.
            RuleInUse: The node has a broker, at another address.
        """
        broker = cls(options, authorization, broker_id)
        await node.start(lambda: broker, address=address)
        return broker

    async def on_start(self) -> None:
        """Start the tag index and the management service."""
        own = self.address.value
        self._unsubscribe = self.node.dead_letters.subscribe(self._on_dead_letter)
        try:
            await self.start_child(
                lambda: self.index,
                address=Address(0, own + b"/tags"),
                mailbox=MailboxOptions(limit=self.options.max_mailbox),
            )
        except BaseException:
            self._unsubscribe()
            raise
        if self.options.management:
            self.serve(management(self), service=MANAGEMENT_SERVICE)
        if self.authorization is not None:
            self._unwatch = self.authorization.on_replace(self._on_other_rules)

    def on_stop(self) -> None:
        """Stop answering requests that become dead letters, and end a drain."""
        if self._draining is not None:
            self._draining.cancel()
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._unwatch is not None:
            self._unwatch()

    # --- destinations -----------------------------------------------------------------------

    def register(
        self,
        worker: AddressLike,
        *,
        service: str,
        tags: Mapping[str, str | None] | None = None,
        route_id: UUID | None = None,
    ) -> Registration:
        """Make a worker of this node a destination. Call it on the node's loop.

        The worker gets each request's data as the payload of a message and answers along
        the return route. When it stops it leaves the table. A request that it fails on or
        that it has when it stops is answered CANCELED.

        Args:
            worker: The worker that takes the requests.
            service: Its service name, 1 to 255 bytes.
            tags: More tags; keys are well-known names such as `region`, or any text.
            route_id: Its route id; a new one by default.

        Raises:
            UnknownAddress: There is no such worker.
            AddressError: A key cannot be read.
            BrokerFrameError: A tag or the name is too long, there are too many tags, or a
                default tag (ServiceName, RouteId) is not the destination's own.
            NotDelivered: The table is full.
            LimitReached: The node has as many addresses as it may.
        """
        target = address(worker)
        if not self.node.has(target):
            raise UnknownAddress(target)
        identity = _checked(service, route_id)
        destination = partial(
            Destination, identity, service, worker=target, link=False, peer="local"
        )
        registration = self._add(identity, service, make_tags(tags or {}), destination)
        stopped = partial(registration.withdraw, WORKER_STOPPED)
        registration.on_leave(self.node.watch(target, stopped))
        return registration

    def serve(
        self,
        handlers: Handlers,
        *,
        service: str,
        tags: Mapping[str, str | None] | None = None,
        route_id: UUID | None = None,
    ) -> Registration:
        """Make handlers a destination, for all interactions. Call it on the node's loop.

        A worker is started for them. It stops when the registration is withdrawn or
        replaced; its unfinished requests are CANCELED then.

        Args:
            handlers: The handlers; they may serve several destinations.
            service: As in `register`.
            tags: As in `register`.
            route_id: As in `register`.

        Raises:
            OnwardError: As in `register`.
        """
        identity = _checked(service, route_id)
        destination = partial(
            Destination,
            identity,
            service,
            worker=self.address,
            link=False,
            peer="local",
            handlers=handlers,
        )
        registration = self._add(identity, service, make_tags(tags or {}), destination)
        handlers.serves(service)
        stopped = partial(registration.withdraw, WORKER_STOPPED)
        registration.on_leave(self.node.watch(registration.address, stopped))
        return registration

    def connect(
        self,
        setup: RouteSetup,
        worker: Address,
        *,
        peer: str,
        evict: Callable[[str], object],
        busy: Callable[[], bool] | None = None,
        principal: Principal = ANONYMOUS,
    ) -> Registration:
        """Make a connection a destination, as its ROUTE_SETUP asks.

        Args:
            setup: The frame.
            worker: The connection's worker.
            peer: The peer's network address as text.
            evict: Called with a reason when another connection takes over the route id, or the
                rules no longer allow its registration.
            busy: Whether the connection is overloaded now.
            principal: The principal of the connection.

        Raises:
            NotAllowed: The rules do not allow the principal to register these tags, or the route id
                is in use by another one.
            NotDelivered: The table or the node is full, the route id is that of a worker of
                this node, or the service name is reserved.
            DefaultTagClaimed: A tag names another service or another route.
        """
        identity = UUID(bytes=setup.route_id)
        tags = self._permitted_tags(setup, principal)
        names = [value for key, value in setup.tags if key == WellKnownKey.SERVICE_NAME]
        for name in (setup.service_name, *names):
            if name is not None and name.startswith(RESERVED_SERVICES):
                raise NotDelivered("the service name", f"{RESERVED_SERVICES}* is reserved")
        destination = partial(
            Destination,
            identity,
            setup.service_name,
            worker=worker,
            link=True,
            peer=peer,
            evict=evict,
            busy=busy,
            principal=principal,
        )
        try:
            return self._add(identity, setup.service_name, tags, destination)
        except LimitReached as error:
            raise NotDelivered("the route", str(error)) from error

    # --- authorization ----------------------------------------------------------------------

    def _permitted_tags(self, setup: RouteSetup, principal: Principal) -> TagList:
        """Return the tags of a destination, with the forced ones of its principal.

        Raises:
            NotAllowed: As in `connect`.
        """
        authorization = self.authorization
        if authorization is None:
            return setup.tags
        tags = authorization.registration(principal, setup.service_name, setup.tags, setup.route_id)
        # Route Id: "Brokers can only allow one connection for a given Route Id to be connected at a
        # time." It would end the connection of the other.
        known = self.index.owner_of(setup.route_id)
        owner = None if known is None else known.destination.principal
        if known is not None and (owner is None or not owner.is_same(principal)):
            raise authorization.denial(Action.REGISTER)
        # The same of a route at a peer broker, whether there is a link to it now or not. One that
        # has no rules, and a Java broker, do not tell.
        elsewhere = self.index.owner_elsewhere(setup.route_id)
        if elsewhere is not None and elsewhere != told_owner(principal):
            raise authorization.denial(Action.REGISTER)
        return tags

    def told(self, change: RouteAdd | RouteRemove) -> RouteAdd | RouteRemove:
        """Return a change of an own destination as peer brokers are told it.

        With rules they are told its owner, so that no other principal takes over its route id.
        """
        if self.authorization is None or isinstance(change, RouteRemove):
            return change
        route = self.index.owner_of(change.route_id)
        return with_owner(
            change, told_owner(None if route is None else route.destination.principal)
        )

    def permitted(self, ask: Ask, principal: Principal) -> Ask:
        """Return the query of a request with the forced tags of its principal.

        It is decided before any look-up, so that a refusal says nothing about destinations. Each
        principal may ask the management service, which shows it its own part.

        Raises:
            NotAllowed: The rules do not allow the request, or it contradicts a forced tag.
            BrokerFrameError: With the forced tags it has too many, or no shard key.
        """
        authorization = self.authorization
        if authorization is None or _MANAGEMENT in ask.query:
            return ask
        narrowed = ask
        if principal.tags:
            try:
                narrowed = self.index.narrowed(ask, principal.tags)
            except NotAllowed:
                raise authorization.denial(Action.REQUEST, ask.text) from None
        if not authorization.allows(principal, Action.REQUEST, narrowed.query):
            raise authorization.denial(Action.REQUEST, ask.text)
        return narrowed

    def view_of(self, principal: Principal | None) -> Callable[[TagSet], bool] | None:
        """Return whether a principal may know of a destination with some tags, as a function.

        `None` if it may know of all, and read everything else.
        """
        authorization, peer = self.authorization, principal or ANONYMOUS
        if authorization is None or authorization.allows(peer, Action.READ):
            return None
        return partial(authorization.may_see, peer)

    def _on_other_rules(self) -> None:
        """Forget decisions on requests, and end registrations that are no longer allowed."""
        self.index.epoch += 1
        authorization = self.authorization
        if authorization is None:
            return
        for entry in (*self.index.own_entries(), *self.index.suspended.values()):
            self._check_registration(entry, authorization)

    def renew(self, route_id: UUID, principal: Principal) -> None:
        """Replace the principal of a connection that is a destination.

        The destination leaves if the rules do not allow its registration to this principal.
        """
        entry = self.index.table.get(route_id.bytes)
        route = None if entry is None else entry.target
        if entry is None or not isinstance(route, BrokerRoute):
            return
        route.destination = replace(route.destination, principal=principal)
        if self.authorization is not None:
            self._check_registration(entry, self.authorization)

    def _check_registration(self, entry: Entry[AnyRoute], authorization: Authorization) -> None:
        """End a registration that is no longer allowed."""
        destination = entry.target.destination
        principal, evict = destination.principal, destination.evict
        if principal is None or authorization.may_register(
            principal, entry.service_name, entry.tags, entry.route_id
        ):
            return
        self.index.leave(entry, NOT_ALLOWED)
        if evict is not None:
            evict(NOT_ALLOWED)

    def expect(self, routes: Iterable[SnapshotRoute]) -> int:
        """Expect destinations that were registered before. Call it on the node's loop.

        They are indexed, and get no requests until they register. Requests that only they could
        take wait for `max_wait`, unless they ask for another time. Destinations that have not
        registered `expected_seconds` after the last call are forgotten. A call takes some 10
        microseconds for each destination: make it before the broker listens.

        Args:
            routes: `list(read_snapshot(data).checked())`, or any others.

        Returns:
            How many destinations are newly expected.

        Raises:
            LimitReached: There are more than `max_routes`; those before are expected.
            SnapshotError: The source of the routes is damaged; those before are expected.
        """
        return self.index.expectations.expect(routes)

    def _add(
        self, route_id: UUID, service: str, tags: TagList, destination: Callable[..., Destination]
    ) -> Registration:
        check_default_tags(tags, service, route_id.bytes)
        if any(key == OWNER_KEY for key, _ in tags):
            raise NotDelivered(f"the tag {OWNER_KEY}", "it is reserved")

        def make(all_tags: TagList) -> Destination:
            return destination(tags=readable(all_tags))

        return Registration(self, self.index.join(route_id.bytes, service, tags, make))

    # --- drain ------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether the broker drains, or has drained."""
        return self._drain is not None

    async def drain(
        self, options: DrainOptions | None = None, *, random: Callable[[], float] = random
    ) -> bool:
        """End all connections without a lost request: the first half of an orderly stop.

        Connections are accepted during `grace`; then the listeners close their sockets. At a
        random moment of `spread` each connection begins to end. From then on its new requests are
        REJECTED, which is certain, and as a destination it is passed over where another can take
        a request. Its open streams run to their end; then the peer gets
        ERROR[CONNECTION_CLOSE]. At `timeout` what waits is REJECTED, and what is open CANCELED.
        Afterwards stop the node.

        A second call while the broker drains can only shorten the times. `timeout=0` ends it at
        once.

        Args:
            options: The times; those of the broker's options by default.
            random: Returns a random number, 0 or more and less than 1.

        Returns:
            Whether it has drained; False if the drain was undone or the broker stopped.
        """
        options, now = options or self.options.drain, self.node.loop.time()
        drain = self._drain
        if drain is None:
            steps = DrainSteps(options, now)
            drain = self._drain = Drain(steps, self.index, self._parts.keys(), random)
            self._draining = asyncio.ensure_future(drain.run())
        else:
            drain.steps.hasten(options, now)
        task = self._draining
        if task is None:
            raise AssertionError("a drain has a task")
        await asyncio.wait({task})
        return not task.cancelled() and task.result()

    def adjust(self, waiting: WaitingOptions, drain: DrainOptions) -> None:
        """Change the times of requests that wait, and of a drain, while the broker runs.

        Requests that wait already keep their times, and a drain in progress its own.

        Args:
            waiting: The limits of waiting requests; only the times may differ.
            drain: The times of a drain.

        Raises:
            ValueError: A limit is changed that has to stay.
        """
        old = self.options.waiting
        times = replace(old, no_route_timeout=waiting.no_route_timeout, max_wait=waiting.max_wait)
        if times != waiting:
            raise ValueError("only the times of waiting requests change while the broker runs")
        self.options = replace(self.options, waiting=times, drain=drain)
        self.index.adjust(self.options)

    def undo_drain(self) -> bool:
        """Undo a drain; return False if there is none, or its sockets are closed already."""
        if self._drain is None or not self._drain.undo():
            return False
        self._drain = None
        return True

    # --- undeliverable requests ---------------------------------------------------------------

    def _on_dead_letter(self, letter: DeadLetter) -> None:
        """Send an error to the requester of an exchange that has become a dead letter."""
        exchange = requester_of(letter.message)
        if exchange is None:
            return
        if get_ident() == self.node.parts.run_queue.thread_id:
            self._fail(exchange, letter)
        else:
            self.node.parts.run_queue.call_on_loop(lambda: self._fail(exchange, letter))

    def _fail(self, exchange: Exchange, letter: DeadLetter) -> None:
        if exchange.ended:
            return
        back = exchange.handed
        error: DeliveryError = NotDelivered("the destination", letter.reason)
        if back is not None:
            # A worker of this node has the request. Its other messages may carry the same
            # context; only the return route of the request leads to the requester.
            message = letter.message
            if message.return_route[-len(back) :] != back:
                return
            route = exchange.route
            # The worker of the route has handed it over, or the connection itself.
            sender = back[:1] if route is None else (route.to,)
            untouched = (message.source,) == sender
            if letter.reason == WorkerFailed.reason or not untouched:
                error = WorkerFailed("the destination")
        self._lost += 1
        if self.events.watched:
            route = exchange.route
            self.events.emit(
                BrokerEvent("lost", time.time(), reason=letter.reason)
                if route is None
                else route.event("lost", letter.reason)
            )
        exchange.fail(error)

    # --- inspection ---------------------------------------------------------------------------

    def routes(self) -> tuple[RouteStatistics, ...]:
        """Return the rows of the table, in the order the destinations joined."""
        return self.index.rows()

    def expected(self) -> tuple[RouteStatistics, ...]:
        """Return the expected destinations, oldest expectation first."""
        return tuple(self.index.expectations.rows())

    def saved(self) -> Iterator[SnapshotRoute]:
        """Yield the rows of the table for a snapshot, expected destinations marked as such.

        Reserved services of this node are left out: they register by themselves. The rows are
        those at the moment of the first one.
        """
        saved = self.index.saved()
        return (each for each in saved if not each.service.startswith(RESERVED_SERVICES))

    def resolve(
        self, asked: str, *, limit: int = 100, principal: Principal | None = None
    ) -> Resolution:
        """Return where a request would go now, and why not elsewhere; nothing is sent.

        Args:
            asked: The query, as in an address of type 32: `@shard=user service=orders user=42`.
            limit: Most destinations in the result that match, and most that do not.
            principal: The principal that asks: it sees only what it may request, unless it may
                read all. By default the result shows all destinations.

        Raises:
            AddressError: The query cannot be read.
            NotAllowed: The principal may not send such a request.
        """
        ask = self.index.asked(Address(TAGS, asked.encode()))
        view = None if principal is None else self.view_of(principal)
        if principal is not None and view is not None:
            ask = self.permitted(ask, principal)
        return explain(self.index, ask, limit, view)

    def add_part(self, part: DrainPart) -> Callable[[], None]:
        """Add a part with connections, which a drain ends.

        Returns:
            The function that removes it.

        Raises:
            NodeStopped: The broker drains, and its sockets are closed.
        """
        if self.index.closing:
            raise NodeStopped(self.node.name)
        self._parts[part] = None
        return lambda: self._forget_part(part)

    def _forget_part(self, part: DrainPart) -> None:
        self._parts.pop(part, None)

    def report(
        self, name: str, figures: Figures, listener: ReportedListener | None = None
    ) -> Callable[[], None]:
        """Add a part of the program, such as a listener, to the broker's reports.

        Args:
            name: Its name; a listener's URI.
            figures: Returns its figures by name, as values that JSON can represent. Called on the
                node's loop for each query of the reports. It may be a generator that yields after
                each slice of long work: the loop does other things then.
            listener: The listener, if it is one.

        Returns:
            The function that removes the report.

        Raises:
            LimitReached: There are `max_reports` already.
        """
        return self._reports.add(name, figures, listener)

    def reports(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Return name and figures of each report, in the order they were added.

        It looks at each connection, in one turn of the loop.
        """
        return whole(self._reports.read())

    def reports_in_slices(self) -> Slices[tuple[tuple[str, dict[str, Any]], ...]]:
        """Return the same as `reports`, in slices."""
        return self._reports.read()

    def listeners(self) -> tuple[tuple[str, ReportedListener], ...]:
        """Return the URI of each listener, and the listener, in the order they were added."""
        return self._reports.listeners()

    def limits(self) -> Iterator[LimitUse]:
        """Yield the limits of the broker, and how much of each is used."""
        index, options = self.index, self.options
        waiting, multicast = index.waiting(), index.multicast_rules
        routes = index.own_routes + index.table.expecting
        yield LimitUse("max_routes", routes, options.max_routes, index.full)
        peers = index.peers
        yield LimitUse("max_peer_routes", peers.count, options.max_peer_routes, peers.refused)
        zones = index.zones
        yield LimitUse("max_groups", len(zones), options.max_groups, zones.refused)
        limits, refused = options.waiting, waiting.refused
        yield LimitUse("waiting.max_messages", waiting.messages, limits.max_messages, refused[0])
        yield LimitUse("waiting.max_bytes", waiting.size, limits.max_bytes, refused[1])
        most, exceeded = options.multicast.max_held_total, multicast.exceeded
        yield LimitUse("multicast.max_held_total", multicast.held, most, exceeded)
        yield LimitUse("max_watchers", len(self.events), options.max_watchers, self.events.refused)
        services = index.services
        yield LimitUse("max_services", len(services), options.max_services, services.crowded)

    def statistics(self) -> BrokerStatistics:
        """Return the broker's current figures."""
        index = self.index
        waiting = index.waiting()
        return BrokerStatistics(
            routes=index.own_routes,
            waiting=waiting.messages,
            waiting_bytes=waiting.size,
            oldest_wait=waiting.oldest,
            waited=waiting.waited,
            rejected=index.rejected,
            lost=self._lost,
            unknown_methods=index.choice.unknown,
            failed_methods=index.choice.failed,
            sticky_forgotten=index.choice.forgotten,
            multicast_skipped=index.multicast_rules.skipped,
            multicast_left=index.multicast_rules.left,
            multicast_overflowed=index.multicast_rules.overflowed,
            watchers=len(self.events),
            expected=index.table.expecting,
            expected_joined=index.expectations.joined,
            expected_forgotten=index.expectations.forgotten,
            draining=self.draining,
            connections_left=0 if self._drain is None else self._drain.connections_left,
            peer_routes=index.peers.count,
        )
