"""The metrics of a broker's cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ...protocol.metrics import Metric
from ..broker._tally import RequestTally
from ..cluster import Cluster
from ._broker_metrics import ended_requests
from ._metrics import counter, gauge

__all__ = ["CLUSTER_FAMILIES", "cluster_metrics"]

_PEERS = gauge(
    "peers", "Other brokers of the cluster that are known, by state.", "state", across="process"
)
_ROUTES = gauge("peer_routes", "Routes of a peer broker in the table.", "peer", across="process")
_SUSPENDED = gauge(
    "peer_suspended_sessions",
    "Suspended sessions that a peer broker has told of, for which their route ids are kept.",
    "peer",
    across="process",
)
_ROUND_TRIP = gauge(
    "peer_rtt_seconds", "The round trip of the link to a peer broker.", "peer", across="process"
)
_LAG = gauge(
    "peer_sync_lag_seconds",
    "How long the routes of a peer broker may have been behind what it has told, or would have.",
    "peer",
    across="process",
)
_UNSENT = gauge(
    "peer_unsent_changes",
    "Changes of own routes that a peer broker has not been sent, or a Java broker not answered.",
    "peer",
    across="process",
)
_IN_FLIGHT = gauge(
    "peer_requests_in_progress",
    "Requests over the link to a peer broker, either way.",
    "peer",
    across="process",
)
_ZONE_GROUPS = gauge("zone_groups", "Groups of another zone that are known.", "zone")
_ZONE_ROUTES = gauge("zone_routes", "Routes that the groups of another zone stand for.", "zone")
_ZONE_FOLDED = gauge(
    "zone_groups_folded",
    "Groups of another zone into which others of their service are folded.",
    "zone",
)
_OWN_GROUPS = gauge(
    "own_zone_groups",
    "Groups of the own zone: told to other zones, folded into others, or not told.",
    "state",
)
_FILTER_AGE = gauge(
    "zone_filter_age_seconds", "The time since a filter of another zone's route ids came.", "zone"
)
_LOST = counter("peer_links_lost", "Links to peer brokers that were lost.", "reason")
_REFUSED = counter("peers_refused", "Brokers and links that were refused.", "reason")
_UNLOADED = counter("peer_routes_refused", "Routes of peer brokers that were not loaded.", "reason")
_SERVED = counter(
    "forwarded_requests_ended",
    "Requests that peer brokers have forwarded to this one and that have ended. They count them in "
    "onward_requests_ended_total.",
    "interaction",
    "outcome",
)
_FAILED = counter("peer_dials_failed", "Failed attempts to connect to another broker.")

CLUSTER_FAMILIES: Final = (
    _PEERS,
    _ROUTES,
    _SUSPENDED,
    _ROUND_TRIP,
    _LAG,
    _UNSENT,
    _IN_FLIGHT,
    _ZONE_GROUPS,
    _ZONE_ROUTES,
    _ZONE_FOLDED,
    _OWN_GROUPS,
    _FILTER_AGE,
    _LOST,
    _REFUSED,
    _UNLOADED,
    _SERVED,
    _FAILED,
)


def cluster_metrics(cluster: Cluster, forwarded: RequestTally) -> Iterator[Metric | None]:
    """Yield the metrics of a cluster. A peer broker without a name has the start of its id.

    Args:
        cluster: The cluster.
        forwarded: The counts of the requests that peer brokers have forwarded to this one.
    """
    figures = cluster.statistics()
    yield Metric(_PEERS, tuple(((state,), count) for state, count in figures.peers.items()))
    rows = [row for row in cluster.peers() if row.broker_id]
    names: dict[str, None] = {}
    for row in rows:
        name = row.name or row.broker_id[:8]
        names[row.broker_id if name in names else name] = None
    named = list(zip(names, rows, strict=True))
    yield Metric(_ROUTES, tuple(((name,), row.routes) for name, row in named))
    yield Metric(_SUSPENDED, tuple(((name,), row.suspended) for name, row in named))
    yield Metric(_ROUND_TRIP, tuple(((name,), row.round_trip) for name, row in named))
    yield Metric(_LAG, tuple(((name,), row.behind) for name, row in named))
    yield Metric(_UNSENT, tuple(((name,), row.unsent) for name, row in named))
    yield Metric(_IN_FLIGHT, tuple(((name,), row.in_flight) for name, row in named))
    zones = cluster.zones()
    yield Metric(_ZONE_GROUPS, tuple(((row.zone,), row.groups) for row in zones))
    yield Metric(_ZONE_ROUTES, tuple(((row.zone,), row.routes) for row in zones))
    yield Metric(_ZONE_FOLDED, tuple(((row.zone,), row.folded) for row in zones))
    own = cluster.zone_groups()
    if own is not None:
        states = {"told": own.groups, "folded": own.folded, "untold": own.untold}
        yield Metric(_OWN_GROUPS, tuple(((state,), count) for state, count in states.items()))
    ages = ((row.zone, row.filter_age) for row in zones)
    yield Metric(_FILTER_AGE, tuple(((zone,), age) for zone, age in ages if age is not None))
    unloaded: Counter[str] = Counter()
    for row in rows:
        unloaded.update(row.refused)
    for family, counts in (
        (_LOST, figures.lost),
        (_REFUSED, figures.refused),
        (_UNLOADED, unloaded),
    ):
        yield Metric(family, tuple(((reason,), count) for reason, count in sorted(counts.items())))
    yield Metric(_SERVED, ended_requests(forwarded))
    yield Metric(_FAILED, (((), figures.failed),))
