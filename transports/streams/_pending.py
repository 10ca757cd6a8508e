"""Accepted and opened connections without their final protocol, and the TLS handshake.

A connection is opened without TLS. `secure` adds it, on either side; then the connection is handed
over to its protocol, with the data received meanwhile. So `SecureTransport` knows both transports,
and counts unwritten bytes above and below TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from ._proxy_protocol import UNEXPECTED, is_proxy_header
from ._tls import NO_TLS, reason_of

__all__ = ["PendingConnection", "TlsHandshake", "secure"]

# RFC 8446 section 5.1: the content type of a client's first record.
_HANDSHAKE = 0x16


class PendingConnection(asyncio.Protocol):
    """A connection that keeps received data until it is handed over, within a tick or two.

    Attributes:
        transport: The transport of the connection.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._came: list[bytes] = []
        self._eof = False
        self._lost: tuple[Exception | None] | None = None
        self._successor: asyncio.Protocol | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of the connection."""
        if self._transport is None:
            raise AssertionError("there is no connection yet")
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Keep the data."""
        self._came.append(data)

    def eof_received(self) -> None:
        """Keep the end of the data."""
        self._eof = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep the loss, or forward it if the loop has chosen this protocol before a hand-over."""
        if self._successor is None:
            self._lost = (exc,)
        else:
            (self.transport.get_protocol() or self._successor).connection_lost(exc)

    def take(self) -> bytes:
        """Take the data received so far."""
        came = b"".join(self._came)
        self._came.clear()
        return came

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Hand the connection and the kept events over to its protocol."""
        transport = self.transport
        self._successor = protocol
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if came := self.take():
            protocol.data_received(came)
        # With that data the protocol may have handed over to another one.
        if self._eof:
            cast(asyncio.Protocol, transport.get_protocol()).eof_received()
        if self._lost is not None:
            transport.get_protocol().connection_lost(*self._lost)


async def secure(
    plain: PendingConnection,
    context: ssl.SSLContext,
    timeout: float,
    *,
    server_side: bool = False,
    host: str | None = None,
) -> PendingConnection:
    """Perform the TLS handshake, and return the encrypted connection.

    Args:
        plain: The connection without TLS.
        context: The TLS context.
        timeout: The time for the handshake, in seconds.
        server_side: Whether this is the listening side.
        host: The name that the peer's certificate must have.

    Raises:
        ConnectionError: The handshake failed; the connection is closed.
    """
    transport, early = plain.transport, PendingConnection()
    loop = asyncio.get_running_loop()
    handshake = loop.create_task(
        loop.start_tls(
            transport,
            early,
            context,
            server_side=server_side,
            server_hostname=host,
            ssl_handshake_timeout=timeout,
        )
    )
    try:
        # After the start of the handshake, before it receives data. At a server the loop may have
        # read the client's first record by then; a server sends nothing before a client has.
        await asyncio.sleep(0)
        came = plain.take()
        if came and not server_side:
            raise ConnectionError(NO_TLS)
        _feed(transport.get_protocol(), came)
        secured = await handshake
        if secured is None:  # pyright: ignore[reportUnnecessaryComparison] - a loss at that moment
            raise ConnectionResetError
    except BaseException as error:
        handshake.cancel()
        transport.abort()
        if isinstance(error, OSError):
            raise ConnectionError(_reason_of(error, timeout, server_side)) from error
        raise
    early.connection_made(SecureTransport(secured, transport))
    return early


def _feed(protocol: Any, data: bytes) -> None:
    """Pass bytes to the TLS protocol as the loop does: it is an `asyncio.BufferedProtocol`."""
    while data:
        buffer = protocol.get_buffer(len(data))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]


def _reason_of(error: OSError, timeout: float, server_side: bool) -> str:
    if isinstance(error, ConnectionAbortedError):
        return _too_late(timeout)
    if isinstance(error, ConnectionResetError):
        text = "the peer closed the connection in the TLS handshake"
        return text if server_side else f"{text}; it may not speak TLS"
    return reason_of(error)


def _too_late(timeout: float) -> str:
    return f"no TLS handshake within {timeout:g} s"


