"""The members of domains, and the choice of one of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..options import Count, check_options
from ._adverts import DomainAdvert
from ._identities import Identity

__all__ = ["DomainLimits", "DomainTable", "choose_member"]


@dataclass(frozen=True, slots=True)
class DomainLimits:
    """Limits of the members of domains that a node knows.

    Attributes:
        domains: Domains. Beyond: the one that was used longest ago is let go, and counted; the
            next request asks the directory again.
    """

    domains: Count = 4096

    def __post_init__(self) -> None:
        check_options(self)


def choose_member(
    members: Collection[Identity],
    number: int,
    *,
    excluded: Collection[Identity] = (),
    alive: Collection[Identity] = (),
    loads: Mapping[Identity, int] | None = None,
) -> Identity | None:
    """Choose a member of a domain.

    A member that is alive is chosen before one that is not known to be, and then the one with the
    least load, where an unknown load counts as none. Among equal ones the number decides, so the
    same arguments have the same result.

    Args:
        members: The members.
        number: A random number, at least 0.
        excluded: Members that are not to be chosen.
        alive: Nodes that a link joins.
        loads: Loads that are known, in any unit.

    Returns:
        The member; `None` if none is left.
    """
    left = [each for each in members if each not in excluded]
    if not left:
        return None
    known = loads or {}
    ranks = {each: (each not in alive, known.get(each, 0)) for each in left}
    best = min(ranks.values())
    equal = sorted(each for each, rank in ranks.items() if rank == best)
    return equal[number % len(equal)]


class DomainTable:
    """The members of domains that a node knows.

    Args:
        limits: Its limits.

    Attributes:
        evicted: Domains that were let go at the limit.
    """

    __slots__ = ("_limits", "_members", "evicted")

    def __init__(self, limits: DomainLimits | None = None) -> None:
        self._limits = DomainLimits() if limits is None else limits
        self._members: OrderedDict[Identity, tuple[Identity, ...]] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._members)

    def update(self, advert: DomainAdvert) -> None:
        """Replace the members of a domain by those of its advert, which has been verified."""
        self._members[advert.identity] = advert.nodes
        self._members.move_to_end(advert.identity)
        if len(self._members) > self._limits.domains:
            self._members.popitem(last=False)
            self.evicted += 1

    def domains(self) -> tuple[Identity, ...]:
        """Return the domains, the one that was used longest ago first."""
        return tuple(self._members)

    def remove(self, domain: Identity) -> None:
        """Remove a domain, if it is there."""
        self._members.pop(domain, None)

    def members(self, domain: Identity) -> tuple[Identity, ...] | None:
        """Return the members of a domain; `None` if it is not known."""
        members = self._members.get(domain)
        if members is not None:
            self._members.move_to_end(domain)
        return members
