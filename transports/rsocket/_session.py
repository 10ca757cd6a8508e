"""What a peer asks of the broker: to be a destination, and to have requests routed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final

from ...actors.broker import Ask, Registration
from ...actors.broker._exchange import CANCELED
from ...actors.broker.table._leaving import CONNECTION_ENDS, CONNECTION_LOST, REGISTERED_ANEW
from ...protocol import (
    Address,
    Context,
    DeliveryError,
    Message,
    NotDelivered,
    PayloadTooBig,
    ProtocolError,
)
from ...protocol.broker import (
    ID_SIZE,
    MAX_VALUE_SIZE,
    AddressFrame,
    BrokerFrameError,
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
    RequestGatherer,
    Setup,
    composite_entry,
)
from .._log import shown
from ._exchange import StreamExchange
from ._gathered import Gathered
from ._leases import Leases
from ._metadata import ADDRESS, EITHER, ROUTE_SETUP, Form, MetadataShape, trace_id_of
from ._request import FRAME_COST, WITH_CREDIT, code_of, more_follow, text_of
from ._worker import ConnectionWorker

if TYPE_CHECKING:
    from ...actors.eventlog.recording._origins import OriginLog
    from ._link import Link

__all__ = ["REQUESTS", "Session"]

_logger = logging.getLogger("onward.transports.rsocket")

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

MAX_KNOWN: Final = 32
"""Metadata remembered for each connection, with what they ask for: 8 KiB at most."""
MAX_KNOWN_SIZE: Final = 256
"""Bytes of metadata above which they are not remembered."""
_LONG_HEADER: Final = HEADER_SIZE + 4
"""Bytes of a request that has a request-n before its metadata."""
_FOLLOWS: Final = 0x80
_CANCEL: Final = int(FrameType.CANCEL)
_ERROR: Final = int(FrameType.ERROR)
_LEASE: Final = int(FrameType.LEASE)
_REQUEST_N: Final = int(FrameType.REQUEST_N)
_SETUP: Final = int(FrameType.SETUP)
_FNF: Final = int(FrameType.REQUEST_FNF)
_PUSH: Final = int(FrameType.METADATA_PUSH)
REQUESTS: Final = frozenset(
    {
        int(FrameType.REQUEST_RESPONSE),
        int(FrameType.REQUEST_FNF),
        int(FrameType.REQUEST_STREAM),
        int(FrameType.REQUEST_CHANNEL),
    }
)


class Session:
    """The frames of one connection that are not merely relayed.

    Attributes:
        registration: Its place in the table, if it is a destination.
        setup: Its SETUP.
        gathered: What is kept of the peer's frames.
        requests: Requests read.
        refused: Of those, the ones that could not be read or routed at once.

    Args:
        link: The connection.
    """

    __deletable__: ClassVar = ["_link"]  # for mypyc

    def __init__(self, link: Link) -> None:
        self._link = link
        self._shape = MetadataShape("")
        # Metadata of requests to what they ask for and how, and the trace they are of; cleared
        # whole at the limit.
        self._known: dict[bytes, tuple[Ask, Form, int | None]] = {}
        recorder = link.node.recorder
        self._log: OriginLog | None = None if recorder is None else recorder.requests.origin("")
        self.gathered = Gathered(link, link.shared.gathered)
        self._rejected = False
        self._service = ""
        self._asking: bytes | None = None
        self.registration: Registration | None = None
        self.setup: Setup | None = None
        self.requests = 0
        self.refused = 0

    @property
    def used(self) -> bool:
        """Whether the peer is a destination, or has sent a request, be it one that was refused."""
        return self.registration is not None or self.requests > 0 or self.refused > 0

    def on_frame(self, frame: Frame) -> None:
        """Act on a frame of the connection; one of a stream that is over means nothing."""
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
            # CONNECTION_CLOSE: the peer ends what it has in hand and takes nothing new.
            self.leave(CONNECTION_ENDS)

    # --- the connection -----------------------------------------------------------------------

    def _on_setup(self, frame: Frame) -> None:
        """Take the peer's SETUP, and make it a destination if it says so."""
        self.setup = setup = Setup.parse(frame)
        self._shape = MetadataShape(setup.metadata_mime)
        self._known.clear()
        if setup.lease:
            self._link.leases = Leases(self._link)
        try:
            span = frame.metadata_range
            if span is not None:
                self._on_broker_frame(frame.buffer, span, ROUTE_SETUP)
        except (ProtocolError, DeliveryError) as error:
            _logger.info("%s: setup rejected: %s", self._link.peer_name, shown(str(error)))
            # What came with it in one piece may have ended the connection already.
            self._rejected = True
            self._link.close("setup refused", str(error), ErrorCode.REJECTED_SETUP)

    def _on_broker_frame(
        self, buffer: bytes, span: tuple[int, int], wanted: frozenset[BrokerFrameType]
    ) -> bool:
        """Register the route if the last such frame is a ROUTE_SETUP; return whether it is."""
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
            # As the origin of a request, zeros say that there is no route.
            raise BrokerFrameError("route id", "all zeros, which stand for none")
        # Meanwhile there is none: a peer that repeats its ROUTE_SETUP does not evict itself.
        before, self.registration = self.registration, None
        try:
            self.registration = link.broker.connect(
                setup,
                link.worker.address,
                peer=link.peer_name,
                evict=self._evicted,
                busy=lambda: link.busy,
            )
        except DeliveryError:
            self.registration = before
            raise
        link.form = form
        self._service = setup.service_name
        recorder = link.node.recorder
        if recorder is not None:
            self._log = recorder.requests.origin(setup.service_name)
        self._asking = None
        if before is not None:
            before.withdraw(REGISTERED_ANEW)

    def _evicted(self, reason: str) -> None:
        """Close: another connection has this one's route id now."""
        registration = self.registration
        if registration is not None and not registration.current:
            self._link.close("replaced", reason)

    def _on_push(self, frame: Frame) -> None:
        """Take a METADATA_PUSH: a late ROUTE_SETUP, or metadata to be routed."""
        span = frame.metadata_range
        if span is None:
            return
        exchange = StreamExchange(self._link, None, _PUSH, frame)
        try:
            if not self._on_broker_frame(frame.buffer, span, EITHER):
                self._route(exchange, frame)
        except (ProtocolError, DeliveryError) as error:
            # A push has no answer; the peer would not know what an ERROR was about.
            self._refuse(exchange, code_of(error), "")
            _logger.debug("%s: metadata push dropped: %s", self._link.peer_name, shown(str(error)))

    # --- requests -----------------------------------------------------------------------------

    def on_request(self, frame: Frame) -> None:
        """Route a request to a destination, or refuse it."""
        stream = frame.stream
        kind = frame.type
        if stream.state == CLOSED and (kind != _FNF or self._rejected):
            # Cancelled within the same chunk: it goes nowhere, and nobody waits for it.
            if self._log is not None:
                self._log.withdrawn(kind, frame.end - frame.start)
            return
        link = self._link
        exchange = StreamExchange(link, stream, kind, frame)
        stream.peer = exchange
        if link.leases is not None and not link.leases.given.take(link.now):
            self._refuse(exchange, ErrorCode.REJECTED, "the lease allows no more requests")
            return
        word = frame.word
        if word & _FOLLOWS:
            gatherer = exchange.gatherer = RequestGatherer(self._link.options.max_gather)
            exchange.frames = gatherer.frames
            if self._log is not None:
                self._log.unread(exchange, kind)
            self._gather(exchange, gatherer, frame)
            return
        if not word & METADATA:
            self._refuse(exchange, ErrorCode.INVALID, "the request has no metadata")
            return
        try:
            self._route(exchange, frame)
        except (ProtocolError, DeliveryError) as error:
            self._refuse(exchange, code_of(error), text_of(error))

    def _route(self, exchange: StreamExchange, frame: Frame) -> None:
        """Send a request on its way whose metadata are all in one frame.

        A peer mostly sends the same few metadata again and again, and those are looked up
        whole. What they mean does not depend on who is connected.

        Raises:
            ProtocolError: There is no ADDRESS, or it is broken.
            DeliveryError: It cannot be routed.
        """
        buffer = frame.buffer
        if frame.type == _PUSH:
            metadata = buffer[frame.start + HEADER_SIZE : frame.end]
        else:
            # As `frame.metadata_range` does; the lengths were checked when it was accepted.
            at = frame.start + (_LONG_HEADER if frame.type in WITH_CREDIT else HEADER_SIZE)
            start = at + 3
            metadata = buffer[start : start + int.from_bytes(buffer[at:start])]
        known = self._known.get(metadata)
        if known is None:
            known = self._read_ask(metadata)
            if len(metadata) <= MAX_KNOWN_SIZE:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[metadata] = known
        ask, exchange.form, trace = known
        log = self._log
        if log is not None:
            log.received(exchange, exchange.kind, ask, trace)
        self._send(exchange, ask)

    def _read_ask(self, metadata: bytes) -> tuple[Ask, Form, int | None]:
        """Find the ADDRESS in some metadata; return what it asks for and how it is wrapped.

        The third is the id of the trace that the request is of, if it says so and the event
        log is to hear of it.

        Raises:
            ProtocolError: There is no ADDRESS, or it is broken.
        """
        found = self._shape.find(metadata, 0, len(metadata), ADDRESS)
        if found is None:
            raise BrokerFrameError("metadata", "the request has no ADDRESS")
        start, end, form = found
        traced = self._log is not None and form.composite
        trace = trace_id_of(metadata) if traced else None
        return self._link.broker.index.ask(metadata[start:end], form.dialect), form, trace

    def _send(self, exchange: StreamExchange, ask: Ask) -> None:
        """Send a request on its way.

        Raises:
            DeliveryError: It cannot be routed.
        """
        index = self._link.broker.index
        self.requests += 1
        # What the rule for tags would do, less a message. If nobody is there, it decides.
        to = index.choose(ask, exchange)
        if to is None:
            self._link.node.carry(self._message(exchange, ask.address))
        elif not self._hand_over(exchange, to):
            self._link.node.carry(self._message(exchange, to))

    def _message(self, exchange: StreamExchange, to: Address) -> Message:
        """Return a request as the message that it is to all but connections."""
        back = self._link.return_route
        payload = b""
        if exchange.frames:
            first = exchange.frames[0]
            payload = first.buffer[first.start : first.end]
        context = _new(Context, (None, None, exchange, 0, None))
        return _new(Message, ((to,), back, payload, back[0], context))

    def _hand_over(self, exchange: StreamExchange, to: Address) -> bool:
        """Hand a request to another connection at once, if its worker has nothing else to do.

        That is what the worker would do with the message, and nothing is before it in the
        mailbox. A request that cannot be handed over goes there all the same: the worker
        says so to all who are to know.
        """
        cell = self._link.node.idle(to)
        if cell is None:
            return False
        worker = cell.worker
        if not isinstance(worker, ConnectionWorker) or worker.link is None:
            return False
        try:
            exchange.hand_to(worker.link)
        except (NotDelivered, ProtocolError):
            return False
        except Exception as error:  # noqa: BLE001 - as at the top of the worker's loop
            cell.raised(error, self._message(exchange, to))
        cell.handled += 1
        return True

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
            ask, exchange.form, trace = self._read_ask(metadata)
            if self._log is not None:
                self._log.received(exchange, exchange.kind, ask, trace)
            self._send(exchange, ask)
        except (ProtocolError, DeliveryError) as error:
            self._refuse(exchange, code_of(error), text_of(error))

    def keep(self, exchange: StreamExchange, frame: Frame) -> None:
        """Keep a frame of a request that is on its way, until it is handed over."""
        try:
            exchange.size += frame.end - frame.start
            options = self._link.options
            if exchange.resume is not None:
                # For a worker of this node, which gets it whole or not at all.
                if exchange.size > options.max_request:
                    raise PayloadTooBig(exchange.size, options.max_request)
            elif exchange.size > options.max_gather:
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
        """Count a frame that is kept of a request in fragments.

        Raises:
            NotDelivered: There are too many of this peer's.
        """
        if not self.gathered.add(exchange, frame.end - frame.start):
            limit = self._link.options.max_gathered
            raise NotDelivered("the request", f"fragments of {limit} bytes wait already")

    def give_up(self, exchange: StreamExchange) -> None:
        """Refuse a request in fragments, as others need the room that it takes."""
        self._refuse(exchange, ErrorCode.REJECTED, "too much is kept of requests in fragments")

    def _refuse(self, exchange: StreamExchange, code: int, text: str) -> None:
        self.refused += 1
        exchange.gatherer = None
        exchange.frames = []
        if self._log is not None and exchange.log is None and not exchange.ended:
            self._log.unread(exchange, exchange.kind)
        exchange.refuse(code, text)

    def on_early(self, exchange: StreamExchange, frame: Frame) -> None:
        """Take a frame of a request that no destination has taken yet."""
        if exchange.ended:
            return
        kind = frame.type
        if kind in {_CANCEL, _ERROR}:
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
        """Return metadata for a request of a worker of this node to this destination.

        The ADDRESS in them says that the broker asks, and for the destination itself.
        """
        if self._asking is None:
            form, registration = self._link.form, self.registration
            if form is None or registration is None:
                raise AssertionError("only a destination is asked")
            service, key = self._service, WellKnownKey.SERVICE_NAME
            if len(service.encode()) > MAX_VALUE_SIZE:  # too long for a tag
                service, key = format_id(registration.route_id.bytes), WellKnownKey.ROUTE_ID
            origin = self._link.broker.broker_id.bytes
            asked = AddressFrame(origin, RoutingType.UNICAST, ((key, service),))
            raw = asked.serialize(form.dialect)
            self._asking = composite_entry(form.mime.decode(), raw) if form.composite else raw
        return self._asking

    # --- the end ------------------------------------------------------------------------------

    def end(self) -> None:
        """Leave, and let go of the connection: nothing comes from it any more."""
        self.leave()
        self.withdraw()  # what came in one piece with what ended it
        self.gathered.clear()
        if self._link.leases is not None:
            self._link.leases.end()
        del self._link

    def withdraw(self) -> None:
        """Take back what waits for a route and has no stream that would have been ended."""
        self._link.index.forget(self._link.worker.address)

    def leave(self, reason: str = CONNECTION_LOST) -> None:
        """Leave the table; the route is gone at once."""
        if self.registration is not None:
            self.registration.withdraw(reason)
            self.registration = None
