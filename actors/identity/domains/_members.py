"""The members of domains, as the directory says, and what waits until one of them has a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ....protocol import Message
from ....protocol.identity import (
    AdvertKind,
    Destination,
    DestinationKind,
    DomainAdvert,
    DomainTable,
    HasMembers,
    Identity,
    IdentityUpdated,
    Reliability,
    Target,
    read_advert,
)
from ..._errors import Unresolved
from ...routing._pending import Pending
from .._parking import Parking

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["DomainMembers"]

_MOST_WANTED: Final = 3
"""Most members of a domain that are looked up at a time."""


class DomainMembers:
    """The members of domains, as far as the node uses them.

    Args:
        router: The router.
        random: Returns a random number.
        max_parked: Most messages that wait for one domain.

    Attributes:
        table: The members.
        on_advert: Receives each domain with an advert that has changed.
    """

    __slots__ = ("_alive", "_parked", "_random", "_router", "on_advert", "table")

    def __init__(self, router: Router, random: Callable[[], int], max_parked: int) -> None:
        self.table: Final = DomainTable()
        self.on_advert: Callable[[Identity], object] = lambda _: None
        self._router: Final = router
        self._random: Final = random
        self._alive: Final[set[Identity]] = set()
        self._parked: Final = Parking(max_parked)
        router.directory.on_update.append(self._updated)
        router.directory.on_lost.append(self._updates_lost)

    def has(self, domain: Identity, node: Identity) -> bool:
        """Whether a node is known as a member of a domain."""
        return node in (self.table.members(domain) or ())

    def learn(self, domain: Identity) -> bool:
        """Learn the members of a domain from the directory; return whether they are known."""
        router = self._router
        record = router.directory.lookup(domain)
        if record is None or record.advert is None or router.table.is_banned(domain):
            return False
        route = router.table.route(Destination(DestinationKind.DOMAIN, domain))
        if route is None or self.table.members(domain) is None:
            advert = read_advert(record.advert).advert
            if not isinstance(advert, DomainAdvert):
                return False
            self._set(advert)
        return True

    def _set(self, advert: DomainAdvert) -> None:
        self.table.update(advert)
        destination = Destination(DestinationKind.DOMAIN, advert.identity)
        self._router.table.update(destination, HasMembers(frozenset(advert.nodes)))

    def _forget(self, domain: Identity) -> None:
        self.table.remove(domain)
        if not self._router.table.is_banned(domain):
            self._router.table.update(Destination(DestinationKind.DOMAIN, domain), None)

    def _updated(self, update: IdentityUpdated) -> None:
        identity, record = update.identity, update.record
        advert = None if record is None else record.advert
        if advert is not None and advert.kind is AdvertKind.DOMAIN:
            if self.table.members(identity) is not None:
                self.table.remove(identity)
                self.learn(identity)
            self.resume(identity)
            self.on_advert(identity)
        elif self.table.members(identity) is not None:
            self._forget(identity)
        elif advert is not None and advert.kind is AdvertKind.NODE:
            self._member_found(identity)

    def _updates_lost(self, _: int) -> None:
        for domain in self.table.domains():
            self._forget(domain)
            self.learn(domain)
            self.resume(domain)

    # --- what waits ---------------------------------------------------------------------------

    def without_link(self, domain: Identity, message: Message, target: Target) -> Pending | None:
        """Return what a message waits for if no member has a link; `None` if one has.

        Some members are looked up meanwhile. The first one with a link takes what waits.

        Raises:
            Unresolved: There is no member, as many wait as may, or the message does not wait.
        """
        own, to = self._router.own, message[0][0]
        members = [each for each in self.table.members(domain) or () if each != own]
        if not members:
            raise Unresolved(to, "the domain has no other member")
        if not self._alive.isdisjoint(members):
            return None
        if target.tprefs is not None and target.tprefs.reliability is Reliability.UNRELIABLE:
            raise Unresolved(to, "no member has a link, and the message is not to wait")
        pending = self._parked.park(domain, self._router.own_of(message[3]))
        if pending is None:
            raise Unresolved(to, "as many messages wait for a member as may")
        self._want(members)
        return pending

    def _want(self, members: Sequence[Identity]) -> None:
        """Dial or look up some members of a domain, other than this node."""
        others = [each for each in members if each != self._router.own]
        first = self._random() % max(1, len(others))
        for member in (*others[first:], *others[:first])[:_MOST_WANTED]:
            self._router.awaited.want(member)

    def resume(self, domain: Identity) -> None:
        """Resolve again what waits for a domain, or for a link to a member."""
        self._router.awaited.found(domain)
        self._parked.resume(domain)

    def node_joined(self, node: Identity) -> None:
        """Resolve again what waits for a member, if the node is one; else it may know one."""
        self._alive.add(node)
        for domain in self._parked:
            members = self.table.members(domain)
            if members is None or node in members:
                self.resume(domain)
            else:
                self._want(members)

    def _member_found(self, node: Identity) -> None:
        """Dial a node, as its addresses are known now, if messages wait for it as a member."""
        if any(self.has(domain, node) for domain in self._parked):
            self._want((node,))

    def node_lost(self, node: Identity) -> None:
        """Park messages again, where no other member has a link."""
        self._alive.discard(node)

    def engine_ended(self, engine: Identity) -> None:
        """Refuse what an engine has sent that waits, as it is no more."""
        self._parked.end(engine)

    def close(self) -> None:
        """Refuse all that waits."""
        self._parked.close()
