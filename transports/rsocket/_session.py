"""The broker's session with a peer: its SETUP, its registration and its requests."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from ...actors.broker import Ask, Registration
from ...actors.broker._exchange import CANCELED
from ...actors.broker._instrument import part_of
from ...actors.broker.table._leaving import (
    CONNECTION_ENDS,
    CONNECTION_LOST,
    NOT_ALLOWED,
    REGISTERED_ANEW,
)
from ...actors.cluster import PeerRefused
from ...protocol import (
    TAGS,
    Context,
    DeliveryError,
    Message,
    NotDelivered,
    PayloadTooBig,
    ProtocolError,
    Route,
)
from ...protocol.broker import (
    ID_SIZE,
    MAX_VALUE_SIZE,
    AddressFrame,
    BrokerFrameError,
    BrokerInfo,
    Dialect,
    FrameType as BrokerFrameType,
    RouteSetup,
    RoutingType,
    WellKnownKey,
    format_id,
    frame_type,
)
from ...protocol.rsocket import (
    CLOSED,
    HEADER_SIZE,
    METADATA,
    ErrorCode,
    Frame,
    FrameType,
    InvalidSetup,
    RejectedSetup,
    RequestGatherer,
    Resume,
    Setup,
    composite_entry,
)
from ...protocol.security import (
    ANONYMOUS,
    AUTHENTICATION_MIME,
    Action,
    NotAllowed,
    NotAuthenticated,
    Principal,
)
from .._log import shown
from ._admission import Admission, credentials_in
from ._connection import FrameReceiver
from ._exchange import StreamExchange
from ._express import ExpressPath
from ._forwarded import Pin
from ._gathered import Gathered
from ._metadata import (
    ADDRESS,
    EITHER,
    ROUTE_SETUP,
    Form,
    MetadataShape,
    introduces_java,
    trace_id_of,
)
from ._named import NamedRequests, route_in
from ._origin import false_origins, with_origin
from ._peer_place import is_inside, is_sibling
from ._request import FRAME_COST, WITH_CREDIT, code_of, more_follow, text_of
from ._request_checks import RequestChecks
from ._tracing import RequestTracing, tracing_in
from ._validity import Validity, is_about_validity

if TYPE_CHECKING:
    from ...actors.broker._instrument import OriginInstrument
    from ._link import Link

__all__ = ["Session"]

_logger = logging.getLogger("onward.transports.rsocket")

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

MAX_KNOWN: Final = 32
"""Most entries in a connection's cache of parsed metadata: 8 KiB."""
MAX_KNOWN_SIZE: Final = 256
"""Bytes of metadata above which they are not cached."""
_LONG_HEADER: Final = HEADER_SIZE + 4
"""Bytes before the metadata of a request with an initial request-n."""
_FOLLOWS: Final = 0x80
_CANCEL: Final = int(FrameType.CANCEL)
_ERROR: Final = int(FrameType.ERROR)
_LEASE: Final = int(FrameType.LEASE)
_REQUEST_N: Final = int(FrameType.REQUEST_N)
_RESUME: Final = int(FrameType.RESUME)
_SETUP: Final = int(FrameType.SETUP)
_FNF: Final = int(FrameType.REQUEST_FNF)
_PUSH: Final = int(FrameType.METADATA_PUSH)


_Read: TypeAlias = tuple[Ask, Form, int | None, tuple[int, ...]]
"""A query, the form of its ADDRESS, the trace id, and the offsets of false origins."""

_Known: TypeAlias = tuple[Ask, Form, int | None, tuple[int, ...], Pin | None]
"""The same, and the metadata for peer brokers if they are the same for each request."""


