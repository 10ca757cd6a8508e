"""A cluster as it shows itself: its brokers, its figures and its limits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Final

from ...protocol import counted
from ...protocol.broker import format_id
from ...protocol.cluster import (
    OWNERS,
    KnownBroker,
    LinkRefusal,
    Membership,
    PeerInfo,
    PresenceState,
    RouteGroupsStatistics,
    RouteLog,
    RoutePlace,
    standing,
    zone_ids,
)
from .._worker import Worker
from ..broker import Broker, LimitUse
from ._duplicate_routes import DuplicateRoutes
from ._link_workers import LinkEnd, LinkWorkers, ReplacedLinks
from ._options import ClusterOptions
from ._own_zone import OwnZone
from ._statistics import KNOWN, ClusterStatistics, PeerStatistics, ZoneStatistics, stranger

__all__ = ["ClusterInspection"]

NOT_ALLOWED: Final = "its URI is neither a seed nor allowed"


class ClusterInspection(Worker):
    """The state of a cluster that can be looked at; see `Cluster`.

    Args:
        broker: The broker.
        options: The options.

    Attributes:
        options: The options.
        membership: The brokers that are known.
        links: The other ends of the links.
        log: The log of the broker's own routes.
    """

    has_flows: ClassVar[bool] = False
    membership: Membership  # once it is started

    def __init__(self, broker: Broker, options: ClusterOptions) -> None:
        super().__init__()
        self.options = options
        self._broker = broker
        now = int(time.time() * 1000)
        self._own = PeerInfo(
            broker.broker_id.bytes,
            now,
            cluster_uri=options.advertise,
            instance=now,
            zone=options.zone,
            without=options.group_keys,
            name=options.name,
            max_batch=options.limits.max_batch,
            owners=OWNERS,
        )
        self.log = RouteLog(broker.broker_id.bytes, now, options.limits)
        self.links = LinkWorkers()
        self._replaced = ReplacedLinks(self.after)
        self._zone: OwnZone | None = None
        self._duplicates: DuplicateRoutes | None = None
        self._lost: Counter[str] = Counter()
        self._failed = 0
        self._was_ready = False

    def peers(self) -> list[PeerStatistics]:
        """Return the other brokers that are known, those known for the longest time first."""
        rows: dict[bytes, PeerStatistics] = {}
        for known in self._shown():
            broker_id = known.info.broker_id
            reported = "" if known.reported_by is None else self._name_of(known.reported_by)
            worker = self.links.of(broker_id)
            if worker is None:
                cause = known.cause or (NOT_ALLOWED if known.dials_at is None else "")
                row = stranger(known.info.cluster_uri, cause, reported, known.info)
                if self._needs_no_link(known.info):
                    row = replace(row, state=KNOWN, reason="")
                rows[broker_id] = row
            else:
                row = self._row(broker_id, worker)
                rows[broker_id] = row if known.linked else replace(row, reported_by=reported)
        seeds = [stranger(uri, cause) for uri, cause in self.membership.unreached()]
        return [*rows.values(), *seeds]

    def _needs_no_link(self, info: PeerInfo) -> bool:
        """Whether a broker is of another zone that there is a link to."""
        zone = info.zone
        return zone != self._own.zone and self.membership.gateway(zone) is not None

    def _row(self, broker_id: bytes, end: LinkEnd) -> PeerStatistics:
        """Return the row of a broker, of all links with it.

        There are two if it is of another zone, and one more until a replaced one has ended.
        """
        row, caller = end.statistics(), self.links.callers.get(broker_id)
        row = replace(row, in_flight=row.in_flight + self._replaced.in_flight_of(broker_id))
        if caller is None or caller is end:
            return row
        other = caller.statistics()
        role = "both ways" if row.role else other.role
        return replace(row, in_flight=row.in_flight + other.in_flight, role=role)

    def _shown(self) -> Iterator[KnownBroker]:
        """Yield the other brokers, without those that another one has taken the place of.

        A broker that is started anew has another id, and the same URI.
        """
        known = list(self.membership.brokers())
        taken = {each.info.cluster_uri for each in known if each.linked}
        for each in known:
            if each.linked or each.info.cluster_uri not in taken or not each.info.cluster_uri:
                yield each

    def zones(self) -> list[ZoneStatistics]:
        """Return the other zones that requests can go to."""
        used = self._broker.index.zones.zones()
        found = (self.links.gateways.get(peer.broker_id) for peer in used.values())
        return [gateway.zone_statistics() for gateway in found if gateway is not None]

    def zone_groups(self) -> RouteGroupsStatistics | None:
        """Return the groups that this broker tells other zones; `None` without a zone."""
        return None if self._zone is None else self._zone.groups.statistics()

    def _name_of(self, broker_id: bytes) -> str:
        worker = self.links.of(broker_id)
        return format_id(broker_id) if worker is None else worker.label

    def not_ready(self) -> str:
        """Return why the broker is not ready yet; an empty text once it was."""
        wanted = self.options.ready_peers
        if not self._was_ready:
            up = sum(each.presence.state is PresenceState.UP for each in self.links.mesh.values())
            self._was_ready = up >= wanted
            if not self._was_ready:
                return f"{up} of {counted(wanted, 'peer broker')} known"
        return ""

    def every_route(self) -> list[bytes]:
        """Return the ids of all routes of the zone, with rules those of suspended sessions, too.

        Those that this broker expects are among them, also without rules: a zone that asks for such
        an id is told that no route has it.
        """
        index = self._broker.index
        if not index.ruled:
            return list(index.table.ids)
        return zone_ids(index.table.ids, index.suspended, index.suspended_elsewhere)

    def place_of(self, route_id: bytes) -> RoutePlace | None:
        """Return where a route of the zone is registered; `None` if the zone does not have it."""
        places = self._broker.index.places_of(route_id)
        return standing(places) if places else None

    def statistics(self) -> ClusterStatistics:
        """Return the figures of the cluster at this moment."""
        figures, log = self.membership.statistics(), self.log.statistics()
        states = Counter({str(state): 0 for state in PresenceState})
        states.update(row.state for row in self.peers())
        return ClusterStatistics(
            broker_id=str(self._broker.broker_id),
            instance=self._own.instance,
            advertise=self._own.cluster_uri,
            sequence=log.sequence,
            changes=log.changes,
            change_bytes=log.change_bytes,
            peers=dict(states),
            lost=dict(self._lost),
            refused={each.name.lower(): count for each, count in figures.refused.items()},
            failed=self._failed,
        )

    def limits(self) -> Iterator[LimitUse]:
        """Yield the limits of the cluster, and how much of each is used."""
        limits, figures = self.options.limits, self.membership.statistics()
        full = figures.refused.get(LinkRefusal.FULL, 0)
        yield LimitUse("cluster.max_peers", figures.links, limits.max_peers, full)
        most = max(figures.to_zones, figures.from_zones)
        yield LimitUse("cluster.max_gateways", most, limits.max_gateways, full)
        yield LimitUse("cluster.max_known", figures.known, limits.max_known, figures.ignored)
        groups = self.zone_groups()
        if groups is not None:
            used, reached = groups.separate, groups.reached
            yield LimitUse("cluster.max_groups", used, limits.max_groups, reached)
        if self._duplicates is not None:
            search = self._duplicates.search.statistics(self.node.loop.time())
            most = limits.duplicate_ids * max(1, figures.to_zones)
            yield LimitUse("cluster.duplicate_ids", search.waiting, most, search.dropped)
            most_held = limits.duplicate_hold
            yield LimitUse("cluster.duplicate_hold", search.oldest, most_held, search.overdue)
            yield LimitUse("cluster.taken_ids", search.taken, limits.taken_ids, search.forgotten)
