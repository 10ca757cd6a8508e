"""The frames of a WebSocket that carries a byte stream (RFC 6455, section 5).

The boundaries of messages have no meaning here, so messages are not buffered: their content is
passed on as it comes, whatever their length. Only an incomplete header is kept, and a control
frame of at most 125 bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from websockets.frames import CloseCode, Opcode

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover - the package was built without its extension
    from websockets.utils import apply_mask

__all__ = ["FrameReader", "close_frame", "frame"]

_FIN: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_CONTROL: Final = 0x08
_MASKED: Final = 0x80
_LENGTH_16: Final = 126
_LENGTH_64: Final = 127
_MOST_OF_CONTROL: Final = 125

_unpack_16: Final = Struct(">H").unpack_from
_unpack_64: Final = Struct(">Q").unpack_from
_pack_16: Final = Struct(">BBH").pack
_pack_64: Final = Struct(">BBQ").pack

_KINDS: Final = frozenset({Opcode.CONT, Opcode.BINARY, Opcode.CLOSE, Opcode.PING, Opcode.PONG})
_CLOSE_CODES: Final = frozenset({*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)})
"""The codes allowed in a Close frame (RFC 6455 section 7.4)."""


class FrameReader:
    """A parser of frames.

    Args:
        masked: Whether the frames must be masked, as those of a client.

    Attributes:
        ping: The content of the last Ping that has not been answered, or `None`.
        closed: The code of the peer's Close, 1005 if it had none; `None` before a Close.
        error: The code to close with and a text, or `None` without an error.

    After a Close or an error no more data is parsed.
    """

    __slots__ = (
        "_control",
        "_head",
        "_in_message",
        "_left",
        "_mask",
        "_masked",
        "_opcode",
        "closed",
        "error",
        "ping",
    )

    def __init__(self, *, masked: bool) -> None:
        self.ping: bytes | None = None
        self.closed: int | None = None
        self.error: tuple[CloseCode, str] | None = None
        self._masked = masked
        self._head = b""  # an incomplete header
        self._left = 0  # bytes of the frame that have not come yet
        self._mask = b""
        self._opcode = Opcode.BINARY
        self._control = b""  # the content of a control frame so far
        self._in_message = False  # whether the message continues in another frame

    def read(self, data: bytes) -> bytes:
        """Parse received data; return the content of messages in it."""
        if self._head:
            data = self._head + data
            self._head = b""
        parts: list[bytes] = []
        at, end = 0, len(data)
        while self.closed is None and self.error is None:
            if not self._left:
                start = self._enter(data, at)
                if not start:
                    self._head = data[at:]
                    break
                at = start
            chunk = data[at : at + self._left]
            at += len(chunk)
            self._take(chunk, parts)
            if at == end and (self._left or self.error is None):
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, chunk: bytes, parts: list[bytes]) -> None:
        """Handle a part of a frame's content, which may be empty."""
        size = len(chunk)
        self._left -= size
        if size and self._mask:
            chunk = apply_mask(chunk, self._mask)
            turn = size % 4
            self._mask = self._mask[turn:] + self._mask[:turn]
        if not self._opcode & _CONTROL:
            if chunk:
                parts.append(chunk)
            return
        self._control += chunk
        if not self._left:
            content, self._control = self._control, b""
            self._on_control(content)

    def _enter(self, data: bytes, at: int) -> int:
        """Parse a frame header; return the start of the content, or 0 if it is incomplete."""
        if len(data) - at < 2:
            return 0
        head, second = data[at], data[at + 1]
        length = second & 0x7F
        start = at + 2 + {_LENGTH_16: 2, _LENGTH_64: 8}.get(length, 0)
        mask_at, start = start, start + 4 * self._masked
        if bool(second & _MASKED) is not self._masked:
            who = "a client has to" if self._masked else "a server must not"
            return self._fail(CloseCode.PROTOCOL_ERROR, f"{who} mask its frames")
        if not self._fits(head, length):
            return start
        if len(data) < start:
            return 0
        if length == _LENGTH_16:
            (length,) = _unpack_16(data, at + 2)
        elif length == _LENGTH_64:
            (length,) = _unpack_64(data, at + 2)
        self._left = length
        self._mask = data[mask_at:start]
        self._opcode = Opcode(head & _OPCODE)
        if not head & _CONTROL:
            self._in_message = not head & _FIN
        return start

    def _fits(self, head: int, length: int) -> bool:
        """Whether a frame is allowed in the current state; sets the error if not."""
        kind = head & _OPCODE
        if kind == Opcode.TEXT:
            self._fail(CloseCode.UNSUPPORTED_DATA, "messages have to be binary")
        elif head & _RESERVED or kind not in _KINDS:
            self._fail(CloseCode.PROTOCOL_ERROR, "reserved bits or an unknown opcode")
        elif kind & _CONTROL:
            if length > _MOST_OF_CONTROL or not head & _FIN:
                self._fail(CloseCode.PROTOCOL_ERROR, "a control frame that is long or in parts")
        elif (kind == Opcode.CONT) is not self._in_message:
            text = "a message inside another" if self._in_message else "a part of no message"
            self._fail(CloseCode.PROTOCOL_ERROR, text)
        return self.error is None

    def _on_control(self, content: bytes) -> None:
        if self._opcode is Opcode.PING:
            self.ping = content
        elif self._opcode is Opcode.CLOSE:
            code = int.from_bytes(content[:2]) if content else 1005
            if len(content) == 1 or (content and code not in _CLOSE_CODES):
                self._fail(CloseCode.PROTOCOL_ERROR, "a Close with no proper code")
            else:
                self.closed = code

    def _fail(self, code: CloseCode, text: str) -> int:
        self.error = (code, text)
        return 1  # ignored: the caller checks the error


def frame(opcode: Opcode, content: bytes, mask: bytes = b"") -> bytes:
    """Return a control frame, or a message of one frame.

    Args:
        opcode: The kind of the frame.
        content: The content.
        mask: Four unpredictable bytes, for a client; empty for a server.
    """
    size = len(content)
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


def close_frame(code: int, text: str = "", mask: bytes = b"") -> bytes:
    """Return a Close frame; a text that is too long is cut."""
    return frame(Opcode.CLOSE, code.to_bytes(2) + text.encode()[: _MOST_OF_CONTROL - 2], mask)
