"""The other ends of a broker's links, by the role of the link."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from ...protocol.cluster import LinkRefusal, LinkRole
from ._gateways import GatewayWorker, ZoneCaller
from ._peer_worker import PeerWorker

if TYPE_CHECKING:
    from ._peer_connection import PeerConnection

__all__ = ["LinkEnd", "LinkWorkers", "ReplacedLinks"]

REPLACED_FOR: Final = 1.0
"""Least time for which a link stays that another one has replaced, in seconds: the other broker may
not know the new one yet. It is also the time until the link is looked at again."""

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


class ReplacedLinks:
    """Links that others have replaced, as both brokers have dialled at a time.

    The requests that such a link carries go on, and later ones use the other link. There is at
    most one for each peer broker: the link before it is closed with what it carries.

    Args:
        after: Calls a function after a time in seconds.
    """

    def __init__(self, after: Callable[[float, Callable[[], object]], object]) -> None:
        self._after = after
        self._links: dict[PeerConnection, None] = {}

    def add(self, link: PeerConnection, *, at_once: bool) -> None:
        """Add a link, to close it once it carries no requests.

        Args:
            link: The link.
            at_once: Whether the broker that has dialled it has dialled the other one too: it has
                lost this one, which carries nothing any more.
        """
        for earlier in self:
            if earlier.info.broker_id == link.info.broker_id:
                self._close(earlier)
        self._links[link] = None
        if at_once:
            self._close(link)
        else:
            self._after(REPLACED_FOR, lambda: self._close_idle(link))

    def in_flight_of(self, broker_id: bytes) -> int:
        """Return the requests that such links with a broker carry."""
        return sum(link.in_flight for link in self if link.info.broker_id == broker_id)

    def _close_idle(self, link: PeerConnection) -> None:
        if link not in self._links:
            return
        if link.in_flight:
            self._after(REPLACED_FOR, lambda: self._close_idle(link))
        else:
            self._close(link)

    def _close(self, link: PeerConnection) -> None:
        link.close("duplicate", LinkRefusal.DUPLICATE.value)

    def discard(self, link: PeerConnection) -> None:
        """Remove a link that has ended."""
        self._links.pop(link, None)

    def __iter__(self) -> Iterator[PeerConnection]:
        """Iterate over the links that have not ended."""
        return iter(tuple(self._links))
