"""Error replies of a node for messages that it cannot deliver."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from ...protocol import (
    ERROR_SOURCE,
    Address,
    ErrorReply,
    InDoubt,
    Message,
    OnwardError,
    encode_error_reply,
    is_error_reply,
)
from ..runtime._run_queue import RunQueue
from ._table import AddressTable

__all__ = ["ErrorReplies"]


class ErrorReplies:
    """A sender of error replies with limited rates.

    There is at most one error reply for each message, a small one, and none for an error reply,
    so they cannot amplify a flood. The rate for each link or connection is limited separately, so
    that one peer cannot use up the error replies of the others; so is the rate for the node's own
    workers.

    Args:
        run_queue: The run queue of the node, with the limits.
        table: The address table of the node.

    Attributes:
        send: Function that delivers a message, or makes it a dead letter.
        on: Whether error replies are sent.
        sent: Number of error replies sent.
        dropped: Number of error replies not sent because of the rates.
    """

    __slots__ = (
        "_left",
        "_link_rate",
        "_rate",
        "_run_queue",
        "_sent",
        "_table",
        "_until",
        "dropped",
        "on",
        "send",
        "sent",
    )

    def __init__(self, run_queue: RunQueue, table: AddressTable) -> None:
        self._run_queue: Final = run_queue
        self._table: Final = table
        self._rate: Final = run_queue.limits.error_replies
        self._link_rate: Final = run_queue.limits.link_error_replies
        self.send: Callable[[Message], object] | None = None
        self._left = 0
        self._sent: dict[Hashable | None, int] = {}  # in this second, to each peer
        self._until = float("-inf")
        self.on = False
        self.sent = 0
        self.dropped = 0

    def answer(self, message: Message, error: OnwardError, reason: str) -> bool:
        """Send an error reply, if they are on and the message may have one.

        Args:
            message: The message that was not delivered, with its return route.
            error: The error.
            reason: The reason in a few words, which are the only text sent.

        Returns:
            Whether an error reply is sent.
        """
        if not self.on or self.send is None or not message[1] or is_error_reply(message):
            return False
        if not self._may_send(message):
            self.dropped += 1
            return False
        self.sent += 1
        certain = not isinstance(error, InDoubt)
        payload = encode_error_reply(ErrorReply(reason, _at(message, error), certain))
        self.send(Message(message[1], (ERROR_SOURCE,), payload))
        return True

    def _may_send(self, message: Message) -> bool:
        # Threads that send at the same instant may exceed the rates by one each.
        now = self._run_queue.loop.time()
        if now >= self._until:
            self._left = self._rate
            self._sent = {}
            self._until = now + 1.0
        if self._left <= 0:
            return False
        peer = self._table.peer_of(message)
        sent = self._sent.get(peer, 0)
        if sent >= self._link_rate:
            return False
        self._sent[peer] = sent + 1
        self._left -= 1
        return True


def _at(message: Message, error: OnwardError) -> Address:
    """Return the failed address, if it is in the message's route: no other may be disclosed."""
    onward = message[0]
    at_fault = str(getattr(error, "target", ""))
    for address in onward[:2]:
        if str(address) == at_fault:
            return address
    return onward[0] if onward else ERROR_SOURCE
