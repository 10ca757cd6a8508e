"""What sessions may use, and what becomes of messages while one is down: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ...protocol.options import Count, Seconds, check_options
from ...protocol.sessions import LivenessOptions

__all__ = ["SessionOptions", "SessionServiceOptions", "WhileDown"]

_LIVENESS: Final = LivenessOptions()


class WhileDown(Enum):
    """What becomes of a message for the other end while a session is not up."""

    KEEP = auto()
    """It is kept, up to a number, a size and a time, and sent when the session is up."""

    REFUSE = auto()
    """It is given back at once: `SessionDown`."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What one end of a session may use.

    Attributes:
        liveness: Its times.
        while_down: What becomes of messages while it is not up.
        max_kept: Messages kept while it is not up. More are given back: `SessionDown`.
        max_kept_bytes: Bytes of their payloads together. More are given back.
        keep_for: How long one is kept, in seconds; then it is given back.
        max_returns: Ways back of messages that went out which are remembered, for what comes
            in by them. Those unused for longest are forgotten: what comes by one is refused.

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
    """What a session service may use.

    Attributes:
        session: What each session may use. How often it is pinged the other end says.
        max_sessions: Sessions at a time. More are refused, and may ask again.
        max_interval: The longest time between two pings that another end can ask for, in
            seconds; a longer one counts as this. It bounds how long a session lasts that
            nobody has any more.
        max_closed: Sessions that are over which are remembered, so that a late handshake does
            not begin one again. Those over for longest are forgotten.

    Raises:
        ValueError: A limit is less than 1, or the time not more than 0.
    """

    session: SessionOptions = _SESSION
    max_sessions: Count = 10_000
    max_interval: Seconds = 300.0
    max_closed: Count = 10_000

    def __post_init__(self) -> None:
        check_options(self)
