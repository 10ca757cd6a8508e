"""The session with a peer broker: the handshake, its own requests, and those that it forwards.

```
SETUP with BROKER_INFO ──▶ greeting ──cluster.broker-info──▶ joined ──▶ ended
                               └─ any other frame, or too late: closed
```

Until it has joined, nothing else is read or sent. Then its requests are of two kinds. Those without
an ADDRESS are the cluster's own, and are served by the cluster's handlers. Those with an ADDRESS
were forwarded by the other broker. They never wait for a route. By a mesh link they
go to routes of this broker only, and are never forwarded again. By a link from another zone they go
to routes of this zone, and by a link to another zone there are none. So a request passes three
brokers at most, whatever the tables say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from ...actors.broker._instrument import part_of
from ...actors.broker.table._leaving import CONNECTION_LOST
from ...actors.broker.table._remote import RemoteRoute
from ...actors.broker.table._route import BrokerRoute
from ...actors.cluster import PeerRefused
from ...protocol import (
    AddressError,
    LinkDown,
    NoRoute,
    NotDelivered,
    OnwardError,
    ProtocolError,
)
from ...protocol.broker import (
    AddressFrame,
    BrokerFrameError,
    BrokerInfo,
    Dialect,
    Entry,
    FrameType as BrokerFrameType,
    RoutingType,
    WellKnownKey,
    brokers_passed,
    format_query,
    parse_id,
    query_of_address,
)
from ...protocol.cluster import LinkRole
from ...protocol.eventlog import PEER_BROKER
from ...protocol.rsocket import (
    CLOSED,
    HEADER_SIZE,
    ConnectionState,
    ErrorCode,
    Frame,
    FrameType,
    PeerError,
)
from ...protocol.security import ANONYMOUS, Action
from ._connection import FrameReceiver
from ._express import ExpressPath
from ._forwarded import Pin
from ._metadata import ADDRESS, PEER, Form
from ._peer_link import AskedAnswer, PeerLink, routing_entry, routing_in
from ._peer_place import is_sibling
from ._request import WITH_CREDIT, more_follow
from ._session import Session
from ._validity import names_authenticate

if TYPE_CHECKING:
    from ...actors.broker import Ask, Handlers
    from ...actors.broker.table._remote import AnyRoute
    from ...actors.cluster import PeerHandlers
    from ...protocol import Address
    from ...protocol.security import Principal
    from ._exchange import StreamExchange
    from ._java_peer import JavaLink
    from ._link import Link

__all__ = ["HANDSHAKE", "Greeting", "PeerSession"]

_logger = logging.getLogger("onward.transports.rsocket")

HANDSHAKE: Final = "cluster.broker-info"
"""The route of the request by which two brokers exchange their BROKER_INFO."""
MAX_PINS: Final = 4096
"""Most metadata of forwarded requests with a remembered destination; then all are forgotten."""
MAX_PIN_SIZE: Final = 512
"""Bytes of metadata above which they are not remembered."""

MAX_PASSED: Final = 2
"""Most brokers that a request may have passed before it comes by a mesh link. Before it comes by a
link from another zone, it is one less."""

FROM_ZONE: Final = LinkRole.FROM_ZONE
MESH: Final = LinkRole.MESH
TO_ZONE: Final = LinkRole.TO_ZONE

_LONG_HEADER: Final = HEADER_SIZE + 4
"""Bytes before the metadata of a request with an initial request-n."""
_FNF: Final = int(FrameType.REQUEST_FNF)
_PUSH: Final = int(FrameType.METADATA_PUSH)
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_RESPONSE: Final = int(FrameType.REQUEST_RESPONSE)
_ERROR: Final = int(FrameType.ERROR)


class _Pin(NamedTuple):
    """The destination of a forwarded request.

    Attributes:
        form: The form of its ADDRESS.
        entry: The route that it is pinned to; `None` if it has no pin.
        ask: Its query, if it has no pin.
        around: Its metadata for peer brokers, if it came from another zone.
    """

    form: Form
    entry: Entry[AnyRoute] | None
    ask: Ask | None
    around: Pin | None


class Greeting(FrameReceiver):
    """The receiver of the frames of a connection to a broker until the handshake has passed.

    Args:
        session: The session.
    """

    def __init__(self, session: PeerSession) -> None:
        self._session = session

    def on_request(self, frame: Frame) -> None:
        """Handle the request of the handshake, and refuse any other."""
        self._session.greet(frame)

    def on_frame(self, frame: Frame) -> None:
        """Refuse all but an ERROR."""
        self._session.before_handshake(frame)


class _Ended(FrameReceiver):
    """The receiver of the frames of a peer link that ends: it takes no more requests."""

    def __init__(self, session: PeerSession) -> None:
        self._session = session

    def on_request(self, frame: Frame) -> None:
        """Refuse a request."""
        self._session.turn_away(frame, "the link of the brokers ends")

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame of the connection as before."""
        self._session.on_frame(frame)


