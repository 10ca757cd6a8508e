"""The states of a pipe's two ends, and every step between them.

A sender has nothing open until there is something to send. A pipe that is confirmed is then
*opened*: the receiver answers with a random number of its own, its *epoch*, which all later frames
carry. A receiver that was restarted has another one, or has never heard of the pipe, and says so
(`UNKNOWN`): so nothing it took before is taken twice. The sender then reports what is in doubt and
begins anew, with another identity, when there is something to send.

What a sender that was told to end has left is sent first (`DRAINING`). The receiver hands on
what it has before it is done (`FINISHING`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

__all__ = ["RECEIVER", "SENDER", "ReceiverInput", "ReceiverState", "SenderInput", "SenderState"]


class SenderState(Enum):
    """The state of the sending end of a pipe."""

    IDLE = "nothing is open"
    OPENING = "the receiver has been asked to open the pipe"
    OPEN = "messages are sent"
    DRAINING = "the end has been asked for; something is still to be sent or confirmed"
    ENDING = "the receiver has been told of the end"
    CLOSED = "it is over"


class SenderInput(Enum):
    """An input of the sending end of a pipe."""

    SEND = "there is something to send"
    START = "there is something to send, and nothing to open: the pipe is not confirmed"
    OPENED = "the receiver has opened the pipe"
    UNKNOWN = "the receiver does not know the pipe"
    REFUSED = "the receiver does not open the pipe"
    GIVE_UP = "nothing has been heard of the receiver for too long"
    END = "the user asks for the end"
    DRAINED = "all has been sent and confirmed"
    ENDED = "the receiver knows of the end, or there is nothing it would have to know"
    ABORT = "the user breaks the pipe"


SENDER: Final[Mapping[tuple[SenderState, SenderInput], SenderState]] = {
    (SenderState.IDLE, SenderInput.SEND): SenderState.OPENING,
    (SenderState.IDLE, SenderInput.START): SenderState.OPEN,
    (SenderState.IDLE, SenderInput.END): SenderState.CLOSED,
    (SenderState.IDLE, SenderInput.ABORT): SenderState.CLOSED,
    (SenderState.OPENING, SenderInput.OPENED): SenderState.OPEN,
    (SenderState.OPENING, SenderInput.REFUSED): SenderState.IDLE,
    (SenderState.OPENING, SenderInput.GIVE_UP): SenderState.IDLE,
    (SenderState.OPENING, SenderInput.END): SenderState.DRAINING,
    (SenderState.OPENING, SenderInput.ABORT): SenderState.CLOSED,
    (SenderState.OPEN, SenderInput.UNKNOWN): SenderState.IDLE,
    (SenderState.OPEN, SenderInput.REFUSED): SenderState.IDLE,
    (SenderState.OPEN, SenderInput.GIVE_UP): SenderState.IDLE,
    (SenderState.OPEN, SenderInput.END): SenderState.DRAINING,
    (SenderState.OPEN, SenderInput.ABORT): SenderState.CLOSED,
    (SenderState.DRAINING, SenderInput.OPENED): SenderState.DRAINING,
    (SenderState.DRAINING, SenderInput.UNKNOWN): SenderState.DRAINING,
    (SenderState.DRAINING, SenderInput.REFUSED): SenderState.CLOSED,
    (SenderState.DRAINING, SenderInput.GIVE_UP): SenderState.CLOSED,
    (SenderState.DRAINING, SenderInput.DRAINED): SenderState.ENDING,
    (SenderState.DRAINING, SenderInput.ABORT): SenderState.CLOSED,
    (SenderState.ENDING, SenderInput.ENDED): SenderState.CLOSED,
    (SenderState.ENDING, SenderInput.UNKNOWN): SenderState.CLOSED,
    (SenderState.ENDING, SenderInput.REFUSED): SenderState.CLOSED,
    (SenderState.ENDING, SenderInput.GIVE_UP): SenderState.CLOSED,
    (SenderState.ENDING, SenderInput.ABORT): SenderState.CLOSED,
}
"""Inputs that are not listed do not happen, or change nothing."""


class ReceiverState(Enum):
    """The state of the receiving end of a pipe."""

    OPEN = "messages come"
    FINISHING = "the sender has ended; something is still to be handed on"
    CLOSED = "it is over"


class ReceiverInput(Enum):
    """An input of the receiving end of a pipe."""

    END = "the sender has told of the end"
    FINISHED = "everything has been handed on"
    ABORT = "the sender has broken the pipe"
    CLOSE = "the sender is gone, has begun anew, or the receiver stops"


RECEIVER: Final[Mapping[tuple[ReceiverState, ReceiverInput], ReceiverState]] = {
    (ReceiverState.OPEN, ReceiverInput.END): ReceiverState.FINISHING,
    (ReceiverState.OPEN, ReceiverInput.ABORT): ReceiverState.CLOSED,
    (ReceiverState.OPEN, ReceiverInput.CLOSE): ReceiverState.CLOSED,
    (ReceiverState.FINISHING, ReceiverInput.FINISHED): ReceiverState.CLOSED,
    (ReceiverState.FINISHING, ReceiverInput.ABORT): ReceiverState.CLOSED,
    (ReceiverState.FINISHING, ReceiverInput.CLOSE): ReceiverState.CLOSED,
}
"""Inputs that are not listed do not happen, or change nothing."""
