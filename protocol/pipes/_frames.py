"""The frames of a pipe, byte for byte.

All numbers are BARE `uint`: seven bits a byte, the lowest first, in as few bytes as they need.

| bytes | what |
| --- | --- |
| 1 | version, 1 |
| 1 | kind, as below |
| 16 | identity of the pipe, random, the sender's choice; of the channel in `HELLO` and `WELCOME` |

Then, by kind:

| kind | frame | sent by | has |
| --- | --- | --- | --- |
| 1 | `OPEN` | sender | mode |
| 2 | `OPENED` | receiver | epoch, window, window in bytes, idle |
| 3 | `DATA` | sender | epoch, mode, base, first, count, messages |
| 4 | `CONFIRM` | receiver | epoch, done, received, missed |
| 5 | `END` | sender | epoch, mode, last |
| 6 | `ENDED` | receiver | epoch |
| 7 | `ABORT` | sender | epoch |
| 8 | `UNKNOWN` | receiver | epoch |
| 9 | `HELLO` | initiator of a channel; each end, as a ping | idle |
| 10 | `WELCOME` | the end that answers a `HELLO` | idle |
| 11 | `REFUSED` | receiver, or the service for channels | reason |

- *epoch*: 8 random bytes, the receiver's choice when it opens the pipe. Zeros where the pipe is not
  confirmed, and so is never opened.
- *mode*: the ordering, 0 to 2, plus 4 if messages are confirmed.
- *base*: the number below which the sender needs to hear of nothing any more.
- *first*, *count*: the messages have the numbers from *first* on; a pipe's first message is 1.
- *idle*: after how many milliseconds without a word this end takes the other to be gone.
- *a message*: `data` with its head and `data` with its payload. The head has two routes: the
  onward route (1 to 64 addresses), then the return route (at most 63); each the number of its
  addresses, and of each address a byte with its type and `data` with its value. If the message is
  traced, `data` with its tracing text follows: 1 to 4096 bytes of UTF-8.
- *done*: all messages up to it are dealt with: handed on, or missed.
- *received*: what came beyond *done*; *missed*: what was not handed on up to it, as far as
  *base*. Each is the number of its ranges, and of each how many numbers are skipped since the
  one before ended (since *done*, for the first of *received*; since 0, of *missed*), at least
  1 but for the first, and how many are in it, at least 1.
- *last*: the number of the last message; 0 if there was none.
- *reason*: 1, there are as many pipes or channels as there may be; 2, this peer has as many as one
  may have.

Nothing may come after a frame, and nothing may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

from .._address import MAX_ROUTE_LENGTH, Route
from .._errors import EmptyRoute, RouteTooLong
from .._message import Message
from .._tracing import MAX_TRACING
from ..bare import encode_data, encode_uint
from ._options import Mode

__all__ = [
    "EPOCH_SIZE",
    "IDENTITY_SIZE",
    "NO_EPOCH",
    "VERSION",
    "Abort",
    "Confirm",
    "End",
    "Ended",
    "Frame",
    "Hello",
    "OpenPipe",
    "PipeData",
    "PipeFrameKind",
    "PipeOpened",
    "PipeRefusal",
    "PipeRefused",
    "Ranges",
    "RouteWriter",
    "Unknown",
    "Welcome",
    "encode_frame",
    "encode_messages",
    "message_size",
]

VERSION: Final = 1
"""The first byte of every frame."""

IDENTITY_SIZE: Final = 16
"""Bytes of the identity of a pipe or channel."""

EPOCH_SIZE: Final = 8
"""Bytes of a receiver's epoch."""

NO_EPOCH: Final = bytes(EPOCH_SIZE)
"""The epoch of a pipe that is not confirmed."""

