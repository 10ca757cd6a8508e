"""Fixed reasons for which destinations leave, as the event log records them."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BROKER_DRAINS",
    "BROKER_STOPS",
    "CONNECTION_ENDS",
    "CONNECTION_LOST",
    "NOT_ALLOWED",
    "OTHER_OWNER",
    "REGISTERED_ANEW",
    "SESSION_SUSPENDED",
    "WITHDRAWN",
    "WORKER_STOPPED",
    "closed_for",
]

WITHDRAWN: Final = "withdrawn"
"""A program of the broker's node withdrew its registration."""

WORKER_STOPPED: Final = "its worker stopped"

CONNECTION_ENDS: Final = "its connection ends"
"""The peer accepts no new requests; it may still answer earlier ones."""

CONNECTION_LOST: Final = "its connection was lost"
"""The connection ended without notice: the process died, the network failed or the peer closed."""

REGISTERED_ANEW: Final = "it registered anew"
"""The peer has registered with another route id."""

SESSION_SUSPENDED: Final = "its connection was lost, and its session is suspended"
"""The destination joins again if the peer resumes the session."""

BROKER_STOPS: Final = "the broker stops"

BROKER_DRAINS: Final = "the broker drains"
"""The broker lets its connections end, and then stops."""

NOT_ALLOWED: Final = "the rules no longer allow it"
"""The rules were replaced, and its principal may not register its tags any more."""

OTHER_OWNER: Final = "its route id belongs to another principal"
"""That one has had it first. The peer of the connection is told `NOT_ALLOWED`."""

_STOPPED: Final = "stopped"


def closed_for(reason: str) -> str:
    """Return the reason for which a destination leaves when its connection has ended.

    Args:
        reason: The listener's reason for closing it, as in its statistics; empty if the listener
            did not close it.
    """
    if reason == _STOPPED:
        return BROKER_STOPS
    return f"its connection was closed: {reason}" if reason else CONNECTION_LOST
