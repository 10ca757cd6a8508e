"""What the services may use: plain values, each with a name, a unit and a default."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.options import Count, Seconds, check_options
from ...protocol.services import RELAY_PREFIX, TOPIC_PREFIX

__all__ = ["DiscoveryOptions", "PubSubOptions", "RelayServiceOptions"]


@dataclass(frozen=True, slots=True)
class RelayServiceOptions:
    """What a relay service may use.

    Attributes:
        prefix: What the addresses of static relays begin with; the alias follows.
        max_relays: Relays at a time. A registration beyond that is refused.
        expire_after: How long a relay is kept that nothing passes and nobody registers again, in
            seconds. One whose way goes on over a connection (TCP, WebSocket, Unix socket) is kept
            as long as that, unless another leads to the same; and is gone with it at once.
        takeover: Whether who registers an alias gets it also when it leads elsewhere so far.
            If not, the one who has it keeps it until the relay is gone.

    Raises:
        ValueError: The limit is less than 1, or the time not more than 0.
    """

    prefix: str = RELAY_PREFIX
    max_relays: Count = 1000
    expire_after: Seconds = 600.0
    takeover: bool = True

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class PubSubOptions:
    """What a publish/subscribe service may use.

    Attributes:
        prefix: What the addresses of topics begin with; `_` and the topic's name follow.
        max_topics: Topics at a time. A subscription to one more is refused.
        max_subscribers: Subscribers of one topic. One more is refused.
        expire_after: How long a subscription lasts that is not made again, in seconds:
            by default, three times as long as a `Subscriber` waits.
        max_failures: Messages in a row that a subscriber may fail to take; then its
            subscription is over.

    Raises:
        ValueError: A limit is less than 1, or the time not more than 0.
    """

    prefix: str = TOPIC_PREFIX
    max_topics: Count = 1000
    max_subscribers: Count = 1000
    expire_after: Seconds = 30.0
    max_failures: Count = 10

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """What a discovery service may use.

    Attributes:
        max_services: Services known at a time. One more is refused.
        max_listed: Services in the answer to a request for all; those known for longest come
            first, and the rest is left out.
        expire_after: How long a service is known that is not announced again, in seconds:
            by default, three times as long as an `Announcer` waits.
        takeover: Whether who announces a name gets it also when it leads elsewhere so far.
            If not, the one who has it keeps it until it expires or its link stops.

    Raises:
        ValueError: A limit is less than 1, or the time not more than 0.
    """

    max_services: Count = 10_000
    max_listed: Count = 1000
    expire_after: Seconds = 30.0
    takeover: bool = False

    def __post_init__(self) -> None:
        check_options(self)
