"""The errors of authentication and authorization."""

from __future__ import annotations

from typing import Final

from .._errors import NotDelivered, OnwardError, ProtocolError

__all__ = ["NOT_AUTHENTICATED", "BadCredentials", "BadKeySet", "NotAllowed", "NotAuthenticated"]

NOT_AUTHENTICATED: Final = "not authenticated"
"""The text of the ERROR frame for a peer that is not authenticated, whatever the cause."""
MAX_SHOWN: Final = 200


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


class BadKeySet(ProtocolError):
    """A set of keys for JSON Web Tokens (JWKS) cannot be used.

    Attributes:
        reason: The fault, without any part of the set.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"bad set of keys: {self.reason}"


class NotAuthenticated(OnwardError):
    """The identity of a peer is not established. The text is the same for each cause: peers see it.

    Attributes:
        cause: The cause, for the log and the counters of this side: `unknown`, `expired`.
    """

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return NOT_AUTHENTICATED


class NotAllowed(NotDelivered):
    """The rules do not allow a principal this action. It is decided before any look-up.

    Attributes:
        action: The action, and the first characters of its tags as the peer has given them.
    """

    reason = "not allowed"

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.action = action if len(action) <= MAX_SHOWN else f"{action[:MAX_SHOWN]}..."

    def __str__(self) -> str:
        return f"{self.reason}: {self.action}"
