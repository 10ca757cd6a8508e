"""The events of the receiving end of a pipe, and its answers to frames of unknown pipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .._message import Message
from ._frames import Abort, End, Ended, OpenPipe, PipeData, Unknown, encode_frame

__all__ = ["Gap", "ReceiverEvent", "WindowOverflow", "answer_to_stranger"]


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages were missed.

    Attributes:
        first: The number of the first of them.
        last: The number of the last of them.
        began: Whether the pipe, which is not confirmed, may have been going on before this
            receiver was made: then a receiver before it may have handed them on.
    """

    first: int
    last: int
    began: bool = False


@dataclass(frozen=True, slots=True)
class WindowOverflow:
    """Messages of a pipe that is not confirmed came while the window was full, and are lost."""

    messages: tuple[Message, ...]


ReceiverEvent: TypeAlias = Gap | WindowOverflow
"""An event of a receiver."""


def answer_to_stranger(frame: OpenPipe | PipeData | End | Abort) -> bytes | None:
    """Return what a receiver answers to a frame of a pipe that is not known or over, if anything.

    The end of a pipe that is not confirmed is known to have come: nothing else is asked.
    """
    if isinstance(frame, End) and not frame.mode.confirm:
        return encode_frame(Ended(frame.identity, frame.epoch))
    if isinstance(frame, PipeData | End) and frame.mode.confirm:
        return encode_frame(Unknown(frame.identity, frame.epoch))
    return None
