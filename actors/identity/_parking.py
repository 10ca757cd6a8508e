"""The messages that wait until it is known where an identity is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...protocol.identity import Identity
from ..routing._pending import Pending

__all__ = ["Parking"]


class Parking:
    """The messages that wait, by the identity that they wait for and the one that sends them.

    Args:
        limit: Most messages that wait for one identity.
    """

    __slots__ = ("_limit", "_parked")

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._parked: Final[dict[Identity, dict[Identity, Pending]]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def __iter__(self) -> Iterator[Identity]:
        return iter(tuple(self._parked))

    def __contains__(self, identity: object) -> bool:
        return identity in self._parked

    def count(self, identity: Identity) -> int:
        """Return how many messages wait for an identity."""
        return sum(map(len, self._parked.get(identity, {}).values()))

    def park(self, identity: Identity, own: Identity) -> Pending | None:
        """Return what a message waits for; `None` if as many wait as may.

        Args:
            identity: The identity that more has to be known of.
            own: The identity that the message is of.
        """
        if identity not in self._parked:
            # Those without a message are left behind by messages that have been given up.
            for each in self:
                if not self.count(each):
                    del self._parked[each]
        elif self.count(identity) >= self._limit:
            return None
        return self._parked.setdefault(identity, {}).setdefault(own, Pending())

    def resume(self, identity: Identity) -> None:
        """Resolve again what waits for an identity."""
        for pending in self._parked.pop(identity, {}).values():
            pending.resume()

    def refuse(self, identity: Identity, reason: str) -> None:
        """Refuse what waits for an identity."""
        for pending in self._parked.pop(identity, {}).values():
            pending.refuse(reason)

    def end(self, own: Identity) -> None:
        """Refuse what an identity of this node has sent, as it is no more."""
        for of in self._parked.values():
            pending = of.pop(own, None)
            if pending is not None:
                pending.refuse("the engine that has sent it has ended")

    def close(self) -> None:
        """Refuse all that waits."""
        for identity in self:
            self.refuse(identity, "the node ends")
