"""The errors of authentication and authorization."""

from __future__ import annotations

from typing import Final

from .._errors import NotDelivered, OnwardError, ProtocolError

__all__ = ["BadCredentials", "NotAllowed", "NotAuthenticated"]

SAME_FOR_ALL: Final = "not authenticated"


class BadCredentials(ProtocolError):
    """An authentication entry is broken, or too long.

    Attributes:
        reason: The fault, without any part of the credentials.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"bad credentials: {self.reason}"


class NotAuthenticated(OnwardError):
    """The identity of a peer is not established. The text is the same for each cause: peers see it.

    Attributes:
        cause: The cause, for the log and the counters of this side: `unknown`, `expired`.
    """

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return SAME_FOR_ALL


class NotAllowed(NotDelivered):
    """The rules do not allow a principal this action. It is decided before any look-up."""

    reason = "not allowed"
