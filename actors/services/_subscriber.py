"""A worker that keeps a subscription to a topic and hands on the published messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

from ...protocol import (
    AddressLike,
    ErrorReply,
    Message,
    OnwardError,
    RouteLike,
    is_error_reply,
    read_error_reply,
)
from ...protocol.services import encode_subscription
from .._worker import Worker
from ..routing._given import as_route

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["REFRESH", "Subscriber"]

REFRESH: Final = 10.0
"""Default interval of a `Subscriber` or an `Announcer` between two requests, in seconds."""


class Subscriber(Worker):
    """A worker that subscribes to a topic every ten seconds and hands on the published messages.

    ```python
    await Subscriber.on(node, [link, "pub_sub"], "screen 1", "weather", show)
    node.send([link, "pub_sub_t_weather"], b"rain")
    ```

    Args:
        route: The route to the service.
        name: The name of the subscriber; at the service, the same name replaces the one before.
        topic: The name of the topic.
        deliver: A function called with each message, on the loop; or a route along which it is
            sent with its return route unchanged.
        refresh: The time between two subscriptions, in seconds.

    Attributes:
        received: Messages that were published.
        failed: Subscriptions that failed: the route is broken, or the service refused.
        refusal: The latest refusal of the service, or `None`.

    Raises:
        ServiceError: One of the names is not valid.
    """

    def __init__(
        self,
        route: RouteLike,
        name: str,
        topic: str,
        deliver: RouteLike | Callable[[Message], None],
        *,
        refresh: float = REFRESH,
    ) -> None:
        super().__init__()
        self.received = 0
        self.failed = 0
        self.refusal: ErrorReply | None = None
        self._route = route
        self._payload = encode_subscription(name, topic)
        self._deliver = deliver
        self._refresh = refresh

    @classmethod
    async def on(
        cls,
        node: Node,
        route: RouteLike,
        name: str,
        topic: str,
        deliver: RouteLike | Callable[[Message], None],
        *,
        address: AddressLike | None = None,
        **options: Any,
    ) -> Self:
        """Start a subscriber on a node.

        Args:
            node: The node.
            route: As for the class.
            name: As for the class.
            topic: As for the class.
            deliver: As for the class.
            address: Its address; a random one by default.
            **options: As for the class.
        """
        subscriber = cls(route, name, topic, deliver, **options)
        await node.start(lambda: subscriber, address=address)
        return subscriber

    def on_start(self) -> None:
        """Subscribe, and repeat it."""
        self.every(self._refresh, self._subscribe)
        self._subscribe()

    def _subscribe(self) -> None:
        try:
            self.send(self._route, self._payload)
        except OnwardError:
            self.failed += 1

    def handle_message(self, message: Message) -> None:
        """Hand on a published message."""
        if is_error_reply(message):
            self.failed += 1
            self.refusal = read_error_reply(message)
            return
        self.received += 1
        deliver = self._deliver
        if callable(deliver):
            deliver(message)
            return
        try:
            self.route(message.redirect(*as_route(deliver)))
        except OnwardError as error:
            self.node.lose(message, error)