HEAD_SIZE: Final = 2 + IDENTITY_SIZE
REMEMBERED: Final = 256
REMEMBERED_BYTES: Final = 256 * 1024

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges of numbers in ascending order, not touching: first and last of each."""


class PipeFrameKind(IntEnum):
    """The kind of a frame; its second byte."""

    OPEN = 1
    OPENED = 2
    DATA = 3
    CONFIRM = 4
    END = 5
    ENDED = 6
    ABORT = 7
    UNKNOWN = 8
    HELLO = 9
    WELCOME = 10
    REFUSED = 11


class PipeRefusal(IntEnum):
    """The reason for refusing a pipe or channel."""

    FULL = 1
    """The limit of all pipes or channels is reached."""

    PEER_FULL = 2
    """The limit of the peer that asks is reached."""


@dataclass(frozen=True, slots=True)
class OpenPipe:
    """A sender asks for a pipe to be opened."""

    identity: bytes
    mode: Mode


@dataclass(frozen=True, slots=True)
class PipeOpened:
    """A receiver has opened a pipe.

    It says how much it takes, in messages and bytes, and after how many milliseconds without a word
    it takes the sender to be gone.
    """

    identity: bytes
    epoch: bytes
    window: int
    window_bytes: int
    idle: int


@dataclass(frozen=True, slots=True)
class PipeData:
    """Messages of a pipe, numbered from `first` on. Without any it asks for a confirmation.

    `size` is how many bytes the messages are in the frame; 0 in one that was not read from bytes.
    """

    identity: bytes
    epoch: bytes
    mode: Mode
    base: int
    first: int
    messages: tuple[Message, ...]
    size: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Confirm:
    """A receiver confirms messages: those dealt with, those beyond them, and those missed."""

    identity: bytes
    epoch: bytes
    done: int
    received: Ranges = ()
    missed: Ranges = ()


@dataclass(frozen=True, slots=True)
class End:
    """A sender has no more: the number of its last message."""

    identity: bytes
    epoch: bytes
    mode: Mode
    last: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A receiver has dealt with all there was."""

    identity: bytes
    epoch: bytes


@dataclass(frozen=True, slots=True)
class Abort:
    """A sender breaks its pipe: what is held back shall not be handed on."""

    identity: bytes
    epoch: bytes


@dataclass(frozen=True, slots=True)
class Unknown:
    """A receiver does not know, or not any more, the pipe of this identity and epoch."""

    identity: bytes
    epoch: bytes


@dataclass(frozen=True, slots=True)
class Hello:
    """One end of a channel asks for the other, or whether it is there."""

    identity: bytes
    idle: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """Here is the other end of a channel: at the front of the return route."""

    identity: bytes
    idle: int


@dataclass(frozen=True, slots=True)
class PipeRefused:
    """A pipe or a channel is not opened."""

    identity: bytes
    reason: PipeRefusal


Frame: TypeAlias = (
    OpenPipe
    | PipeOpened
    | PipeData
    | Confirm
    | End
    | Ended
    | Abort
    | Unknown
    | Hello
    | Welcome
    | PipeRefused
)
"""Any frame."""


# --- writing ----------------------------------------------------------------------------------


class RouteWriter:
    """Writes the heads of messages, and remembers what it wrote last.

    At 256 pairs of routes, or 256 KiB of them, it forgets all.
    """

    __slots__ = ("_bytes", "_known")

    def __init__(self) -> None:
        self._known: dict[tuple[Route, Route, int], bytes] = {}
        self._bytes = 0

    def write(self, message: Message, behind: int = 0) -> bytes:
        """Return the head of a message as `data`. A tracing text that is too long is left out.

        Args:
            message: The message.
            behind: How many addresses of the onward route are left out.

        Raises:
            EmptyRoute: There is no onward address.
            RouteTooLong: There are too many addresses.
        """
        onward, back, context = message[0], message[1], message[4]
        key = onward, back, behind
        found = self._known.get(key)
        if found is None:
            if len(onward) <= behind:
                raise EmptyRoute
            if len(back) >= MAX_ROUTE_LENGTH:
                raise RouteTooLong(len(back), MAX_ROUTE_LENGTH - 1)
            if len(onward) - behind > MAX_ROUTE_LENGTH:
                raise RouteTooLong(len(onward) - behind, MAX_ROUTE_LENGTH)
            found = _encode_routes(onward[behind:], back)
            self._bytes += len(found)
            if len(self._known) >= REMEMBERED or self._bytes > REMEMBERED_BYTES:
                self._known.clear()
                self._bytes = len(found)
            self._known[key] = found
        trace = None if context is None else context.trace
        if not trace:
            return encode_data(found)
        text = trace.encode("utf-8", "replace")
        return encode_data(found + encode_data(text) if len(text) <= MAX_TRACING else found)


