"""What is known of the topics of a node, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol.identity import Identity, RoutingScope

__all__ = ["TopicReport"]


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
