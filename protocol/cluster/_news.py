"""What a broker has to tell its peer brokers of others."""

from __future__ import annotations

from collections.abc import Iterator

from ._info import PeerInfo
from ._link_table import LinkTable
from ._membership_tasks import Tell

__all__: list[str] = []


class News:
    """The news of one broker: which peer broker is told of what, in the order it became known.

    What is told is what there is when it is told. News of a broker without a link is none.

    Args:
        links: The links of this broker.

    Attributes:
        told: Number of news that were told.
    """

    def __init__(self, links: LinkTable) -> None:
        self.told = 0
        self._links = links
        # Peer broker and broker.
        self._waiting: dict[tuple[bytes, bytes], None] = {}

    @property
    def waiting(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._waiting)

    def add(self, peer: bytes, broker_id: bytes) -> None:
        """Prepare to tell a peer broker of a broker."""
        if peer != broker_id:
            self._waiting[peer, broker_id] = None

    def tell_all_of(self, broker_id: bytes) -> None:
        """Prepare to tell all peer brokers of a broker."""
        for peer in self._links.ids():
            self.add(peer, broker_id)

    def tell_zone_of(self, broker_id: bytes) -> None:
        """Prepare to tell the peer brokers of this zone of a broker."""
        for peer in self._links.mesh:
            self.add(peer, broker_id)

    def tell_followers_of(self, info: PeerInfo, *, first: bool) -> None:
        """Prepare to tell brokers of other zones that have dialled this one of another such broker.

        Those of its zone may not know it yet. Others are told of the first one of a zone.
        """
        for peer, link in self._links.from_zones.items():
            if first or link.info.zone == info.zone:
                self.add(peer, info.broker_id)

    def tell_all_to(self, peer: bytes) -> None:
        """Prepare to tell a peer broker of all others of this zone."""
        for broker_id in self._links.mesh:
            self.add(peer, broker_id)

    def tell_zones_to(self, peer: bytes) -> None:
        """Prepare to tell a peer broker of one broker of each other zone, as it may know none."""
        for broker_id in self._links.to_zones:
            self.add(peer, broker_id)

    def drop(self, peer: bytes) -> None:
        """Forget what a peer broker was to be told: there is no link any longer."""
        self._waiting = {key: None for key in self._waiting if key[0] != peer}

    def tells(self, own: PeerInfo) -> Iterator[Tell]:
        """Yield what is to be told, each once for a timestamp.

        Args:
            own: The facts of this broker.
        """
        waiting, self._waiting = self._waiting, {}
        for peer, broker_id in waiting:
            link, about = self._links.get(peer), self._links.get(broker_id)
            info = own if broker_id == own.broker_id else about.info if about else None
            if not (link and info) or link.told.get(broker_id, 0) >= info.timestamp:
                continue
            link.told[broker_id] = info.timestamp
            self.told += 1
            yield Tell(peer, info)
