"""`Forwarder`: a worker that passes messages on unchanged."""

from __future__ import annotations

from typing import ClassVar

from ...protocol import Address, AddressLike, Message, address
from .._worker import Worker
from ..runtime._policy import MailboxOptions, Overflow

__all__ = ["Forwarder"]


class Forwarder(Worker):
    """A worker that passes every message on along its onward route.

    ```
    [forwarder, next…] <- [back…]        becomes        [next…] <- [forwarder, back…]
    ```

    So the answer passes the forwarder again:

    ```
    [forwarder, back…] <- [next…]        becomes        [back…] <- [forwarder, next…]
    ```

    A message without a further address, or that cannot be delivered there, becomes a dead
    letter. If the next worker lets senders wait for room, the forwarder waits: see
    `Overflow.WAIT`.

    Args:
        own: The address to leave on the return route; the one the message came to by default.
            With another worker's address, answers pass that worker.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(self, own: AddressLike | None = None) -> None:
        super().__init__()
        self._own: Address | None = None if own is None else address(own)

    def handle_message(self, message: Message) -> None:
        """Pass a message on."""
        self.forward(message, self._own)
