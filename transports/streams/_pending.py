"""What comes of a connection before anybody is there to take it, and TLS as a step on the way.

A connection is opened plain. `secure` makes it one with TLS, at either side; then it is handed to
the protocol that is to have it, with all that has come meanwhile. So whoever has a socket that is
plain has it whole, and what is not written by TLS yet or by the socket below it are both known.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from ._tls import NO_TLS, reason_of

__all__ = ["PendingConnection", "TlsHandshake", "secure"]

# RFC 8446 section 5.1: the content type of what a client says first.
_HANDSHAKE = 0x16


class PendingConnection(asyncio.Protocol):
    """Keeps what comes until it is handed over: the reads of one tick or two of the loop.

    Attributes:
        transport: The connection.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._came: list[bytes] = []
        self._eof = False
        self._lost: tuple[Exception | None] | None = None
        self._successor: asyncio.Protocol | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """The connection."""
        if self._transport is None:
            raise AssertionError("there is no connection yet")
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Keep what has come."""
        self._came.append(data)

    def eof_received(self) -> None:
        """Keep that nothing more comes."""
        self._eof = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep that it is over, or say so: the loop may have noted before whom to tell."""
        if self._successor is None:
            self._lost = (exc,)
        else:
            (self.transport.get_protocol() or self._successor).connection_lost(exc)

    def take(self) -> bytes:
        """Return what has come so far, and forget it."""
        came = b"".join(self._came)
        self._came.clear()
        return came

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Give the connection, and what has come, to the protocol that is to have it."""
        transport = self.transport
        self._successor = protocol
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if came := self.take():
            protocol.data_received(came)
        # What has come may have made it hand over to another one.
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
    """Do the handshake of TLS.

    Args:
        plain: The connection, and what has come.
        context: What to do it with.
        timeout: How long it may take, in seconds.
        server_side: Whether ours is the side that listens.
        host: The name that the other side's certificate must have.

    Raises:
        ConnectionError: It failed, for a reason in words; the connection is closed.
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
        # When it has begun, and before it looks at what comes. A server's loop may have read by
        # then what the client says first; a server says nothing before a client has.
        await asyncio.sleep(0)
        came = plain.take()
        if came and not server_side:
            raise ConnectionError(NO_TLS)
        _feed(transport.get_protocol(), came)
        secured = await handshake
        if secured is None:  # pyright: ignore[reportUnnecessaryComparison] - lost at that moment
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
    """Give bytes to what reads TLS, as the loop does: it is an `asyncio.BufferedProtocol`."""
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
    """A connection with TLS that tells of all that waits to be written.

    Args:
        secured: The connection.
        plain: What is below it, which has a buffer of its own.
    """

    def __init__(self, secured: asyncio.Transport, plain: asyncio.Transport) -> None:
        super().__init__()
        self._secured = secured
        self._plain = plain
        self._protocol = secured.get_protocol()
        # What each message comes by has no detour.
        self.write = secured.write  # type: ignore[method-assign]
        self.is_closing = secured.is_closing  # type: ignore[method-assign]

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait, plain or encrypted."""
        return self._secured.get_write_buffer_size() + self._plain.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the bytes waiting to be encrypted above and below which the protocol is told."""
        self._secured.set_write_buffer_limits(high, low)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give what comes to another protocol."""
        self._protocol = protocol
        self._secured.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return who is given what comes, or was: a connection that is closed knows no more."""
        return self._protocol

    def pause_reading(self) -> None:
        """Read nothing more for now."""
        self._secured.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._secured.resume_reading()

    def close(self) -> None:
        """Close once all is written and the other side has been told."""
        self._secured.close()

    def abort(self) -> None:
        """Close at once."""
        self._secured.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._secured.get_extra_info(name, default)


class TlsHandshake(PendingConnection):
    """A connection that has come and is to be secure.

    Args:
        context: What with.
        timeout: How long it may take to begin, and then the handshake, in seconds.
        inlet: Makes the protocol of the connection, once it is secure.
        on_done: Called once, before that, with what went wrong, or "".
    """

    detail = ""
    """What went wrong is all that there is to say."""

    def __init__(
        self,
        context: ssl.SSLContext,
        timeout: float,
        protocol_factory: Callable[[], asyncio.Protocol],
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
        """Wait for the client to begin."""
        super().connection_made(transport)
        if self._outcome:
            self.transport.abort()  # it was over before it began

    def data_received(self, data: bytes) -> None:
        """Begin the handshake, if it is one."""
        super().data_received(data)
        if self._task is not None or self._outcome:
            return
        if data[0] != _HANDSHAKE:
            self.abort(NO_TLS)
            return
        self._timer.cancel()
        self.transport.pause_reading()
        handshake = secure(self, self._context, self._timeout, server_side=True)
        self._task = asyncio.get_running_loop().create_task(handshake)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[PendingConnection]) -> None:
        if task.cancelled():
            self.transport.abort()  # it may not have begun
            self._done("stopped")
        elif (error := task.exception()) is not None:
            self._done(str(error))
        elif self._outcome:
            task.result().transport.abort()  # it was stopped at that moment
            self._done("")
        else:
            self._done("")
            task.result().hand_over(self._inlet())

    def abort(self, outcome: str) -> None:
        """Close it at once, if it is not closed for another reason."""
        self._outcome = self._outcome or outcome
        if self._task is not None:
            self._task.cancel()
        elif self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the listener, if the handshake has not begun; otherwise it ends."""
        super().connection_lost(exc)
        if self._task is None:
            self._done("the peer closed the connection")

    def _done(self, outcome: str) -> None:
        self._timer.cancel()
        self._on_done(self, self._outcome or outcome)
