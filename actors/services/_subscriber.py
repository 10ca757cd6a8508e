"""What subscribes to a topic again and again, and hands on what is published."""

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

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["REFRESH", "Subscriber"]

REFRESH: Final = 10.0
"""How long a `Subscriber` or an `Announcer` waits before it tells the service again, in seconds."""


class Subscriber(Worker):
    """Subscribes to a topic, again every ten seconds, and hands on what is published.

    ```python
    await Subscriber.on(node, [link, "pub_sub"], "screen 1", "weather", show)
    node.send([link, "pub_sub_t_weather"], b"rain")
    ```

    Args:
        way: The route to the service.
        name: Of the subscriber; at the service, the same name replaces the one before.
        topic: Of the topic.
        deliver: What is done with a message: called with it, on the loop; or the route it is
            sent on by, with its return route as it is.
        refresh: How long to wait before it subscribes again, in seconds.

    Attributes:
        received: Messages that were published.
        failed: Times it could not subscribe: the way is broken, or the service said no.
        refusal: What the service said last, or `None`.

    Raises:
        ServiceError: One of the names cannot be one.
    """

    def __init__(
        self,
        way: RouteLike,
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
        self._way = way
        self._payload = encode_subscription(name, topic)
        self._deliver = deliver
        self._refresh = refresh

    @classmethod
    async def on(
        cls,
        node: Node,
        way: RouteLike,
        name: str,
        topic: str,
        deliver: RouteLike | Callable[[Message], None],
        *,
        address: AddressLike | None = None,
        **options: Any,
    ) -> Self:
        """Start one on a node.

        Args:
            node: Where.
            way: As for the class.
            name: As for the class.
            topic: As for the class.
            deliver: As for the class.
            address: Its address; a random one by default.
            **options: As for the class.
        """
        subscriber = cls(way, name, topic, deliver, **options)
        await node.start(lambda: subscriber, address=address)
        return subscriber

    def on_start(self) -> None:
        """Subscribe, and again and again."""
        self.every(self._refresh, self._subscribe)
        self._subscribe()

    def _subscribe(self) -> None:
        try:
            self.send(self._way, self._payload)
        except OnwardError:
            self.failed += 1

    def handle_message(self, message: Message) -> None:
        """Hand on what was published."""
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
            self.route(message.redirect(*self.node.route_of(deliver)))
        except OnwardError as error:
            self.node.lose(message, error)
