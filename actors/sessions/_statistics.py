"""Counters of a session and of its service, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SessionServiceStatistics", "SessionStatistics"]


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """The counters of one end of a session at one moment."""

    state: str
    """Name of its state: see `SessionState`."""

    cause: str
    """Reason why it last went down, or is over; empty if it never has."""

    epoch: int
    """Number of the latest handshake."""

    ups: int
    """Times it came up."""

    downs: int
    """Times it went down."""

    sent: int
    """Messages sent to the other end."""

    received: int
    """Messages received from the other end, including those refused."""

    refused: int
    """Received messages for an address that is neither exposed nor on a return route."""

    kept: int
    """Messages that wait until it is up."""

    given_back: int
    """Messages for the other end that were refused or expired."""

    late: int
    """Frames of an older handshake, or of another session; they were ignored."""

    bad: int
    """Messages to this end that are not frames."""

    round_trip: float | None
    """Time from the latest ping to its answer, in seconds; `None` before the first."""


@dataclass(frozen=True, slots=True)
class SessionServiceStatistics:
    """The counters of a session service at one moment."""

    sessions: int
    """Open sessions."""

    opened: int
    """Sessions opened."""

    refused: int
    """Handshakes that were refused."""

    closed: int
    """Sessions that one of the ends closed."""

    forgotten: int
    """Sessions that ended because no frame of the other end came for too long."""

    bad: int
    """Messages to the service that are not handshakes."""
