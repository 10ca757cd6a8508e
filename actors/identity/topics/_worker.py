"""The worker of a topic: it sends each publication to the subscribers here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, cast

from ....protocol import Address, Context, Message, OnwardError, Route
from ....protocol.identity import Identity
from ..._worker import Worker
from ...runtime._policy import MailboxOptions, Overflow

__all__ = ["TopicWorker"]

_new: Final = cast("Callable[..., Message]", tuple.__new__)


class TopicWorker(Worker):
    """The worker of a topic that this node publishes: a forwarder to its subscribers.

    ```
    [topic, rest…] <- [back…]     becomes   [subscriber, rest…] <- [back…]   for each
    ```

    A subscriber that answers reaches the publisher. The copies are put into the mailboxes in the
    order of the publications, and none waits for another: at the limit of a mailbox its own policy
    counts, and where senders would wait, or get an error, the copy is a dead letter.

    Args:
        topic: The topic.
        publish: Receives this worker and each publication.
        refused: Called for each copy that a subscriber did not take.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(
        self,
        topic: Identity,
        publish: Callable[[TopicWorker, Message], object],
        refused: Callable[[], object],
    ) -> None:
        super().__init__()
        self.topic: Final = topic
        self._publish: Final = publish
        self._refused: Final = refused

    def handle_message(self, message: Message) -> None:
        """Publish a message."""
        self._publish(self, message)

    def spread(self, to: Iterable[Address], rest: Route, message: Message) -> None:
        """Send a copy of a message to each of some workers.

        Args:
            to: The workers.
            rest: What follows in their onward routes.
            message: The message; its return route stays as it is.

        Raises:
            RoutingLoop: It has passed too many topics.
        """
        _, back, payload, _, _ = message
        context: Context | None = self._count_hop(message)
        own, dispatch = self.address, self._out.dispatch
        for address in to:
            copy = _new(Message, ((address, *rest), back, payload, own, context))
            try:
                dispatch(copy)
            except OnwardError as error:
                self._refused()
                self.node.dead_letter(copy, error)
