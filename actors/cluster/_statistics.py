"""The figures of a cluster, as a broker sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...protocol.broker import format_id
from ...protocol.cluster import PeerInfo, PresenceState

__all__ = ["KNOWN", "ClusterStatistics", "PeerStatistics", "ZoneStatistics", "stranger"]


KNOWN: Final = "known"
"""The state of a broker of another zone without a link, as there is one to that zone."""


@dataclass(frozen=True, slots=True)
class PeerStatistics:
    """Another broker of the cluster, as this one sees it.

    Attributes:
        broker_id: Its id, as text; empty for a seed that has not been reached.
        name: Its name; empty if it has none.
        uri: The URI at which it is dialled; empty if it is not known.
        peer: The network address of the link; empty without one.
        state: Its state, as `onward peers` shows it.
        draining: Whether it drains.
        instance: The time at which it was started, in milliseconds since the Unix epoch; 0 if it is
            not known.
        dialled: Whether this broker has dialled the link.
        round_trip: The round trip of the link, in seconds; 0 if it is not known yet.
        routes: Its routes in the table.
        sequence: The number of its last change that is loaded.
        behind: The time by which its routes may be behind, in seconds.
        unsent: The changes of this broker's routes that it has not been sent; of a Java broker
            also those that it has not answered.
        in_flight: The forwarded requests that have not ended, either way, over all links with it:
            one that another has replaced stays until its requests have ended.
        since: The time since which it is in its state, in seconds since the Unix epoch.
        reason: Why the link was lost last, or why it cannot be had; empty if neither.
        reported_by: A broker that has told of it, if this one cannot reach it; else empty.
        losses: The number of links lost since the start.
        java: Whether it is a Java broker: routes that it had before the link are not known.
        refused: Its routes that were not loaded since the start, by reason.
        zone: Its zone; empty for none.
        role: What the link is for, as `LinkRole` says it; of two links to another zone it is
            `both ways`. Empty without a link.
        groups: The groups of its zone that are known by it; its routes are those that they stand
            for.
        folded: Those of them into which others of the same service are folded: its zone has more
            than it may tell.
        suspended: The suspended sessions that it has told of: their route ids are kept for their
            owners, and they are no routes.
    """

    broker_id: str
    name: str
    uri: str
    peer: str
    state: str
    draining: bool
    instance: int
    dialled: bool
    round_trip: float
    routes: int
    sequence: int
    behind: float
    unsent: int
    in_flight: int
    since: float
    reason: str
    reported_by: str = ""
    losses: int = 0
    java: bool = False
    refused: dict[str, int] = field(default_factory=dict[str, int])
    zone: str = ""
    role: str = ""
    groups: int = 0
    folded: int = 0
    suspended: int = 0


@dataclass(frozen=True, slots=True)
class ZoneStatistics:
    """Another zone, as a broker sees it.

    Attributes:
        zone: Its name.
        broker: The broker of it that requests go to: its name, or its id.
        groups: The groups that are known.
        routes: The routes that they stand for.
        folded: The groups into which others of the same service are folded.
        filter_age: The time since a filter of its route ids came, in seconds; `None` before.
    """

    zone: str
    broker: str
    groups: int
    routes: int
    folded: int
    filter_age: float | None


@dataclass(frozen=True, slots=True)
class ClusterStatistics:
    """The cluster as a whole, as a broker sees it.

    Attributes:
        broker_id: The id of this broker, as text.
        instance: The time at which it was started, in milliseconds since the Unix epoch.
        advertise: The URI by which others reach it; empty if none is told.
        sequence: The number of the last change of its own routes.
        changes: The changes that are kept for peer brokers that are behind.
        change_bytes: The bytes of these changes.
        peers: The number of known brokers by state.
        lost: The links lost since the start, by reason.
        refused: The brokers, or links, refused since the start, by reason.
        failed: The attempts to dial a broker that have failed since the start.
    """

    broker_id: str
    instance: int
    advertise: str
    sequence: int
    changes: int
    change_bytes: int
    peers: dict[str, int]
    lost: dict[str, int]
    refused: dict[str, int]
    failed: int


def stranger(
    uri: str, cause: str, reported_by: str = "", info: PeerInfo | None = None
) -> PeerStatistics:
    """Return the row of a broker that there was no link with."""
    return PeerStatistics(
        broker_id="" if info is None else format_id(info.broker_id),
        name="" if info is None else info.name,
        uri=uri,
        peer="",
        state=str(PresenceState.CONNECTING),
        draining=False,
        instance=0 if info is None else info.instance,
        dialled=False,
        round_trip=0.0,
        routes=0,
        sequence=0,
        behind=0.0,
        unsent=0,
        in_flight=0,
        since=0.0,
        reason=cause,
        reported_by=reported_by,
        zone="" if info is None else info.zone,
    )
