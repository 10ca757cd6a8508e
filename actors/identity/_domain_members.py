"""The members of domains, as the directory says, and what waits until one of them has a link."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol import Message
from ...protocol.identity import (
    Destination,
    DestinationKind,
    DomainAdvert,
    DomainTable,
    HasMembers,
    Identity,
    IdentityUpdated,
    Target,
    read_advert,
)
from .._errors import Unresolved
from ..routing._pending import Pending

if TYPE_CHECKING:
    from ._router import Router

__all__ = ["DomainMembers"]

_MAX_WAITING: Final = 4096
"""Most domains that messages wait for, as no member has a link. Beyond: those for the oldest wait
on for one member alone."""


class DomainMembers:
    """The members of domains, as far as the node uses them.

    Args:
        router: The router.
        random: Returns a random number.

    Attributes:
        table: The members.
        on_advert: Receives each domain with an advert that has changed.
    """

    __slots__ = ("_alive", "_random", "_router", "_waiting", "on_advert", "table")

    def __init__(self, router: Router, random: Callable[[], int]) -> None:
        self.table: Final = DomainTable()
        self.on_advert: Callable[[Identity], object] = lambda _: None
        self._router: Final = router
        self._random: Final = random
        self._alive: Final[set[Identity]] = set()
        # Domains without a member that has a link, and the member that their messages wait for.
        self._waiting: Final[dict[Identity, Identity]] = {}
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
        domain, record = update.identity, update.record
        advert = None if record is None else record.advert
        read = None if advert is None else read_advert(advert).advert
        if isinstance(read, DomainAdvert):
            if self.table.members(domain) is not None and not self._router.table.is_banned(domain):
                self._set(read)
            self.resume(domain)
            self.on_advert(domain)
        elif self.table.members(domain) is not None:
            self._forget(domain)

    def _updates_lost(self, _: int) -> None:
        for domain in self.table.domains():
            self._forget(domain)
            self.learn(domain)
            self.resume(domain)

    # --- what waits ---------------------------------------------------------------------------

    def without_link(self, domain: Identity, message: Message, target: Target) -> Pending | None:
        """Return what a message waits for if no member has a link; `None` if one has.

        Raises:
            Unresolved: There is no member, or the message does not wait.
        """
        own = self._router.own
        members = [each for each in self.table.members(domain) or () if each != own]
        if not members:
            raise Unresolved(message[0][0], "the domain has no other member")
        if not self._alive.isdisjoint(members):
            return None
        member = self._waiting.get(domain, own)
        if member not in members:
            member = members[self._random() % len(members)]
        pending = self._router.park(member, message, target)
        self._waiting[domain] = member
        if len(self._waiting) > _MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return pending

    def resume(self, domain: Identity) -> None:
        """Resolve again what waits for a domain, or for one of its members."""
        self._router.found(domain)
        member = self._waiting.pop(domain, None)
        if member is not None:
            self._router.found(member)

    def node_joined(self, node: Identity) -> None:
        """Resolve again what waits for a member, if the node is one."""
        self._alive.add(node)
        for domain in [each for each in self._waiting if self.has(each, node)]:
            self.resume(domain)

    def node_lost(self, node: Identity) -> None:
        """Park messages again, where no other member has a link."""
        self._alive.discard(node)
