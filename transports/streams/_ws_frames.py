"""The frames of WebSockets (RFC 6455, section 5), of links and of RSocket connections alike.

Headers are parsed here, because that is the path of every message: the state machine of the
`websockets` package costs six times as much a message. Its parts are used where they are no hot
path: for the opening handshake, the codes of a Close, and control frames.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from websockets.exceptions import ProtocolError
from websockets.frames import Close, CloseCode, Opcode

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover - the package was built without its extension
    from websockets.utils import apply_mask

__all__ = [
    "LARGEST_CONTROL",
    "WebSocketFrameReader",
    "close_frame",
    "frame",
    "frame_length",
    "header_of",
]

_FIN: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_CONTROL: Final = 0x08
_MASKED: Final = 0x80
_LENGTH_16: Final = 126
_LENGTH_64: Final = 127
_MOST_OF_CONTROL: Final = 125
_MASK_SIZE: Final = 4
# FIN and a binary message, in one byte.
_WHOLE_BINARY: Final = _FIN | Opcode.BINARY

LARGEST_CONTROL: Final = 2 + _MASK_SIZE + _MOST_OF_CONTROL
"""Bytes of the longest control frame."""
# RFC 6455, section 5.2: "If 127, the following 8 bytes interpreted as a 64-bit unsigned integer
# (the most significant bit MUST be 0) are the payload length."
_LONGEST: Final = (1 << 63) - 1
"""Section 5.2: "the most significant bit MUST be 0"."""

_unpack_16: Final = Struct(">H").unpack_from
_unpack_64: Final = Struct(">Q").unpack_from
_pack_16: Final = Struct(">BBH").pack
_pack_64: Final = Struct(">BBQ").pack
_HEADERS: Final = tuple(bytes((_WHOLE_BINARY, length)) for length in range(_LENGTH_16))

_KINDS: Final = frozenset({Opcode.CONT, Opcode.BINARY, Opcode.CLOSE, Opcode.PING, Opcode.PONG})


class WebSocketFrameReader:
    """A parser of frames, in one of two modes.

    Without a limit the boundaries of messages have no meaning: their content is returned as it
    comes, whatever their length, and only an incomplete header or control frame is kept. With a
    limit each message is returned whole, after its length in three bytes, as RSocket precedes the
    frames in a stream of bytes.

    Args:
        masked: Whether the frames must be masked, as those of a client.
        limit: Bytes of a message that is returned whole; `None`: messages are a stream.
        first_limit: Bytes of the first message, if its limit is another.

    Attributes:
        ping: The content of the last Ping that has not been answered, or `None`.
        closed: The code of the peer's Close, 1005 if it had none; `None` before a Close.
        error: The code to close with and a text, or `None` without an error.
        fresh: Whether all that is kept has come with the last read.

    After a Close or an error no more data is parsed.
    """

    __slots__ = (
        "_bit",
        "_kept",
        "_left",
        "_limit",
        "_mask",
        "_message",
        "_most",
        "_needed",
        "_shortest",
        "_whole",
        "closed",
        "error",
        "fresh",
        "ping",
    )

    def __init__(
        self, *, masked: bool, limit: int | None = None, first_limit: int | None = None
    ) -> None:
        self.ping: bytes | None = None
        self.closed: int | None = None
        self.error: tuple[CloseCode, str] | None = None
        self.fresh = False
        self._bit = _MASKED if masked else 0
        self._shortest = 2 + _MASK_SIZE if masked else 2
        self._whole = limit is not None
        self._most = _LONGEST if limit is None else limit
        self._limit = self._most if first_limit is None else first_limit
        self._kept = bytearray()  # of a frame that is not whole
        self._needed = 0  # bytes of it, as far as known
        self._left = 0  # bytes that have not come yet of a frame returned as it comes
        self._mask = b""
        # The fragments of an unfinished message; empty if they have been returned.
        self._message: bytearray | None = None

    @property
    def over(self) -> bool:
        """Whether received data is ignored, after an error or the peer's Close."""
        return self.closed is not None or self.error is not None

    @property
    def kept(self) -> int:
        """Bytes kept; an unfinished message without content counts as one, so that it is timed."""
        message = self._message
        return len(self._kept) + (0 if message is None else len(message) + 1)

    def reach(self, data: bytes) -> int:
        """Return the bytes, of some that come next, up to the end of the first frame."""
        if self._left:
            return self._left
        if self._kept:
            return self._needed - len(self._kept)
        return frame_length(data)

    def discard(self) -> None:
        """Keep no more of messages, as only the peer's Close is of interest."""
        self._whole = False
        self._limit = self._most = _LONGEST
        if len(self._kept) > LARGEST_CONTROL:
            self._left = self._needed - len(self._kept)
            self._kept.clear()
        if self._message is not None:
            self._message.clear()

    def read(self, data: bytes) -> list[bytes | bytearray]:
        """Parse received data; return the content of messages in it."""
        parts: list[bytes | bytearray] = []
        if self.closed is not None or self.error is not None:
            return parts
        self.fresh = False
        if self._left:
            data = self._pass_on(data, parts)
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed:
                return parts
            data = bytes(self._kept)
            self._kept.clear()
        self._parse(data, parts)
        return parts

    def _parse(self, data: bytes, parts: list[bytes | bytearray]) -> None:
        """Parse data from the start of a frame on, and keep the rest."""
        add = parts.append
        whole, bit, shortest = self._whole, self._bit, self._shortest
        size = len(data)
        at = began = 0
        self._needed = shortest
        while size - at >= shortest:
            head = data[at]
            length = data[at + 1] ^ bit
            start = at + shortest
            if length > _MOST_OF_CONTROL:
                start, length = self._long(data, at, length)
            stop = start + length
            if head == _WHOLE_BINARY and self._message is None and length <= self._limit:
                if stop > size:
                    self._needed = stop - at
                    at = self._begin(data, at, start, parts)
                    break
                if whole:
                    self._limit = self._most
                    add(length.to_bytes(3))
                add(
                    apply_mask(data[start:stop], data[start - 4 : start])
                    if bit
                    else data[start:stop]
                )
                at = began = stop
                continue
            if not self._check(head, length):
                break
            if stop > size:
                self._needed = stop - at
                at = self._begin(data, at, start, parts)
                break
            self._step(head, self._unmasked(data, start, stop), parts)
            at = stop
            if self.over:
                break
            if self._message is None:
                began = at
        self.fresh = began > 0
        if at < size and not self.over:
            self._keep(data, at)

    def _keep(self, data: bytes, at: int) -> None:
        """Keep the start of a frame, after a check of what it has of the header."""
        self._kept += memoryview(data)[at:]
        if len(self._kept) < 2:
            self._needed = 2
        elif len(self._kept) < self._shortest:
            self._check_early(data[at], data[at + 1] ^ self._bit)

    def _unmasked(self, data: bytes, start: int, stop: int) -> bytes:
        content = data[start:stop]
        return bytes(apply_mask(content, data[start - 4 : start])) if self._bit else content

    def _long(self, data: bytes, at: int, length: int) -> tuple[int, int]:
        """Return the start and length of the content of a frame with an extended length."""
        if length == _LENGTH_16:
            # RFC 6455, section 5.2: "If 126, the following 2 bytes interpreted as a 16-bit unsigned
            # integer are the payload length."
            start = at + self._shortest + 2
            return start, _unpack_16(data, at + 2)[0] if start <= len(data) else 0
        if length == _LENGTH_64:
            # While the header is incomplete, the frame is longer than the data in any case.
            start = at + self._shortest + 8
            return start, _unpack_64(data, at + 2)[0] if start <= len(data) else 0
        self._fail_mask()
        return len(data) + 1, 0

    def _check_early(self, head: int, length: int) -> None:
        """Check the first two bytes of a header, when no more have come."""
        if length > _LENGTH_64:
            self._fail_mask()
        else:
            self._check(head, length if head & _CONTROL else 0)

    def _check(self, head: int, length: int) -> bool:
        """Whether a frame is allowed in the current state; sets the error if not."""
        if self.error is not None:
            return False
        kind = head & _OPCODE
        if kind == Opcode.TEXT:
            # RFC 6455, section 7.4.1: "1003 indicates that an endpoint is terminating the
            # connection because it has received a type of data it cannot accept".
            self._fail(CloseCode.UNSUPPORTED_DATA, "messages have to be binary")
        elif head & _RESERVED or kind not in _KINDS:
            # RFC 6455, section 5.2, of the reserved bits: "MUST be 0 unless an extension is
            # negotiated that defines meanings for non-zero values." Of opcodes: "If an unknown
            # opcode is received, the receiving endpoint MUST _Fail the WebSocket Connection_."
            self._fail(CloseCode.PROTOCOL_ERROR, "reserved bits or an unknown opcode")
        elif kind & _CONTROL:
            # RFC 6455, section 5.5: "All control frames MUST have a payload length of 125 bytes or
            # less and MUST NOT be fragmented."
            if length > _MOST_OF_CONTROL or not head & _FIN:
                self._fail(CloseCode.PROTOCOL_ERROR, "a control frame that is long or in parts")
        elif (kind == Opcode.CONT) is (self._message is None):
            # RFC 6455, section 5.4: "The fragments of one message MUST NOT be interleaved between
            # the fragments of another message unless an extension has been negotiated that can
            # interpret the interleaving."
            text = "a part of no message" if kind == Opcode.CONT else "a message inside another"
            self._fail(CloseCode.PROTOCOL_ERROR, text)
        elif length + len(self._message or b"") > self._limit:
            text = f"a message has more than {self._limit} bytes"
            # RFC 6455, section 7.4.1: "1009 indicates that an endpoint is terminating the
            # connection because it has received a message that is too big for it to process."
            self._fail(CloseCode.MESSAGE_TOO_BIG, text)
        return self.error is None

    def _step(self, head: int, content: bytes, parts: list[bytes | bytearray]) -> None:
        """Handle a frame that is not a whole message."""
        kind = head & _OPCODE
        if kind == Opcode.PING:
            # RFC 6455, section 5.5.3: "If an endpoint receives a Ping frame and has not yet sent
            # Pong frame(s) in response to previous Ping frame(s), the endpoint MAY elect to send a
            # Pong frame for only the most recently processed Ping frame."
            self.ping = content
        elif kind == Opcode.CLOSE:
            self._on_close(content)
        elif kind == Opcode.PONG:
            pass
        elif self._whole:
            # RFC 6455, section 5.4: "A fragmented message consists of a single frame with the FIN
            # bit clear and an opcode other than 0, followed by zero or more frames with the FIN bit
            # clear and the opcode set to 0, and terminated by a single frame with the FIN bit set
            # and an opcode of 0."
            message = self._message = bytearray() if self._message is None else self._message
            message += content
            if head & _FIN:
                self._message = None
                self._limit = self._most
                parts += (len(message).to_bytes(3), message)
        else:
            self._message = None if head & _FIN else bytearray()
            if content:
                parts.append(content)

    def _begin(self, data: bytes, at: int, start: int, parts: list[bytes | bytearray]) -> int:
        """Begin a frame that is not whole; return what to keep it from.

        If its content is returned as it comes, nothing is kept.
        """
        head, size = data[at], len(data)
        if self._whole or start > size or head & _CONTROL:
            return at
        self._message = None if head & _FIN else bytearray()
        self._left = at + self._needed - start
        self._mask = data[start - _MASK_SIZE : start] if self._bit else b""
        self._pass_on(data[start:], parts)
        return size

    def _pass_on(self, data: bytes, parts: list[bytes | bytearray]) -> bytes:
        """Return content of the current frame, and then what is behind it."""
        content, rest = data[: self._left], data[self._left :]
        self._left -= len(content)
        if content:
            if self._mask:
                turn = len(content) % _MASK_SIZE
                content = apply_mask(content, self._mask)
                self._mask = self._mask[turn:] + self._mask[:turn]
            parts.append(content)
        return rest

    def _on_close(self, content: bytes) -> None:
        if self._whole and self._message is not None:
            self._fail(CloseCode.PROTOCOL_ERROR, "a Close inside a message")
            return
        try:
            # RFC 6455, section 5.5.1: "If there is a body, the first two bytes of the body MUST be
            # a 2-byte unsigned integer (in network byte order) representing a status code".
            self.closed = int(Close.parse(content).code)
        except (ProtocolError, UnicodeDecodeError):
            self._fail(CloseCode.PROTOCOL_ERROR, "a Close with no proper code")

    def _fail_mask(self) -> None:
        # RFC 6455, section 5.1: "The server MUST close the connection upon receiving a frame that
        # is not masked." and "A client MUST close a connection if it detects a masked frame."
        who = "a client has to" if self._bit else "a server must not"
        self._fail(CloseCode.PROTOCOL_ERROR, f"{who} mask its frames")

    def _fail(self, code: CloseCode, text: str) -> None:
        self.error = (code, text)


