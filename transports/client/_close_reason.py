"""The reason of the end of a connection, by the last ERROR of the broker."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...protocol.rsocket import ErrorCode, KeepaliveTimeout, PeerError, ResumeTimeout
from ...protocol.security import NOT_AUTHENTICATED
from .._log import shown

__all__ = ["CloseReason", "last_word"]

_SETUP_CODES: Final = range(ErrorCode.INVALID_SETUP, ErrorCode.REJECTED_SETUP + 1)
"""Codes of a refused SETUP, which would be refused again."""
_TAKEN_OVER: Final = "has taken over its route id"
"""Text of Onward's broker to a connection that lost its route id to another."""

_NO_ROUTE_SETUP: Final = "RouteSetup not found in metadata"
"""Text of the Java reference's broker to a SETUP without a ROUTE_SETUP in its dialect."""
_HINT: Final = "; the Java broker reads dialect=Dialect.REFERENCE only, and needs a service= of all"
"""The remedy, short enough for a line of the log."""


class CloseReason(NamedTuple):
    """The reason of the end of a connection.

    Attributes:
        reason: A text for the log.
        refused: Whether the broker refused the SETUP, and would refuse it again.
        taken_over: Whether another connection has its route id now.
        unauthenticated: Whether the broker refused the SETUP because of its credentials.
    """

    reason: str
    refused: bool = False
    taken_over: bool = False
    unauthenticated: bool = False


def last_word(error: Exception, lifetime: float, *, ready: bool) -> CloseReason:
    """Return the reason for an error that ended a connection.

    Args:
        error: The error of the connection's state machine.
        lifetime: The longest silence, in seconds.
        ready: Whether the broker had accepted the SETUP.
    """
    if isinstance(error, KeepaliveTimeout):
        return CloseReason(f"the broker was silent for {lifetime:g} s")
    if isinstance(error, ResumeTimeout):
        return CloseReason(error.text)
    if not isinstance(error, PeerError):
        return CloseReason(shown(f"the broker broke the protocol: {error}"))
    # Negotiation: "The ERROR[INVALID_SETUP|UNSUPPORTED_SETUP|REJECTED_SETUP] error code indicates
    # the reason for the rejection."
    refused = not ready and error.code in _SETUP_CODES
    reason = shown(f"the broker says: {error}")
    if refused and _NO_ROUTE_SETUP in error.text:
        reason += _HINT
    unauthenticated = refused and error.code == ErrorCode.REJECTED_SETUP
    unauthenticated = unauthenticated and error.text == NOT_AUTHENTICATED
    return CloseReason(reason, refused, _TAKEN_OVER in error.text, unauthenticated)
