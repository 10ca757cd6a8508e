"""The broker: a worker that holds the tag index and registers destinations."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ...protocol import (
    Address,
    AddressLike,
    DeliveryError,
    NotDelivered,
    UnknownAddress,
    WorkerFailed,
    address,
)
from ...protocol.broker import (
    OWNER_KEY,
    Dialect,
    RouteSetup,
    SnapshotRoute,
    TagList,
    WellKnownKey,
    check_default_tags,
    make_tags,
)
from ...protocol.security import ANONYMOUS, Principal
from .._errors import LimitReached
from ..runtime._policy import MailboxOptions
from ..security import Authorization
from ._broker_drain import BrokerDrain
from ._exchange import Exchange, requester_of
from ._management import MANAGEMENT_SERVICE, AdminAnswers, management
from ._options import BrokerOptions
from ._registration import Registration
from ._reports import BrokerStatistics
from ._tally import RequestTally
from .local._handlers import Handlers
from .table._events import BrokerEvent
from .table._leaving import WORKER_STOPPED
from .table._peers import RESERVED_SERVICES
from .table._route import Destination, readable

if TYPE_CHECKING:
    from .._node import Node
    from ..routing._dead_letters import DeadLetter

__all__ = ["Broker"]

DEFAULT_ADDRESS: Final = "broker"


def _checked(service: str, route_id: UUID | None) -> UUID:
    """Return the route id, or a new one, if a ROUTE_SETUP can carry it and the name."""
    identity = route_id or uuid.uuid4()
    RouteSetup(identity.bytes, service).serialize(Dialect.SPECIFICATION)
    return identity


class Broker(BrokerDrain):
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
        super().__init__(options, authorization, broker_id)
        self.tally = RequestTally()
        self.forwarded = RequestTally()
        self._lost = 0
        self._unsubscribe: Callable[[], None] | None = None
        self.operations: dict[str, Callable[[], Awaitable[object]]] = {}
        self.admin: AdminAnswers | None = None
        self.events_of_all: Callable[[], AsyncIterator[BrokerEvent]] | None = None
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
            TooManyTags: In a cluster, with the tags that the broker adds there are too many.
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
        self._check_room(service, tags, route_id.bytes)

        def make(all_tags: TagList) -> Destination:
            return destination(tags=readable(all_tags))

        return Registration(self.index, self.index.join(route_id.bytes, service, tags, make))

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