class Session(FrameReceiver):
    """The handling of the frames of one connection, in either role, that are not relayed.

    Attributes:
        registration: The peer's registration, if it is a destination.
        setup: The SETUP of the connection, which the side that has opened it sends.
        principal: The principal of the peer, at a listener with authentication.
        gathered: The frames kept of the peer.
        service: The service name of the peer, also after its registration has ended; empty if it
            has never registered.
        requests: Requests read.
        refused: Those of them that could not be parsed or routed at once.

    Args:
        link: The connection.
    """

    __deletable__: ClassVar = ["_link"]  # for mypyc

    def __init__(self, link: Link) -> None:
        self._link = link
        self._shape = MetadataShape("")
        # What metadata of requests say; cleared as a whole at the limit.
        self._known: dict[bytes, _Known] = {}
        part = part_of(link.node)
        self._log: OriginInstrument | None = None if part is None else part.origin("")
        self._express = ExpressPath(link, self) if link.broker.options.express_path else None
        self._traces: RequestTracing | None = None
        self._named: NamedRequests | None = None
        self.gathered = Gathered(link, link.shared.gathered)
        self._rejected = False
        self._admission: Admission | None = None
        self._validity: Validity | None = None
        self._checks: RequestChecks | None = None
        self.principal: Principal | None = None
        self.service = ""
        self._asking: bytes | None = None
        authorization = link.broker.authorization
        self._ruled = authorization is not None
        self._lasting = authorization is None or authorization.lasting
        self._own_id = bytes(ID_SIZE)
        # What `_known` was decided for.
        self._epoch = 0
        self._decided: Principal | None = None
        self.registration: Registration | None = None
        self.setup: Setup | None = None
        self.requests = 0
        self.refused = 0

    @property
    def used(self) -> bool:
        """Whether the peer is a destination, or has sent a request, even a refused one."""
        return self.registration is not None or self.requests > 0 or self.refused > 0

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame of the connection; ignore one of a closed stream."""
        kind = frame.type
        if kind == _SETUP:
            self._on_setup(frame)
        elif kind == _PUSH:
            if not self._rejected:
                self._on_push(frame)
        elif kind == _LEASE:
            if self._link.leases is not None:
                self._link.leases.on_frame(frame)
        elif kind == _ERROR and not frame.stream_id:
            # Error Codes, CONNECTION_CLOSE: "Sender or Receiver of this frame MUST wait for
            # outstanding streams to terminate before closing the connection. New requests MAY
            # not be accepted."
            self.leave(CONNECTION_ENDS)
        elif kind == _RESUME:
            self._link.receive_resume(Resume.parse(frame))

    # --- the connection -----------------------------------------------------------------------

    def begin(self, setup: Setup) -> None:
        """Set the SETUP of the connection, of either side; its MIME types hold for both."""
        self.setup = setup
        self._shape = MetadataShape(setup.metadata_mime)
        self._known.clear()

    def _on_setup(self, frame: Frame) -> None:
        """Apply the peer's SETUP, once the peer is authenticated where that is required."""
        setup = Setup.parse(frame)
        authentication = self._link.shared.authentication
        if authentication is None:
            self.begin(setup)
            self._join(setup)
            return
        try:
            credentials = credentials_in(setup)
        except InvalidSetup as error:
            self._link.close("setup refused", error.text, ErrorCode.INVALID_SETUP)
            return
        # The connection lives longer than the credentials are needed.
        self.begin(replace(setup, metadata=None, data=b""))
        self._admission = Admission(self._link, authentication, setup, credentials)

    def admit(self, principal: Principal, setup: Setup) -> None:
        """Admit the peer, and handle the frames that have come after its SETUP."""
        link = self._link
        self._admission = None
        self.principal = principal
        authentication = link.shared.authentication
        if authentication is not None:
            self._validity = Validity(link, authentication)
            if authentication.options.per_request == "check":
                self._checks = RequestChecks(link, authentication, self._shape.composite)
        _logger.debug(
            "authenticated: %s",
            link.name,
            extra={"event": "connection.authenticated", "peer": link.name},
        )
        link.core.admit()
        self._join(setup)
        link.data_received(b"")
        link.unblock(link)  # last, as the connection of a peer that has left ends then

    def reject(self, cause: str) -> None:
        """Close the connection of a peer that is not authenticated."""
        link = self._link
        self._admission = None
        link.warn("not authenticated", f"not authenticated: {cause}")
        # The text is the same for each cause, so that it tells nothing about users and tokens.
        error = NotAuthenticated(cause)
        link.close("not authenticated", str(error), ErrorCode.REJECTED_SETUP)

    def renew(self, principal: Principal) -> None:
        """Replace the principal, after the peer has shown new credentials."""
        self.principal = principal
        registration = self.registration
        if registration is not None:
            self._link.broker.renew(registration.route_id, principal)

    def _join(self, setup: Setup) -> None:
        """Apply an accepted SETUP: begin a session, and register the peer if it wants that."""
        link = self._link
        link.set_up(setup, link.options.lease)
        # Credentials alone are no broker frame.
        metadata = None if setup.metadata_mime == AUTHENTICATION_MIME else setup.metadata
        try:
            if metadata is not None:
                found = self._shape.introduction(metadata, 0, len(metadata))
                if found is not None:
                    self._introduce(setup, metadata, found)
                    return
            if introduces_java(setup):
                self._introduce_java(setup)
                return
            if setup.token is not None:
                link.begin_session(setup.token)
            if metadata is None:
                return
            # Routable Destinations: "A routable destination that wishes to receive requests MUST
            # send a ROUTE_SETUP frame to broker that it wishes to receive traffic from."
            self._on_broker_frame(metadata, (0, len(metadata)), ROUTE_SETUP)
        except (ProtocolError, DeliveryError) as error:
            text = error.text if isinstance(error, RejectedSetup) else str(error)
            _logger.info(
                "%s: setup rejected: %s",
                link.name,
                shown(text),
                extra={
                    "event": "connection.setup_rejected",
                    "peer": link.name,
                    "reason": shown(text),
                },
            )
            # Error Codes, REJECTED_SETUP: "The server rejected the setup, it can specify the
            # reason in the payload." Frames of the same read may have ended the connection already.
            self._rejected = True
            link.close("setup refused", text, ErrorCode.REJECTED_SETUP)

    def _introduce(self, setup: Setup, metadata: bytes, found: tuple[int, int, Form]) -> None:
        """Begin the session with a broker, as the SETUP has a BROKER_INFO, or refuse it.

        Raises:
            NotAllowed: It has no permission for `peer`.
            RejectedSetup: The SETUP has more than that, or the cluster does not want it.
            ProtocolError: The BROKER_INFO is broken.
        """
        link = self._link
        self._check_broker(setup)
        other = self._shape.find(metadata, 0, len(metadata), ROUTE_SETUP)
        if other is not None and other[0] != found[0]:
            raise RejectedSetup("a broker is no destination")
        try:
            start, end, form = found
            info = BrokerInfo.parse(metadata[start:end], form.dialect)
            if form.dialect is Dialect.REFERENCE and "onward" not in dict(info.metadata):
                link.greet_java(info, proxy=True)
            else:
                link.greet(info)
        except PeerRefused as error:
            raise RejectedSetup(error.reason) from None

    def _introduce_java(self, setup: Setup) -> None:
        """Begin the session with a Java broker, which has its BROKER_INFO in the data of SETUP.

        Raises:
            NotAllowed: It has no permission for `peer`.
            RejectedSetup: The cluster does not want it.
            ProtocolError: The BROKER_INFO is broken.
        """
        self._check_broker(setup)
        try:
            self._link.greet_java(BrokerInfo.parse(setup.data, Dialect.REFERENCE), proxy=False)
        except PeerRefused as error:
            raise RejectedSetup(error.reason) from None

    def _check_broker(self, setup: Setup) -> None:
        """Check whether the peer may be a broker.

        Raises:
            NotAllowed: It has no permission for `peer`.
            RejectedSetup: Its SETUP is not that of a broker.
        """
        link, authorization = self._link, self._link.broker.authorization
        if is_sibling(link):
            pass  # the brokers of one `onward broker --processes`
        elif authorization is not None:
            authorization.check(self.principal or ANONYMOUS, Action.PEER)
        elif not is_inside(link.identity):
            # Without rules, a broker has to be on this machine.
            raise NotAllowed(Action.PEER.value)
        if setup.token is not None:
            raise RejectedSetup("a broker has no session to resume")

    def _on_broker_frame(
        self, buffer: bytes, span: tuple[int, int], wanted: frozenset[BrokerFrameType]
    ) -> bool:
        """Register the route if the last broker frame is a ROUTE_SETUP; return whether it is."""
        if self._shape.introduction(buffer, *span) is not None:
            authorization = self._link.broker.authorization
            if authorization is not None:
                authorization.check(self.principal or ANONYMOUS, Action.PEER)
            # Only a SETUP makes a broker of a peer, which is nothing else before.
            raise NotAllowed(Action.PEER.value)
        found = self._shape.find(buffer, *span, wanted)
        if found is None:
            return False
        start, end, form = found
        raw = buffer[start:end]
        if not raw or frame_type(raw) != BrokerFrameType.ROUTE_SETUP:
            return False
        self._register(RouteSetup.parse(raw, form.dialect), form)
        return True

    def _register(self, setup: RouteSetup, form: Form) -> None:
        link = self._link
        if setup.route_id == bytes(ID_SIZE):
            # As the origin of a request, zeros stand for no route.
            raise BrokerFrameError("route id", "all zeros, which stand for none")
        if link.left and (self.setup is None or self.setup.token is None):
            return  # it would replace a route that the peer may have registered meanwhile
        # Cleared first, so that a peer that repeats its ROUTE_SETUP does not evict itself.
        before, self.registration = self.registration, None
        try:
            # Handling ROUTE_SETUP Frames: "A broker that receives a ROUTE_SETUP frame will use this
            # frame to create a new route."
            self.registration = link.broker.connect(
                setup,
                link.worker.address,
                peer=link.identity.peer,
                evict=self._evicted,
                busy=lambda: link.busy,
                principal=self.principal or ANONYMOUS,
            )
        except DeliveryError:
            self.registration = before
            raise
        self._own_id = setup.route_id
        self._known.clear()  # with the right origin, and others
        link.form = form
        self.service = setup.service_name
        part = part_of(link.node)
        if part is not None:
            self._log = part.origin(setup.service_name)
        self._asking = None
        if before is not None:
            before.withdraw(REGISTERED_ANEW)

    def _evicted(self, reason: str) -> None:
        """Close the connection after another one has registered its route id, or by the rules."""
        # Handling ROUTE_SETUP Frames: "the Broker or Broker cluster MUST close the existing
        # route, and remove it from the table, and replace it with the information from the new
        # ROUTE_SETUP."
        registration = self.registration
        if registration is not None and not registration.current:
            self._link.close("not allowed" if reason == NOT_ALLOWED else "replaced", reason)

    def _on_push(self, frame: Frame) -> None:
        """Handle a METADATA_PUSH: register a late ROUTE_SETUP, or route the metadata."""
        # ROUTE_SETUP: "The ROUTE_SETUP frame can be set via the RSocket SETUP frame or another
        # frame in the METADATA field."
        span = frame.metadata_range
        if span is None:
            return
        exchange = StreamExchange(self._link, None, _PUSH, frame)
        routed = False
        try:
            if not self._on_broker_frame(frame.buffer, span, EITHER):
                routed = True
                self._route(exchange, frame)
        except (ProtocolError, DeliveryError) as error:
            if isinstance(error, NotAllowed) and not routed:
                # A push has no answer, and the peer would wait for requests in vain.
                self._rejected = True
                self._link.close("not allowed", str(error))
                return
            # METADATA_PUSH Frame: "METADATA_PUSH frames MUST always use Stream ID 0 as they pertain
            # to the Connection."
            # A push has no stream on which an ERROR could answer it.
            self._refuse(exchange, code_of(error), "")
            _logger.debug(
                "%s: metadata push dropped: %s",
                self._link.name,
                shown(str(error)),
                extra={"event": "connection.push_dropped", "peer": self._link.name},
            )

    # --- requests -----------------------------------------------------------------------------

    def on_request(self, frame: Frame) -> None:
        """Route a request to a destination, or refuse it."""
        stream = frame.stream
        kind = frame.type
        if stream.state == CLOSED and (kind != _FNF or self._rejected):
            # Request Response: "Upon receiving a CANCEL, the stream is terminated on the Responder
            # and the response SHOULD not be sent."
            # Cancelled within the same read: it is not routed.
            if self._log is not None:
                self._log.withdrawn(kind, frame.end - frame.start)
            return
        link = self._link
        exchange = StreamExchange(link, stream, kind, frame)
        stream.peer = exchange
        if link.leases is not None and not link.leases.given.take(link.now):
            # Lease Semantics: "A Responder that receives a REQUEST that it can not honor due to
            # LEASE restrictions MUST respond with an ERROR[REJECTED]."
            self._refuse(exchange, ErrorCode.REJECTED, "the lease allows no more requests")
            return
        word = frame.word
        if word & _FOLLOWS:
            # Fragmentation And Reassembly: "When fragmented, the Metadata MUST be transmitted
            # completely before the Data."
            gatherer = exchange.gatherer = RequestGatherer(self._link.gathering.max_gather)
            exchange.frames = gatherer.frames
            if self._log is not None:
                self._log.unread(exchange, kind)
            self._gather(exchange, gatherer, frame)
            return
        if not word & METADATA:
            # Forwarding Protocol: the ADDRESS is "found in the request payload's metadata."
            self._refuse(exchange, ErrorCode.INVALID, "the request has no metadata")
            return
        try:
            self._route(exchange, frame)
        except (ProtocolError, DeliveryError) as error:
            self._refuse(exchange, code_of(error), text_of(error))

    def _route(self, exchange: StreamExchange, frame: Frame) -> None:
        """Route a request with all its metadata in one frame.

        A peer mostly repeats the same few metadata, so they are cached as a whole. Their meaning
        does not depend on the destinations that are connected.

        Raises:
            ProtocolError: There is no ADDRESS, or it is broken.
            DeliveryError: It cannot be routed.
        """
        buffer = frame.buffer
        if frame.type == _PUSH:
            metadata = buffer[frame.start + HEADER_SIZE : frame.end]
        else:
            # As `frame.metadata_range`; the lengths were checked when the frame was accepted.
            at = frame.start + (_LONG_HEADER if frame.type in WITH_CREDIT else HEADER_SIZE)
            start = at + 3
            metadata = buffer[start : start + int.from_bytes(buffer[at:start])]
        tracing: str | None = None
        if self._ruled and (
            self._link.index.epoch != self._epoch or self.principal is not self._decided
        ):
            self._decide_anew()
        known = self._known.get(metadata)
        if known is None:
            checks = self._checks
            if checks is not None and checks.take(exchange, metadata):
                return
            principal = self.principal
            read = self._read_ask(metadata, principal)
            if read is None:
                self._send_named(exchange, metadata, principal)
                return
            if self._validity is not None and self._authenticates(exchange, metadata, read):
                return
            known = (*read, None if principal is not None and principal.tags else Pin())
            tracing = self._tracing_of(metadata)
            if tracing is None and self._lasting and len(metadata) <= MAX_KNOWN_SIZE:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[metadata] = known
        ask, exchange.form, trace, false, exchange.pin = known
        if false:
            exchange.frames = with_origin(exchange.frames, false, self._own_id)
        log = self._log
        if log is not None:
            log.received(exchange, exchange.kind, ask, trace)
        self._send(exchange, ask, tracing)

    def _authenticates(self, exchange: StreamExchange, metadata: bytes, known: _Read) -> bool:
        """Answer a request for the validity of the peer's credentials; return whether it is one."""
        ask, form, trace, _ = known
        validity = self._validity
        if validity is None or not form.composite or not is_about_validity(metadata, ask):
            return False
        self.requests += 1
        if self._log is not None:
            self._log.received(exchange, exchange.kind, ask, trace)
        validity.answer(exchange, metadata)
        return True

    def _decide_anew(self) -> None:
        """Forget the decisions that other rules, or another principal, were the reason for."""
        self._known.clear()
        self._epoch = self._link.index.epoch
        self._decided = self.principal

    def _tracing_of(self, metadata: bytes) -> str | None:
        """Return the tracing text of a request, if the node traces."""
        instruments = self._link.node.instruments
        if instruments is None or not instruments.traces or not self._shape.composite:
            return None
        return tracing_in(metadata)

    def _read_ask(self, metadata: bytes, principal: Principal | None) -> _Read | None:
        """Find the ADDRESS in some metadata; return its query, its form, the trace id, and origins.

        The trace id is `None` without an event log or without tracing metadata. Without an ADDRESS
        the result is `None` if composite metadata may name a route.

        The origin in an ADDRESS is a claim that others may act on. With rules, one that is neither
        zeros nor the peer's own route id is replaced in the frames; the result has the offsets.

        Raises:
            ProtocolError: There is no ADDRESS, or it is broken.
            NotAllowed: The rules do not allow the query.
        """
        found = self._shape.find(metadata, 0, len(metadata), ADDRESS)
        if found is None:
            if self._shape.composite:
                return None
            raise BrokerFrameError("metadata", "the request has no ADDRESS")
        start, end, form = found
        traced = self._log is not None and form.composite
        trace = trace_id_of(metadata) if traced else None
        ask = self._link.broker.index.ask(metadata[start:end], form.dialect)
        if not self._ruled:
            return ask, form, trace, ()
        false = false_origins(metadata, form, self._own_id)
        return self._permitted(ask, principal), form, trace, false

    def ask_of(self, exchange: StreamExchange) -> Ask:
        """Return the query of a request that was routed before, and is kept as it was.

        Raises:
            ProtocolError: There is no ADDRESS, or it is broken.
            DeliveryError: The rules do not allow the query any more.
        """
        named: Ask | None = getattr(exchange, "named", None)
        if named is not None:
            return named
        principal = getattr(exchange, "checked", self.principal)
        known = self._read_ask(exchange.metadata(), principal)
        if known is None:
            raise BrokerFrameError("metadata", "the request has no ADDRESS")
        return known[0]

    def _permitted(self, ask: Ask, principal: Principal | None) -> Ask:
        """Return a query as a principal may send it.

        Raises:
            NotAllowed: The rules do not allow it.
        """
        if not self._ruled:
            return ask
        return self._link.broker.permitted(ask, principal or ANONYMOUS)

    def _send(self, exchange: StreamExchange, ask: Ask, tracing: str | None) -> None:
        """Send a request to its destination.

        Args:
            exchange: The request.
            ask: Its query.
            tracing: Its tracing text, if it is traced: then it is a message.

        Raises:
            DeliveryError: It cannot be routed.
        """
        self.requests += 1
        ask.counts[exchange.kind] += 1
        express = self._express
        if express is not None and tracing is None:
            onward = express.take(exchange, ask)
            if onward:
                self._link.node.parts.router.dispatch(self.message(exchange, onward))
            return
        message = self.message(exchange, (self._link.index.address, ask.address))
        if tracing is not None:
            traces = self._traces
            if traces is None:
                traces = self._traces = RequestTracing(self._link)
            traces.send(message, tracing)
        else:
            self._link.node.parts.router.dispatch(message)

    def _send_named(
        self, exchange: StreamExchange, metadata: bytes, principal: Principal | None
    ) -> None:
        """Send a request that names a route instead of tags.

        Raises:
            ProtocolError: There is neither an ADDRESS nor a route, or the route is broken.
            DeliveryError: It cannot be routed.
        """
        named = route_in(metadata)
        if named is None:
            raise BrokerFrameError("metadata", "the request has no ADDRESS")
        if len(named) == 1 and named[0].type == TAGS:
            ask = self._permitted(self._link.broker.index.asked(named[0]), principal)
            exchange.named = ask
            if self._log is not None:
                self._log.received(exchange, exchange.kind, ask, None)
            self._send(exchange, ask, self._tracing_of(metadata))
            return
        self.requests += 1
        self._link.tally.named[exchange.kind] += 1
        if self._log is not None:
            self._log.unread(exchange, exchange.kind)
        requests = self._named
        if requests is None:
            requests = self._named = NamedRequests(self._link)
        requests.send(exchange, named, principal or ANONYMOUS)

    def message(self, exchange: StreamExchange, onward: Route) -> Message:
        """Return the message of a request, for the actors on the way to its destination."""
        back = self._link.return_route
        payload = b""
        if exchange.frames:
            first = exchange.frames[0]
            payload = first.buffer[first.start : first.end]
        context = _new(Context, (None, None, exchange, 0, None))
        return _new(Message, (onward, back, payload, back[0], context))

    def _gather(self, exchange: StreamExchange, gatherer: RequestGatherer, frame: Frame) -> None:
        """Add a fragment, and route the request once its metadata is whole."""
        try:
            whole = gatherer.add(frame)
            self._count(exchange, frame)
            if not whole:
                return
            exchange.gatherer = None
            metadata = gatherer.metadata
            if metadata is None:
                raise BrokerFrameError("metadata", "the request has none")
            checks = self._checks
            if checks is None or not checks.take(exchange, metadata):
                self._route_whole(exchange, metadata, self.principal)
        except (ProtocolError, DeliveryError) as error:
            self._refuse(exchange, code_of(error), text_of(error))

    def _route_whole(
        self, exchange: StreamExchange, metadata: bytes, principal: Principal | None
    ) -> None:
        """Route a request by all of its metadata, which are not cached.

        Raises:
            ProtocolError: There is no ADDRESS, or it is broken.
            DeliveryError: It cannot be routed.
        """
        known = self._read_ask(metadata, principal)
        if known is None:
            self._send_named(exchange, metadata, principal)
            return
        if self._validity is not None and self._authenticates(exchange, metadata, known):
            return
        ask, exchange.form, trace, false = known
        if false:
            exchange.frames = with_origin(exchange.frames, false, self._own_id)
        if self._log is not None:
            self._log.received(exchange, exchange.kind, ask, trace)
        self._send(exchange, ask, self._tracing_of(metadata))

    def hold(self, exchange: StreamExchange) -> None:
        """Keep the frames of a request until the check of credentials has decided.

        Raises:
            NotDelivered: Too many bytes of this peer are kept.
        """
        self._known.clear()  # known metadata are routed at once, and would overtake it
        if exchange.frames[0].word & _FOLLOWS:
            return  # its fragments were counted, and have their own bytes
        exchange.wait()
        for frame in exchange.frames:
            self._count(exchange, frame)

    def route_checked(
        self, exchange: StreamExchange, metadata: bytes, principal: Principal | None
    ) -> None:
        """Route a request that was held, or refuse it.

        Args:
            exchange: The request.
            metadata: Its metadata.
            principal: The principal of the credentials in it; `None` for that of the connection.
        """
        try:
            self._route_whole(exchange, metadata, principal or self.principal)
        except (ProtocolError, DeliveryError) as error:
            self._refuse(exchange, code_of(error), text_of(error))

    def refuse_held(self, exchange: StreamExchange, code: int, text: str) -> None:
        """Refuse a request that was held."""
        self._refuse(exchange, code, text)

    def keep(self, exchange: StreamExchange, frame: Frame) -> None:
        """Keep a frame of a request until the request is handed over."""
        try:
            exchange.size += frame.end - frame.start
            limits = self._link.gathering
            if exchange.resume is not None:
                # For a worker of this node, which is sent whole requests only.
                if exchange.size > limits.max_request:
                    raise PayloadTooBig(exchange.size, limits.max_request)
            elif exchange.size > limits.max_gather:
                raise NotDelivered("the request", "too much data before it was handed over")
            exchange.frames.append(frame.detached())
            self._count(exchange, frame)
            if not self._link.index.grew(exchange, frame.end - frame.start + FRAME_COST):
                raise NotDelivered("the request", "too much waits for a route already")
        except (NotDelivered, PayloadTooBig) as error:
            self._refuse(exchange, code_of(error), text_of(error))
            return
        if exchange.resume is not None and not more_follow(frame):
            exchange.resume()

    def _count(self, exchange: StreamExchange, frame: Frame) -> None:
        """Count a frame that is kept of a fragmented request.

        Raises:
            NotDelivered: Too many bytes of this peer are kept.
        """
        if not self.gathered.add(exchange, frame.end - frame.start):
            limit = self._link.gathering.max_gathered
            raise NotDelivered("the request", f"fragments of {limit} bytes wait already")

    def give_up(self, exchange: StreamExchange) -> None:
        """Refuse a fragmented request, to make room for others."""
        self._refuse(exchange, ErrorCode.REJECTED, "too much is kept of requests in fragments")

    def _refuse(self, exchange: StreamExchange, code: int, text: str) -> None:
        self.refused += 1
        exchange.gatherer = None
        exchange.frames = []
        if self._log is not None and exchange.log is None and not exchange.ended:
            self._log.unread(exchange, exchange.kind)
        exchange.refuse(code, text)

    def turn_away(self, frame: Frame, text: str) -> None:
        """Refuse a request that is not looked at."""
        stream = frame.stream
        exchange = stream.peer = StreamExchange(self._link, stream, frame.type, frame)
        self._refuse(exchange, ErrorCode.REJECTED, text)

    def on_early(self, exchange: StreamExchange, frame: Frame) -> None:
        """Handle a frame of a request that no destination has taken yet."""
        if exchange.ended:
            return
        kind = frame.type
        if kind in {_CANCEL, _ERROR}:
            # Fragmentation And Reassembly: "If the Requester wants to cancel sending a fragmented
            # sequence, it MAY send a CANCEL frame without finishing delivery of the fragments."
            exchange.end(0.0, CANCELED)
            exchange.unlink()
        elif kind == _REQUEST_N:
            pass  # counted as credit of the stream already
        elif exchange.gatherer is not None:
            exchange.size += frame.end - frame.start
            self._gather(exchange, exchange.gatherer, frame)
        else:
            self.keep(exchange, frame)

    # --- requests of workers ------------------------------------------------------------------

    def asking(self) -> bytes:
        """Return the metadata of a request of a worker of this node to this destination.

        Their ADDRESS has the broker as its origin, and tags of the destination.
        """
        if self._asking is None:
            form, registration = self._link.form, self.registration
            if form is None or registration is None:
                raise AssertionError("only a destination is asked")
            service, key = self.service, WellKnownKey.SERVICE_NAME
            if len(service.encode()) > MAX_VALUE_SIZE:  # too long for a tag
                service, key = format_id(registration.route_id.bytes), WellKnownKey.ROUTE_ID
            origin = self._link.broker.broker_id.bytes
            asked = AddressFrame(origin, RoutingType.UNICAST, ((key, service),))
            raw = asked.serialize(form.dialect)
            self._asking = composite_entry(form.mime.decode(), raw) if form.composite else raw
        return self._asking

    # --- the end ------------------------------------------------------------------------------

    def end(self) -> None:
        """Leave the table, and release the connection after its end."""
        self.leave()
        self.withdraw()  # requests of the read that ended the connection
        self.gathered.clear()
        self._express = self._traces = self._named = None
        if self._checks is not None:
            self._checks.end()
            self._checks = None
        if self._validity is not None:
            self._validity.end()
            self._validity = None
        del self._link

    def withdraw(self) -> None:
        """Withdraw requests that wait for a route and have no stream to end."""
        self._link.index.forget(self._link.worker.address)

    def leave(self, reason: str = CONNECTION_LOST) -> None:
        """Remove the route from the table at once, and give up the authentication."""
        if self._admission is not None:
            self._admission.cancel()
            self._admission = None
        # Routing Protocol Semantics: "If the connection to broker breaks, it is no longer valid."
        if self.registration is not None:
            self.registration.withdraw(reason)
            self.registration = None
