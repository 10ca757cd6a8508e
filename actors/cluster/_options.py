"""The options of a broker's cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...protocol.broker import Key
from ...protocol.cluster import ClusterLimits
from ...protocol.options import Count, Seconds, Size, check_options

__all__ = ["ClusterOptions"]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The part that a broker takes in a cluster.

    Attributes:
        seeds: The URIs of brokers that are dialled from the start, and again until there is a link.
        advertise: The URI by which other brokers reach this one, as they are told; empty: only
            brokers that have it as a seed dial it.
        clients: The URI by which clients reach this broker. Clients of all brokers may learn of it
            then; empty: they are not told, and the clients of this one are told of no other.
        allowed_peers: Patterns of URIs of brokers that are dialled when a peer broker has told of
            them: a `*` stands for a part of the host, the port or the path, and alone for all URIs.
            Without one, only seeds are dialled.
        name: The name of this broker for operators of others; at most 127 bytes.
        zone: The name of the zone of this broker; at most 127 bytes. Brokers of one zone are a full
            mesh; of each other zone it dials one. Empty: there is no zone, and a broker of one is
            refused.
        group_keys: The keys of tags, in text form, that name one destination: beside RouteId and
            InstanceName, other zones are not told of them.
        locality: The choice among destinations of this broker and of peer brokers, for unicast:
            `prefer` takes those of this broker while one of them can take the request; `even` takes
            all alike.
        ready_peers: Peer brokers that must have been up at one time since the start before this
            broker counts as ready. Afterwards it does not depend on them, as otherwise all would
            stop to be ready together.
        connect_timeout: Time for an attempt to dial a broker, with the handshakes, in seconds.
        resolve_interval: Time between two look-ups of the names of seeds, in seconds.
        ahead: Most elements of a peer broker's routes that are requested ahead of those loaded.
        load_slice: Most routes that are loaded, or removed, before the loop does other things.
        max_greetings: Most requests of one peer broker, other than forwarded ones, that are served
            at a time; more are REJECTED.
        java_joins: Most own routes that a Java broker is told at a time, without its answer.
        limits: The limits of the cluster's state machines.

    Raises:
        ValueError: A value is out of its range.
    """

    seeds: tuple[str, ...] = ()
    advertise: str = ""
    clients: str = ""
    allowed_peers: tuple[str, ...] = ()
    name: str = ""
    zone: str = ""
    group_keys: tuple[Key, ...] = ()
    locality: Literal["prefer", "even"] = "prefer"
    ready_peers: Size = 0
    connect_timeout: Seconds = 5.0
    resolve_interval: Seconds = 30.0
    ahead: Count = 16
    load_slice: Count = 500
    max_greetings: Count = 16
    java_joins: Count = 32
    limits: ClusterLimits = field(default_factory=ClusterLimits)

    def __post_init__(self) -> None:
        check_options(self)
