"""The broker's limits, each with a name, a unit and a default."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

from ...protocol.broker import parse_key

__all__ = ["BrokerOptions"]


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a broker behaves where the specification leaves a choice.

    Attributes:
        no_route_timeout: How long a request waits for a destination that carries its tags,
            in seconds; then it is REJECTED. 0 rejects at once; `None` waits for `max_wait`. A
            request may say otherwise.
        max_wait: Most seconds that any request waits for a destination, whatever it or
            `no_route_timeout` says; then it is REJECTED.
        max_waiters: Most requests that may wait for a route; one more is REJECTED at once.
        max_waiting_bytes: Most bytes the waiting requests may hold together; a request that
            would exceed it is REJECTED at once.
        max_routes: Most routes in the table; a registration over it is refused.
        max_queries: Most tag queries whose candidates and position are remembered. The
            oldest is forgotten; its round robin starts again. Queries of over 1024 bytes
            are not remembered; they share one position.
        max_mailbox: Most messages waiting for one route; one more is REJECTED.
        tombstone_seconds: How long a removed route is remembered, so that a late update
            cannot revive it.
        latency_decay: After how many seconds without a slower answer an old latency counts no
            more than a third.
        weight_tag: The key of the tag that says a destination's weight, as people write keys.
            The weight is a decimal number of 0 or more; what is none counts as 1.
        max_watchers: Most subscriptions to the broker's events at a time; one more is refused.
        max_events: Events kept for a subscription that does not keep up; then the oldest is
            lost, and the next one says how many were.
        management: Whether the broker answers questions about itself, as the service
            `onward.management`. Whoever can send a request can ask it, and learns the
            services, tags and network addresses of all destinations.

    Raises:
        ValueError: A number is negative, or one that has to be at least 1 is not.
        AddressError: `weight_tag` is no key.
    """

    no_route_timeout: float | None = 5.0
    max_wait: float = 300.0
    max_waiters: int = 10_000
    max_waiting_bytes: int = 64 * 1024 * 1024
    max_routes: int = 1_000_000
    max_queries: int = 10_000
    max_mailbox: int = 10_000
    tombstone_seconds: float = 60.0
    latency_decay: float = 10.0
    weight_tag: str = "weight"
    max_watchers: int = 100
    max_events: int = 1000
    management: bool = True

    def __post_init__(self) -> None:
        for name in ("max_routes", "max_queries", "max_mailbox", "max_watchers", "max_events"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in (
            "no_route_timeout",
            "max_wait",
            "max_waiters",
            "max_waiting_bytes",
            "tombstone_seconds",
        ):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must not be negative, as {value} is")
        if not isfinite(self.max_wait):
            raise ValueError("max_wait must have an end")
        if not 0 < self.latency_decay < inf:
            raise ValueError(f"latency_decay must be more than 0, not {self.latency_decay}")
        parse_key(self.weight_tag)
