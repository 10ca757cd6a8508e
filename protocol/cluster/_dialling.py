"""Which addresses a broker dials, those of its zone and those of others, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from ._addresses import Address, AddressBook
from ._info import PeerInfo
from ._limits import ClusterLimits
from ._link_table import LinkTable
from ._links import LinkRole, role_of
from ._membership_tasks import Dial
from ._zones import Zones

__all__: list[str] = []


class Dialling:
    """The addresses that a broker dials, of its zone and of others.

    Args:
        own: The facts of this broker.
        links: Its links.
        allowed: See `Membership`.
        limits: See `Membership`.
        random: See `Membership`.

    Attributes:
        near: The addresses of the brokers of its zone, and seeds.
        zones: The brokers of other zones.
    """

    def __init__(
        self,
        own: PeerInfo,
        links: LinkTable,
        allowed: Sequence[str],
        limits: ClusterLimits,
        random: Callable[[], float],
    ) -> None:
        self.near = AddressBook(own, allowed, limits, random)
        self.zones = Zones(own, links, allowed, limits, random)
        self._own = own
        self._links = links
        self._limits = limits
        self._books = self.near, self.zones.book

    @property
    def attempts(self) -> int:
        """The number of attempts under way."""
        return sum(book.dialling for book in self._books)

    def replace_own(self, own: PeerInfo) -> None:
        """Receive what this broker says of itself from now on."""
        self._own = own
        for book in self._books:
            book.own = own

    def replace_allowed(self, allowed: Sequence[str]) -> None:
        """Replace the patterns of addresses that may be dialled."""
        for book in self._books:
            book.replace_allowed(allowed)

    def add(self, info: PeerInfo, now: float, *, linked: bool) -> None:
        """Remember the address of a broker, for the own zone or for others."""
        role = role_of(info, self._own, dialled=True)
        if role is LinkRole.MESH:
            self.zones.forget(info.broker_id)
            self.near.add(info, now, linked=linked)
        elif role is LinkRole.TO_ZONE:
            self.zones.learn(info, now, linked=linked)

    def forget(self, info: PeerInfo) -> None:
        """Forget a broker."""
        self.near.drop(info.cluster_uri)
        self.zones.forget(info.broker_id)

    def address_of(self, info: PeerInfo) -> Address | None:
        """Return the address of a broker, if it may be dialled."""
        book = self.zones.book if info.broker_id in self.zones.places else self.near
        return book.get(info.cluster_uri)

    # --- what becomes of an attempt -----------------------------------------------------------

    def reached(self, uri: str, broker_id: bytes, now: float) -> None:
        """Receive the news of which broker is at an address."""
        for book in self._books:
            book.reached(uri, broker_id, now)

    def failed(self, uri: str, cause: str, now: float) -> None:
        """Receive the failure of an attempt."""
        for book in self._books:
            book.failed(uri, cause, now)

    def lost(self, broker_id: bytes, now: float) -> None:
        """Receive the loss of the link with a broker."""
        for book in self._books:
            book.lost(broker_id, now)

    def hasten(self, broker_id: bytes, now: float) -> None:
        """Dial a broker soon, if it is to be dialled."""
        for book in self._books:
            book.hasten(broker_id, now)

    def pause(self, broker_id: bytes, until: float) -> None:
        """Dial a broker no earlier than at a time."""
        for book in self._books:
            book.pause(broker_id, until)

    # --- what is to be done ---------------------------------------------------------------------

    def due(self, now: float) -> Iterator[Dial]:
        """Yield the attempts to begin now."""
        room = self._room()
        for uri, at in list(self._near()):
            if room > 0 and now >= at:
                self.near.dial(uri)
                room -= 1
                yield Dial(uri)
        room = self._zone_room()
        for uri, at in list(self.zones.dialable(now)):
            if room > 0 and now >= at:
                self.zones.dial(uri)
                room -= 1
                yield Dial(uri)

    def get_timer(self) -> float:
        """Return when `due` has to be called next."""
        at = inf
        if self._room() > 0:
            at = min((at for _, at in self._near()), default=at)
        if self._zone_room() > 0:
            at = min(at, min((at for _, at in self.zones.dialable(-inf)), default=at))
        return at

    def _near(self) -> Iterator[tuple[str, float]]:
        """Yield the addresses to dial as brokers of this zone, and when to dial each."""
        return self.near.dialable(self._links.mesh, self.zones.places)

    def _room(self) -> int:
        return self._limits.max_peers - len(self._links.mesh) - self.near.dialling

    def _zone_room(self) -> int:
        return self._limits.max_gateways - len(self._links.to_zones) - self.zones.book.dialling
