"""The shares that connections, principals and neighbours have of the circuits of a node.

A neighbour cannot take the share of another source: what it says of sources is counted with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from ._circuit_frames import CircuitAttach
from ._circuit_limits import CircuitLimits

__all__ = ["CircuitPool", "CircuitShares"]

_ANONYMOUS: Final = "anonymous"
"""What stands for all connections that are not authenticated; other sources are bytes."""


@dataclass(frozen=True, slots=True)
class CircuitPool:
    """Circuits of which each source has a share: of one or several containers, or of a link.

    Attributes:
        key: What stands for it at the node.
        most: How many there may be.
    """

    key: Hashable
    most: int


class CircuitShares:
    """The counts of what each source has of the circuits of a node, and of their pools.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: CircuitLimits) -> None:
        self._limits = limits
        self._counts: Counter[Hashable] = Counter()
        self._held: dict[int, list[Hashable]] = {}

    def take(
        self, number: int, pool: CircuitPool, neighbour: Hashable | None, attach: CircuitAttach
    ) -> bool:
        """Count a circuit with its sources; return whether it is within their shares.

        Args:
            number: Its number.
            pool: What it goes to.
            neighbour: The neighbour from which it has come; `None` for an end of this node.
            attach: Its attach, which names what stands for the connection or the principal.
        """
        held: list[Hashable] = []
        for key, percent in self._sources(neighbour, attach):
            for counted, most in ((key, self._limits.max_circuits), ((key, pool.key), pool.most)):
                if self._counts[counted] >= max(1, most * percent // 100):
                    return False
                held.append(counted)
        if held:
            self._held[number] = held
            self._counts.update(held)
        return True

    def _sources(
        self, neighbour: Hashable | None, attach: CircuitAttach
    ) -> Iterator[tuple[Hashable, int]]:
        limits, whole = self._limits, 100
        if neighbour is not None:
            whole = limits.max_neighbour_share
            yield neighbour, whole
        if attach.anonymous:
            yield (neighbour, _ANONYMOUS), whole * limits.max_anonymous_share // 100
        if attach.source:
            yield (neighbour, attach.source), limits.max_share

    def give_back(self, number: int) -> None:
        """Count a circuit no more."""
        for counted in self._held.pop(number, ()):
            self._counts[counted] -= 1
            if not self._counts[counted]:
                del self._counts[counted]
