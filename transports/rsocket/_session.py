"""What a peer asks of the broker: to be a destination, and to have requests routed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...actors.broker import Registration
from ...protocol import Address, Context, DeliveryError, Message, ProtocolError
from ...protocol.broker import (
    BrokerFrameError,
    FrameType as BrokerFrameType,
    RouteSetup,
    frame_type,
)
from ...protocol.rsocket import (
    CLOSED,
    METADATA,
    ErrorCode,
    Frame,
    FrameType,
    RequestGatherer,
    Setup,
)
from ._exchange import StreamExchange, code_of
from ._metadata import MetadataShape

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["REQUESTS", "Session"]

_logger = logging.getLogger("onward.transports.rsocket")

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

MAX_KNOWN: Final = 128
"""Metadata remembered for each connection, with what they ask for."""
MAX_KNOWN_SIZE: Final = 512
"""Bytes of metadata above which they are not remembered."""

_FOLLOWS: Final = 0x80
_CANCEL: Final = int(FrameType.CANCEL)
_ERROR: Final = int(FrameType.ERROR)
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

    Args:
        link: The connection.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._shape = MetadataShape("")
        # Metadata of requests to what it asks for; cleared whole at the limit.
        self._known: dict[bytes, Address] = {}
        self.registration: Registration | None = None
        self.setup: Setup | None = None
        self.requests = 0
        self.refused = 0

    def on_frame(self, frame: Frame) -> None:
        """Act on a frame of the connection, or a later one of a stream not joined yet."""
        kind = frame.type
        if kind == _SETUP:
            self._on_setup(frame)
        elif kind == _PUSH:
            self._on_push(frame)
        elif frame.stream_id:
            self._on_early(frame)
        elif kind == _ERROR:
            # CONNECTION_CLOSE: the peer ends what it has in hand and takes nothing new.
            self.leave()

    # --- the connection -----------------------------------------------------------------------

    def _on_setup(self, frame: Frame) -> None:
        """Take the peer's SETUP, and make it a destination if it says so."""
        self.setup = setup = Setup.parse(frame)
        self._shape = MetadataShape(setup.metadata_mime)
        self._known.clear()
        try:
            span = frame.metadata_range
            if span is not None:
                self._on_broker_frame(frame.buffer, span)
        except (ProtocolError, DeliveryError) as error:
            _logger.info("%s: setup rejected: %s", self._link.peer_name, error)
            self._link.end_core(self._link.core.reject_setup(str(error)))

    def _on_broker_frame(self, buffer: bytes, span: tuple[int, int]) -> bool:
        """Register the route if the metadata holds a ROUTE_SETUP; say whether it did."""
        found = self._shape.find(buffer, span)
        if found is None:
            return False
        raw = buffer[found[0] : found[1]]
        if not raw or frame_type(raw) != BrokerFrameType.ROUTE_SETUP:
            return False
        self._register(RouteSetup.parse(raw, self._shape.dialect))
        return True

    def _register(self, setup: RouteSetup) -> None:
        link = self._link
        # Meanwhile there is none: a peer that repeats its ROUTE_SETUP does not evict itself.
        before, self.registration = self.registration, None
        self.registration = link.broker.connect(
            setup, link.worker.address, peer=link.peer_name, evict=self._evicted
        )
        if before is not None:
            before.withdraw()

    def _evicted(self, reason: str) -> None:
        """Close: another connection has this one's route id now."""
        registration = self.registration
        if registration is not None and not registration.current:
            self._link.close(reason)

    def _on_push(self, frame: Frame) -> None:
        """Take a METADATA_PUSH: a late ROUTE_SETUP, or metadata to be routed."""
        span = frame.metadata_range
        if span is None:
            return
        try:
            if not self._on_broker_frame(frame.buffer, span):
                exchange = StreamExchange(self._link, None, _PUSH, frame)
                self._send(exchange, self._address(frame))
        except (ProtocolError, DeliveryError) as error:
            # A push has no answer; the peer would not know what an ERROR was about.
            self.refused += 1
            _logger.info("%s: metadata push dropped: %s", self._link.peer_name, error)

    # --- requests -----------------------------------------------------------------------------

    def on_request(self, frame: Frame) -> None:
        """Route a request to a destination, or refuse it."""
        stream = frame.stream
        kind = frame.type
        if stream.state == CLOSED and kind != _FNF:
            return  # cancelled within the same chunk
        exchange = StreamExchange(self._link, stream, kind, frame)
        stream.user = exchange
        word = frame.word
        if word & _FOLLOWS:
            exchange.gatherer = RequestGatherer(self._link.options.max_gather)
            self._gather(exchange, frame)
            return
        if not word & METADATA:
            self._refuse(exchange, ErrorCode.INVALID, "the request has no metadata")
            return
        try:
            self._send(exchange, self._address(frame))
        except (ProtocolError, DeliveryError) as error:
            self._refuse(exchange, code_of(error), str(error))

    def _address(self, frame: Frame) -> Address:
        """Return the address of type 32 that a request asks for.

        A peer mostly sends the same few metadata again and again, and those are looked up
        whole. What they mean does not depend on who is connected.
        """
        span = frame.metadata_range
        if span is None:
            raise BrokerFrameError("metadata", "the request has none")
        metadata = frame.buffer[span[0] : span[1]]
        address = self._known.get(metadata)
        if address is None:
            address = self._read_address(metadata)
            if len(metadata) <= MAX_KNOWN_SIZE:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[metadata] = address
        return address

    def _read_address(self, metadata: bytes) -> Address:
        """Find the ADDRESS in some metadata, and return the address it stands for.

        Raises:
            ProtocolError: There is no ADDRESS, or it is broken.
            NotDelivered: It asks for something that is not served here.
        """
        found = self._shape.find(metadata, (0, len(metadata)))
        if found is None:
            raise BrokerFrameError("metadata", "the request has no ADDRESS")
        raw = metadata[found[0] : found[1]]
        return self._link.broker.index.address_of(raw, self._shape.dialect)

    def _send(self, exchange: StreamExchange, address: Address) -> None:
        """Send a request on its way.

        Raises:
            DeliveryError: It cannot be routed.
        """
        link = self._link
        self.requests += 1
        first = exchange.frames[0]
        payload = first.buffer[first.start : first.end]
        back = link.return_route
        # What the rule for tags would do, less a message. If nobody is there, it decides.
        to = link.broker.index.choose(address, exchange) or address
        context = _new(Context, (None, None, exchange))
        link.node.route(_new(Message, ((to,), back, payload, back[0], context)))

    def _gather(self, exchange: StreamExchange, frame: Frame) -> None:
        """Add a fragment, and route the request once its metadata is whole."""
        gatherer = exchange.gatherer
        if gatherer is None:
            raise AssertionError("a request in fragments has a gatherer")
        try:
            if not gatherer.add(frame):
                return
            exchange.gatherer = None
            exchange.frames = gatherer.frames
            exchange.size = sum(each.end - each.start for each in gatherer.frames)
            metadata = gatherer.metadata
            if metadata is None:
                raise BrokerFrameError("metadata", "the request has none")
            self._send(exchange, self._read_address(metadata))
        except (ProtocolError, DeliveryError) as error:
            exchange.gatherer = None
            self._refuse(exchange, code_of(error), str(error))

    def _refuse(self, exchange: StreamExchange, code: int, text: str) -> None:
        self.refused += 1
        self._link.refuse(exchange, code, text)

    def _on_early(self, frame: Frame) -> None:
        """Take a frame of a stream that no destination has taken yet."""
        exchange: StreamExchange | None = frame.stream.user
        if exchange is None or exchange.ended:
            return
        kind = frame.type
        if kind in {_CANCEL, _ERROR}:
            exchange.end()
        elif kind == _REQUEST_N:
            pass  # counted as credit of the stream already
        elif exchange.gatherer is not None:
            self._gather(exchange, frame)
        else:
            exchange.size += frame.end - frame.start
            exchange.frames.append(frame)
            if exchange.size > self._link.options.max_gather:
                self._refuse(exchange, ErrorCode.REJECTED, "too much data before a route was found")
            elif not frame.word & _FOLLOWS and exchange.resume is not None:
                exchange.resume()

    # --- the end ------------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave the table; the route is gone at once."""
        if self.registration is not None:
            self.registration.withdraw()
            self.registration = None
