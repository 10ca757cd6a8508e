"""One connection of a client.

It uses the state machine that the broker also uses. The `rsocket` package's client opens the
connection and keeps it alive; see `_package`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from ...actors.broker import Handlers, Interaction
from ...protocol import LinkLost, NotDelivered, PayloadTooBig
from ...protocol.rsocket import (
    Closed,
    Connection,
    ConnectionState,
    ErrorCode,
    Event,
    Frame,
    FrameType,
    LocalProtocolError,
    Role,
    Setup,
    Stream,
    StreamFailed,
)
from ._close_reason import last_word
from ._gather import Budget
from ._handler_stream import INTERACTIONS, HandlerStream, Handlings, SilentOutlet
from ._keepalive import KeepaliveMonitor
from ._leases import ClientLeases
from ._metadata import request_of
from ._options import ClientOptions
from ._package import PackageClient
from ._pending_response import AskedElements, PendingResponse

__all__ = ["ClientLink"]

_logger = logging.getLogger("onward.transports.client")

_OPEN: Final = ConnectionState.OPEN
_LOW: Final = 4
"""The part of `max_queued` below which requests go on: a quarter."""


class ClientLink(asyncio.Protocol):
    """A connection to a broker.

    Attributes:
        core: The state machine.
        loop: The loop it runs on.
        options: The limits.
        budget: The bytes of unfinished payloads.
        write_paused: Whether more than `max_queued` bytes wait for the socket.
        ready: Whether the broker has accepted the SETUP.
        unheard: Whether the broker has closed it without a word.
        gone: Set when the connection has ended.
        reason: Why it ended; empty while it is open.
        handlings: The running handlers.
        closing: Whether the client closes it.
        refused: Whether the broker has refused it.
        taken_over: Whether another connection has its route id now.
        rejected_by_lease: Requests of the broker beyond its leases.
        silence: The keepalive monitor.

    Args:
        name: The URI of the broker, for the log.
        metadata: The metadata of the SETUP; `None` for none.
        handlers: The handlers of requests of the broker.
        options: The limits.
        news: Called when `usable` or `alive` may have changed.
    """

    def __init__(
        self,
        name: str,
        metadata: bytes | None,
        handlers: Handlers,
        options: ClientOptions,
        news: Any,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.name = name
        self.options = options
        self.budget = Budget(options.max_gathered)
        self.core = Connection(Role.CLIENT, options.limits, now=self.loop.time())
        self.write_paused = False
        self.ready = False
        self.unheard = False
        self._heard = False
        self.gone = asyncio.Event()
        self.reason = ""
        self.closing = False
        self.refused = False
        self.taken_over = False
        self.rejected_by_lease = 0
        self.silence = KeepaliveMonitor(self)
        self._news = news
        self._handlers = handlers
        self.handlings = Handlings()
        self._starved: set[HandlerStream] = set()
        self._transport: asyncio.Transport | None = None
        self._package = PackageClient(self, metadata, options)
        self._answered = asyncio.Event()
        self._flushing = False
        self._leases = ClientLeases(self)

    # --- opening ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Send the SETUP on a connected socket, and wait until the broker has accepted it.

        RSocket has no answer to an accepted SETUP. So a KEEPALIVE follows it: a broker that answers
        the KEEPALIVE has read the SETUP.

        Raises:
            NotDelivered: The broker has refused the SETUP, or the connection is lost.
        """
        await self._package.open()
        await self._answered.wait()
        if not self.ready:
            raise NotDelivered(self.name, self.reason)

    def send_setup(self, setup: Setup) -> None:
        """Send SETUP and a KEEPALIVE; the answer to the KEEPALIVE shows that SETUP was accepted."""
        if self.core.closed:
            return
        self.core.send_setup(setup)
        self.core.send_keepalive()
        # Connection Establishment: "The client-side Responder MUST send a LEASE frame after a SETUP
        # frame with the L flag set."
        self._leases.grant()
        self.silence.watch()
        self.flush_soon()

    def send_keepalive(self) -> None:
        """Send a KEEPALIVE that the broker has to answer."""
        if not self.core.closed:
            self.core.send_keepalive()
            self.silence.expect()
            self.flush_soon()

    # --- the socket -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket and its limits."""
        self._transport = cast(asyncio.Transport, transport)
        high = self.options.max_queued
        self._transport.set_write_buffer_limits(high, high // _LOW)

    def data_received(self, data: bytes) -> None:
        """Feed the state machine, and handle its events."""
        self._heard = True
        now = self.silence.hear()
        for event in self.core.receive_data(data, now):
            self._on_event(event)
        if not self.ready and not self.core.closed:
            self.ready = True
            self._answered.set()
            self._news()
        self._settle()

    def eof_received(self) -> bool:
        """End the connection, as RSocket has no half-closed ones; return False to close."""
        self._closed_by_broker("")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End everything that used this connection."""
        self._closed_by_broker(str(exc) if exc else "")
        self._transport = None
        self.silence.stop()
        self._leases.stop()
        self._starved.clear()
        self._answered.set()
        self.gone.set()
        self._news()

    def _closed_by_broker(self, error: str) -> None:
        self.unheard = self.unheard or not (self._heard or self.reason)
        self._end_core(error or "closed by the broker")

    def pause_writing(self) -> None:
        """Hold requests and handlers back while the socket is full."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Resume the requests and handlers held back by a full socket."""
        self.write_paused = False
        self._on_room()

    def _on_room(self) -> None:
        blocked_on_write, self._starved = self._starved, set()
        for served in blocked_on_write:
            served.replenish()
        for stream in self.core.streams.values():
            if isinstance(stream.peer, AskedElements):
                stream.peer.writable.set()
        self._news()

    def flush_soon(self) -> None:
        """Write the queued frames at the end of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        transport = self._transport
        if transport is None or not self.core.pending:
            return
        full = self.full
        transport.write(self.core.data_to_send())
        if transport.get_write_buffer_size() > self.options.max_pending:
            self.abort("the broker does not read")
        elif full and not self.write_paused:
            self._on_room()

    def _settle(self) -> None:
        if self.core.pending:
            self.flush_soon()
        transport = self._transport
        if self.core.close_expected() and transport is not None:
            self._flush()
            transport.close()

    # --- events ---------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Frame):
            user = event.stream.peer
            if user is not None:
                user.on_frame(event)
            elif event.type in INTERACTIONS:
                self._on_request(event)
            else:
                self._on_control(event)
        elif isinstance(event, StreamFailed):
            if event.stream.peer is not None:
                event.stream.peer.on_gone(event.error)
        else:
            self._on_closed(event)

    def _on_request(self, frame: Frame) -> None:
        stream = frame.stream
        if not self._leases.take(self.silence.heard):
            # Lease Semantics: "A Responder that receives a REQUEST that it can not honor due to
            # LEASE restrictions MUST respond with an ERROR[REJECTED]."
            self.rejected_by_lease += 1
            self.end_stream(stream, ErrorCode.REJECTED, "no lease is left")
            return
        stream.peer = HandlerStream(self, stream, self._handlers)
        stream.peer.on_frame(frame)

    def _on_control(self, frame: Frame) -> None:
        if frame.type == FrameType.METADATA_PUSH:
            request = request_of(b"", bytes(frame.metadata or b""))
            push = Interaction.METADATA_PUSH
            self.handlings.note(self._handlers.start(push, request, SilentOutlet()))
        elif frame.type == FrameType.LEASE:
            self._leases.on_frame(frame, self.silence.heard)
            self._news()
        elif frame.type == FrameType.ERROR:  # CONNECTION_CLOSE: "New requests MAY not be accepted."
            self._news()

    def _on_closed(self, event: Closed) -> None:
        if event.error is not None:
            word = last_word(event.error, ready=self.ready)
            self.reason = self.reason or word.reason
            self.refused, self.taken_over = word.refused, word.taken_over
        self._end_streams(event.streams)

    def _end_streams(self, streams: tuple[Stream, ...]) -> None:
        for stream in streams:
            if stream.peer is not None:
                stream.peer.on_gone(LinkLost(self.name, self.reason))

    # --- requests -------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether `max_queued` bytes wait for the socket or for the next flush."""
        return self.write_paused or self.core.pending >= self.options.max_queued

    @property
    def usable(self) -> bool:
        """Whether a request can be sent now."""
        return self.alive and not self.full and self._leases.available

    @property
    def alive(self) -> bool:
        """Whether requests can be sent, now or once the socket and the lease allow it."""
        return self.ready and self.core.state is _OPEN and self._transport is not None

    def ask(
        self, kind: int, data: bytes, metadata: bytes, *, initial_n: int = 1, complete: bool = False
    ) -> Stream:
        """Send a request. It is written to the socket at the end of this turn of the loop.

        Raises:
            NotDelivered: The connection accepts no request now. Nothing was sent.
            PayloadTooBig: It cannot be sent. Defect 5 of the `rsocket` package (0.4.20): it sends
                a frame over 16 MiB - 1 with a truncated length.
        """
        options = self.options
        size = len(data) + len(metadata)
        if size > options.max_request:
            raise PayloadTooBig(size, options.max_request)
        if not self.usable:
            raise NotDelivered(self.name, "the connection takes no requests now")
        try:
            stream = self.core.open(kind)
        except LocalProtocolError as error:
            raise NotDelivered(self.name, str(error)) from None
        try:
            self.core.send_request(stream, data, metadata, initial_n=initial_n, complete=complete)
        except Exception:  # nothing was sent
            self.core.send_cancel(stream)
            raise
        self._leases.use()
        if kind != FrameType.REQUEST_FNF:
            self.silence.expect()
        self.flush_soon()
        return stream

    def request(self, data: bytes, metadata: bytes) -> PendingResponse:
        """Send a request/response. See `ask`."""
        stream = self.ask(FrameType.REQUEST_RESPONSE, data, metadata)
        stream.peer = asked = PendingResponse(self, stream)
        return asked

    def elements(self, kind: int, data: bytes, metadata: bytes) -> AskedElements:
        """Send a request for a stream or a channel. See `ask`."""
        window = self.options.stream_window
        stream = self.ask(kind, data, metadata, initial_n=window)
        stream.peer = asked = AskedElements(self, stream, window)
        return asked

    def push(self, metadata: bytes) -> None:
        """Send a metadata push.

        Raises:
            NotDelivered: The connection accepts none now.
            PayloadTooBig: It cannot be sent.
        """
        if len(metadata) > self.options.max_request:
            raise PayloadTooBig(len(metadata), self.options.max_request)
        if not self.alive or self.full:
            raise NotDelivered(self.name, "the connection takes no push now")
        self.core.send_metadata_push(metadata)
        self.flush_soon()

    def end_stream(self, stream: Stream, code: int, text: str) -> None:
        """End a stream with a CANCEL or an ERROR, by the role of this side, unless it is closed."""
        self.core.terminate(stream, code, text)
        self.flush_soon()

    # --- handlers -------------------------------------------------------------------------------

    def block_on_write(self, served: HandlerStream) -> None:
        """Grant a handler credit again when the socket has room."""
        self._starved.add(served)

    # --- the end ----------------------------------------------------------------------------------

    def abort(self, reason: str) -> None:
        """Close at once; the backlog is lost."""
        self._end_core(reason)
        if self._transport is not None:
            self._transport.abort()

    def broken(self, text: str) -> None:
        """End everything, as the broker has broken the protocol of the WebSocket."""
        self._end_core(f"broken WebSocket: {text}")

    def _end_core(self, reason: str) -> None:
        self.reason = self.reason or reason
        for event in self.core.receive_eof():
            self._on_event(event)

    def _leave_streams(self) -> None:
        """Cancel the streams that no consumer awaits."""
        for stream in list(self.core.streams.values()):
            user = stream.peer
            if isinstance(user, AskedElements) and not user.awaited:
                self.end_stream(stream, ErrorCode.CANCELED, "")
                user.on_gone(LinkLost(self.name, "the client was closed"))

    async def close(self, timeout: float) -> None:
        """Close once requests in flight and handlers have ended, or at the timeout. Idempotent.

        Streams with no element awaited are cancelled at once.

        Args:
            timeout: The timeout in seconds.
        """
        self.closing = True
        if self._transport is not None:
            self.reason = self.reason or "closed"
            self._leave_streams()
            for event in self.core.close(ErrorCode.CONNECTION_CLOSE, "the client closes"):
                self._on_event(event)
            self._settle()
            try:
                async with asyncio.timeout(timeout):
                    await self.handlings.wait()
                    await self.gone.wait()
            except TimeoutError:
                _logger.info("%s: closing with requests in flight", self.name)
            finally:
                self.abort("closed")
                self.handlings.cancel()
        await self._package.close()
