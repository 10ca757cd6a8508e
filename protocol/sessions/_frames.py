"""The frames of a session: BARE, and for a message Ockam's wire.

A message through a session is a frame from end to end, routes and all, as it would be on a
connection. So workers between the two ends see the addresses of the ends and nothing else: they
have one return route to remember, and an answer is delivered even if the route was replaced
meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from .._errors import ProtocolError
from ..bare import BareError, BareReader, encode_data, encode_string, encode_uint

__all__ = [
    "MAX_IDENTITY",
    "MAX_REASON",
    "VERSION",
    "Close",
    "CloseAck",
    "Frame",
    "FrameKind",
    "OpenSession",
    "Ping",
    "Pong",
    "SessionData",
    "SessionFrameError",
    "SessionOpened",
    "SessionRefused",
    "decode_frame",
    "encode_frame",
]

VERSION: Final = 1
"""Of these frames. An end that is asked for another refuses."""

MAX_IDENTITY: Final = 64
"""Most bytes of a session's identity or of an end's token."""

MAX_REASON: Final = 200
"""Most characters of a reason; what is longer is cut when it is written."""


class FrameKind(IntEnum):
    """The first number of a frame."""

    OPEN = 1
    OPENED = 2
    REFUSED = 3
    PING = 4
    PONG = 5
    DATA = 6
    CLOSE = 7
    CLOSED = 8


class SessionFrameError(ProtocolError):
    """Bytes that are no frame of a session.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"not a frame of a session: {self.reason}"


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A request to a service for a session, or to continue the existing one by a new route.

    Attributes:
        session: Which; random bytes chosen by the opening end.
        epoch: Number of the handshake, from 1; a later one has a greater number.
        interval: Between two pings, in milliseconds.
        version: Of the frames.
    """

    session: bytes
    epoch: int
    interval: int
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The acceptance of a session.

    Attributes:
        session: As asked.
        epoch: As asked.
        token: The identity of the accepting end; random bytes chosen by it. An end that was lost
            and made anew has another.
    """

    session: bytes
    epoch: int
    token: bytes


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """The refusal of a session.

    Attributes:
        session: As asked.
        epoch: As asked.
        final: Whether asking again is of no use.
        reason: Why, in a few words.
    """

    session: bytes
    epoch: int
    final: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Ping:
    """A request that the other end answers at once if it is there.

    Attributes:
        token: Of the accepting end.
        epoch: The number of the handshake that set up the route.
        number: Comes back in the answer.
    """

    token: bytes
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping.

    Attributes:
        token: As asked.
        epoch: As asked.
        number: As asked.
    """

    token: bytes
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class SessionData:
    """A message through the session.

    Attributes:
        token: Of the accepting end.
        body: The message, as on Ockam's wire.
    """

    token: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """The end of a session.

    Attributes:
        token: Of the accepting end.
        reason: Why, in a few words.
    """

    token: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class CloseAck:
    """Confirms a close.

    Attributes:
        token: As told.
    """

    token: bytes


Frame: TypeAlias = (
    OpenSession | SessionOpened | SessionRefused | Ping | Pong | SessionData | Close | CloseAck
)
"""Any of them."""


def encode_frame(frame: Frame) -> bytes:
    """Write a frame.

    Raises:
        BareError: A number is out of range.
    """
    match frame:
        case SessionData(token, body):
            return b"".join((_DATA, encode_data(token), body))
        case Ping(token, epoch, number):
            return _head(FrameKind.PING, token, epoch, number)
        case Pong(token, epoch, number):
            return _head(FrameKind.PONG, token, epoch, number)
        case OpenSession(session, epoch, interval, version):
            return _head(FrameKind.OPEN, session, epoch, interval, version)
        case SessionOpened(session, epoch, token):
            return _head(FrameKind.OPENED, session, epoch) + encode_data(token)
        case SessionRefused(session, epoch, final, reason):
            return _head(FrameKind.REFUSED, session, epoch, int(final)) + _text(reason)
        case Close(token, reason):
            return _head(FrameKind.CLOSE, token) + _text(reason)
        case _:
            return _head(FrameKind.CLOSED, frame.token)


def _head(kind: FrameKind, identity: bytes, *numbers: int) -> bytes:
    return b"".join((encode_uint(kind), encode_data(identity), *map(encode_uint, numbers)))


def _text(reason: str) -> bytes:
    return encode_string(reason[:MAX_REASON])


_DATA: Final = encode_uint(FrameKind.DATA)


def decode_frame(data: bytes) -> Frame:
    """Read a frame.

    Raises:
        SessionFrameError: It is not one.
    """
    reader = BareReader(data)
    try:
        frame = _read(reader, data)
        if not isinstance(frame, SessionData):
            reader.finish()
    except BareError as error:
        raise SessionFrameError(error.reason) from None
    return frame


def _read(reader: BareReader, data: bytes) -> Frame:
    kind = reader.uint()
    identity = _identity(reader)
    if kind == FrameKind.DATA:
        return SessionData(identity, data[reader.position :])
    if kind == FrameKind.PING:
        return Ping(identity, reader.uint(), reader.uint())
    if kind == FrameKind.PONG:
        return Pong(identity, reader.uint(), reader.uint())
    if kind == FrameKind.OPEN:
        return OpenSession(identity, reader.uint(), reader.uint(), reader.uint())
    if kind == FrameKind.OPENED:
        return SessionOpened(identity, reader.uint(), _identity(reader))
    if kind == FrameKind.REFUSED:
        return SessionRefused(identity, reader.uint(), _flag(reader), _reason(reader))
    if kind == FrameKind.CLOSE:
        return Close(identity, _reason(reader))
    if kind == FrameKind.CLOSED:
        return CloseAck(identity)
    raise SessionFrameError(f"{kind} is no kind of frame")


def _identity(reader: BareReader) -> bytes:
    identity = reader.data()
    if not 0 < len(identity) <= MAX_IDENTITY:
        raise SessionFrameError(f"an identity of {len(identity)} bytes, not 1 to {MAX_IDENTITY}")
    return identity


def _flag(reader: BareReader) -> bool:
    number = reader.uint()
    if number > 1:
        raise SessionFrameError(f"{number} is neither 0 nor 1")
    return bool(number)


def _reason(reader: BareReader) -> str:
    reason = reader.string()
    if len(reason) > MAX_REASON:
        raise SessionFrameError(f"a reason of {len(reason)} characters, over {MAX_REASON}")
    return reason
