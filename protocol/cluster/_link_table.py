"""The links of a broker, by what they are for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._info import PeerInfo
from ._limits import ClusterLimits
from ._links import LinkRole, PeerLink

__all__: list[str] = []


class LinkTable:
    """The links of one broker.

    With a broker of its zone there is one link. With one of another zone there may be two, one that
    each of them has dialled.

    Args:
        limits: `max_peers` and `max_gateways` bound the links of each role.
    """

    def __init__(self, limits: ClusterLimits) -> None:
        self._limits = limits
        self._by_role: dict[LinkRole, dict[bytes, PeerLink]] = {role: {} for role in LinkRole}
        self.mesh = self._by_role[LinkRole.MESH]
        self.to_zones = self._by_role[LinkRole.TO_ZONE]
        self.from_zones = self._by_role[LinkRole.FROM_ZONE]

    def __iter__(self) -> Iterator[PeerLink]:
        """Iterate over all links."""
        for links in self._by_role.values():
            yield from links.values()

    def __contains__(self, broker_id: object) -> bool:
        """Whether there is a link with a broker."""
        return any(broker_id in links for links in self._by_role.values())

    def ids(self) -> list[bytes]:
        """Return the ids of the brokers that there are links with, each once."""
        return list(dict.fromkeys(link.info.broker_id for link in self))

    def all_of(self, broker_id: bytes) -> Iterator[PeerLink]:
        """Yield the links with a broker."""
        for links in self._by_role.values():
            if broker_id in links:
                yield links[broker_id]

    def get(self, broker_id: bytes) -> PeerLink | None:
        """Return a link with a broker, that in which lists are compared if there are two."""
        return next(self.all_of(broker_id), None)

    def like(self, made: PeerLink) -> PeerLink | None:
        """Return the link with the same broker that has the same role."""
        return self._by_role[made.role].get(made.info.broker_id)

    def is_full(self, role: LinkRole) -> bool:
        """Whether there are as many links of a role as there may be."""
        most = self._limits.max_peers if role is LinkRole.MESH else self._limits.max_gateways
        return len(self._by_role[role]) >= most

    def put(self, made: PeerLink) -> None:
        """Add a link, in place of one with the same broker and role."""
        self._by_role[made.role][made.info.broker_id] = made

    def remove(self, made: PeerLink) -> None:
        """Remove a link."""
        del self._by_role[made.role][made.info.broker_id]

    def find(self, broker_id: bytes, link: Any) -> PeerLink | None:
        """Return the link with a broker that the caller knows by `link`."""
        return next((each for each in self.all_of(broker_id) if each.link == link), None)

    def known_to_zones(self, by: bytes) -> list[PeerInfo]:
        """Return the brokers of other zones that one of them is told of.

        These are the gateways of this one, and those of its own zone that have dialled this one.
        """
        found = {link.info.broker_id: link.info for link in self.to_zones.values()}
        asking = self.from_zones.get(by)
        for link in self.from_zones.values():
            if asking is not None and link.info.zone == asking.info.zone:
                found[link.info.broker_id] = link.info
        found.pop(by, None)
        return list(found.values())

    def gateways(self) -> dict[str, PeerLink]:
        """Return the link to each zone; one with a broker that drains only if there is no other."""
        found: dict[str, PeerLink] = {}
        for each in self.to_zones.values():
            there = found.get(each.info.zone)
            if there is None or there.info.draining:
                found[each.info.zone] = each
        return found
