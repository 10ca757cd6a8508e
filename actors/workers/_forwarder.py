"""`Forwarder`: a worker on the way that does nothing but be on it."""

from __future__ import annotations

from typing import ClassVar

from ...protocol import Address, AddressLike, Message, address
from .._worker import Worker
from ..runtime._policy import MailboxOptions, Overflow

__all__ = ["Forwarder"]


class Forwarder(Worker):
    """Passes every message on along its onward route.

    ```
    [forwarder, next…] <- [back…]        becomes        [next…] <- [forwarder, back…]
    ```

    So the answer passes it again:

    ```
    [forwarder, back…] <- [next…]        becomes        [back…] <- [forwarder, next…]
    ```

    One that has no further step, or cannot be delivered there, becomes a dead letter. Where the
    next worker lets senders wait for room, it waits: see `Overflow.WAIT`.

    Args:
        own: The address to leave on the return route; the one the message came to by default.
            "These own addresses MAY be different": answers may pass another worker.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(self, own: AddressLike | None = None) -> None:
        super().__init__()
        self._own: Address | None = None if own is None else address(own)

    def handle_message(self, message: Message) -> None:
        """Pass it on."""
        self.forward(message, self._own)
