"""What is known of the topics of a node, for people and programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...protocol.identity import Identity, ResultCode, RoutingScope

__all__ = ["SubscriberHooks", "TopicReport"]


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A topic of a node, at one moment.

    Attributes:
        topic: The topic.
        creator: The engine here that created it; the node itself for its own; `None` if another
            node publishes it.
        scope: How far it goes.
        node: The node that publishes it; `None` if it is this one.
        subscribers: Engines here that are subscribed.
        nodes: Other nodes that are subscribed, in the order of their subscriptions.
        published: Events that have gone to other nodes, or have come from the one that publishes.
        lost: Events of the node that publishes that were missed for good.
        dropped: Events that were dropped, and those that were asked for and not sent, by the
            reason; none with a count of 0.
    """

    topic: Identity
    creator: Identity | None
    scope: RoutingScope
    node: Identity | None
    subscribers: int
    nodes: tuple[Identity, ...]
    published: int
    lost: int
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SubscriberHooks:
    """The functions that are called for a subscriber of a topic.

    All of them are called on the node's loop, and their exceptions are logged.

    Attributes:
        on_lost: Receives the number of events that were missed for good; `None` as the number if
            that is not known, as the node that publishes has started anew.
        on_end: Receives the reason when the topic is gone, as its last call.
    """

    on_lost: Callable[[int | None], object] | None = None
    on_end: Callable[[ResultCode], object] | None = None
