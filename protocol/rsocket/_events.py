"""The events of a connection besides the frames it accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ._frames import Frame

if TYPE_CHECKING:
    from ._errors import RSocketError
    from ._stream import Stream

__all__ = ["Closed", "Event", "Resumed", "StreamFailed"]


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """The connection ended a stream because of what the peer did on it.

    The peer was told: with CANCEL where we are the requester, with ERROR where we respond.

    Attributes:
        stream: The stream, over by now.
        error: The violation of the peer.
    """

    stream: Stream
    error: RSocketError


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is over; this is its last event.

    Attributes:
        error: Why; `None` if it ended in an orderly way or the transport just ended.
        streams: The streams that were live. They are over by now, and the peer will get
            nothing more on them.
    """

    error: RSocketError | None
    streams: tuple[Stream, ...]


@dataclass(frozen=True, slots=True)
class Resumed:
    """The server has resumed the session of this client.

    Attributes:
        again: The frames to send again: to be written before any that `data_to_send` returns.
    """

    again: tuple[memoryview, ...]


Event: TypeAlias = Frame | StreamFailed | Closed | Resumed
"""The items that `Connection.receive_data` returns: mostly frames, so test for `Frame` first."""
