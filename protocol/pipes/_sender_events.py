"""The events of the sending end of a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .._message import Message

__all__ = ["Broken", "Missed", "Overdue", "SenderClosed", "SenderEvent"]


@dataclass(frozen=True, slots=True)
class Missed:
    """The receiver went on without these messages: it will not hand them on."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Overdue:
    """The deadline of these messages passed before they could be sent."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """The pipe to this receiver is over.

    Attributes:
        why: The reason, in a few words.
        in_doubt: Sent, and not known to be dealt with: some may have been handed on.
        unsent: Certainly not handed on. (When the receiver was restarted, what is not sent yet
            is none of these: it goes through the pipe that is opened next.)
    """

    why: str
    in_doubt: tuple[Message, ...]
    unsent: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class SenderClosed:
    """The sender is done; nothing more comes of it."""


SenderEvent: TypeAlias = Missed | Overdue | Broken | SenderClosed
"""An event of a sender."""
