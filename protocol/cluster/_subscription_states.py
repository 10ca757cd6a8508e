"""The life of a subscription as a table.

Theory of operation
===================

A subscription follows the routes of one home broker over one stream after the other. A stream
begins with what the subscriber lacks: changes, or a snapshot in parts. With the last part, or with
the first mark, it is *in step*, and changes and marks follow. The home broker may send another
snapshot between two changes: the subscriber was slower than the log could bear.

An element that the table does not list in a state is one that may not come there. What comes of a
stream that is over is ignored, so neither `IDLE` nor `STALE` has elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final

__all__ = ["SUBSCRIPTION", "SubscriptionInput", "SubscriptionState"]


class SubscriptionState(IntEnum):
    """States of a subscription. As text, their names."""

    def __str__(self) -> str:
        return self.name.lower()

    IDLE = 0
    """There is no stream."""
    WAITING = 1
    """The stream was asked for; nothing has come."""
    ROUND = 2
    """A snapshot is coming in parts."""
    CATCHING_UP = 3
    """Changes that were missed are coming."""
    IN_STEP = 4
    """All that the home broker had is here; changes come as they happen."""
    STALE = 5
    """Something is missing: another stream has to be asked for."""


class SubscriptionInput(Enum):
    """An input of the state machine of a subscription."""

    REQUEST = "this broker asks for a stream"
    PART = "a part of a snapshot that is not the last"
    LAST_PART = "the last part of a snapshot"
    CHANGES = "changes"
    MARK = "a mark"
    GAP = "an element with another number than the one that has to follow"
    LOST = "the stream has ended"


_S, _I = SubscriptionState, SubscriptionInput

SUBSCRIPTION: Final[Mapping[tuple[SubscriptionState, SubscriptionInput], SubscriptionState]] = (
    MappingProxyType(
        {
            (_S.IDLE, _I.REQUEST): _S.WAITING,
            (_S.STALE, _I.REQUEST): _S.WAITING,
            (_S.WAITING, _I.PART): _S.ROUND,
            (_S.WAITING, _I.LAST_PART): _S.IN_STEP,
            (_S.WAITING, _I.CHANGES): _S.CATCHING_UP,
            (_S.WAITING, _I.MARK): _S.IN_STEP,
            (_S.ROUND, _I.PART): _S.ROUND,
            (_S.ROUND, _I.LAST_PART): _S.IN_STEP,
            (_S.CATCHING_UP, _I.PART): _S.ROUND,
            (_S.CATCHING_UP, _I.LAST_PART): _S.IN_STEP,
            (_S.CATCHING_UP, _I.CHANGES): _S.CATCHING_UP,
            (_S.CATCHING_UP, _I.MARK): _S.IN_STEP,
            (_S.IN_STEP, _I.PART): _S.ROUND,
            (_S.IN_STEP, _I.LAST_PART): _S.IN_STEP,
            (_S.IN_STEP, _I.CHANGES): _S.IN_STEP,
            (_S.IN_STEP, _I.MARK): _S.IN_STEP,
            (_S.WAITING, _I.GAP): _S.STALE,
            (_S.ROUND, _I.GAP): _S.STALE,
            (_S.CATCHING_UP, _I.GAP): _S.STALE,
            (_S.IN_STEP, _I.GAP): _S.STALE,
            (_S.WAITING, _I.LOST): _S.IDLE,
            (_S.ROUND, _I.LOST): _S.IDLE,
            (_S.CATCHING_UP, _I.LOST): _S.IDLE,
            (_S.IN_STEP, _I.LOST): _S.IDLE,
            (_S.STALE, _I.LOST): _S.IDLE,
        }
    )
)
"""(state, input) to the next state."""
