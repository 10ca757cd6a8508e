"""Addresses exposed while a node runs: workers made for the peer of a link."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol import Address
from .._errors import LimitReached

__all__ = ["Exposures"]


class Exposures:
    """The addresses exposed at run time, for each link or for all links of a listener.

    Changed under the node's lock; looking up takes none.

    Args:
        limit: Most addresses exposed at one link or listener.

    Attributes:
        expected: The addresses of workers that are known to start later.
        error_replies: The links, and listeners of links, that error replies may cross.
        listeners: The listeners, for which an exposure applies to all their links.
    """

    __slots__ = ("_at", "_limit", "_where", "error_replies", "expected", "listeners")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._at: dict[Address, set[Address]] = {}
        self._where: dict[Address, set[Address]] = {}
        self.expected: frozenset[Address] = frozenset()
        self.error_replies: set[Address] = set()
        self.listeners: set[Address] = set()

    def add(self, at: Address, address: Address) -> None:
        """Expose an address at a link or listener. Idempotent.

        Raises:
            LimitReached: The limit of addresses exposed there is reached.
        """
        there = self._at.get(at, ())
        if address not in there:
            if len(there) >= self._limit:
                raise LimitReached("exposed", self._limit)
            self._at.setdefault(at, set()).add(address)
            self._where.setdefault(address, set()).add(at)

    def remove(self, at: Address, address: Address) -> bool:
        """Remove an exposure; return whether there was one."""
        there = self._at.get(at)
        if there is None or address not in there:
            return False
        _discard(self._at, at, address)
        _discard(self._where, address, at)
        return True

    def has(self, address: Address, at: Iterable[Address]) -> bool:
        """Whether an address is exposed at one of some links and listeners."""
        where = self._where.get(address)
        return where is not None and any(each in where for each in at)

    def forget(self, address: Address) -> None:
        """Remove the exposures at an address and of it, because its worker stops."""
        for exposed in self._at.pop(address, ()):
            _discard(self._where, exposed, address)
        for at in self._where.pop(address, ()):
            _discard(self._at, at, address)
        self.error_replies.discard(address)
        self.listeners.discard(address)


def _discard(table: dict[Address, set[Address]], key: Address, member: Address) -> None:
    members = table[key]
    members.discard(member)
    if not members:
        del table[key]
