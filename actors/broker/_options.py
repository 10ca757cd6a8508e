"""The broker's limits, each with a name, a unit and a default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...protocol.broker import LATENCY_DECAY, MAX_STICKY, Balancer, Sharding, parse_key
from ...protocol.options import Count, Seconds, SecondsOrZero, Size, check_options

__all__ = ["BrokerOptions"]


def _none() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a broker behaves where the specification leaves a choice.

    Attributes:
        no_route_timeout: How long a request waits for a destination that carries its tags,
            in seconds; then it is REJECTED. 0 rejects at once; `None` waits for `max_wait`. A
            request may say otherwise.
        max_wait: Most seconds that any request waits for a destination, whatever it or
            `no_route_timeout` says; then it is REJECTED.
        max_waiters: Most requests that may wait for a route; one more is REJECTED at once. So is
            one from a source (the address of a peer, the /64 network for IPv6, the user of a Unix
            socket) of which more wait than there are places free, and one for tags that more wait
            for than that, unless its source has less than its part of what is free: either alone
            gets half of the places.
        max_waiting_bytes: Most bytes the waiting requests may hold together, with fragments that
            come while they wait; a request that would exceed it is REJECTED at once. So is one
            whose source would hold more than is free.
        max_waiters_per_peer: Most of them that come from one connection; one more is REJECTED at
            once. When a connection ends, those that no answer is due for are REJECTED as well.
        max_waiting_bytes_per_peer: Most bytes that those of one connection may hold together; a
            request that would exceed it is REJECTED at once.
        max_routes: Most routes in the table, those that are expected included; a registration over
            it is refused, unless there is one that is only expected: that is forgotten.
        expected_seconds: How long destinations that were there before are expected, in seconds;
            then they are forgotten. While one that carries its tags is expected, a request waits
            for `max_wait` and not for `no_route_timeout`.
        max_queries: Most tag queries whose candidates and position are remembered. The
            oldest is forgotten; its round robin starts again. Queries of over 1024 bytes
            are not remembered; they share one position.
        max_mailbox: Most messages waiting for one route; one more is REJECTED.
        tombstone_seconds: How long a removed route is remembered, so that a late update
            cannot revive it.
        method: What chooses among several destinations for a unicast request that names no
            method, or one that nobody knows: `round-robin`, `random`, `least-outstanding`,
            `peak-ewma`, `weighted`, or a plug-in.
        shard_method: The same for a shard request: `rendezvous`, `jump`, `bounded-ring`,
            `modulo`, or a plug-in.
        balancers: Methods for unicast of your own, by name: what makes one for each query.
        shard_methods: Methods for shard of your own, by name.
        max_sticky: Keys of sticky requests for which a destination is remembered, all together.
            At the limit those of the query not asked for longest are forgotten; or, if there
            is but one query, the key not used for longest.
        max_placed: Destinations in what is prepared for shard queries and kept, all together.
            At the limit that of the query not asked for longest is prepared anew when it is.
        multicast_on_leave: What becomes of a multicast when a destination leaves before it has
            answered in full: `quiet` goes on with the others, `error` ends it CANCELED.
        multicast_window: Most elements that a destination of a multicast may be ahead of the
            requester, and the requester of the slowest destination in a channel.
        max_held: Most bytes of answers held for one multicast because of that; then it is
            CANCELED. Each destination is given credit for its share of them, by the largest
            element it has sent, and for one element at least: so as many elements as there are
            destinations must fit. And most bytes of the requester's elements held for slow
            destinations; then the slowest counts as gone. And most bytes of copies of large
            frames that destinations have not read; the next copies wait. Those of which nothing
            has been read for 0.2 s no longer count here.
        max_held_total: Most bytes held for all multicasts together. The one that would exceed
            it is CANCELED; copies of large frames wait. No source of requesters may have more of
            it in such copies than is free.
        multicast_patience: How long, in seconds, a destination of a multicast may hold up the
            others, or not read what is held for it; then it counts as gone.
        latency_decay: After how many seconds without a slower answer an old latency counts no
            more than a third.
        weight_tag: The key of the tag that says a destination's weight, as people write keys.
            The weight is a decimal number of 0 or more; what is none counts as 1.
        max_watchers: Most subscriptions to the broker's events at a time; one more is refused.
            One connection may have half as many, and 8, in hand of the management service.
        max_events: Events kept for a subscription that does not keep up; then the oldest is
            lost, and the next one says how many were.
        max_reports: Most listeners, and others, that tell the broker about themselves at a time;
            one more is refused, and so cannot listen.
        management: Whether the broker answers questions about itself, as the service
            `onward.management`. Whoever can send a request can ask it, and learns the
            services, tags and network addresses of all destinations.

    Raises:
        ValueError: A number is negative, or one that has to be at least 1 is not.
        AddressError: `weight_tag` is no key.
    """

    no_route_timeout: SecondsOrZero | None = 5.0
    max_wait: SecondsOrZero = 300.0
    max_waiters: Size = 10_000
    max_waiting_bytes: Size = 64 * 1024 * 1024
    max_waiters_per_peer: Size = 5_000
    max_waiting_bytes_per_peer: Size = 32 * 1024 * 1024
    max_routes: Count = 1_000_000
    max_queries: Count = 10_000
    max_mailbox: Count = 10_000
    tombstone_seconds: SecondsOrZero = 60.0
    expected_seconds: SecondsOrZero = 600.0
    method: str = "round-robin"
    shard_method: str = "rendezvous"
    balancers: Mapping[str, Callable[[], Balancer]] = field(default_factory=_none)
    shard_methods: Mapping[str, Callable[[], Sharding]] = field(default_factory=_none)
    max_sticky: Count = MAX_STICKY
    max_placed: Size = 1_000_000
    multicast_on_leave: Literal["quiet", "error"] = "quiet"
    multicast_window: Count = 32
    max_held: Size = 16 * 1024 * 1024
    max_held_total: Size = 256 * 1024 * 1024
    multicast_patience: SecondsOrZero = 5.0
    latency_decay: Seconds = LATENCY_DECAY
    weight_tag: str = "weight"
    max_watchers: Count = 100
    max_events: Count = 1000
    max_reports: Count = 1000
    management: bool = True

    def __post_init__(self) -> None:
        check_options(self)
        parse_key(self.weight_tag)
