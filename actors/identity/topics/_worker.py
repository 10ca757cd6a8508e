"""The workers of topics: each publication that comes to one goes to the subscribers here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Final, cast

from ....protocol import Address, Context, Message, OnwardError, Route
from ....protocol.identity import (
    SCOPE_LOCAL,
    Destination,
    DestinationKind,
    Identity,
    ResultCode,
    RoutingPrefs,
    RoutingScope,
    ScopeKind,
)
from ..._errors import Unresolved
from ..._worker import Worker
from ...runtime._policy import MailboxOptions, Overflow
from .._carriage import ENGINE, Carriage, carriage_at

if TYPE_CHECKING:
    from .._router import Router
    from ._part import Topics

__all__ = ["TopicWorker", "TopicWorkers"]

_STAYS: Final = Carriage(DestinationKind.TOPIC, rprefs=RoutingPrefs(SCOPE_LOCAL))

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


class TopicWorkers:
    """The workers of the topics that a node publishes.

    Args:
        router: The router.
        worker: Its worker, which starts them.
        topics: The topics of the node.
    """

    __slots__ = ("_of", "_router", "_topics", "_worker")

    def __init__(self, router: Router, worker: Worker, topics: Topics) -> None:
        self._router: Final = router
        self._worker: Final = worker
        self._topics: Final = topics
        self._of: Final[dict[Identity, Address]] = {}

    def start(self, topic: Identity) -> None:
        """Start the worker of a topic."""
        self._of[topic] = self._worker.spawn(
            lambda: TopicWorker(topic, self._publish, self._topics.copy_refused)
        )

    def stop(self, topic: Identity) -> None:
        """Stop the worker of a topic, if there is one."""
        address = self._of.pop(topic, None)
        if address is not None:
            cell = self._worker.node.parts.table.cell_at(address)
            if cell is not None:
                cell.worker.stop()

    def route_to(self, to: Address, topic: Identity, scope: RoutingScope) -> Route:
        """Return what replaces the address of a topic.

        Raises:
            Unresolved: The scope is neither that of the topic nor this node.
        """
        worker = self._of[topic]
        if scope == self._topics.table.scope(topic):
            return (worker,)
        if scope.kind is not ScopeKind.LOCAL:
            # All other nodes see each number, or none.
            raise Unresolved(to, "a publication goes as far as its topic, or stays in its node")
        return worker, _STAYS.address

    def _publish(self, worker: TopicWorker, message: Message) -> None:
        """Publish what has come to the worker of a topic."""
        topics, topic = self._topics, worker.topic
        source, publications = self._router.own_of(message[3]), topics.network.publications
        try:
            rest = message[0][1:]
            envelope = b""
            if carriage_at(rest) is not None:
                rest = rest[1:]  # it stays here
            elif publications.is_active(topic):
                envelope = self._envelope(source, topic, rest, message)
            copies = topics.table.publish(topic, source, None, source)
            if copies.result is not ResultCode.OK:
                raise Unresolved(message[0][0], f"it is not published: {copies.result.name}")
            topics.counts["publications"] += 1
            topics.counts["copies"] += len(copies.subscribers)
            worker.spread(topics.addresses(copies.subscribers), rest, message)
        except OnwardError as error:
            self._router.counts["publications that were refused"] += 1
            worker.node.lose(message, error)
            return
        if envelope:
            publications.publish(topic, envelope)

    def _envelope(self, source: Identity, topic: Identity, rest: Route, message: Message) -> bytes:
        """Return a publication as its source signs it for other nodes."""
        router = self._router
        signed = message._replace(onward_route=(ENGINE, *rest))
        destination = Destination(DestinationKind.TOPIC, topic)
        return router.outgoing.envelope(source, destination, signed, router.own)
