"""Why destinations leave, in fixed words: what the event log says of each that has left."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BROKER_STOPS",
    "CONNECTION_ENDS",
    "CONNECTION_LOST",
    "REGISTERED_ANEW",
    "WITHDRAWN",
    "WORKER_STOPPED",
    "closed_for",
]

WITHDRAWN: Final = "withdrawn"
"""A program of the broker's node took it out of the table."""

WORKER_STOPPED: Final = "its worker stopped"

CONNECTION_ENDS: Final = "its connection ends"
"""The peer has said that it takes nothing new; what it has in hand it may still answer."""

CONNECTION_LOST: Final = "its connection was lost"
"""It ended without a word: the process died, the network failed, or it closed just so."""

REGISTERED_ANEW: Final = "it registered anew"
"""The peer has taken another route id."""

BROKER_STOPS: Final = "the broker stops"

_STOPPED: Final = "stopped"


def closed_for(reason: str) -> str:
    """Return why a destination leaves whose connection the broker has closed.

    Args:
        reason: The listener's word for it, as in its statistics; empty if it did not close it.
    """
    if reason == _STOPPED:
        return BROKER_STOPS
    return f"its connection was closed: {reason}" if reason else CONNECTION_LOST
