"""Reading the frames of a pipe: strictly, and without making anything of a length that lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from .._address import MAX_ADDRESS_VALUE, MAX_ROUTE_LENGTH, Address, Route
from .._message import Context, Message
from .._tracing import MAX_TRACING
from .._words import counted
from ..bare import BareError, BareReader
from ._errors import PipeFrameError
from ._frames import (
    EPOCH_SIZE,
    HEAD_SIZE,
    REMEMBERED,
    REMEMBERED_BYTES,
    VERSION,
    Abort,
    Confirm,
    End,
    Ended,
    Frame,
    Hello,
    OpenPipe,
    PipeData,
    PipeFrameKind,
    PipeOpened,
    PipeRefusal,
    PipeRefused,
    Ranges,
    Unknown,
    Welcome,
)
from ._options import MAX_WINDOW, Mode

__all__ = ["PipeFrameReader", "decode_frame", "frame_identity"]

_SMALLEST_MESSAGE: Final = 7  # length, count, type, length, a byte, count, length


class PipeFrameReader:
    """Reads frames, and remembers the routes it read last.

    At 256 pairs of routes, or 256 KiB of them, it forgets all.

    Args:
        source: What the messages of `DATA` frames are to have as their source.
        trace: An address to put at the front of their return routes, if any.
    """

    __slots__ = ("_bytes", "_known", "_source", "_trace")

    def __init__(self, source: Address | None = None, trace: Address | None = None) -> None:
        self._known: dict[bytes, tuple[Route, Route, Context | None]] = {}
        self._bytes = 0
        self._source = source
        self._trace: Route = () if trace is None else (trace,)

    def read(self, frame: bytes) -> Frame:
        """Read a frame.

        Raises:
            PipeFrameError: It is none.
        """
        identity = frame_identity(frame)
        read = _READERS.get(frame[1])
        if read is None:
            raise PipeFrameError(f"there is no kind {frame[1]}")
        reader = BareReader(frame, HEAD_SIZE)
        try:
            found = read(self, frame, reader, identity)
            reader.finish()
        except BareError as error:
            raise PipeFrameError(error.reason) from None
        return found

    def messages(self, data: bytes, reader: BareReader, count: int) -> tuple[Message, ...]:
        """Read so many messages."""
        if count * _SMALLEST_MESSAGE > len(data) - reader.position:
            raise PipeFrameError(
                f"{counted(count, 'message')} in {counted(len(data) - reader.position, 'byte')}"
            )
        known, source, position, end = self._known, self._source, reader.position, len(data)
        found: list[Message] = []
        for _ in range(count):
            # Lengths below 128 are one byte, and most are: a call for each is half the price.
            size = data[position] if position < end else 128
            if size < 128 and position + size < end:
                position += 1
                text = data[position : position + size]
                position += size
            else:
                reader.position = position
                text = reader.data()
                position = reader.position
            routes = known.get(text)
            if routes is None:
                routes = self._routes(text)
            size = data[position] if position < end else 128
            if size < 128 and position + size < end:
                position += 1
                payload = data[position : position + size]
                position += size
            else:
                reader.position = position
                payload = reader.data()
                position = reader.position
            found.append(Message(routes[0], routes[1], payload, source, routes[2]))
        reader.position = position
        return tuple(found)

    def _routes(self, text: bytes) -> tuple[Route, Route, Context | None]:
        reader = BareReader(text)
        onward = _read_route(text, reader, MAX_ROUTE_LENGTH)
        back = self._trace + _read_route(text, reader, MAX_ROUTE_LENGTH - 1)
        if not onward:
            raise PipeFrameError("a message without an onward route")
        if reader.position < len(text):  # hardly two messages have the same tracing text
            return onward, back, Context(trace=_read_tracing(reader))
        self._bytes += len(text)
        if len(self._known) >= REMEMBERED or self._bytes > REMEMBERED_BYTES:
            self._known.clear()
            self._bytes = len(text)
        routes = self._known[text] = onward, back, None
        return routes


def decode_frame(frame: bytes) -> Frame:
    """Read one frame.

    Raises:
        PipeFrameError: It is none.
    """
    return PipeFrameReader().read(frame)


def frame_identity(frame: bytes) -> bytes:
    """Return the identity in a frame, and look at nothing else in it.

    Raises:
        PipeFrameError: It is too short, or of another version.
    """
    if len(frame) < HEAD_SIZE:
        raise PipeFrameError(f"{len(frame)} bytes are too few")
    if frame[0] != VERSION:
        raise PipeFrameError(f"version {frame[0]}, not {VERSION}")
    return frame[2:HEAD_SIZE]


def _read_route(data: bytes, reader: BareReader, limit: int) -> Route:
    count = reader.uint()
    if count > limit:
        raise PipeFrameError(f"a route of {count} addresses, over {limit}")
    found: list[Address] = []
    for _ in range(count):
        kind = _take(data, reader, 1)[0]
        value = reader.data()
        if not 0 < len(value) <= MAX_ADDRESS_VALUE:
            raise PipeFrameError(f"an address of {len(value)} bytes")
        found.append(Address(kind, value))
    return tuple(found)


def _read_tracing(reader: BareReader) -> str:
    text = reader.data()
    reader.finish()
    if not 0 < len(text) <= MAX_TRACING:
        raise PipeFrameError(f"a tracing text of {len(text)} bytes")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise PipeFrameError("a tracing text that is no UTF-8") from None


def _read_reason(reader: BareReader) -> PipeRefusal:
    number = reader.uint()
    try:
        return PipeRefusal(number)
    except ValueError:
        raise PipeFrameError(f"there is no reason {number}") from None


def _take(data: bytes, reader: BareReader, size: int) -> bytes:
    start = reader.position
    reader.position = start + size
    if reader.position > len(data):
        raise PipeFrameError("it is cut short")
    return data[start : reader.position]


def _read_mode(reader: BareReader) -> Mode:
    number = reader.uint()
    found = _MODES.get(number)
    if found is None:
        raise PipeFrameError(f"there is no mode {number}")
    return found


def _read_ranges(reader: BareReader, end: int) -> Ranges:
    count, least = reader.uint(), 0
    if count > MAX_WINDOW:
        raise PipeFrameError(f"{count} ranges")
    found: list[tuple[int, int]] = []
    for _ in range(count):
        skipped, size = reader.uint(), reader.uint()
        if skipped < least or not size:
            raise PipeFrameError("ranges that touch, or are empty")
        found.append((end + skipped + 1, end + skipped + size))
        end += skipped + size
        least = 1
    return tuple(found)


def _read_data(self: PipeFrameReader, data: bytes, reader: BareReader, identity: bytes) -> PipeData:
    epoch, mode = _take(data, reader, EPOCH_SIZE), _read_mode(reader)
    base, first, count = reader.uint(), reader.uint(), reader.uint()
    if not 0 < base <= first:
        raise PipeFrameError(f"messages from {first} on, of those from {base} on")
    began = reader.position
    messages = self.messages(data, reader, count)
    return PipeData(identity, epoch, mode, base, first, messages, reader.position - began)


def _read_confirm(_: PipeFrameReader, data: bytes, reader: BareReader, identity: bytes) -> Confirm:
    epoch, done = _take(data, reader, EPOCH_SIZE), reader.uint()
    received = _read_ranges(reader, done)
    missed = _read_ranges(reader, 0)
    if missed and missed[-1][1] > done:
        raise PipeFrameError("what is not dealt with cannot have been missed")
    return Confirm(identity, epoch, done, received, missed)


_Read: TypeAlias = Callable[[PipeFrameReader, bytes, BareReader, bytes], Frame]

_READERS: Final[dict[int, _Read]] = {
    PipeFrameKind.OPEN: lambda _, __, reader, identity: OpenPipe(identity, _read_mode(reader)),
    PipeFrameKind.OPENED: lambda _, data, reader, identity: PipeOpened(
        identity, _take(data, reader, EPOCH_SIZE), reader.uint(), reader.uint(), reader.uint()
    ),
    PipeFrameKind.DATA: _read_data,
    PipeFrameKind.CONFIRM: _read_confirm,
    PipeFrameKind.END: lambda _, data, reader, identity: End(
        identity, _take(data, reader, EPOCH_SIZE), _read_mode(reader), reader.uint()
    ),
    PipeFrameKind.ENDED: lambda _, data, reader, identity: Ended(
        identity, _take(data, reader, EPOCH_SIZE)
    ),
    PipeFrameKind.ABORT: lambda _, data, reader, identity: Abort(
        identity, _take(data, reader, EPOCH_SIZE)
    ),
    PipeFrameKind.UNKNOWN: lambda _, data, reader, identity: Unknown(
        identity, _take(data, reader, EPOCH_SIZE)
    ),
    PipeFrameKind.HELLO: lambda _, __, reader, identity: Hello(identity, reader.uint()),
    PipeFrameKind.WELCOME: lambda _, __, reader, identity: Welcome(identity, reader.uint()),
    PipeFrameKind.REFUSED: lambda _, __, reader, identity: PipeRefused(
        identity, _read_reason(reader)
    ),
}

_MODES: Final = {number: Mode.of(number) for number in (0, 1, 2, 4, 5, 6)}
