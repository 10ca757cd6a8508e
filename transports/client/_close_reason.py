"""What the last ERROR of a broker says about the connection it ends."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...protocol.rsocket import ErrorCode, PeerError
from .._log import shown

__all__ = ["CloseReason", "last_word"]

_SETUP_CODES: Final = range(ErrorCode.INVALID_SETUP, ErrorCode.REJECTED_SETUP + 1)
"""Codes by which a broker refuses a SETUP, and would refuse the same one again."""
_TAKEN_OVER: Final = "has taken over its route id"
"""What our broker says to a connection whose route id another one has now."""

_NO_ROUTE_SETUP: Final = "RouteSetup not found in metadata"
"""What the Java reference's broker says to a SETUP without a ROUTE_SETUP in its dialect."""
_HINT: Final = "; the Java broker reads dialect=Dialect.REFERENCE only, and needs a service= of all"
"""What to change, within what a line of the log has room for."""


class CloseReason(NamedTuple):
    """Why a connection has ended.

    Attributes:
        reason: For people to read.
        refused: Whether the broker does not want the connection, and would not the next time.
        taken_over: Whether another connection has its route id now.
    """

    reason: str
    refused: bool = False
    taken_over: bool = False


def last_word(error: Exception, *, ready: bool) -> CloseReason:
    """Return what an error that ends a connection means.

    Args:
        error: What the state machine of the connection ended with.
        ready: Whether the broker had taken the SETUP.
    """
    if not isinstance(error, PeerError):
        return CloseReason(shown(f"the broker broke the protocol: {error}"))
    refused = not ready and error.code in _SETUP_CODES
    reason = shown(f"the broker says: {error}")
    if refused and _NO_ROUTE_SETUP in error.text:
        reason += _HINT
    return CloseReason(reason, refused, _TAKEN_OVER in error.text)
