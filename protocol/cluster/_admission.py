"""Which links a broker keeps, and which it refuses."""

from __future__ import annotations

from ._info import CLUSTER_VERSION, PeerInfo
from ._known import KnownBrokers
from ._link_table import LinkTable
from ._links import LinkRefusal, LinkRole, PeerLink, preferred, role_of
from ._zones import Zones

__all__: list[str] = []


class Admission:
    """The decision on a link on which the other broker has said what it is.

    Args:
        links: The links of this broker.
        known: The brokers that it knows.
        zones: The brokers of other zones.
    """

    def __init__(self, links: LinkTable, known: KnownBrokers, zones: Zones) -> None:
        self._links = links
        self._known = known
        self._zones = zones

    def refusal(self, made: PeerLink, own: PeerInfo, now: float) -> LinkRefusal | None:
        """Return why a link is refused; `None` if it is kept.

        Args:
            made: The link.
            own: The facts of this broker.
            now: The time.
        """
        info = made.info
        if info.broker_id == own.broker_id:
            same = info.instance == own.instance
            return LinkRefusal.SELF if same else LinkRefusal.OWN_ID
        if info.version not in ("", CLUSTER_VERSION):
            return LinkRefusal.VERSION
        if role_of(info, own, dialled=made.dialled is not None) is None:
            return LinkRefusal.ZONE
        known = self._known.get(info.broker_id)
        if known is not None and now < known.paused_until:
            return LinkRefusal.PAUSED
        if any(each.info.instance != info.instance for each in self._links.all_of(info.broker_id)):
            return LinkRefusal.TWIN
        there = self._links.like(made)
        if there is not None:
            kept = preferred(made, there, own.broker_id)
            return None if kept else LinkRefusal.DUPLICATE
        beside = self._gateway_beside(made)
        if beside is not None:
            kept = not info.draining and self._zones.is_better(info, beside.info)
            return None if kept else LinkRefusal.GATEWAY
        return LinkRefusal.FULL if self._links.is_full(made.role) else None

    def replaced(self, made: PeerLink) -> PeerLink | None:
        """Return the link that one which is kept takes the place of; `None` if it takes none."""
        return self._links.like(made) or self._gateway_beside(made)

    def _gateway_beside(self, made: PeerLink) -> PeerLink | None:
        """Return the link to the zone of a new one, which takes requests still."""
        if made.role is not LinkRole.TO_ZONE:
            return None
        there = self._links.gateways().get(made.info.zone)
        return None if there is None or there.info.draining else there
