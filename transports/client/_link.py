"""One connection of a client: its requests, and those that its handlers serve.

It is an `RSocketConnection`, as those of the broker are. The `rsocket` package's client composes
the SETUP and keeps the connection alive; see `_package`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

from ...actors.broker import Handlers, Interaction
from ...protocol import LinkDown, LinkLost, NotDelivered, PayloadTooBig
from ...protocol.rsocket import (
    Closed,
    ConnectionState,
    ErrorCode,
    Frame,
    FrameType,
    KeepaliveTimeout,
    LocalProtocolError,
    Role,
    Setup,
    Stream,
    StreamFailed,
)
from ..rsocket._connection import FrameReceiver, RSocketConnection
from ..rsocket._reassembly import Budget
from ._close_reason import last_word
from ._credentials import ClientCredentials
from ._errors import CredentialsRefused
from ._handler_stream import HandlerStream, Handlings, SilentOutlet
from ._metadata import request_of
from ._options import ClientOptions
from ._package import PackageClient
from ._pending_response import AskedElements, PendingResponse
from ._prolonging import Prolonging
from ._suspicion import Suspicion

__all__ = ["ClientLink", "Responder"]

_logger = logging.getLogger("onward.transports.client")

_OPEN: Final = ConnectionState.OPEN
MOVES: Final = "the client moves to another broker"
"""The text for a broker that the client leaves for another one."""
_LOW: Final = 4
"""The part of `max_queued` below which requests go on: a quarter."""


class Responder(FrameReceiver):
    """The requests of the broker to the handlers of this client.

    Attributes:
        handlings: The running handlers.
        rejected_by_lease: Requests of the broker beyond its leases.

    Args:
        link: The connection.
        handlers: The handlers.
    """

    def __init__(self, link: ClientLink, handlers: Handlers) -> None:
        self._link = link
        self._handlers = handlers
        self.handlings = Handlings()
        self.rejected_by_lease = 0

    def on_request(self, frame: Frame) -> None:
        """Start the handler of a request, or refuse the request."""
        link, stream = self._link, frame.stream
        if link.leases is not None and not link.leases.given.take(link.now):
            # Lease Semantics: "A Responder that receives a REQUEST that it can not honor due to
            # LEASE restrictions MUST respond with an ERROR[REJECTED]." Defect 10 of the `rsocket`
            # package (0.4.20): it serves requests without a lease.
            self.rejected_by_lease += 1
            link.end_stream(stream, ErrorCode.REJECTED, "no lease is left")
            return
        stream.peer = HandlerStream(link, stream, self._handlers)
        stream.peer.on_frame(frame)

    def on_frame(self, frame: Frame) -> None:
        """Start the handler of a METADATA_PUSH; apply a LEASE."""
        link = self._link
        if frame.type == FrameType.METADATA_PUSH:
            request = request_of(b"", bytes(frame.metadata or b""))
            push = Interaction.METADATA_PUSH
            self.handlings.note(self._handlers.start(push, request, SilentOutlet()))
        elif frame.type == FrameType.LEASE:
            if link.leases is not None:
                link.leases.on_frame(frame)
            link.news()
        elif frame.type == FrameType.ERROR:
            # Error Codes, CONNECTION_CLOSE: "New requests MAY not be accepted."
            link.news()


class ClientLink(RSocketConnection):
    """A connection to a broker.

    Attributes:
        loop: The loop it runs on.
        suspect_after: Time without a byte with an answer due, after which it is suspected.
        max_request: Most bytes of a request or an element.
        max_answer: Most bytes of an answer or of a received element.
        budget: The bytes of unfinished payloads.
        ready: Whether the broker has accepted the SETUP.
        unheard: Whether the broker has closed it without a word.
        gone: Set when the connection has ended.
        closed_reason: Why it ended; empty while it is open.
        responder: The requests of the broker to handlers.
        closing: Whether the client closes it.
        refused: Whether the broker has refused it.
        unauthenticated: Whether that was because of its credentials.
        taken_over: Whether another connection has its route id now.
        registers: Whether it is a destination.
        suspicion: Whether an answer of the broker is overdue.
        news: Called when `usable` or `alive` may have changed.

    Args:
        name: The URI of the broker, for the log.
        metadata: The metadata of the SETUP; `None` for none.
        handlers: The handlers of requests of the broker.
        credentials: The credentials for the SETUP.
        options: The limits.
        news: Called when `usable` or `alive` may have changed.
    """

    def __init__(
        self,
        name: str,
        metadata: bytes | None,
        handlers: Handlers,
        credentials: ClientCredentials,
        options: ClientOptions,
        news: Callable[[], None],
    ) -> None:
        high = options.load.max_queued
        self.loop = asyncio.get_running_loop()
        super().__init__(
            self.loop, Role.CLIENT, options.limits, high, high // _LOW, options.drain_timeout
        )
        self.name = name
        self.suspect_after = options.keepalive.suspect_after
        self.max_request = options.payload.max_request
        self.max_answer = options.payload.max_answer
        self.budget = Budget(options.payload.max_gathered)
        self._high = high
        self._max_pending = options.load.max_pending
        self._window = options.stream_window
        self._lifetime = options.keepalive.lifetime
        self._lease = options.lease
        self.ready = False
        self.unheard = False
        self._heard = False
        self.gone = asyncio.Event()
        self.closing = False
        self.refused = False
        self.unauthenticated = False
        self.taken_over = False
        self.registers = metadata is not None
        self._unsent: list[Stream] = []  # requests that the next flush writes
        self._credentials = credentials
        self._prolonging = None if credentials.fixed else Prolonging(self, credentials, options)
        self.suspicion = Suspicion(self)
        self.news = news
        self.responder = self._receiver = Responder(self, handlers)
        self._package = PackageClient(self, metadata, options)
        self._answered = asyncio.Event()

    def redial_by(self, dial: Callable[[], Awaitable[object]]) -> None:
        """Ignore how to connect again; see `ResumableClientLink`."""

    # --- opening ------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Get the credentials for the SETUP, before there is a socket.

        Raises:
            NotDelivered: There are none.
        """
        self._package.add_metadata(await self._credentials.entry(self.name))

    async def open(self) -> None:
        """Send the SETUP on a connected socket, and wait until the broker has accepted it.

        RSocket has no answer to an accepted SETUP. So a KEEPALIVE follows it: a broker that answers
        the KEEPALIVE has read the SETUP.

        Raises:
            CredentialsRefused: The broker has refused the credentials.
            NotDelivered: The broker has refused the SETUP, or the connection is lost.
        """
        await self._package.open()
        await self._answered.wait()
        if self.unauthenticated:
            raise CredentialsRefused(self.name, self.closed_reason)
        if not self.ready:
            raise NotDelivered(self.name, self.closed_reason)

    async def ended(self) -> None:
        """Wait for the end of the connection, and keep its credentials valid meanwhile."""
        if self._prolonging is None:
            await self.gone.wait()
        else:
            await self._prolonging.run_until(self.gone)

    def send_setup(self, setup: Setup) -> None:
        """Send SETUP and a KEEPALIVE; the answer to the KEEPALIVE shows that SETUP was accepted."""
        if self.core.closed:
            return
        # Connection Establishment: "A client assumes a SETUP is accepted if it receives a response
        # to a request, a LEASE frame, or if it sees a REQUEST type." An answered KEEPALIVE shows it
        # as well. The package's client sends the later ones.
        self._open_core(setup, self._lease, keepalive_at=inf)
        self.core.send_keepalive()

    def send_keepalive(self) -> None:
        """Send a KEEPALIVE that the broker has to answer."""
        if not self.core.closed:
            self.core.send_keepalive()
            self.suspicion.expect()
            self.flush_soon()

    # --- the socket -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the state machine; whatever it accepts shows that the broker is there."""
        self._heard = True
        self.suspicion.end()
        super().data_received(data)
        if not self.ready and not self.core.closed:
            self.ready = True
            self._answered.set()
            self.news()

    def eof_received(self) -> bool:
        """End the connection, as RSocket has no half-closed ones; return False to close."""
        self._closed_by_broker("")
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """End everything that used this connection."""
        self._closed_by_broker(str(exc) if exc else "")
        super().connection_lost(exc)
        self._answered.set()
        self.gone.set()
        self.news()

    def _closed_by_broker(self, error: str) -> None:
        self.unheard = self.unheard or not (self._heard or self.closed_reason)
        self.closed_reason = self.closed_reason or error or "closed by the broker"

    def resume_writing(self) -> None:
        """Resume the requests and handlers held back by a full socket."""
        super().resume_writing()
        self._on_room()

    def _on_room(self) -> None:
        self._replenish()
        for stream in self.core.streams.values():
            if isinstance(stream.peer, AskedElements):
                stream.peer.writable.set()
        self.news()

    def _write(self, transport: asyncio.Transport) -> None:
        if transport.is_closing():
            return  # it takes nothing any more; its loss is about to be reported
        full = self.full
        self._unsent.clear()
        transport.write(self.core.data_to_send())
        if transport.get_write_buffer_size() > self._max_pending:
            self.abort("the broker does not read")
        elif full and not self.write_paused:
            self._on_room()

    # --- events ---------------------------------------------------------------------------------

    def _on_stream_frame(self, stream: Stream, frame: Frame) -> None:
        stream.peer.on_frame(frame)

    def _on_stream_failed(self, event: StreamFailed) -> None:
        if event.stream.peer is not None:
            event.stream.peer.on_gone(event.error)

    def _on_core_closed(self, event: Closed) -> None:
        if event.error is not None:
            word = last_word(event.error, self._lifetime, ready=self.ready)
            self.closed_reason = self.closed_reason or word.reason
            self.refused, self.taken_over = word.refused, word.taken_over
            self.unauthenticated = word.unauthenticated
        for stream in event.streams:
            if stream.peer is not None:
                # What was never given to the socket has certainly not been handled.
                error = LinkDown if stream in self._unsent else LinkLost
                stream.peer.on_gone(error(self.name, self.closed_reason))
        self._unsent.clear()
        if isinstance(event.error, KeepaliveTimeout) and self._transport is not None:
            # SETUP Frame, Max Lifetime: "Time (in milliseconds) that a client will allow a server
            # to not respond to a KEEPALIVE before it is assumed to be dead."
            self._transport.abort()  # it is dead: what is left to write would never be read

    # --- requests -------------------------------------------------------------------------------

    def peer_certificate(self) -> bytes | None:
        """Return the broker's certificate in DER; `None` if there is none."""
        tls = self._tls
        return None if tls is None else tls.getpeercert(binary_form=True)

    @property
    def authenticated(self) -> bool:
        """Whether the broker has shown a certificate that was checked."""
        tls = self._tls
        return tls is not None and tls.context.verify_mode is ssl.CERT_REQUIRED

    @property
    def _tls(self) -> ssl.SSLObject | None:
        transport = self._transport
        return None if transport is None else transport.get_extra_info("ssl_object")

    @property
    def full(self) -> bool:
        """Whether `max_queued` bytes wait for the socket or for the next flush."""
        return self.write_paused or self.core.pending >= self._high

    @property
    def usable(self) -> bool:
        """Whether a request can be sent now."""
        return self.alive and not self.full and self._leased

    @property
    def _leased(self) -> bool:
        """Whether the broker's lease allows a request now."""
        # Lease Semantics: "The Requester MUST NOT send more than Number of Requests specified in
        # the LEASE frame within the Time-To-Live value in the LEASE."
        return self.leases is None or self.leases.taken.available(self.time()) > 0

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
        size = len(data) + len(metadata)
        if size > self.max_request:
            raise PayloadTooBig(size, self.max_request)
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
        if self.leases is not None:
            self.leases.taken.take(self.time())
        if kind != FrameType.REQUEST_FNF:
            self.suspicion.expect()
            self._unsent.append(stream)
        self.flush_soon()
        return stream

    def request(self, data: bytes, metadata: bytes) -> PendingResponse:
        """Send a request/response. See `ask`."""
        stream = self.ask(FrameType.REQUEST_RESPONSE, data, metadata)
        stream.peer = asked = PendingResponse(self, stream)
        return asked

    def elements(self, kind: int, data: bytes, metadata: bytes) -> AskedElements:
        """Send a request for a stream or a channel. See `ask`."""
        window = self._window
        stream = self.ask(kind, data, metadata, initial_n=window)
        stream.peer = asked = AskedElements(self, stream, window)
        return asked

    def push(self, metadata: bytes) -> None:
        """Send a metadata push.

        Raises:
            NotDelivered: The connection accepts none now.
            PayloadTooBig: It cannot be sent.
        """
        if len(metadata) > self.max_request:
            raise PayloadTooBig(len(metadata), self.max_request)
        if not self.alive or self.full:
            raise NotDelivered(self.name, "the connection takes no push now")
        self.core.send_metadata_push(metadata)
        self.flush_soon()

    def end_stream(self, stream: Stream, code: int, text: str) -> None:
        """End a stream with a CANCEL or an ERROR, by the role of this side, unless it is closed."""
        self.core.terminate(stream, code, text)
        self.flush_soon()

    # --- the end ----------------------------------------------------------------------------------

    def leave(self) -> None:
        """Announce the end: no more requests, and a close once those in flight have ended.

        The broker may have sent some before it reads that; they are served.
        """
        if self.alive and not self.closing:
            self.core.announce_close(MOVES)
            self.flush_soon()
        self.closing = True

    def _leave_streams(self) -> None:
        """Cancel the streams that no consumer awaits."""
        for stream in list(self.core.streams.values()):
            user = stream.peer
            if isinstance(user, AskedElements) and not user.awaited:
                self.end_stream(stream, ErrorCode.CANCELED, "")
                user.on_gone(LinkLost(self.name, "the client was closed"))

    async def drain(self, timeout: float) -> None:
        """Close once requests in flight and handlers have ended, or at the timeout. Idempotent.

        Streams with no element awaited are cancelled at once.

        Args:
            timeout: The timeout in seconds.
        """
        self.closing = True
        if self._transport is not None:
            self._leave_streams()
            # Error Codes, CONNECTION_CLOSE: "Sender or Receiver of this frame MUST wait for
            # outstanding streams to terminate before closing the connection."
            self.close("closed", "the client closes", ErrorCode.CONNECTION_CLOSE)
            try:
                async with asyncio.timeout(timeout):
                    await self.responder.handlings.wait()
                    await self.gone.wait()
            except TimeoutError:
                _logger.info(
                    "%s: closing with requests in flight",
                    self.name,
                    extra={"event": "client.closing"},
                )
            finally:
                self.abort("closed")
                self.responder.handlings.cancel()
        await self._package.close()
