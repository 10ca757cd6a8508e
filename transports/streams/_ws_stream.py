"""The transport over an open WebSocket, and the client's opening handshake."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from typing import Any, cast

from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Opcode
from websockets.uri import WebSocketURI

from ._ws_frames import WebSocketFrameReader, close_frame, frame

__all__ = ["ClientHandshake", "WebSocketStream"]

MAX_HANDSHAKE = 16 * 1024
"""The maximum of bytes of a server's response to the opening handshake."""

_END = b"\r\n\r\n"


class WebSocketStream(asyncio.Transport, asyncio.Protocol):
    """A WebSocket: the transport of an inner protocol, and the protocol of the real socket.

    Each write is sent as one binary message. The content of received messages is passed on as it
    comes, unless the reader returns whole messages.

    Args:
        transport: The transport of the real socket.
        inner: The inner protocol. The caller calls its `connection_made`.
        reader: The parser of received frames.
        client: Whether this is the connecting side.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        inner: asyncio.Protocol,
        reader: WebSocketFrameReader,
        *,
        client: bool,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._inner = inner
        self._client = client
        self._reader = reader
        self._paused = False
        self._closing = False  # whether Close has been sent

    # --- from the socket ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Pass on the content of messages, and answer control frames."""
        reader = self._reader
        # The content of one read stays together.
        content = b"".join(reader.read(data))
        if content and not self._closing:
            self._inner.data_received(content)
        if reader.error is not None:
            self._fail(*reader.error)
        elif reader.closed is not None:
            self._answer_close()
        elif reader.ping is not None:
            self._send_pong()

    def _send_pong(self) -> None:
        """Answer the last Ping, unless the peer does not read (RFC 6455 section 5.5.3)."""
        ping = self._reader.ping
        if ping is not None and not self._paused and not self._closing:
            # RFC 6455, section 5.5.2: "Upon receipt of a Ping frame, an endpoint MUST send a Pong
            # frame in response, unless it already received a Close frame."
            self._reader.ping = None
            self._transport.write(frame(Opcode.PONG, ping, self._mask()))

    def _answer_close(self) -> None:
        if not self._closing:
            self._inner.eof_received()
            # RFC 6455, section 5.5.1: "If an endpoint receives a Close frame and did not previously
            # send a Close frame, the endpoint MUST send a Close frame in response."
            self._say_close(*self._last_word())
        self._transport.close()

    def _fail(self, code: CloseCode, text: str) -> None:
        """Send Close, close the socket, and tell the inner protocol why."""
        self._say_close(code, text)
        # RFC 6455, section 7.1.7: "An endpoint MUST NOT continue to attempt to process data
        # (including a responding Close frame) from the remote endpoint after being instructed to
        # _Fail the WebSocket Connection_."
        self._broken(text)
        self._transport.close()

    @abstractmethod
    def _broken(self, text: str) -> None:
        """Close the inner protocol, as the peer has broken that of the WebSocket."""

    def eof_received(self) -> bool:
        """Close the socket: the peer has closed it."""
        if not self._closing:
            self._inner.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the inner protocol."""
        self._closing = True
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Stop the inner protocol from sending: the peer reads too slowly."""
        self._paused = True
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Resume the sending of the inner protocol."""
        self._paused = False
        self._inner.resume_writing()
        self._send_pong()

    # --- from the inner protocol ----------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes as one message."""
        if not self._closing:
            # RFC 6455, section 5.5.1: "The application MUST NOT send any more data frames after
            # sending a Close frame."
            self._transport.write(frame(Opcode.BINARY, cast(bytes, data), self._mask()))

    def close(self) -> None:
        """Send Close, and close the socket once the peer has sent it too.

        The inner protocol aborts it after its `drain_timeout`.
        """
        if self.is_closing():
            return
        # RFC 6455, section 5.5.1: "After both sending and receiving a Close message, an endpoint
        # considers the WebSocket connection closed and MUST close the underlying TCP connection."
        self._reader.discard()
        self._say_close(*self._last_word())
        if self._reader.closed is not None:
            self._transport.close()
        else:
            # Read up to the peer's Close, even if reading was paused for lack of room.
            self._transport.resume_reading()

    def _last_word(self) -> tuple[int, str]:
        """Return the code and the text of the Close to send."""
        reader = self._reader
        if reader.error is not None:
            return reader.error
        if reader.closed is not None:
            # RFC 6455, section 5.5.1: "the endpoint typically echos the status code it received".
            return reader.closed, ""
        return CloseCode.NORMAL_CLOSURE, ""

    def _say_close(self, code: int, text: str = "") -> None:
        if not self._closing:
            self._closing = True
            if not self._transport.is_closing():  # it may be lost
                self._transport.write(close_frame(code, text, self._mask()))

    def _mask(self) -> bytes:
        # RFC 6455, section 5.3: "The masking key needs to be unpredictable; thus, the masking key
        # MUST be derived from a strong source of entropy".
        return os.urandom(4) if self._client else b""

    def abort(self) -> None:
        """Close the socket at once."""
        self._closing = True
        self._transport.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the inner protocol."""
        self._inner = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the inner protocol."""
        return self._inner

    def is_closing(self) -> bool:
        """Whether the stream is closed or closing."""
        return self._closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Pause reading, unless the peer's Close is awaited."""
        if not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless it is closing."""
        if not self._closing:
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return the number of unwritten bytes."""
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the water marks of unwritten bytes."""
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information on the socket."""
        return self._transport.get_extra_info(name, default)


class ClientHandshake(asyncio.Protocol):
    """The opening handshake of the connecting side.

    Args:
        uri: The URI to request.
        subprotocol: The subprotocol to offer, or ""; a server need not confirm it.

    Attributes:
        opened: A future for the data behind the response, or an `OSError` if it fails.
    """

    def __init__(self, uri: WebSocketURI, subprotocol: str) -> None:
        self.opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        # No extension is offered: a small compressed message could become a very large one.
        offered = [cast(Any, subprotocol)] if subprotocol else None
        self._wire = ClientProtocol(uri, subprotocols=offered)
        self._head = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._wire.send_request(self._wire.connect())
        cast(asyncio.Transport, transport).write(b"".join(self._wire.data_to_send()))

    def data_received(self, data: bytes) -> None:
        """Collect the response."""
        self._head += data
        end = self._head.find(_END)
        if end >= 0:
            end += len(_END)
            self._answered(bytes(self._head[:end]), bytes(self._head[end:]))
        elif len(self._head) > MAX_HANDSHAKE:
            self._fail(f"the answer has more than {MAX_HANDSHAKE} bytes")

    def _answered(self, head: bytes, rest: bytes) -> None:
        first = head.partition(b"\r\n")[0].decode("latin-1")
        if not first.startswith("HTTP/1.1 101"):
            self._fail(f"it answers {first[:80]!r}")
            return
        self._wire.receive_data(head)
        error = self._wire.handshake_exc
        if error is not None:
            self._fail(str(error))
        elif not self.opened.done():
            self.opened.set_result(rest)

    def _fail(self, text: str, kind: type[OSError] = ConnectionError) -> None:
        if not self.opened.done():
            self.opened.set_exception(kind(f"no WebSocket: {text[:200]}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the handshake if it is not done."""
        self._fail("the connection was closed in the handshake", ConnectionResetError)
