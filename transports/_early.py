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

from ._tls import reason_of

__all__ = ["Early", "TlsEntrance", "secure"]


class Early(asyncio.Protocol):
    """Keeps what comes until it is handed over: the reads of one tick or two of the loop.

    Attributes:
        transport: The connection.
    """

    def __init__(self, transport: asyncio.Transport | None = None) -> None:
        self._transport = transport
        self._events: list[Callable[[asyncio.Protocol], object]] = []

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
        self._events.append(lambda protocol: protocol.data_received(data))

    def eof_received(self) -> None:
        """Keep that nothing more comes."""
        self._events.append(lambda protocol: protocol.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep that it is over."""
        self._events.append(lambda protocol: protocol.connection_lost(exc))

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Give the connection, and what has come, to the protocol that is to have it."""
        transport = self.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        for tell in self._events:
            tell(protocol)
        self._events.clear()


async def secure(
    plain: asyncio.Transport,
    context: ssl.SSLContext,
    timeout: float,
    *,
    server_side: bool = False,
    host: str | None = None,
) -> Early:
    """Do the handshake of TLS.

    Args:
        plain: The connection.
        context: What to do it with.
        timeout: How long it may take, in seconds.
        server_side: Whether ours is the side that listens.
        host: The name that the other side's certificate must have.

    Raises:
        ConnectionError: It failed, for a reason in words; the connection is closed.
    """
    early = Early()
    loop = asyncio.get_running_loop()
    try:
        secured = await loop.start_tls(
            plain,
            early,
            context,
            server_side=server_side,
            server_hostname=host,
            ssl_handshake_timeout=timeout,
        )
    except BaseException as error:
        plain.abort()
        if isinstance(error, OSError):
            raise ConnectionError(_reason_of(error, timeout, server_side)) from error
        raise
    if secured is None:  # pyright: ignore[reportUnnecessaryComparison] - lost at that moment
        raise ConnectionError(_reason_of(ConnectionResetError(), timeout, server_side))
    early.connection_made(SecureTransport(secured, plain))
    return early


def _reason_of(error: OSError, timeout: float, server_side: bool) -> str:
    if isinstance(error, ConnectionAbortedError):
        return f"no TLS handshake within {timeout:g} s"
    if isinstance(error, ConnectionError):
        text = "the peer closed the connection in the TLS handshake"
        return text if server_side else f"{text}; it may not speak TLS"
    return reason_of(error)


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
        self._secured.set_protocol(protocol)

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


class TlsEntrance(Early):
    """A connection that has come and is to be secure.

    Args:
        context: What with.
        timeout: How long the handshake may take, in seconds.
        inlet: Makes the protocol of the connection, once it is secure.
        on_done: Called once, before that, with what went wrong, or "".
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        timeout: float,
        inlet: Callable[[], asyncio.Protocol],
        on_done: Callable[[TlsEntrance, str], None],
    ) -> None:
        super().__init__()
        self._context = context
        self._timeout = timeout
        self._inlet = inlet
        self._on_done = on_done
        self._outcome = ""
        self._task: asyncio.Task[Early] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake. Nothing is read before."""
        super().connection_made(transport)
        plain = self.transport
        if self._outcome:
            plain.abort()  # it was over before it began
            self._on_done(self, self._outcome)
            return
        plain.pause_reading()
        handshake = secure(plain, self._context, self._timeout, server_side=True)
        self._task = asyncio.get_running_loop().create_task(handshake)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Early]) -> None:
        if task.cancelled():
            self.transport.abort()  # it may not have begun
            self._on_done(self, self._outcome or "stopped")
        elif (error := task.exception()) is not None:
            self._on_done(self, self._outcome or str(error))
        else:
            self._on_done(self, "")
            task.result().hand_over(self._inlet())

    def abort(self, outcome: str) -> None:
        """Close it at once, if it is not closed for another reason."""
        self._outcome = self._outcome or outcome
        if self._task is not None:
            self._task.cancel()
