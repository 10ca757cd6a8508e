"""Requests to neighbours that wait for an answer, by the node that they are about.

Of one state of a node one neighbour is asked. Where two neighbours advertise different states of
it, both are asked: so a neighbour that advertises what it does not have, and does not answer, does
not keep this node from asking the one that has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from ._frames import NodeNumbers
from ._network_limits import NetworkLimits

__all__ = ["Ask", "Asks"]


@dataclass(slots=True)
class Ask:
    """A request that waits for an answer.

    Attributes:
        numbers: The numbers that were advertised.
        wanted: The number of what is asked for, among these.
        until: Time until which the answer, or its next part, is awaited.
        most: Time until which all of the answer is awaited.
    """

    numbers: NodeNumbers
    wanted: int
    until: float
    most: float


class Asks:
    """The requests of one kind that wait for an answer.

    Args:
        limits: The limits.
    """

    __slots__ = ("_asks", "_count", "_limits")

    def __init__(self, limits: NetworkLimits) -> None:
        self._limits = limits
        self._asks: dict[str, dict[Hashable, Ask]] = {}
        self._count = Counter[Hashable]()

    def begin(self, link: Hashable, numbers: NodeNumbers, wanted: int, now: float) -> bool:
        """Return whether a neighbour is to be asked now for what it has advertised."""
        asked = self._asks.get(numbers.node, {})
        state = numbers.instance, wanted
        if link in asked or self._count[link] >= self._limits.max_nodes:
            return False
        if any((each.numbers.instance, each.wanted) == state for each in asked.values()):
            return False
        until, most = now + self._limits.ask_timeout, now + self._limits.stale
        asked[link] = Ask(numbers, wanted, until, most)
        self._asks[numbers.node] = asked
        self._count[link] += 1
        return True

    def find(self, link: Hashable, node: str) -> Ask | None:
        """Return what a neighbour was asked about a node."""
        return self._asks.get(node, {}).get(link)

    def go_on(self, ask: Ask, now: float) -> None:
        """Wait for the next part of an answer."""
        ask.until = min(now + self._limits.ask_timeout, ask.most)

    def end(self, link: Hashable, node: str) -> None:
        """Wait for an answer of a neighbour about a node no more."""
        asked = self._asks[node]
        del asked[link]
        if not asked:
            del self._asks[node]
        self._count[link] -= 1
        if not self._count[link]:
            del self._count[link]

    def forget(self, link: Hashable) -> None:
        """Wait for no answer of a neighbour that is lost."""
        for node in [node for node, asked in self._asks.items() if link in asked]:
            self.end(link, node)

    def expire(self, now: float) -> int:
        """Wait no more for what has taken too long; return how many requests that are."""
        late = [
            (link, node)
            for node, asked in self._asks.items()
            for link, ask in asked.items()
            if now >= ask.until
        ]
        for link, node in late:
            self.end(link, node)
        return len(late)
