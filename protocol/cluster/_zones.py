"""The brokers of other zones, and which of them a broker dials.

A broker has one link to each other zone. Which broker of the zone it dials is decided by a hash of
both ids: so the brokers of a zone spread over those of another one. If the first by the hash cannot
be reached, drains or is paused, the next one is dialled. A link that holds is kept although a
better one has come up since, as a new link costs the groups and the filter of the zone. There is
one exception: the first broker of a zone that becomes known tells of the others, and all would stay
with it. So the first broker by the hash is tried once when that list has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

from ._addresses import Address, AddressBook
from ._info import PeerInfo
from ._limits import ClusterLimits
from ._link_table import LinkTable

__all__: list[str] = []


class Zones:
    """The brokers of other zones.

    Args:
        own: The facts of this broker.
        links: Its links.
        allowed: See `Membership`.
        limits: See `Membership`.
        random: See `Membership`.

    Attributes:
        book: The addresses of these brokers.
        places: The zone of each, by its id.
    """

    def __init__(
        self,
        own: PeerInfo,
        links: LinkTable,
        allowed: Sequence[str],
        limits: ClusterLimits,
        random: Callable[[], float],
    ) -> None:
        self.book = AddressBook(own, allowed, limits, random)
        self.places: dict[bytes, str] = {}
        self._links = links
        self._limits = limits
        self._ranks: dict[bytes, bytes] = {}
        # The brokers of each zone, the first by the hash first.
        self._brokers: dict[str, dict[bytes, PeerInfo]] = {}
        # The broker of a zone to try once although there is a link.
        self._better: dict[str, bytes] = {}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the zones of which a broker is known."""
        return iter(self._brokers)

    def learn(self, info: PeerInfo, now: float, *, linked: bool) -> None:
        """Remember a broker of another zone."""
        broker_id, zone = info.broker_id, info.zone
        if self.places.get(broker_id, zone) != zone:
            self.forget(broker_id)
        brokers = self._brokers.setdefault(zone, {})
        new = broker_id not in brokers
        brokers[broker_id] = info
        if new:
            self.places[broker_id] = zone
            self._ranks[broker_id] = self._rank(broker_id)
            ranked = sorted(brokers, key=self._ranks.__getitem__)
            self._brokers[zone] = {each: brokers[each] for each in ranked}
        self.book.add(info, now, linked=linked)

    def _rank(self, broker_id: bytes) -> bytes:
        return blake2b(self.book.own.broker_id + broker_id, digest_size=8).digest()

    def forget(self, broker_id: bytes) -> None:
        """Forget a broker, if it is known."""
        zone = self.places.pop(broker_id, None)
        if zone is None:
            return
        del self._ranks[broker_id]
        brokers = self._brokers[zone]
        self.book.drop(brokers.pop(broker_id).cluster_uri)
        if self._better.get(zone) == broker_id:
            del self._better[zone]
        if not brokers:
            del self._brokers[zone]

    def is_better(self, info: PeerInfo, than: PeerInfo) -> bool:
        """Whether a link to a broker replaces that to another one of its zone, which holds."""
        return self._rank(info.broker_id) < self._rank(than.broker_id)

    def listed(self, zone: str, now: float) -> None:
        """Prepare to try the first broker by the hash, as a list of the zone has come."""
        there = self._links.gateways()[zone].info.broker_id
        suited = (
            broker_id
            for broker_id, info in self._brokers.get(zone, {}).items()
            if broker_id == there or self._may_try(info, now)
        )
        first = next(suited, there)
        if first != there:
            self._better[zone] = first

    def _may_try(self, info: PeerInfo, now: float) -> bool:
        address = self._address(info)
        if address is None or address.dialling or info.draining or now < address.paused_until:
            return False
        # One that has just become known may have to wait, and has failed in nothing.
        return not address.failures or address.at <= now

    def _address(self, info: PeerInfo) -> Address | None:
        """Return the address of a broker, if it may be dialled."""
        address = self.book.get(info.cluster_uri)
        return None if address is None or address.broker_id != info.broker_id else address

    def dialable(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield for each zone to which a link is missing the address to dial, and when.

        Args:
            now: The time: of the addresses that may be dialled then, the first by the hash is
                meant. `-inf`: the one that may be dialled first is.
        """
        held = self._links.gateways()
        for zone, brokers in self._brokers.items():
            there = held.get(zone)
            if there is not None and not there.info.draining:
                yield from self._to_try(zone)
                continue
            wanted = list(self._candidates(brokers, others=there is not None))
            if wanted and not any(address.dialling for _, address in wanted):
                uri, address = min(wanted, key=lambda each: self._order(each[1], now))
                yield uri, max(address.at, address.paused_until)

    def _to_try(self, zone: str) -> Iterator[tuple[str, float]]:
        """Yield the broker of a zone to try although there is a link, if it may be dialled."""
        info = self._brokers[zone].get(self._better.get(zone, b""))
        address = None if info is None else self._address(info)
        if info is not None and address is not None and not address.dialling:
            yield info.cluster_uri, max(address.at, address.paused_until)

    def _order(self, address: Address, now: float) -> tuple[float, bool]:
        """Return by what an address comes before others that the hash places behind it."""
        # Of those that have failed lately, each is tried before one is tried again.
        failed = address.failures > 0 and now < address.at + self._limits.longest_retry
        return max(address.at, address.paused_until, now), failed

    def dial(self, uri: str) -> None:
        """Begin an attempt."""
        self.book.dial(uri)
        self._better = {
            zone: broker_id
            for zone, broker_id in self._better.items()
            if self._brokers[zone][broker_id].cluster_uri != uri
        }

    def _candidates(
        self, brokers: dict[bytes, PeerInfo], *, others: bool
    ) -> Iterator[tuple[str, Address]]:
        """Yield the brokers to choose from, those that drain last, and only if there is no link."""
        for draining in (False,) if others else (False, True):
            for info in brokers.values():
                address = self._address(info)
                if info.draining is draining and address is not None:
                    yield info.cluster_uri, address
