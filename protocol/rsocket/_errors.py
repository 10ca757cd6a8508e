"""Errors of an RSocket connection, joined to the tree of `onward.protocol`.

```
ProtocolError
├── RSocketError                 the peer broke the protocol, or says that something failed
│   ├── MalformedFrame           CONNECTION_ERROR: the bytes are no frame; close
│   ├── InvalidSetup             INVALID_SETUP
│   ├── UnsupportedSetup         UNSUPPORTED_SETUP
│   ├── RejectedSetup            REJECTED_SETUP
│   ├── RejectedResume           REJECTED_RESUME
│   ├── ResumeTimeout            CONNECTION_ERROR: a lost connection was not resumed in time
│   ├── SetupTimeout             INVALID_SETUP: the peer said nothing in time
│   ├── KeepaliveTimeout         CONNECTION_ERROR: the peer was silent for its lifetime
│   ├── PeerError                the peer closed the connection with an ERROR frame
│   ├── CreditExceeded           INVALID: more elements than were requested
│   ├── InvalidRequestN          INVALID: a request-n that is not positive
│   ├── MalformedComposite       INVALID: composite metadata cannot be read
│   └── ReassemblyLimit          INVALID: fragments add up to more than the limit
└── LocalProtocolError           our own side asked for something illegal; nothing was sent
    └── TooManyStreams           no more streams on this connection
```
"""

from __future__ import annotations

from typing import ClassVar

from .._errors import ProtocolError
from ._constants import ErrorCode

__all__ = [
    "CreditExceeded",
    "InvalidRequestN",
    "InvalidSetup",
    "KeepaliveTimeout",
    "LocalProtocolError",
    "MalformedComposite",
    "MalformedFrame",
    "PeerError",
    "RSocketError",
    "ReassemblyLimit",
    "RejectedResume",
    "RejectedSetup",
    "ResumeTimeout",
    "SetupTimeout",
    "TooManyStreams",
    "UnsupportedSetup",
]


class RSocketError(ProtocolError):
    """The peer broke the protocol, or reports that something failed.

    Attributes:
        text: What is wrong, fit to be sent as the data of an ERROR frame.
        code: The code of that ERROR frame; an `ErrorCode` or a number of the application.
        stream_id: The id of the stream; 0 is the connection.
    """

    default_code: ClassVar[int] = ErrorCode.CONNECTION_ERROR

    def __init__(self, text: str, *, code: int | None = None, stream_id: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.code = self.default_code if code is None else code
        self.stream_id = stream_id

    def __str__(self) -> str:
        try:
            name = ErrorCode(self.code).name
        except ValueError:
            name = f"0x{self.code:x}"
        where = f" on stream {self.stream_id}" if self.stream_id else ""
        return f"{name}{where}: {self.text}"


class MalformedFrame(RSocketError):
    """The bytes are not a frame; nothing after them can be trusted."""


class InvalidSetup(RSocketError):
    """The first frame is no SETUP, or a SETUP that cannot be read."""

    default_code = ErrorCode.INVALID_SETUP


class UnsupportedSetup(RSocketError):
    """A SETUP asks for something this side does not do."""

    default_code = ErrorCode.UNSUPPORTED_SETUP


class RejectedSetup(RSocketError):
    """This side does not want the connection."""

    default_code = ErrorCode.REJECTED_SETUP


class RejectedResume(RSocketError):
    """The session cannot be resumed; its client must not try again."""

    default_code = ErrorCode.REJECTED_RESUME


class ResumeTimeout(RSocketError):
    """A lost connection was not resumed in time, and its session ends."""


class SetupTimeout(InvalidSetup):
    """No SETUP came in time."""


class KeepaliveTimeout(RSocketError):
    """Nothing was received for the lifetime agreed in SETUP."""


class PeerError(RSocketError):
    """The peer ended the connection with an ERROR frame on stream 0."""


class CreditExceeded(RSocketError):
    """The peer sent more elements than it was asked for."""

    default_code = ErrorCode.INVALID


class InvalidRequestN(RSocketError):
    """The peer asked for a number of elements that is not positive."""

    default_code = ErrorCode.INVALID


class MalformedComposite(RSocketError):
    """Composite metadata ends in the middle of an entry."""

    default_code = ErrorCode.INVALID


class ReassemblyLimit(RSocketError):
    """The fragments of one payload add up to more than the limit.

    Attributes:
        size: Bytes gathered so far, the fragment at fault included.
        limit: Most bytes allowed.
    """

    default_code = ErrorCode.INVALID

    def __init__(self, size: int, limit: int, *, stream_id: int = 0) -> None:
        super().__init__(
            f"fragments of {size} bytes are over the limit of {limit} bytes", stream_id=stream_id
        )
        self.size = size
        self.limit = limit


class LocalProtocolError(ProtocolError):
    """Our own side asked for something the protocol forbids. Nothing was sent or changed.

    Attributes:
        reason: What is wrong.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class TooManyStreams(LocalProtocolError):
    """The connection has as many live streams as it may have.

    Attributes:
        limit: `ConnectionLimits.max_streams`.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"the connection has {limit} live streams already")
        self.limit = limit
