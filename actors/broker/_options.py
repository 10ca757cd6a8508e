"""The broker's options, each with a name, a unit and a default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ...protocol.broker import LATENCY_DECAY, MAX_STICKY, Balancer, Sharding, parse_key
from ...protocol.options import Count, Seconds, SecondsOrZero, Size, check_options

__all__ = ["BrokerOptions", "ChoiceOptions", "DrainOptions", "MulticastOptions", "WaitingOptions"]


def _none() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class WaitingOptions:
    """The limits of requests that wait for a destination.

    Attributes:
        no_route_timeout: How long a request waits for a destination that carries its tags, in
            seconds; then it is REJECTED. 0 rejects at once; `None` waits for `max_wait`. A request
            may ask for another time.
        max_wait: Most seconds that any request waits for a destination; then it is REJECTED.
        max_messages: Most requests that may wait for a route; one more is REJECTED at once. A
            source (the address of a peer, the /64 network for IPv6, the user of a Unix socket) may
            have no more waiting requests than there are free places. Nor may a query, except for
            sources with less than their part of the free places. So one source or one query alone
            gets half of the places.
        max_bytes: Most bytes that the waiting requests may hold together, with fragments that
            arrive while they wait; a request that would exceed it is REJECTED at once. So is a
            request with which its source would hold more than is free.
        max_messages_per_peer: Most waiting requests of one connection; one more is REJECTED at
            once. When a connection ends, its waiting requests without an answer are REJECTED as
            well.
        max_bytes_per_peer: Most bytes that the waiting requests of one connection may hold
            together; a request that would exceed it is REJECTED at once.

    Raises:
        ValueError: A number is below 0.
    """

    no_route_timeout: SecondsOrZero | None = 5.0
    max_wait: SecondsOrZero = 300.0
    max_messages: Size = 10_000
    max_bytes: Size = 64 * 1024 * 1024
    max_messages_per_peer: Size = 5_000
    max_bytes_per_peer: Size = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class ChoiceOptions:
    """The methods that choose a destination among several, and their limits.

    Attributes:
        method: The method for unicast requests that name no method, or an unknown one:
            `round-robin`, `random`, `least-outstanding`, `peak-ewma`, `weighted`, or a plug-in.
        shard_method: The same for shard requests: `rendezvous`, `jump`, `bounded-ring`, `modulo`,
            or a plug-in.
        balancers: Your own methods for unicast, by name: functions that make a method for each
            query.
        shard_methods: Your own methods for shard, by name.
        max_sticky: Most sticky keys with a remembered destination. At the limit the keys of the
            query least recently used are forgotten; with a single query, the key least recently
            used.
        max_placed: Most destinations in all placements kept for shard queries. At the limit the
            placement least recently used is forgotten, and prepared anew on its next use.
        latency_decay: Seconds without a slower answer after which an old latency counts no more
            than a third.
        weight_tag: The key, in text form, of the tag with a destination's weight. The weight is a
            decimal number of 0 or more; any other value counts as 1.

    Raises:
        ValueError: A number is below its minimum of 0 or 1.
        AddressError: `weight_tag` is not a key.
    """

    method: str = "round-robin"
    shard_method: str = "rendezvous"
    balancers: Mapping[str, Callable[[], Balancer]] = field(default_factory=_none)
    shard_methods: Mapping[str, Callable[[], Sharding]] = field(default_factory=_none)
    max_sticky: Count = MAX_STICKY
    max_placed: Size = 1_000_000
    latency_decay: Seconds = LATENCY_DECAY
    weight_tag: str = "weight"

    def __post_init__(self) -> None:
        check_options(self)
        parse_key(self.weight_tag)


@dataclass(frozen=True, slots=True)
class MulticastOptions:
    """The limits of multicast requests.

    Attributes:
        on_leave: The effect of a destination that leaves before it has answered a multicast in
            full: `quiet` goes on with the others, `error` ends the multicast CANCELED.
        window: Most elements that a destination of a multicast may be ahead of the requester, and,
            in a channel, the requester of the slowest destination.
        max_held: Most bytes of responses held for one multicast; then it is CANCELED. Each
            destination gets credit for its share, by the size of its largest element so far, and
            for one element at least: one element of each destination must fit. Also most bytes of
            the requester's elements held for slow destinations; then the slowest counts as gone.
            Also most bytes of unread copies of large frames; further copies wait. Copies not read
            at all for 0.2 s no longer count here.
        max_held_total: Most bytes held for all multicasts together. A multicast that would exceed
            it is CANCELED; copies of large frames wait. The copies for one source of requesters may
            not take more than is free.
        patience: How long, in seconds, a destination of a multicast may hold up the others or leave
            held elements unread; then it counts as gone.

    Raises:
        ValueError: A number is below its minimum of 0 or 1.
    """

    on_leave: Literal["quiet", "error"] = "quiet"
    window: Count = 32
    max_held: Size = 16 * 1024 * 1024
    max_held_total: Size = 256 * 1024 * 1024
    patience: SecondsOrZero = 5.0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """The times of a drain, in which the connections of a broker end before it stops.

    Attributes:
        grace: Seconds in which connections are still accepted, as balancers learn late of a broker
            that drains. A broker without connections does not wait.
        spread: Seconds after the grace in which the connections begin to end, each at a random
            moment: requesters in the first half, destinations in the second.
        timeout: Seconds from the start after which waiting requests are REJECTED, other open
            streams CANCELED, and all connections closed.

    Raises:
        ValueError: A number is below 0.
    """

    grace: SecondsOrZero = 5.0
    spread: SecondsOrZero = 20.0
    timeout: SecondsOrZero = 60.0

    def __post_init__(self) -> None:
        check_options(self)

    def within(self, seconds: float) -> DrainOptions:
        """Return the times of a drain that takes no longer than a number of seconds."""
        return DrainOptions(
            min(self.grace, 0.2 * seconds),
            min(self.spread, 0.4 * seconds),
            min(self.timeout, seconds),
        )


_WAITING: Final = WaitingOptions()
_CHOICE: Final = ChoiceOptions()
_MULTICAST: Final = MulticastOptions()
_DRAIN: Final = DrainOptions()


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Limits and choices of a broker that the specification leaves open.

    Attributes:
        waiting: The limits of requests that wait for a destination.
        choice: The methods that choose a destination among several.
        multicast: The limits of multicast requests.
        drain: The times of a drain that names no others.
        max_routes: Most routes of this broker in the table, expected ones included. A registration
            beyond it is refused, or takes the place of an expected destination.
        max_peer_routes: Most routes of peer brokers in the table, all together, and most suspended
            sessions that they tell of. A route beyond it is not added: this broker sends it no
            requests. Of a session beyond it another principal may register the route id here. When
            there is room again, all are asked for anew, after five minutes at the earliest.
        max_groups: Most groups of other zones, all together. A group beyond it is not added: this
            broker sends it no requests. When there is room again, as with `max_peer_routes`.
        expected_seconds: How long destinations loaded from a table are expected, in seconds; then
            they are forgotten. While one that carries its tags is expected, a request waits for
            `WaitingOptions.max_wait` and not for `no_route_timeout`.
        max_services: Most services with counts of their own. A further one takes the place of the
            service that has been without a destination for the longest time, or counts as `other`.
            Of those that have had no request, only the last 256 without a destination are kept.
        max_queries: Most tag queries with remembered candidates and position. The oldest is
            forgotten; its round robin starts again. Queries of over 1024 bytes are not remembered;
            they share one position.
        max_mailbox: Most messages waiting for one route, or for the tag index or a forwarder; one
            more is REJECTED.
        tombstone_seconds: How long a removed route is remembered, in seconds, so that a late update
            cannot revive it.
        max_watchers: Most subscriptions to the broker's events at a time; one more is refused.
            Through the management service one connection may have half as many, plus 8.
        max_events: Most events kept for a slow subscription; then the oldest is lost, and the next
            event carries the number of lost ones.
        max_reports: Most listeners and other parts that report figures to the broker at a time; one
            more is refused, and a refused listener cannot listen.
        management: Whether the broker has the management service `onward.management`. Without
            authorization every requester can use it, and learns the services, tags and network
            addresses of all destinations.
        express_path: Whether a connection hands a request to its destination without a message, as
            long as no message waits on the way. Otherwise each request passes the mailboxes of the
            tag index, a forwarder and a route: slower, and visible hop by hop.

    Raises:
        ValueError: A number is below its minimum of 0 or 1.
    """

    waiting: WaitingOptions = _WAITING
    choice: ChoiceOptions = _CHOICE
    multicast: MulticastOptions = _MULTICAST
    drain: DrainOptions = _DRAIN
    max_routes: Count = 1_000_000
    max_peer_routes: Count = 1_000_000
    max_groups: Count = 400_000
    max_services: Count = 10_000
    max_queries: Count = 10_000
    max_mailbox: Count = 10_000
    tombstone_seconds: SecondsOrZero = 60.0
    expected_seconds: SecondsOrZero = 600.0
    max_watchers: Count = 100
    max_events: Count = 1000
    max_reports: Count = 1000
    management: bool = True
    express_path: bool = True

    def __post_init__(self) -> None:
        check_options(self)
