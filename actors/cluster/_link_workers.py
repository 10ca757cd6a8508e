"""The other ends of a broker's links, by the role of the link."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from ...protocol.cluster import LinkRole
from ._gateways import GatewayWorker, ZoneCaller
from ._peer_worker import PeerWorker

if TYPE_CHECKING:
    from ._peer_connection import PeerConnection

__all__ = ["LinkEnd", "LinkWorkers"]

LinkEnd = PeerWorker | ZoneCaller
"""The other end of a link: a peer broker, or one of another zone."""


class LinkWorkers:
    """The other brokers that there are links with, or were until lately.

    There may be two links with a broker of another zone, one in each direction.

    Attributes:
        mesh: The brokers of the own zone, by id.
        gateways: Those of other zones that this broker has dialled, likewise.
        callers: Those of other zones that have dialled this broker, likewise; only with a link.
    """

    def __init__(self) -> None:
        self.mesh: dict[bytes, PeerWorker] = {}
        self.gateways: dict[bytes, GatewayWorker] = {}
        self.callers: dict[bytes, ZoneCaller] = {}

    def followed(self) -> Iterator[PeerWorker]:
        """Yield those that routes, or groups, are known of."""
        return chain(tuple(self.mesh.values()), tuple(self.gateways.values()))

    def of(self, broker_id: bytes) -> LinkEnd | None:
        """Return the other end of a link with a broker, if there is one; else what there was."""
        ends: list[LinkEnd] = [
            each[broker_id]
            for each in (self.mesh, self.gateways, self.callers)
            if broker_id in each
        ]
        linked = (each for each in ends if each.connection is not None)
        return next(linked, ends[0] if ends else None)

    def with_link(self, connection: PeerConnection) -> LinkEnd | None:
        """Return the other end of a link; `None` if it has another link by now."""
        broker_id = connection.info.broker_id
        by_role: dict[LinkRole, LinkEnd | None] = {
            LinkRole.MESH: self.mesh.get(broker_id),
            LinkRole.TO_ZONE: self.gateways.get(broker_id),
            LinkRole.FROM_ZONE: self.callers.get(broker_id),
        }
        end = by_role[connection.role]
        return end if end is not None and end.connection is connection else None

    def connections(self) -> list[PeerConnection]:
        """Return all links."""
        ends: Iterator[LinkEnd] = chain(self.followed(), tuple(self.callers.values()))
        return [each.connection for each in ends if each.connection is not None]
