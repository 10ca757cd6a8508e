"""Error replies of a node: what it says along the return route of what it cannot deliver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol import (
    ERROR_SOURCE,
    Address,
    ErrorReply,
    InDoubt,
    Message,
    OnwardError,
    Route,
    encode_error_reply,
    is_error_reply,
)

if TYPE_CHECKING:
    from ._router import Router

__all__ = ["ErrorReplies"]


class ErrorReplies:
    """Sends error replies, so many a second at most, and never one for another.

    So they cannot make a flood larger: one for each message at most, and that small and
    bounded. Those for what came over one link are bounded by themselves, so that who is at its
    other end cannot have the others hear nothing; and so are those for the node's own workers.

    Args:
        router: The node.
        rate: Most error replies in a second; those beyond are dropped.
        link_rate: Most of them along the way back over one link.

    Attributes:
        on: Whether any are sent.
        sent: How many have been sent.
        dropped: How many have not been sent because there were too many.
    """

    __slots__ = (
        "_left",
        "_link_rate",
        "_rate",
        "_router",
        "_sent",
        "_until",
        "dropped",
        "on",
        "sent",
    )

    def __init__(self, router: Router, rate: int, link_rate: int) -> None:
        self._router = router
        self._rate = rate
        self._link_rate = link_rate
        self._left = 0
        self._sent: dict[Address | None, int] = {}  # in this second, over each link
        self._until = float("-inf")
        self.on = False
        self.sent = 0
        self.dropped = 0

    def answer(self, message: Message, error: OnwardError, reason: str) -> bool:
        """Send an error reply, if they are on and the message may have one.

        Args:
            message: What was not delivered, with its return route.
            error: Why.
            reason: The same in a few words, which is all that is sent of it.

        Returns:
            Whether one is sent.
        """
        if not self.on or not message[1] or is_error_reply(message):
            return False
        if not self._may_send(message[1]):
            self.dropped += 1
            return False
        self.sent += 1
        certain = not isinstance(error, InDoubt)
        payload = encode_error_reply(ErrorReply(reason, _at(message, error), certain))
        self._router.deliver(Message(message[1], (ERROR_SOURCE,), payload))
        return True

    def _may_send(self, back: Route) -> bool:
        # Threads that send at the same instant may exceed the rates by one each.
        now = self._router.loop.time()
        if now >= self._until:
            self._left = self._rate
            self._sent = {}
            self._until = now + 1.0
        if self._left <= 0:
            return False
        link = self._router.link_on(back)
        sent = self._sent.get(link, 0)
        if sent >= self._link_rate:
            return False
        self._sent[link] = sent + 1
        self._left -= 1
        return True


def _at(message: Message, error: OnwardError) -> Address:
    """Return the address at fault: of those on the message's own way, so that it tells no more."""
    onward = message[0]
    at_fault = str(getattr(error, "target", ""))
    for address in onward[:2]:
        if str(address) == at_fault:
            return address
    return onward[0] if onward else ERROR_SOURCE
