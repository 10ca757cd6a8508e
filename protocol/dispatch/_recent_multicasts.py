"""The multicasts that have come lately from other nodes, so that a second copy is known as one.

While a link has just come up or gone, two nodes can disagree for some milliseconds about the path
from an ingress to a third one: then each sends it a copy. The second one is not handed over. Its
outcome is "modified", as that of the first is not known yet: it may be handed over or not.
"""

from __future__ import annotations

from typing import Final

from ._transit import Identity

__all__ = ["RecentMulticasts"]


class RecentMulticasts:
    """The identities of multicasts that have come lately, a bounded number of each ingress.

    Args:
        ids: Multicasts of one ingress. Beyond: the oldest one is forgotten.
        ingresses: Nodes where they entered. Beyond: those of the node are forgotten of which none
            has come for the longest time.
    """

    __slots__ = ("_ids", "_ingresses", "_seen")

    def __init__(self, ids: int, ingresses: int) -> None:
        self._ids: Final = ids
        self._ingresses: Final = ingresses
        self._seen: Final[dict[tuple[str, bytes], dict[bytes, None]]] = {}

    def __len__(self) -> int:
        """Return the number of multicasts that are remembered."""
        return sum(map(len, self._seen.values()))

    def arrived(self, identity: Identity) -> bool:
        """Remember a multicast; return whether it is the first one with its identity."""
        ingress, instance, number = identity
        seen = self._seen.pop((ingress, instance), None)
        if seen is None:
            seen = {}
            if len(self._seen) >= self._ingresses:
                del self._seen[next(iter(self._seen))]
        self._seen[ingress, instance] = seen
        if number in seen:
            return False
        if len(seen) >= self._ids:
            del seen[next(iter(seen))]
        seen[number] = None
        return True

    def released(self, identity: Identity) -> None:
        """Forget a multicast that no consumer has had: it may be sent again."""
        seen = self._seen.get(identity[:2])
        if seen is not None:
            seen.pop(identity[2], None)
