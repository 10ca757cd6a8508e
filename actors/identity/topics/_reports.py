"""What is known of the topics of a node, for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ....protocol.identity import (
    Identity,
    PublicationCounters,
    RoutingScope,
    SubscriptionCounters,
)

__all__ = ["TopicReport", "TopicStatistics", "came", "sent"]


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
class TopicStatistics:
    """The topics of a node, at one moment.

    Attributes:
        created: Topics that are created here, with that of the router itself.
        followed: Topics of other nodes.
        subscribers: Engines here that are subscribed, once for each topic.
        nodes: Other nodes that are subscribed, once for each topic.
        waiting: Subscriptions that wait until their topic is found and taken.
        events: What became of publications and events since the start, by the names that the page
            of the workers has; topics that are gone are included.
    """

    created: int
    followed: int
    subscribers: int
    nodes: int
    waiting: int
    events: Mapping[str, int]


def sent(counters: PublicationCounters) -> Counter[str]:
    """Return what became of the events that a node publishes to others."""
    return Counter(
        published=counters.published,
        sent_again=counters.resent,
        not_sent_again=counters.withheld,
        not_kept=counters.passed,
        asked_by_strangers=counters.strangers,
    )


def came(counters: SubscriptionCounters) -> Counter[str]:
    """Return what became of the events that came from the node that publishes."""
    return Counter(
        delivered=counters.delivered,
        lost=counters.lost,
        asked_again=counters.resends,
        repeated=counters.duplicates,
        foreign=counters.foreign,
        unexpected=counters.unexpected,
        not_held=counters.overflowed,
        restarts=counters.restarts,
        absences=counters.absences,
    )
