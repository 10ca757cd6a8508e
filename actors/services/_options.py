"""Options of the services: plain values, each with a name, a unit and a default."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.options import Count, Seconds, check_options
from ...protocol.services import RELAY_PREFIX, TOPIC_PREFIX

__all__ = [
    "DiscoveryOptions",
    "PubSubOptions",
    "RelayServiceOptions",
    "RemoteWatchOptions",
    "WatchServiceOptions",
]


@dataclass(frozen=True, slots=True)
class RelayServiceOptions:
    """Options of a relay service.

    Attributes:
        prefix: The start of the addresses of static relays; the alias follows.
        max_relays: Relays at a time. A registration beyond that is refused.
        expire_after: The time after which an unused relay expires if it is not registered again, in
            seconds. A relay over a connection (TCP, WebSocket, Unix socket) does not expire, unless
            another one has the same route; it ends with the connection.
        takeover: Whether a registration replaces an alias with a different route. If not, the
            alias keeps its route until the relay is gone.

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
    """Options of a publish/subscribe service.

    Attributes:
        prefix: The start of the addresses of topics; `_` and the topic's name follow.
        max_topics: Topics at a time. A subscription to one more is refused.
        max_subscribers: Subscribers of one topic. One more is refused.
        expire_after: The time after which a subscription expires if it is not repeated, in
            seconds: by default, three times the interval of a `Subscriber`.
        max_failures: Messages in a row that cannot be sent to a subscriber before its
            subscription ends.

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
    """Options of a discovery service.

    Attributes:
        max_services: Entries at a time. One more is refused.
        max_listed: Entries in the answer to a request for all. The oldest come first, and the
            rest is left out.
        expire_after: The time after which an entry expires if it is not announced again, in
            seconds: by default, three times the interval of an `Announcer`.
        takeover: Whether an announcement replaces an entry with a different route. If not, the
            entry keeps its route until it expires or its link stops.

    Raises:
        ValueError: A limit is less than 1, or the time not more than 0.
    """

    max_services: Count = 10_000
    max_listed: Count = 1000
    expire_after: Seconds = 30.0
    takeover: bool = False

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class WatchServiceOptions:
    """Options of a service that reports the end of workers.

    Attributes:
        max_watches: Watches at a time. The watches of one link are no more than the free ones. One
            more is answered `TOO_MANY`, and its `RemoteWatch` asks again.
        expire_after: The time after which a watch expires if it is not renewed, in seconds: by
            default, six times the interval of a `RemoteWatch`.

    Raises:
        ValueError: The limit is less than 1, or the time not more than 0.
    """

    max_watches: Count = 1000
    expire_after: Seconds = 30.0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class RemoteWatchOptions:
    """Options of a watch for the end of a worker of another node.

    Attributes:
        interval: The time between two requests to the other node, in seconds.
        timeout: The time without an answer after which the watch ends, in seconds.

    Raises:
        ValueError: A time is not more than 0.
    """

    interval: Seconds = 5.0
    timeout: Seconds = 15.0

    def __post_init__(self) -> None:
        check_options(self)
