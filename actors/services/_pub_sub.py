"""Publish and subscribe: a topic is a worker that sends each message to all its subscribers.

```
subscriber ──"screen 1:weather"──▶ pub_sub          starts the topic, stores the return route
publisher ──[pub_sub_t_weather]──▶ topic ──▶ each of the stored routes
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ...protocol import (
    Address,
    AddressInUse,
    AddressLike,
    Message,
    OnwardError,
    Route,
    UnknownAddress,
)
from ...protocol.options import check_value
from ...protocol.services import ServiceError, decode_subscription, named_address
from .._worker import Worker
from ..routing._given import several
from ._options import PubSubOptions
from ._service import Service

if TYPE_CHECKING:
    from ..access import AccessControl

__all__ = ["PubSubService", "Topic", "TopicSubscription"]

_OPTIONS: Final = PubSubOptions()


class TopicSubscription:
    """One subscriber of a topic.

    Attributes:
        route: The route to the subscriber.
        until: When the subscription expires, in seconds of the loop's clock.
        sent: Messages sent to it.
        failed: Messages that could not be sent to it.
        failures: Failed messages since the last that was sent.
    """

    __slots__ = ("failed", "failures", "route", "sent", "until")

    def __init__(self, route: Route, until: float) -> None:
        self.route = route
        self.until = until
        self.sent = 0
        self.failed = 0
        self.failures = 0


class Topic(Worker):
    """A worker that sends its messages to each subscriber, and adds nothing to the return route.

    A message that cannot be sent to a subscriber becomes a dead letter and is counted. It does not
    delay the other subscribers.

    Args:
        max_failures: Failures in a row that end a subscription.
        empty: Called when the last subscriber is gone.

    Attributes:
        subscriptions: The subscriptions by subscriber name, the oldest first.
        published: Messages published.
        dropped: Subscriptions ended because of failures.
    """

    def __init__(self, max_failures: int, empty: Callable[[Topic], None]) -> None:
        super().__init__()
        self.subscriptions: dict[str, TopicSubscription] = {}
        self.published = 0
        self.dropped = 0
        self._max_failures = max_failures
        self._empty = empty

    def handle_message(self, message: Message) -> None:
        """Send a message to all subscribers."""
        self.published += 1
        gone = [name for name, each in self.subscriptions.items() if not self._send(message, each)]
        for name in gone:
            self.dropped += 1
            del self.subscriptions[name]
        if gone and not self.subscriptions:
            self._empty(self)

    def _send(self, message: Message, subscription: TopicSubscription) -> bool:
        """Send a message to one subscriber; return whether it stays subscribed."""
        try:
            self._route_now(message.redirect(*subscription.route))
        except OnwardError as error:
            self.node.dead_letter(message, error)
            subscription.failed += 1
            subscription.failures += 1
            # A link or a worker that is gone does not come back: the subscriber subscribes anew.
            gone = isinstance(error, UnknownAddress)
            return not gone and subscription.failures < self._max_failures
        subscription.sent += 1
        subscription.failures = 0
        return True


class PubSubService(Service):
    """Ockam's `pub_sub`: a service that registers subscribers and starts topics.

    It takes `name:topic` as a BARE string and does not answer. The return route leads to the
    subscriber; the same name again replaces it. A subscription expires unless it is repeated.

    ```python
    service = PubSubService(expose_at=[listener.address])
    await node.start(lambda: service, address="pub_sub")
    ```

    Args:
        expose_at: The listeners and links through which the topics can be published to.
        allow: The access control of subscriptions; all are permitted by default.
        options: Its limits and times.
    """

    def __init__(
        self,
        *,
        expose_at: Iterable[AddressLike] = (),
        allow: AccessControl | None = None,
        options: PubSubOptions = _OPTIONS,
    ) -> None:
        check_value("options", options, PubSubOptions)
        super().__init__(allow, options.expire_after)
        self._options = options
        self._expose_at = several("expose_at", expose_at)
        self._topics: dict[Address, Topic] = {}

    @property
    def topics(self) -> dict[Address, Topic]:
        """The topics by their addresses."""
        return dict(self._topics)

    def _handle(self, message: Message) -> None:
        name, wanted = decode_subscription(message.payload)
        address = named_address(self._options.prefix, f"_{wanted}")
        if message.return_route[0] in self._topics:
            raise ServiceError("a return route that begins with a topic")
        topic = self._topics.get(address) or self._make(address)
        subscriptions = topic.subscriptions
        before = subscriptions.pop(name, None)
        if before is None and len(subscriptions) >= self._options.max_subscribers:
            raise ServiceError("too many subscribers")
        until = self._now() + self._expire_after
        if before is None or before.route != message.return_route:
            before = TopicSubscription(message.return_route, until)
        before.until = until
        subscriptions[name] = before

    def _make(self, address: Address) -> Topic:
        if len(self._topics) >= self._options.max_topics:
            raise ServiceError("too many topics")
        topic = Topic(self._options.max_failures, self._remove)
        try:
            self.spawn(lambda: topic, address=address)
        except AddressInUse:
            raise ServiceError("the address of the topic is in use") from None
        try:
            for each in self._expose_at:
                self.node.expose(each, address)
        except OnwardError:
            topic.stop()
            raise ServiceError("the topic cannot be exposed") from None
        self._topics[address] = topic
        return topic

    def _remove(self, topic: Topic) -> None:
        del self._topics[topic.address]
        topic.stop()

    def _sweep(self) -> None:
        now = self._now()
        for topic in list(self._topics.values()):
            subscriptions = topic.subscriptions
            # The subscriptions renewed last are at the end.
            for name, each in list(subscriptions.items()):
                if each.until > now:
                    break
                del subscriptions[name]
                self.expired += 1
            if not subscriptions:
                self._remove(topic)

    def on_stop(self) -> None:
        """Forget the topics; they have stopped already."""
        self._topics.clear()
