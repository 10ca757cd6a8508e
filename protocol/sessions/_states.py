"""The life of a session as a table.

Theory of operation
===================

A session has two ends. The *opening* end asks for it, pings, and asks again by another way when
its pings go unanswered. The *accepting* end is made by the first handshake, goes over to the way
of each later one, and forgets the session when nothing comes for too long. Both are the same
machine, `SESSION`; some inputs only come to one of them:

- `OPENED` comes to the opening end while it is establishing or replacing; to the accepting end with
  each handshake, also while it is up;
- `FAILED` and `RETRY` come to the opening end alone;
- `HEARD` and `FORGET` come to the accepting end alone: a ping brings back what silence took
  down. The opening end, once down, wants an answer to a new handshake.

Closing takes two steps: a close is sent, repeatedly if need be, and confirmed. An end that was
never up has no other end to close. Inputs that the table does not list came too late and are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final

__all__ = ["SESSION", "SessionInput", "SessionState"]


class SessionState(IntEnum):
    """States of one end of a session. As text, their names."""

    def __str__(self) -> str:
        return self.name.lower()

    ESTABLISHING = 0
    """The first handshake is under way; there has been no session yet."""
    UP = 1
    """Messages go through."""
    DOWN = 2
    """The way is broken; the next attempt to replace it waits for its time."""
    REPLACING = 3
    """A handshake by a new way is under way."""
    CLOSING = 4
    """The other end is being told that it is over."""
    CLOSED = 5
    """Over for good."""


class SessionInput(Enum):
    """An input of the state machine of an end of a session."""

    OPENED = "a handshake succeeded"
    FAILED = "a handshake failed, or took too long"
    HEARD = "something came from the other end after all"
    SILENT = "too many pings went unanswered, or none came"
    LOST = "the first step of the route is gone"
    RETRY = "it is time for the next attempt"
    CLOSE = "this end closes"
    TOLD = "the other end closes, or takes no such session"
    ACKED = "the other end knows, or was told often enough"
    FORGET = "nothing came for so long that the session is forgotten"


_S, _I = SessionState, SessionInput

SESSION: Final[Mapping[tuple[SessionState, SessionInput], SessionState]] = MappingProxyType(
    {
        (_S.ESTABLISHING, _I.OPENED): _S.UP,
        (_S.ESTABLISHING, _I.FAILED): _S.DOWN,
        (_S.ESTABLISHING, _I.CLOSE): _S.CLOSED,
        (_S.ESTABLISHING, _I.TOLD): _S.CLOSED,
        (_S.UP, _I.OPENED): _S.UP,
        (_S.UP, _I.HEARD): _S.UP,
        (_S.UP, _I.SILENT): _S.DOWN,
        (_S.UP, _I.LOST): _S.DOWN,
        (_S.UP, _I.CLOSE): _S.CLOSING,
        (_S.UP, _I.TOLD): _S.CLOSED,
        (_S.DOWN, _I.OPENED): _S.UP,
        (_S.DOWN, _I.HEARD): _S.UP,
        (_S.DOWN, _I.RETRY): _S.REPLACING,
        (_S.DOWN, _I.CLOSE): _S.CLOSING,
        (_S.DOWN, _I.TOLD): _S.CLOSED,
        (_S.DOWN, _I.FORGET): _S.CLOSED,
        (_S.REPLACING, _I.OPENED): _S.UP,
        (_S.REPLACING, _I.FAILED): _S.DOWN,
        (_S.REPLACING, _I.CLOSE): _S.CLOSING,
        (_S.REPLACING, _I.TOLD): _S.CLOSED,
        (_S.CLOSING, _I.ACKED): _S.CLOSED,
        (_S.CLOSING, _I.TOLD): _S.CLOSED,
    }
)
"""(state, input) to the next state."""
