"""The subscriptions of engines to topics of other nodes: those that wait, and those that are taken.

One waits until its topic is found, and its node has taken it. From then on the topic is followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol as Interface

from ....protocol.identity import (
    Event,
    Identity,
    ResultCode,
    RoutingScope,
    Subscription,
    TopicAdvert,
)
from .._engines import Engine
from ._reports import came
from ._subscriber_hooks import SubscriberHooks

__all__ = [
    "PATIENCE",
    "FollowedTopics",
    "Following",
    "FollowingEvents",
    "WaitingSubscription",
    "WaitingSubscriptions",
]

PATIENCE: Final = 30.0
"""Time that a subscription waits at most until its topic is found and taken, in seconds. Then its
result is `UNKNOWN` if the topic is found nowhere, and `TIMEOUT` if its node cannot be reached."""
_MOST_WAITING: Final = 1024
"""Most subscriptions that wait. Beyond: a further one is refused as `OVERFLOW`."""


@dataclass(slots=True)
class WaitingSubscription:
    """A subscription that waits.

    Attributes:
        engine: The engine.
        scope: How far the topic may be.
        hooks: What is called for the subscriber.
        done: Receives the result.
        until: The time until which it waits, in seconds of the loop.
    """

    engine: Engine
    scope: RoutingScope
    hooks: SubscriberHooks
    done: Callable[[ResultCode], object]
    until: float


class WaitingSubscriptions:
    """The subscriptions that wait, by their topics."""

    __slots__ = ("_count", "_of")

    def __init__(self) -> None:
        self._of: Final[dict[Identity, list[WaitingSubscription]]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return self._count

    def __contains__(self, topic: object) -> bool:
        return topic in self._of

    def __iter__(self) -> Iterator[Identity]:
        """Return the topics that subscriptions wait for."""
        return iter(tuple(self._of))

    def of(self, topic: Identity) -> tuple[WaitingSubscription, ...]:
        """Return the subscriptions that wait for a topic."""
        return tuple(self._of.get(topic, ()))

    def add(self, topic: Identity, waiting: WaitingSubscription) -> ResultCode:
        """Add a subscription that waits; return `OK`, or why it does not wait."""
        there = self._of.get(topic, ())
        if any(each.engine.identity == waiting.engine.identity for each in there):
            return ResultCode.ALREADY_SUBSCRIBED
        if self._count >= _MOST_WAITING:
            return ResultCode.OVERFLOW
        self._of.setdefault(topic, []).append(waiting)
        self._count += 1
        return ResultCode.OK

    def take(self, topic: Identity) -> list[WaitingSubscription]:
        """Return the subscriptions that wait for a topic; they wait no longer."""
        found = self._of.pop(topic, [])
        self._count -= len(found)
        return found

    def settle(
        self, topic: Identity, result: Callable[[WaitingSubscription], ResultCode | None]
    ) -> None:
        """End the subscriptions that wait for a topic and have a result."""
        found = self.take(topic)
        ended = [(each, code) for each in found if (code := result(each)) is not None]
        left = [each for each in found if all(each is not one for one, _ in ended)]
        if left:
            self._of[topic] = left
            self._count += len(left)
        for each, code in ended:
            each.done(code)

    def get_timer(self) -> float | None:
        """Return until when the one waits that waits shortest, in seconds; `None` without any."""
        return min((each[0].until for each in self._of.values()), default=None)

    def late(self, now: float) -> list[Identity]:
        """Return the topics that a subscription has waited for as long as it may."""
        return [topic for topic, each in self._of.items() if each[0].until <= now]


@dataclass(slots=True, eq=False)
class Following:
    """A topic of another node.

    Attributes:
        topic: The topic.
        node: The node that publishes it.
        advert: Its advert.
        subscription: The subscriber's end.
        is_taken: Whether the node has taken the subscription, so that engines here have it.
    """

    topic: Identity
    node: Identity
    advert: TopicAdvert
    subscription: Subscription = field(init=False)
    is_taken: bool = False

    def __post_init__(self) -> None:
        self.subscription = Subscription(self.topic, self.node)

    @property
    def publisher(self) -> Identity | None:
        """The publisher by which it is found."""
        return self.advert.publishers[0] if self.advert.publishers else None


class FollowedTopics:
    """The topics of other nodes that are followed, or asked for: each at one node."""

    __slots__ = ("_at", "_ended", "_of")

    def __init__(self) -> None:
        self._of: Final[dict[Identity, Following]] = {}
        self._at: Final[dict[Identity, dict[Identity, Following]]] = {}
        self._ended: Final = Counter[str]()

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, topic: object) -> bool:
        return topic in self._of

    def __iter__(self) -> Iterator[Following]:
        return iter(tuple(self._of.values()))

    def find(self, topic: Identity) -> Following | None:
        """Return a topic; `None` if it is not followed."""
        return self._of.get(topic)

    def find_at(self, node: Identity, topic: Identity) -> Following | None:
        """Return a topic of a node; `None` if it is not followed there."""
        return self._at.get(node, {}).get(topic)

    def at(self, node: Identity) -> tuple[Following, ...]:
        """Return the topics of a node."""
        return tuple(self._at.get(node, {}).values())

    def is_any_at(self, node: Identity) -> bool:
        """Whether a node publishes one of the topics."""
        return node in self._at

    def add(self, following: Following) -> None:
        """Add a topic, in the place of the same one at another node."""
        self._of[following.topic] = following
        self._at.setdefault(following.node, {})[following.topic] = following

    def remove(self, following: Following) -> None:
        """Remove a topic, unless there is another in its place."""
        if self._of.get(following.topic) is following:
            del self._of[following.topic]
            self._ended.update(came(following.subscription.counters))
        at = self._at.get(following.node, {})
        if at.get(following.topic) is following:
            del at[following.topic]
        if not at:
            self._at.pop(following.node, None)

    def events(self) -> Counter[str]:
        """Return what became of events since the start; see `TopicStatistics`."""
        found = Counter(self._ended)
        for each in self._of.values():
            found.update(came(each.subscription.counters))
        return found


class FollowingEvents(Interface):
    """Events of the topics of other nodes, for the part of the router."""

    def taken(self, following: Following, waiting: list[WaitingSubscription]) -> bool:
        """Receive a topic that its node lets this one have; return whether an engine has it."""
        ...

    def delivered(self, following: Following, event: Event) -> None:
        """Receive an event, in its turn."""

    def lost(self, following: Following, number: int | None) -> None:
        """Receive the number of events that were missed for good; `None` if it is not known."""

    def changed(self, following: Following) -> None:
        """Receive another advert of a topic."""

    def gone(self, following: Following, reason: ResultCode) -> None:
        """Receive the end of a topic that engines here have."""
