"""The presence of one peer broker as a table.

Theory of operation
===================

A peer broker is there while it has a link and its copy is *in step* (`UP`). When the link is lost
its routes are hidden at once, and removed when the hold is over. When it is back within that time,
they stay hidden until the copy is in step again; and for a while longer if the link was lost too
often (`UNSTEADY`). The routes of one that was not there before are used as they come (`JOINING`).

After a bad frame there is no link for a while (`PAUSED`), and none of its routes is kept. A link
that is let in all the same ends that: it may be there before the timer of the pause is looked at.

Inputs that the table does not list came too late and are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final

__all__ = ["PRESENCE", "PresenceInput", "PresenceState"]


class PresenceState(IntEnum):
    """States of a peer broker. As text, their names."""

    def __str__(self) -> str:
        return self.name.lower()

    CONNECTING = 0
    """It was never there."""
    JOINING = 1
    """It has a link; its routes are coming, and are used as they come."""
    UP = 2
    """It has a link, and its routes are known and used."""
    SUSPENDED = 3
    """Its link is lost; its routes are hidden."""
    RETURNING = 4
    """It has a link again; its routes are hidden until they are known."""
    UNSTEADY = 5
    """Its routes are known, and hidden: its link was lost too often."""
    PAUSED = 6
    """It has sent a bad frame; its routes are removed, and it may have no link."""
    GONE = 7
    """It was there, and its routes are removed."""


class PresenceInput(Enum):
    """An input of the state machine of a peer broker."""

    LINKED = "a link is up, and both brokers know each other"
    IN_STEP = "the copy of its routes is whole"
    EARLY = "the copy is whole, and the link was lost too often to rely on it"
    STEADY = "the link has held for long enough"
    LOST = "the link is lost"
    HELD = "the hold is over"
    WRONG = "a bad frame came"
    RESUMED = "the pause is over"


_S, _I = PresenceState, PresenceInput

PRESENCE: Final[Mapping[tuple[PresenceState, PresenceInput], PresenceState]] = MappingProxyType(
    {
        (_S.CONNECTING, _I.LINKED): _S.JOINING,
        (_S.GONE, _I.LINKED): _S.JOINING,
        (_S.SUSPENDED, _I.LINKED): _S.RETURNING,
        (_S.PAUSED, _I.LINKED): _S.JOINING,
        (_S.JOINING, _I.IN_STEP): _S.UP,
        (_S.JOINING, _I.EARLY): _S.UP,
        (_S.RETURNING, _I.IN_STEP): _S.UP,
        (_S.RETURNING, _I.EARLY): _S.UNSTEADY,
        (_S.UNSTEADY, _I.STEADY): _S.UP,
        (_S.JOINING, _I.LOST): _S.SUSPENDED,
        (_S.UP, _I.LOST): _S.SUSPENDED,
        (_S.RETURNING, _I.LOST): _S.SUSPENDED,
        (_S.UNSTEADY, _I.LOST): _S.SUSPENDED,
        (_S.SUSPENDED, _I.HELD): _S.GONE,
        (_S.JOINING, _I.WRONG): _S.PAUSED,
        (_S.UP, _I.WRONG): _S.PAUSED,
        (_S.RETURNING, _I.WRONG): _S.PAUSED,
        (_S.UNSTEADY, _I.WRONG): _S.PAUSED,
        (_S.PAUSED, _I.RESUMED): _S.GONE,
    }
)
"""(state, input) to the next state."""
