"""What a session and its service count, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SessionServiceStatistics", "SessionStatistics"]


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """One end of a session at one moment."""

    state: str
    """Name of its state: see `SessionState`."""

    cause: str
    """Why it last went down, or is over; empty if it never has."""

    epoch: int
    """Number of the latest handshake."""

    ups: int
    """Times it came up."""

    downs: int
    """Times it went down."""

    sent: int
    """Messages sent to the other end."""

    received: int
    """Messages that came from the other end, those refused included."""

    refused: int
    """Messages of them for an address that is neither exposed nor a way back."""

    kept: int
    """Messages that wait until it is up."""

    given_back: int
    """Messages for the other end that were not sent."""

    late: int
    """Frames of an older handshake, or of another session: they were ignored."""

    bad: int
    """Messages to this end that are no frames."""

    round_trip: float | None
    """Time from the latest ping to its answer, in seconds; `None` before the first."""


@dataclass(frozen=True, slots=True)
class SessionServiceStatistics:
    """A session service at one moment."""

    sessions: int
    """Sessions there are."""

    opened: int
    """Sessions that were begun."""

    refused: int
    """Handshakes that were refused."""

    closed: int
    """Sessions that one of the ends closed."""

    forgotten: int
    """Sessions whose other end was silent for too long."""

    bad: int
    """Messages to the service that are no handshakes."""
