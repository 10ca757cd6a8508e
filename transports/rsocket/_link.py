"""One connection of the RSocket listener: frames in, routed messages out, frames relayed.

The first frame of a stream becomes a message and finds its destination by the route; from
then on the stream has a `peer`, and each further frame goes straight to the other
connection with nothing but its stream id replaced. That path is `data_received`, and it is
kept free of everything else.

Flow control is described on the architecture page. In short: a slow destination is given no
new requests, a requester that goes on sending on streams to it is not read, and a destination
is given no more credit than a window ahead of what the requester's socket takes. Nothing is
queued for a stream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol import NotDelivered
from ...protocol.rsocket import (
    CLOSED,
    MAX_REQUEST_N,
    Closed,
    ConnectionState,
    ErrorCode,
    Event,
    Frame,
    FrameType,
    InvalidSetup,
    KeepaliveTimeout,
    LocalProtocolError,
    PeerError,
    RejectedResume,
    RejectedSetup,
    RSocketError,
    SetupTimeout,
    Stream,
    StreamFailed,
    UnsupportedSetup,
)
from .._log import SeldomLogger, shown
from ._exchange import DestinationSlow, StreamExchange
from ._flow import BULK, Flow
from ._local import LocalRequest
from ._options import LinkOptions
from ._session import REQUESTS, Session
from ._unfinished import UnfinishedFrames

if TYPE_CHECKING:
    from ...actors.broker import Broker
    from ._worker import ConnectionWorker

__all__ = ["Link"]

_logger = logging.getLogger("onward.transports.rsocket")

_CONNECTION_CLOSED: Final = ConnectionState.CLOSED
_REQUEST_N: Final = int(FrameType.REQUEST_N)
_FNF: Final = int(FrameType.REQUEST_FNF)
_PUSH: Final = int(FrameType.METADATA_PUSH)
_REASONS: Final[dict[type[RSocketError], str]] = {
    InvalidSetup: "setup refused",
    UnsupportedSetup: "setup refused",
    RejectedSetup: "setup refused",
    RejectedResume: "setup refused",
    SetupTimeout: "no setup",
    KeepaliveTimeout: "silent",
    PeerError: "error of the peer",
}
"""Why a state machine ended, in words for counting; all else is a broken frame."""

_WITH_CREDIT: Final = frozenset({int(FrameType.REQUEST_STREAM), int(FrameType.REQUEST_CHANNEL)})


class Link(Flow):
    """A connection: its frames, its joined streams and their credit.

    Args:
        worker: The worker that stands for the connection.
        broker: Where destinations join and requests are routed.
        options: The limits.
        seldom: Logs the warnings of all connections of the listener.
        unfinished: What all connections of the listener keep of unfinished frames.
        on_closed: Called once the socket has gone.
    """

    def __init__(
        self,
        worker: ConnectionWorker,
        broker: Broker,
        options: LinkOptions,
        seldom: SeldomLogger,
        unfinished: UnfinishedFrames,
        on_closed: Callable[[Link], None],
    ) -> None:
        super().__init__(worker.node.loop, options, seldom, unfinished)
        self.worker = worker
        self.node = worker.node
        self.broker = broker
        self.return_route = (worker.address,)
        self._on_closed = on_closed
        # Streams to this requester whose destinations wait for credit held back.
        self._starved: set[StreamExchange] = set()
        self.session = Session(self)

    # --- frames -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Let the state machine read, and relay or handle what it lets through."""
        core = self.core
        for event in core.receive_data(data, self._now()):
            if type(event) is not Frame:
                self._on_event(event)
                continue
            stream = event.stream
            exchange: StreamExchange | None = stream.peer
            if exchange is None:
                if event.type in REQUESTS:
                    self.session.on_request(event)
                else:
                    self._on_frame(stream, event)
            elif stream.requester:
                self._relay_answer(exchange, stream, event)
            else:
                self._relay_request(exchange, stream, event)
        if core.unfinished or self._keeps:
            self._note_unfinished()
        if core.pending and not self._flushing:
            self.flush_soon()
        if core.close_expected():
            self._close_when_flushed()
        if len(data) >= BULK:
            self._rest()

    def _relay_answer(self, exchange: StreamExchange, stream: Stream, frame: Frame) -> None:
        """Pass a frame of the destination, this peer, on to the requester."""
        link, target = exchange.link, exchange.stream
        if target is None:
            raise AssertionError("joined streams have two ends")
        try:
            link.core.relay(target, frame)
        except LocalProtocolError:
            self._break_off(exchange, link, target)
            return
        if not link._flushing:
            link.flush_soon()
        # Not the state of the near stream: that is ahead, by the rest of the chunk.
        if target.state == CLOSED:
            exchange.end()
            exchange.unlink()
        elif exchange.held:
            self._refill(exchange)

    def _relay_request(self, exchange: StreamExchange, stream: Stream, frame: Frame) -> None:
        """Pass a frame of the requester, this peer, on to the destination."""
        if frame.type == _REQUEST_N:
            exchange.held = min(exchange.held + frame.request_n, MAX_REQUEST_N)
            self._refill(exchange)
            return
        link, target = exchange.taker, exchange.taken
        if link is None or target is None:
            raise AssertionError("joined streams have two ends")
        try:
            link.core.relay(target, frame)
        except LocalProtocolError:
            self._break_off(exchange, link, target)
            return
        link.flush_soon()
        if link.write_paused and link is not self and self._only_requests():
            self._block(link)
        if target.state == CLOSED:
            exchange.end()
            exchange.unlink()

    def _break_off(self, exchange: StreamExchange, link: Link, target: Stream) -> None:
        """End the far side of a stream on which this peer sent what cannot be passed on."""
        exchange.end()
        link.core.terminate(target, ErrorCode.CANCELED, "the stream was broken off")
        link.flush_soon()

    def _on_event(self, event: Event) -> None:
        if type(event) is StreamFailed:
            self._on_stream_failed(event.stream)
        elif type(event) is Closed:
            self._on_core_closed(event)

    def _on_frame(self, stream: Stream, frame: Frame) -> None:
        """Take a frame that is not to be relayed."""
        request = stream.user
        if type(request) is LocalRequest:
            self.worker.local.on_frame(request, frame)
        else:
            self.session.on_frame(frame)
            if frame.type == FrameType.SETUP:
                self._arm()

    # --- credit -------------------------------------------------------------------------------

    def resume_writing(self) -> None:
        """Let those go on who waited for this socket, and pass on the credit held back."""
        super().resume_writing()
        starved, self._starved = self._starved, set()
        for exchange in starved:
            self._refill(exchange)

    def _refill(self, exchange: StreamExchange) -> None:
        """Pass credit on to a destination that has used half its window."""
        taker, taken = exchange.taker, exchange.taken
        if taker is None or taken is None or taken.state == CLOSED:
            return
        window = self.options.credit_window
        ahead = taken.receive_credit
        if ahead > window // 2 or not exchange.held:
            return
        requester = exchange.link
        if requester.write_paused:
            requester._starved.add(exchange)
            return
        elements = min(exchange.held, window - ahead)
        exchange.held -= elements
        taker.core.send_request_n(taken, elements)
        taker.flush_soon()

    # --- requests handed over -----------------------------------------------------------------

    def take(self, exchange: StreamExchange) -> None:
        """Open a stream to this peer for a request and join the two ends.

        Raises:
            NotDelivered: The peer does not keep up, the connection takes no more streams,
                or it has gone.
        """
        core = self.core
        if self._transport is None or core.state is _CONNECTION_CLOSED:
            raise NotDelivered("the destination", "it has just left")
        if self.write_paused or core.pending > self.options.high_water:
            raise DestinationSlow("the destination")
        if exchange.kind == _PUSH:
            self._push(exchange)
            return
        origin = exchange.stream
        if origin is None:
            raise AssertionError("a request has a stream")
        try:
            stream = core.open(exchange.kind)
        except LocalProtocolError as error:
            raise NotDelivered("the destination", str(error)) from None
        exchange.taker, exchange.taken = self, stream
        origin.peer = stream.peer = exchange
        frames = exchange.frames
        if exchange.kind in _WITH_CREDIT:
            credit = origin.send_credit
            initial = min(credit, self.options.credit_window)
            exchange.held = credit - initial
            core.relay_request(stream, frames[0], initial)
        else:
            core.relay(stream, frames[0])
        for frame in frames[1:]:
            core.relay(stream, frame)
        frames.clear()
        if not self._flushing:
            self.flush_soon()
        if self._blocked_by:
            self._read_again()  # it is to answer now
        if stream.state == CLOSED:
            exchange.end()
            exchange.unlink()

    def _push(self, exchange: StreamExchange) -> None:
        metadata = exchange.frames[0].metadata
        self.core.send_metadata_push(bytes(metadata or b""))
        self.flush_soon()
        exchange.end()

    def refuse(self, exchange: StreamExchange, code: int, text: str) -> None:
        """Answer a request with an error, if it is of a kind that has answers."""
        exchange.end()
        stream = exchange.stream
        if stream is not None and not stream.closed and stream.kind != _FNF:
            self.core.send_error(stream, code, text)
            self.flush_soon()
        exchange.unlink()

    # --- the end of things --------------------------------------------------------------------

    def _on_stream_failed(self, stream: Stream) -> None:
        """End the other side of a stream that this peer has broken."""
        self._drop(stream, "the destination broke the protocol")

    def _drop(self, stream: Stream, text: str) -> None:
        """End the far side of a stream whose near side, here, is gone."""
        exchange: StreamExchange | None = stream.peer
        user = stream.user
        if exchange is not None:
            exchange.end()
            far = exchange.far_end(stream)
            if far is not None:
                link, target = far
                link.core.terminate(target, ErrorCode.CANCELED, text)
                link.flush_soon()
            exchange.unlink()
        elif type(user) is LocalRequest:
            self.worker.local.on_ended(user)
        elif type(user) is StreamExchange:
            user.end()
            user.unlink()

    def _on_core_closed(self, event: Closed) -> None:
        """End the far sides of all streams: those that answer here are lost."""
        if event.error is not None:
            reason = _REASONS.get(type(event.error), "broken frame")
            self.closed_reason = self.closed_reason or reason
            _logger.info("%s: closing: %s", self.peer_name, shown(str(event.error)))
        if self._keeps:
            self._note_unfinished()
        # At once: a peer that does not read may keep the socket open for a while.
        self.session.leave()
        for stream in event.streams:
            self._drop(stream, "the connection to the destination was lost")

    def _end(self) -> None:
        super()._end()
        self._starved.clear()
        self._on_closed(self)
        self.session.end()
        self.worker.detach()
