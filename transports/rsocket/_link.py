"""One socket of the RSocket listener: frames in, routed messages out, frames relayed.

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

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, cast

from ...protocol import NotDelivered
from ...protocol.rsocket import (
    CLOSED,
    MAX_REQUEST_N,
    Closed,
    Connection,
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
    Role,
    RSocketError,
    SetupTimeout,
    Stream,
    StreamFailed,
    UnsupportedSetup,
)
from .._log import SeldomLogger, shown
from ._exchange import DestinationSlow, StreamExchange
from ._local import LocalRequest
from ._options import LinkOptions
from ._session import REQUESTS, Session
from ._unfinished import UnfinishedFrames

if TYPE_CHECKING:
    from ...actors.broker import Broker
    from ._worker import ConnectionWorker

__all__ = ["Link"]

_logger = logging.getLogger("onward.transports.rsocket")

BLOCKED_RECHECK: Final = 1.0
"""Seconds after which a peer that is not read is looked at again for its keepalive."""

BULK: Final = 64 * 1024
"""Bytes read at once after which a peer is not read again before others had their turn."""

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


class Link(asyncio.Protocol):
    """A connection's socket and state machine.

    Attributes:
        closed_reason: Why the connection ended, in a few words, the same for the same cause:
            `setup refused`, `no setup`, `silent`, `broken frame`, `error of the peer`,
            `too slow`, `unfinished frame`, `unfinished frames`, `replaced`, `stopped`, or
            `by the peer`. Empty while it lives.

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
        self.worker = worker
        self.broker = broker
        self.options = options
        self.return_route = (worker.address,)
        self._on_closed = on_closed
        self._seldom = seldom
        self._unfinished = unfinished
        self._keeps = False
        self.node = worker.node
        self._loop = self.node.loop
        self._now = self._loop.time
        self.core = Connection(Role.SERVER, options.connection, now=self._now())
        self._transport: asyncio.Transport | None = None
        self._aborting: asyncio.TimerHandle | None = None
        self.peer_name = ""
        self.write_paused = False
        self._flushing = False
        self._resting = False
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        # Links whose sockets are full of what this one sends to them; it is not read meanwhile.
        self._blocked_by: set[Link] = set()
        self._blocking: set[Link] = set()
        # A stream on which this peer answers, as far as one has been looked for.
        self._answers: Stream | None = None
        # Streams to this requester whose destinations wait for credit held back.
        self._starved: set[StreamExchange] = set()
        self.session = Session(self)
        self.closed_reason = ""

    # --- the socket ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        self._transport = cast(asyncio.Transport, transport)
        options = self.options
        self._transport.set_write_buffer_limits(options.high_water, options.low_water)
        name = transport.get_extra_info("peername")
        self.peer_name = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "unix")
        self._arm()

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
        if len(data) >= BULK and not self._resting and self._transport is not None:
            # Some event loops read on and on while there is something to read, and who is
            # sent to would not be seen to be slow before it is far above its limits.
            self._resting = True
            self._transport.pause_reading()
            self._loop.call_soon(self._rested)

    def _note_unfinished(self) -> None:
        core = self.core
        self._keeps = core.unfinished > 0
        self._unfinished.note(self, core.unfinished, core.unfinished_since)

    def _rested(self) -> None:
        self._resting = False
        self._read_on()

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

    def eof_received(self) -> bool:
        """Let the socket close: RSocket has no half-closed connections."""
        self.end_core(self.core.receive_eof())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End everything that used this connection."""
        self.end_core(self.core.receive_eof())
        self._end()
        self._transport = None

    def pause_writing(self) -> None:
        """Note that the peer does not read as fast as it is sent to."""
        self.write_paused = True
        self._stall = self._loop.call_later(self.options.stall_timeout, self._on_stalled)
        if self._only_requests():
            self._block(self)

    def resume_writing(self) -> None:
        """Let those go on who waited for this socket."""
        self.write_paused = False
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self._unblock_all()
        starved, self._starved = self._starved, set()
        for exchange in starved:
            self._refill(exchange)

    def flush_soon(self) -> None:
        """Write what has been queued at the end of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        transport = self._transport
        if transport is None or not self.core.pending:
            return
        transport.write(self.core.data_to_send())
        if transport.get_write_buffer_size() > self.options.max_pending:
            self._too_slow("it does not read what it is sent")
        elif self.core.close_expected():
            self._close_when_flushed()

    def _arm(self) -> None:
        """Set the timer to what the state machine asks for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.core.get_timer()
        if at is not None and self._transport is not None:
            self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._blocked_by:
            # Not read because of us: its silence says nothing.
            self._timer = self._loop.call_later(BLOCKED_RECHECK, self._on_timer)
            return
        self.end_core(self.core.handle_timer(self._now()))
        self._arm()

    def end_core(self, events: Iterable[Event]) -> None:
        """Act on the events of a state machine that may have ended, and send what is left."""
        for event in events:
            self._on_event(event)
        self._settle()

    def _settle(self) -> None:
        """Send what the state machine has queued, and close if it has ended."""
        if self.core.pending:
            self.flush_soon()
        if self.core.close_expected():
            self._close_when_flushed()

    # --- slow peers ---------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether the peer is not read now."""
        return bool(self._blocked_by)

    def _only_requests(self) -> bool:
        """Say whether nobody waits for an answer from this peer.

        A peer that answers must always be read: it may be unable to take anything before
        it has got rid of its answers.
        """
        known = self._answers
        if known is not None and known.state != CLOSED:
            return False
        streams = self.core.streams.values()
        self._answers = next((stream for stream in streams if stream.requester), None)
        return self._answers is None

    def _block(self, by: Link) -> None:
        if not self._blocked_by and self._transport is not None:
            self._transport.pause_reading()
        self._blocked_by.add(by)
        by._blocking.add(self)

    def _unblock(self, by: Link) -> None:
        if by not in self._blocked_by:
            return
        by._blocking.discard(self)
        self._blocked_by.discard(by)
        self._read_on()

    def _read_on(self) -> None:
        if not self._blocked_by and not self._resting and self._transport is not None:
            self._transport.resume_reading()

    def _read_again(self) -> None:
        """Read this peer, whatever it was not read for."""
        for link in list(self._blocked_by):
            self._unblock(link)

    def _unblock_all(self) -> None:
        """Read those again who were not read because of this socket."""
        for link in list(self._blocking):
            link._unblock(self)

    def _on_stalled(self) -> None:
        self._stall = None
        self._too_slow("it has not read for too long")

    # --- credit -------------------------------------------------------------------------------

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
        if self._transport is None or self.core.closed:
            raise NotDelivered("the destination", "it has just left")
        if self.write_paused or self.core.pending > self.options.high_water:
            raise DestinationSlow("the destination")
        if exchange.kind == _PUSH:
            self._push(exchange)
            return
        origin = exchange.stream
        if origin is None:
            raise AssertionError("a request has a stream")
        try:
            stream = self.core.open(exchange.kind)
        except LocalProtocolError as error:
            raise NotDelivered("the destination", str(error)) from None
        exchange.taker, exchange.taken = self, stream
        origin.peer = stream.peer = exchange
        frames = exchange.frames
        if exchange.kind in _WITH_CREDIT:
            credit = origin.send_credit
            initial = min(credit, self.options.credit_window)
            exchange.held = credit - initial
            self.core.relay_request(stream, frames[0], initial)
        else:
            self.core.relay(stream, frames[0])
        for frame in frames[1:]:
            self.core.relay(stream, frame)
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

    def close(self, reason: str, text: str, code: int = ErrorCode.CONNECTION_ERROR) -> None:
        """Close in order: tell the peer why, send what is waiting, then close the socket.

        Args:
            reason: Why, as in `closed_reason`.
            text: What the peer is told.
            code: The code of the ERROR frame that says so.
        """
        self.closed_reason = self.closed_reason or reason
        self.end_core(self.core.close(code, text))

    def _too_slow(self, text: str) -> None:
        """Close at once, and say why."""
        self.closed_reason = self.closed_reason or "too slow"
        self._seldom.log(logging.WARNING, "too slow", "closing %s: %s", self.peer_name, text)
        self.abort()

    def abort(self) -> None:
        """Close at once; what is waiting to be sent is lost."""
        if self._transport is not None:
            self._transport.abort()
        self.end_core(self.core.receive_eof())

    def _close_when_flushed(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._flush()
        transport.close()
        self._aborting = self._loop.call_later(self.options.drain_timeout, transport.abort)

    def _end(self) -> None:
        self.closed_reason = self.closed_reason or "by the peer"
        for handle in (self._timer, self._stall, self._aborting):
            if handle is not None:
                handle.cancel()
        self._timer = self._stall = self._aborting = None
        self._unblock_all()
        for link in self._blocked_by:
            link._blocking.discard(self)
        self._starved.clear()
        self._on_closed(self)
        self.session.end()
        self.worker.detach()