class PeerSession(Session):
    """The session with another broker, on a connection that either side has opened.

    Attributes:
        connection: The peer link, once the handshake has passed; `None` after its end.

    Args:
        link: The connection.
        peers: The cluster.
        before: The session of the connection until now; its SETUP and principal stay.
        info: The BROKER_INFO in the SETUP of the peer; `None` if the SETUP is ours.
    """

    __deletable__: ClassVar = ["_reach"]  # for mypyc

    dialect: ClassVar[Dialect] = Dialect.SPECIFICATION
    """The dialect of BROKER_INFO."""

    def __init__(
        self, link: Link, peers: PeerHandlers, before: Session, info: BrokerInfo | None = None
    ) -> None:
        super().__init__(link)
        if before.setup is not None:
            self.begin(before.setup)
        self.principal = before.principal
        self._validity, before._validity = before._validity, None
        before._express = None  # which refers to it
        self.connection: PeerLink | JavaLink | None = None
        self._peers = peers
        self._info = info
        self._handlers: Handlers | None = None
        self._joined: asyncio.Future[PeerLink] | None = None
        self._pins: dict[bytes, _Pin] = {}
        self._broker_id = link.broker.broker_id.bytes
        self._entry_of = link.broker.index.table.get
        # Legs and hand-overs go by it, also where the express path is switched off for clients.
        self._reach = ExpressPath(link, self)
        self._unwatch: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if info is not None:
            limit = link.options.connection.setup_timeout
            self._timer = link.call_later(limit, self._on_late)

    @property
    def used(self) -> bool:
        """Whether the handshake has passed."""
        return self._handlers is not None

    # --- the handshake ------------------------------------------------------------------------

    def own_info(self) -> bytes:
        """Return the BROKER_INFO of this broker."""
        return self._peers.info.serialize(self.dialect)

    def before_handshake(self, frame: Frame) -> None:
        """Handle a frame of the connection before the handshake: only an ERROR is allowed."""
        if frame.type == _ERROR:
            self.on_frame(frame)
        elif not frame.stream_id:
            self._violated("a frame before it")

    def _on_late(self) -> None:
        self._timer = None
        self._violated("it is not there in time")

    def _violated(self, text: str) -> None:
        """Close the connection of a peer that does not keep to the handshake."""
        link = self._link
        if not link.closed_reason:
            link.warn("handshake", f"handshake of brokers: {text}")
            link.close("handshake", f"handshake of brokers: {text}")

    def greet(self, frame: Frame) -> None:
        """Answer the request that has the BROKER_INFO of the peer, and join the cluster."""
        link, told = self._link, self._info
        if link.closed_reason:
            return
        fits = frame.type == _RESPONSE and not more_follow(frame)
        if told is None or not fits or routing_in(bytes(frame.metadata or b"")) != HANDSHAKE:
            self._violated(f"the first request is not {HANDSHAKE}")
            return
        try:
            info = BrokerInfo.parse(bytes(frame.data or b""), self.dialect)
        except ProtocolError as error:
            self._violated(str(error))
            return
        if info.broker_id != told.broker_id:
            self._violated("another broker id than in SETUP")
            return
        self._stop_waiting()
        # BROKER_INFO: "Broker B would need to send Broker A a BROKER_INFO frame before it can
        # forward requests from A." Both have sent theirs: that keeps either reading.
        link.core.send_payload(frame.stream, self.own_info(), complete=True)
        link.flush_soon()
        self._connected(info, dialled=False)

    def introduce(self) -> asyncio.Future[PeerLink]:
        """Send the BROKER_INFO of this broker, on a connection that this side has opened.

        Returns:
            The future of the peer link. It fails with `PeerRefused` or `LinkDown`.
        """
        link = self._link
        joined = self._joined = link.node.loop.create_future()
        if link.core.state is not ConnectionState.OPEN:
            self._fail(LinkDown(link.identity.peer, "it has closed the connection"))
            return joined
        stream = link.core.open(_RESPONSE)
        link.core.send_request(stream, self.own_info(), routing_entry(HANDSHAKE))
        stream.peer = AskedAnswer(link, self._on_introduced, self._on_not_introduced)
        link.flush_soon()
        return joined

    def _on_introduced(self, data: bytes) -> None:
        """Join the cluster, as the peer has answered with its BROKER_INFO."""
        try:
            info = BrokerInfo.parse(data, self.dialect)
        except ProtocolError as error:
            self._violated(str(error))
            return
        self._connected(info, dialled=True)

    def _on_not_introduced(self, error: OnwardError) -> None:
        if self._link.core.state is ConnectionState.OPEN:
            self._violated(f"no BROKER_INFO for an answer: {error}")

    def _connected(self, info: BrokerInfo, *, dialled: bool) -> None:
        """Join the cluster, as each side has the BROKER_INFO of the other."""
        link = self._link
        link.form = PEER
        connection = self.connection = PeerLink(link, info, dialled=dialled)
        try:
            handlers = self._peers.on_connected(connection)
        except PeerRefused as error:
            self.connection = None
            self._fail(error)
            link.close("peer refused", error.reason)
            return
        self._begin_to_serve(handlers, dialled=dialled)
        if self._joined is not None and not self._joined.done():
            self._joined.set_result(connection)

    def _begin_to_serve(self, handlers: Handlers, *, dialled: bool) -> None:
        """Serve the requests of the peer broker from now on."""
        link = self._link
        self._handlers = handlers
        if self.connection is not None:
            link.role = self.connection.role
        authorization = link.broker.authorization
        if authorization is not None and not dialled:
            self._unwatch = authorization.on_replace(self._on_other_rules)
        part = part_of(link.node)
        if part is not None:
            self._log = part.origin(PEER_BROKER)
        self._count_legs()
        link.receive_by(self)

    def _count_legs(self) -> None:
        """Register the counts of the requests that are forwarded over this link."""
        link, connection = self._link, self.connection
        instruments = link.node.instruments
        if instruments is not None and connection is not None:
            link.legs.join(self._broker_id, connection.info.broker_id)
            instruments.link_opened(link.legs)

    def renew(self, principal: Principal) -> None:
        """Replace the principal, and end the link if it may not be a broker any more."""
        super().renew(principal)
        self._on_other_rules()

    def _on_other_rules(self) -> None:
        """End the link of a broker that is not allowed any more."""
        link, authorization = self._link, self._link.broker.authorization
        if self.connection is None or authorization is None or is_sibling(link):
            return
        if not authorization.allows(self.principal or ANONYMOUS, Action.PEER):
            link.close("not allowed", str(authorization.denial(Action.PEER)))

    def _fail(self, error: OnwardError) -> None:
        """Fail the attempt to connect, if there is one."""
        joined, self._joined = self._joined, None  # the traceback of the error refers to this
        if joined is not None and not joined.done():
            joined.set_exception(error)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- requests -----------------------------------------------------------------------------

    def on_request(self, frame: Frame) -> None:
        """Route a request to a destination of this broker, or serve or refuse it."""
        if frame.stream.state == CLOSED and frame.type != _FNF and not self._is_forwarded(frame):
            return  # of the cluster itself, and cancelled within the same read
        self._link.legs.arrived += 1
        Session.on_request(self, frame)  # `super()` costs more, and this runs for each request

    def _on_push(self, frame: Frame) -> None:
        self._link.legs.arrived += 1
        super()._on_push(frame)

    def turn_away(self, frame: Frame, text: str) -> None:
        """Refuse a request that is not looked at."""
        log = self._log
        if self._is_forwarded(frame):
            self._link.legs.arrived += 1
        else:
            self._log = None  # what the cluster itself asks is no request of a client
        super().turn_away(frame, text)
        self._log = log

    def _is_forwarded(self, frame: Frame) -> bool:
        """Whether a request is forwarded, and not one of the cluster itself."""
        span = frame.metadata_range
        try:
            return span is not None and self._shape.find(frame.buffer, *span, ADDRESS) is not None
        except ProtocolError:
            return True  # only the other broker's clients send such metadata

    def _route(self, exchange: StreamExchange, frame: Frame) -> None:
        buffer = frame.buffer
        if frame.type == _PUSH:
            metadata = buffer[frame.start + HEADER_SIZE : frame.end]
        else:
            # As `frame.metadata_range`; the lengths were checked when the frame was accepted.
            at = frame.start + (_LONG_HEADER if frame.type in WITH_CREDIT else HEADER_SIZE)
            start = at + 3
            metadata = buffer[start : start + int.from_bytes(buffer[at:start])]
        pin = self._pins.get(metadata)
        if pin is None:
            self._route_whole(exchange, metadata, None)
            return
        form, entry, _, _ = pin
        if entry is None:
            self._hand(exchange, pin)
        elif entry.times < 0:
            del self._pins[metadata]  # it has left, or has other tags now
            self._route_whole(exchange, metadata, None)
        else:
            exchange.form = form
            self.requests += 1
            if self._log is not None:
                self._log.relayed(exchange, exchange.kind)
            # As `_give`, without the calls: this runs for each request.
            route = entry.target
            if isinstance(route, BrokerRoute):
                route.requests += 1
                exchange.route = route
                route.outstanding += 1
                to = route.to
            else:
                if route.peer.suspended:
                    raise NoRoute(f"service={route.service_name}")
                to = route.choose(exchange)
            if not self._reach.reach(exchange, to):
                self._send_to(exchange, to)

    def _route_whole(
        self, exchange: StreamExchange, metadata: bytes, principal: Principal | None
    ) -> None:
        del principal  # the first broker has asked the rules
        found = self._shape.find(metadata, 0, len(metadata), ADDRESS)
        if found is None:
            self._serve(exchange)
            return
        start, end, form = found
        frame = metadata[start:end]
        if self._validity is not None and names_authenticate(metadata):
            ask = self._link.broker.index.ask(frame, form.dialect)
            if self._authenticates(exchange, metadata, (ask, form, None, ())):
                return
        pin = self._read(frame, form)
        if len(metadata) <= MAX_PIN_SIZE:
            if len(self._pins) >= MAX_PINS:
                self._pins.clear()
            self._pins[metadata] = pin
        self._hand(exchange, pin)

    def _read(self, frame: bytes, form: Form) -> _Pin:
        """Return the destination of a forwarded request.

        Raises:
            ProtocolError: The ADDRESS is broken.
            NotDelivered: It has been at this broker before.
            NoRoute: It is pinned to a route that this broker does not have, or has with other tags.
        """
        index = self._link.broker.index
        passed, role = brokers_passed(frame, form.dialect), self._link.role
        if self._broker_id in passed:
            self._link.core.counters["looped"] += 1
            raise NotDelivered("the request", "it has been at this broker before")
        if role is TO_ZONE or len(passed) > (MAX_PASSED if role is MESH else MAX_PASSED - 1):
            self._link.core.counters["passed_on"] += 1
            raise NotDelivered("the request", "it has come by more brokers than it may")
        asked = query_of_address(AddressFrame.parse(frame, form.dialect), form.dialect)
        ids = [tag for tag in asked.query if tag[0] == _ROUTE_ID and tag[1]]
        if len(ids) != 1 or asked.routing is RoutingType.MULTICAST:
            return _Pin(form, None, index.ask(frame, form.dialect), Pin())
        # By its id, and not as a query of its own: there is one such query for each route. One that
        # has registered the tag RouteId without a value is that route all the same.
        entry = self._own(ids[0][1] or "")
        if entry is None or not (asked.query - {ids[0]}).issubset(entry.tags):
            raise NoRoute(format_query(asked.query))
        return _Pin(form, entry, None, None)

    def _own(self, text: str) -> Entry[AnyRoute] | None:
        """Return the route with an id that requests by this link may go to; `None` without one."""
        try:
            entry = self._entry_of(parse_id(text))
        except AddressError:
            return None
        if entry is None or self._is_own(entry):
            return entry
        route = entry.target
        if self._link.role is not FROM_ZONE or not isinstance(route, RemoteRoute):
            return None
        return None if route.peer.suspended else entry

    def _is_own(self, entry: Entry[AnyRoute]) -> bool:
        return entry.broker_id == self._broker_id

    def _hand(self, exchange: StreamExchange, pin: _Pin) -> None:
        """Hand a forwarded request to its destination, or refuse it at once.

        Raises:
            NoRoute: No route of this broker can take it.
        """
        exchange.form = pin.form
        self.requests += 1
        if self._log is not None:
            self._log.relayed(exchange, exchange.kind)
        index, ask = self._link.broker.index, pin.ask
        exchange.pin = pin.around
        if ask is None:
            if pin.entry is None:
                raise AssertionError("a pin has a route or a query")
            self._give(exchange, pin.entry)
            return
        if self._link.role is FROM_ZONE:
            self._hand_on(exchange, ask)
            return
        found = index.own_candidates(ask)
        if not found:
            raise NoRoute(format_query(ask.query))
        if len(found) == 1:
            self._give(exchange, found[0])
        elif ask.routing is RoutingType.MULTICAST:
            self._reach.divide(exchange, found)
        else:
            self._give(exchange, found[index.choice.pick(ask, found) or 0])

    def _hand_on(self, exchange: StreamExchange, ask: Ask) -> None:
        """Hand a request of another zone to routes of this one, or refuse it at once.

        Raises:
            NoRoute: No route of this zone can take it.
        """
        index = self._link.broker.index
        to = index.choose_within(ask, exchange)
        if to is not None:
            if not self._reach.reach(exchange, to):
                self._send_to(exchange, to)
            return
        own, peers = index.divide_within(ask)
        if not own and not peers:
            raise NoRoute(format_query(ask.query))
        self._reach.divide(exchange, own, peers)

    def ask_of(self, exchange: StreamExchange) -> Ask:
        """Return the query of a request that was routed before; see `Session.ask_of`."""
        metadata = exchange.metadata()
        found = self._shape.find(metadata, 0, len(metadata), ADDRESS)
        if found is None:
            raise AssertionError("a forwarded request has an ADDRESS")
        start, end, form = found
        return self._link.broker.index.ask(metadata[start:end], form.dialect)

    def _give(self, exchange: StreamExchange, entry: Entry[AnyRoute]) -> None:
        """Hand a forwarded request to a route of this broker."""
        to = entry.target.choose(exchange)
        if not self._reach.reach(exchange, to):
            self._send_to(exchange, to)

    def _send_to(self, exchange: StreamExchange, to: Address) -> None:
        """Send a forwarded request to its route as a message."""
        self._link.node.parts.router.dispatch(self.message(exchange, (to,)))

    def _serve(self, exchange: StreamExchange) -> None:
        """Serve a request of the cluster itself, by the handlers of the cluster."""
        handlers = self._handlers
        if handlers is None or exchange.stream is None:
            raise BrokerFrameError("metadata", "the request has no ADDRESS")
        if routing_in(exchange.metadata()) == HANDSHAKE:
            self._violated("a second BROKER_INFO")
            return
        self.requests += 1
        self._link.legs.arrived -= 1  # the other end counts what it forwards, and nothing else
        if exchange.whole(lambda: self._start(exchange, handlers)):
            self._start(exchange, handlers)

    def _start(self, exchange: StreamExchange, handlers: Handlers) -> None:
        if exchange.ended:
            return
        try:
            exchange.start(handlers.start)
        except ProtocolError as error:
            exchange.fail(error)

    def _on_broker_frame(
        self, buffer: bytes, span: tuple[int, int], wanted: frozenset[BrokerFrameType]
    ) -> bool:
        """Refuse a second BROKER_INFO; no broker is a destination."""
        del wanted
        if self._shape.introduction(buffer, *span) is not None:
            self._violated("a second BROKER_INFO")
            return True
        return False

    # --- the end ------------------------------------------------------------------------------

    def leave(self, reason: str = CONNECTION_LOST) -> None:
        """Leave the cluster at once."""
        super().leave(reason)
        self._stop_waiting()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        link = self._link
        link.legs.over = True
        connection, self.connection = self.connection, None
        error = link.core.error
        if connection is not None:
            connection.end()
            link.receive_by(_Ended(self))
            told = error.text if isinstance(error, PeerError) else ""
            self._peers.on_lost(connection, told or link.closed_reason or "by the peer")
        if isinstance(error, PeerError) and error.code == ErrorCode.REJECTED_SETUP:
            # Error Codes, REJECTED_SETUP: "The server rejected the setup, it can specify the reason
            # in the payload."
            self._fail(PeerRefused(error.text))
        else:
            why = link.closed_reason if error is None else str(error)
            self._fail(LinkDown(link.identity.peer, why or "it has closed the connection"))

    def end(self) -> None:
        """Leave the cluster, and release the connection after its end."""
        super().end()
        del self._reach
