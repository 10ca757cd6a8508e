"""What sessions may use, and what becomes of messages while one is down: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ...protocol.sessions import LivenessOptions

__all__ = ["SessionOptions", "SessionServiceOptions", "WhileDown"]

_LIVENESS: Final = LivenessOptions()


def _at_least_one(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value < 1:
            raise ValueError(f"{name} is {value}, less than 1")


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
    max_kept: int = 1000
    max_kept_bytes: int = 1024 * 1024
    keep_for: float = 30.0
    max_returns: int = 10_000

    def __post_init__(self) -> None:
        _at_least_one(self, "max_kept", "max_kept_bytes", "max_returns")
        if not self.keep_for > 0:
            raise ValueError(f"keep_for is {self.keep_for}, not more than 0 seconds")


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
    max_sessions: int = 10_000
    max_interval: float = 300.0
    max_closed: int = 10_000

    def __post_init__(self) -> None:
        _at_least_one(self, "max_sessions", "max_closed")
        if not self.max_interval > 0:
            raise ValueError(f"max_interval is {self.max_interval}, not more than 0 seconds")
