"""Messages that are lost with an error: their senders, and the reasons they are counted by."""

from __future__ import annotations

from ...protocol import Address, DeliveryError, Message, NotDelivered, OnwardError, RouteError

__all__ = ["is_answer", "is_forward_of", "is_given", "is_others", "note_lost", "reason_text"]


def is_forward_of(lost: Message, message: Message) -> bool:
    """Whether a lost message is a given message, or was made of it by a worker.

    Such a message has the same return route, or without one the rest of the same onward route.
    The payload may have been changed.
    """
    if lost is message:
        return True
    back, rest = message[1], message[0][1:]
    if len(lost[1]) < len(back) or lost[1][len(lost[1]) - len(back) :] != back:
        return False
    if lost[2] is message[2] or back:
        return True
    return bool(rest) and lost[0][-len(rest) :] == rest


def is_answer(lost: Message, own: tuple[Address, ...]) -> bool:
    """Whether the return route of a lost message leads only to the worker that sent it."""
    return len(lost[1]) == 1 and lost[1][0] in own


def is_others(lost: Message, own: tuple[Address, ...]) -> bool:
    """Whether a worker lost a message of another sender, or an answer to one."""
    return bool(lost[0] and lost[0][0] in own) or is_answer(lost, own) or is_given(lost)


def is_given(message: Message) -> bool:
    """Whether another node chose the first address of a message, or the message has none left."""
    context = message[4]
    outside = None if context is None else context[4]
    return outside is not None and len(message[0]) <= outside[0]


def note_lost(error: OnwardError, message: Message) -> None:
    """Set `lost` of an error, unless the worker that passed the message on is at fault."""
    handed_over = not isinstance(error, NotDelivered | RouteError)
    if error.lost is None and not handed_over and is_given(message):
        error.lost = message


def reason_text(error: OnwardError) -> str:
    """Return the reason under which an error is counted."""
    if isinstance(error, DeliveryError):
        return error.reason
    name = type(error).__name__
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