def message_size(message: Message) -> int:
    """Return how many bytes a message is in a frame."""
    onward, back, payload, _, context = message
    head = sum(
        len(encode_uint(len(route))) + sum(1 + _data_size(len(value)) for _, value in route)
        for route in (onward, back)
    )
    trace = None if context is None else context.trace
    if trace:
        head += _data_size(len(trace.encode("utf-8", "replace")))
    return _data_size(head) + _data_size(len(payload))


def _data_size(size: int) -> int:
    return len(encode_uint(size)) + size


def _encode_routes(onward: Route, back: Route) -> bytes:
    return _encode_route(onward) + _encode_route(back)


def _encode_route(route: Route) -> bytes:
    parts = [encode_uint(len(route))]
    parts += [bytes((kind,)) + encode_data(value) for kind, value in route]
    return b"".join(parts)


def encode_messages(
    identity: bytes, epoch: bytes, mode: Mode, base: int, first: int, count: int, body: bytes
) -> bytes:
    """Write a `DATA` frame of messages that are written already, one after the other."""
    return b"".join(
        (
            _head(PipeFrameKind.DATA, identity),
            epoch,
            encode_uint(mode.number),
            encode_uint(base),
            encode_uint(first),
            encode_uint(count),
            body,
        )
    )


def encode_frame(frame: Frame) -> bytes:
    """Write a frame."""
    match frame:
        case OpenPipe(identity, mode):
            return _head(PipeFrameKind.OPEN, identity) + encode_uint(mode.number)
        case PipeOpened(identity, epoch, window, size, idle):
            head = _head(PipeFrameKind.OPENED, identity) + epoch
            return head + encode_uint(window) + encode_uint(size) + encode_uint(idle)
        case PipeData(identity, epoch, mode, base, first, messages):
            write = RouteWriter().write
            body = [write(each) + encode_data(each[2]) for each in messages]
            return encode_messages(
                identity, epoch, mode, base, first, len(messages), b"".join(body)
            )
        case Confirm(identity, epoch, done, received, missed):
            head = _head(PipeFrameKind.CONFIRM, identity) + epoch + encode_uint(done)
            return head + _encode_ranges(received, done) + _encode_ranges(missed, 0)
        case End(identity, epoch, mode, last):
            head = _head(PipeFrameKind.END, identity)
            return head + epoch + encode_uint(mode.number) + encode_uint(last)
        case Ended(identity, epoch):
            return _head(PipeFrameKind.ENDED, identity) + epoch
        case Abort(identity, epoch):
            return _head(PipeFrameKind.ABORT, identity) + epoch
        case Unknown(identity, epoch):
            return _head(PipeFrameKind.UNKNOWN, identity) + epoch
        case PipeRefused(identity, reason):
            return _head(PipeFrameKind.REFUSED, identity) + encode_uint(reason)
        case _:
            kind = PipeFrameKind.HELLO if isinstance(frame, Hello) else PipeFrameKind.WELCOME
            return _head(kind, frame.identity) + encode_uint(frame.idle)


def _head(kind: PipeFrameKind, identity: bytes) -> bytes:
    return bytes((VERSION, kind)) + identity


def _encode_ranges(ranges: Ranges, end: int) -> bytes:
    parts = [encode_uint(len(ranges))]
    for first, last in ranges:
        parts += (encode_uint(first - end - 1), encode_uint(last - first + 1))
        end = last
    return b"".join(parts)
