"""What a peer asks of the broker: to be a destination, and to have requests routed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...actors.broker import Registration
from ...protocol import Address, DeliveryError, Message, ProtocolError
from ...protocol.broker import (
    BrokerFrameError,
    FrameType as BrokerFrameType,
    RouteSetup,
    frame_type,
)
from ...protocol.rsocket import (
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

__all__ = ["Session", "stream_token"]

_logger = logging.getLogger("onward.transports.rsocket")

_new: Final = tuple.__new__
_FOLLOWS: Final = 0x80
_CANCEL: Final = int(FrameType.CANCEL)
_ERROR: Final = int(FrameType.ERROR)
_REQUEST_N: Final = int(FrameType.REQUEST_N)
_SETUP: Final = int(FrameType.SETUP)
_PUSH: Final = int(FrameType.METADATA_PUSH)
_REQUESTS: Final = frozenset(
    {
        int(FrameType.REQUEST_RESPONSE),
        int(FrameType.REQUEST_FNF),
        int(FrameType.REQUEST_STREAM),
        int(FrameType.REQUEST_CHANNEL),
    }
)


def stream_token(stream_id: int) -> Address:
    """Return the address of one stream, for the return route of its request.

    It stands behind the connection's own address and means something to that connection only.
    """
    return Address(0, b"stream/%d" % stream_id)


def frame_bytes(frame: Frame) -> bytes:
    """Return a frame's bytes: the payload of the message that stands for a request."""
    return frame.buffer[frame.start : frame.end]


class Session:
    """The frames of one connection that are not merely relayed.

    Args:
        link: The connection.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._shape = MetadataShape("")
        self.registration: Registration | None = None
        self.setup: Setup | None = None
        self.requests = 0
        self.refused = 0

    def on_frame(self, frame: Frame) -> None:
        """Act on a frame of the connection, or of a stream that is not joined to another."""
        kind = frame.type
        if kind in _REQUESTS:
            self._on_request(frame)
        elif kind == _SETUP:
            self._on_setup(frame)
        elif kind == _PUSH:
            self._on_push(frame)
        elif frame.stream_id:
            self._on_early(frame)

    # --- the connection -----------------------------------------------------------------------

    def _on_setup(self, frame: Frame) -> None:
        """Take the peer's SETUP, and make it a destination if it says so."""
        self.setup = setup = Setup.parse(frame)
        self._shape = MetadataShape(setup.metadata_mime)
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
        before = self.registration
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
                self._route(StreamExchange(self._link, None, _PUSH, [frame]), frame.buffer, span)
        except (ProtocolError, DeliveryError) as error:
            # A push has no answer; the peer would not know what an ERROR was about.
            self.refused += 1
            _logger.info("%s: metadata push dropped: %s", self._link.peer_name, error)

    # --- requests -----------------------------------------------------------------------------

    def _on_request(self, frame: Frame) -> None:
        stream = frame.stream
        exchange = StreamExchange(self._link, stream, frame.type, [frame])
        stream.user = exchange
        if stream.closed and frame.type != FrameType.REQUEST_FNF:
            return  # cancelled within the same chunk
        if frame.word & _FOLLOWS:
            exchange.gatherer = RequestGatherer(self._link.options.max_gather)
            self._gather(exchange, frame)
            return
        span = frame.metadata_range
        if span is None:
            self._refuse(exchange, ErrorCode.INVALID, "the request has no metadata")
            return
        try:
            self._route(exchange, frame.buffer, span)
        except (ProtocolError, DeliveryError) as error:
            self._refuse(exchange, code_of(error), str(error))

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
            self._route(exchange, metadata, (0, len(metadata)))
        except (ProtocolError, DeliveryError) as error:
            exchange.gatherer = None
            self._refuse(exchange, code_of(error), str(error))

    def _route(self, exchange: StreamExchange, buffer: bytes, span: tuple[int, int]) -> None:
        """Send the request on its way.

        Raises:
            ProtocolError: There is no ADDRESS, or it is broken.
            DeliveryError: It cannot be routed.
        """
        found = self._shape.find(buffer, span)
        if found is None:
            raise BrokerFrameError("metadata", "the request has no ADDRESS")
        link = self._link
        start, end = found
        address = link.broker.index.address_of(buffer[start:end], self._shape.dialect)
        stream = exchange.stream
        worker = link.worker
        back: tuple[Address, ...] = ()
        if stream is not None and exchange.kind != FrameType.REQUEST_FNF:
            back = (worker.address, stream_token(stream.id))
        self.requests += 1
        worker.route(
            _new(
                Message,
                (
                    (address,),
                    back,
                    frame_bytes(exchange.frames[0]),
                    worker.address,
                    exchange.context,
                ),
            )
        )

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

    def on_closed(self) -> None:
        """Leave the table; the route is gone at once."""
        if self.registration is not None:
            self.registration.withdraw()
            self.registration = None
