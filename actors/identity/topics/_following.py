"""A topic of another node that is followed here, and what happens to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol as Interface

from ....protocol.identity import Event, Identity, ResultCode, Subscription, TopicAdvert
from ._waiting_subscriptions import WaitingSubscription

__all__ = ["Following", "FollowingEvents"]


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