class SecureTransport(asyncio.Transport):
    """A TLS connection that counts the unwritten bytes above and below TLS.

    Args:
        secured: The transport of the TLS connection.
        plain: The transport below it, which has its own buffer.
    """

    def __init__(self, secured: asyncio.Transport, plain: asyncio.Transport) -> None:
        super().__init__()
        self._secured = secured
        self._plain = plain
        self._protocol = secured.get_protocol()
        self._cipher = secured.get_extra_info("cipher")  # a closed one no longer knows it
        # Called for every message, so without a method in between.
        self.write = secured.write  # type: ignore[method-assign]
        self.is_closing = secured.is_closing  # type: ignore[method-assign]

    def get_write_buffer_size(self) -> int:
        """Return the number of unwritten bytes, plain and encrypted."""
        return self._secured.get_write_buffer_size() + self._plain.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the water marks of bytes that wait for encryption."""
        self._secured.set_write_buffer_limits(high, low)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol."""
        self._protocol = protocol
        self._secured.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol. A closed `asyncio` transport no longer knows it."""
        return self._protocol

    def pause_reading(self) -> None:
        """Pause reading."""
        self._secured.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._secured.resume_reading()

    def can_write_eof(self) -> bool:
        """Whether one direction alone can be closed: not with TLS here."""
        return False

    def close(self) -> None:
        """Close once everything is written and TLS has been shut down."""
        # A transport of `asyncio` that is closed twice can no longer be cut, or asked anything.
        if not self._secured.is_closing():
            self._secured.close()

    def abort(self) -> None:
        """Close at once."""
        self._secured.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information on the connection."""
        if name == "cipher":
            return self._cipher
        return self._secured.get_extra_info(name, default)


class TlsHandshake(PendingConnection):
    """An accepted connection that waits for, or performs, the TLS handshake.

    Args:
        context: The TLS context.
        timeout: The time for the client's first bytes, and for the handshake, in seconds.
        protocol_factory: Makes the protocol of the connection after the handshake, given its
            encrypted transport.
        on_done: Called once, before that, with the reason of a failure, or "".
    """

    detail = ""
    """Empty: the log shows the reason."""

    def __init__(
        self,
        context: ssl.SSLContext,
        timeout: float,
        protocol_factory: Callable[[asyncio.Transport], asyncio.Protocol],
        on_done: Callable[[TlsHandshake, str], None],
    ) -> None:
        super().__init__()
        self._context = context
        self._timeout = timeout
        self._inlet = protocol_factory
        self._on_done = on_done
        self._outcome = ""
        self._task: asyncio.Task[PendingConnection] | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout, self.abort, _too_late(timeout))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's first bytes."""
        super().connection_made(transport)
        if self._outcome:
            self.transport.abort()  # aborted before it was connected

    def data_received(self, data: bytes) -> None:
        """Start the handshake if the first byte is that of one."""
        super().data_received(data)
        if self._task is not None or self._outcome:
            return
        if data[0] != _HANDSHAKE:
            self.abort(UNEXPECTED if is_proxy_header(data) else NO_TLS)
            return
        self._timer.cancel()
        self.transport.pause_reading()
        handshake = secure(self, self._context, self._timeout, server_side=True)
        self._task = asyncio.get_running_loop().create_task(handshake)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[PendingConnection]) -> None:
        if task.cancelled():
            self.transport.abort()  # the task may not have started
            self._done("stopped")
        elif (error := task.exception()) is not None:
            self._done(str(error))
        elif self._outcome:
            task.result().transport.abort()  # aborted as the handshake ended
            self._done("")
        else:
            self._done("")
            secured = task.result()
            secured.hand_over(self._inlet(secured.transport))

    def abort(self, outcome: str) -> None:
        """Close the connection at once, unless it is closed for another reason."""
        self._outcome = self._outcome or outcome
        if self._task is not None:
            self._task.cancel()
        elif self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the listener, unless the handshake has started: then its task ends."""
        super().connection_lost(exc)
        if self._task is None:
            self._done("the peer closed the connection")

    def _done(self, outcome: str) -> None:
        self._timer.cancel()
        self._on_done(self, self._outcome or outcome)