def frame_length(data: bytes) -> int:
    """Return the length of the frame at the start of some bytes, as far as they tell it."""
    if len(data) < 2:
        return 2
    length = data[1] & ~_MASKED
    head = 2 + _MASK_SIZE if data[1] & _MASKED else 2
    if length == _LENGTH_16:
        return head + 2 + (int(_unpack_16(data, 2)[0]) if len(data) >= 4 else 0)
    if length == _LENGTH_64:
        return head + 8 + (int(_unpack_64(data, 2)[0]) if len(data) >= 10 else 0)
    return head + length


def frame(opcode: Opcode, content: bytes, mask: bytes = b"") -> bytes:
    """Return a control frame, or a message of one frame.

    Args:
        opcode: The kind of the frame.
        content: The content.
        mask: Four unpredictable bytes, for a client; empty for a server.
    """
    size = len(content)
    # RFC 6455, section 5.2: "the minimal number of bytes MUST be used to encode the length".
    head, bit = _FIN | opcode, _MASKED if mask else 0
    if size < _LENGTH_16:
        header = bytes((head, bit | size))
    elif size < 0x10000:
        header = _pack_16(head, bit | _LENGTH_16, size)
    else:
        header = _pack_64(head, bit | _LENGTH_64, size)
    if mask:
        return b"".join((header, mask, apply_mask(content, mask)))
    return b"".join((header, content))


def header_of(size: int) -> bytes:
    """Return the header of a server's binary message."""
    if size < _LENGTH_16:
        return _HEADERS[size]
    if size < 0x10000:
        return _pack_16(_WHOLE_BINARY, _LENGTH_16, size)
    return _pack_64(_WHOLE_BINARY, _LENGTH_64, size)


def close_frame(code: int, text: str = "", mask: bytes = b"") -> bytes:
    """Return a Close frame; a text that is too long is cut, and without a code it is empty."""
    if code == CloseCode.NO_STATUS_RCVD:
        # RFC 6455, section 7.4.1: "1005 is a reserved value and MUST NOT be set as a status code in
        # a Close control frame by an endpoint."
        return frame(Opcode.CLOSE, b"", mask)
    # RFC 6455, section 5.5.1: "Following the 2-byte integer, the body MAY contain UTF-8-encoded
    # data". So no character is cut in two.
    reason = text.encode()[: _MOST_OF_CONTROL - 2].decode(errors="ignore")
    return frame(Opcode.CLOSE, code.to_bytes(2) + reason.encode(), mask)
