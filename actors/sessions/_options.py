"""Options of sessions and of session services: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ...protocol.options import Count, Seconds, check_options
from ...protocol.sessions import LivenessOptions

__all__ = ["SessionOptions", "SessionServiceOptions", "WhileDown"]

_LIVENESS: Final = LivenessOptions()


class WhileDown(Enum):
    """The policy for messages to the other end while a session is not up."""

    KEEP = auto()
    """Keep them, up to a number, a size and a time, and send them when the session is up."""

    REFUSE = auto()
    """Refuse them at once with `SessionDown`."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of one end of a session.

    Attributes:
        liveness: The times of pings and handshakes.
        while_down: The policy for messages while it is not up.
        max_kept: Messages kept while it is not up. More are refused with `SessionDown`.
        max_kept_bytes: Bytes of their payloads together. More are refused.
        keep_for: The time for which a message is kept, in seconds; then it is refused.
        max_returns: Return routes of outgoing messages that are remembered, for the replies. The
            least recently used are forgotten, and replies along them are refused.

    Raises:
        ValueError: A limit is less than 1, or the time not more than 0.
    """

    liveness: LivenessOptions = _LIVENESS
    while_down: WhileDown = WhileDown.KEEP
    max_kept: Count = 1000
    max_kept_bytes: Count = 1024 * 1024
    keep_for: Seconds = 30.0
    max_returns: Count = 10_000

    def __post_init__(self) -> None:
        check_options(self)


_SESSION: Final = SessionOptions()


@dataclass(frozen=True, slots=True)
class SessionServiceOptions:
    """Options of a session service.

    Attributes:
        session: The options of each session. The other end chooses the interval of its pings.
        max_sessions: Sessions at a time. More are refused, and may try again.
        max_interval: The longest interval of pings that another end can choose, in seconds; a
            longer one counts as this. It bounds the life of a session without another end.
        max_closed: Closed sessions that are remembered, so that a late handshake does not open
            one again. The oldest are forgotten.

    Raises:
        ValueError: A limit is less than 1, or the time not more than 0.
    """

    session: SessionOptions = _SESSION
    max_sessions: Count = 10_000
    max_interval: Seconds = 300.0
    max_closed: Count = 10_000

    def __post_init__(self) -> None:
        check_options(self)
