"""The consumers of a direct name: one has it, and others are refused, wait, or take its place.

"Direct routing allows for only one consumer to use an address at a time." That holds in all of the
network. Each consumer has a *claim*: the time of its attaching in milliseconds, and more than any
claim that its node knows of then. Each node tells the others its best claim; a node that has all of
them knows which one wins, and all nodes come to the same end:

| rule | the name goes to | others |
| --- | --- | --- |
| refuse | the smallest claim, then the first node by name | have to go |
| standby | the same | wait; the next best claim has it when that one is gone |
| newest | the largest claim, then the last node by name | have to go |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ._claims import direct_node
from ._frames import MAX_NUMBER
from ._semantics_parts import Second

__all__ = ["DirectAdmission", "DirectConsumers"]


class DirectAdmission(NamedTuple):
    """The answer to a consumer that wants a direct name.

    Attributes:
        admitted: Whether it is attached: it has the name, or is on standby.
        displaced: The consumer here that has to go for it, if any.
    """

    admitted: bool
    displaced: int | None = None


class DirectConsumers:
    """The consumers of a direct name at one node.

    Args:
        own: The name of the node.
        second: The rule for a second consumer.
        standbys: Consumers on standby. Beyond: a further one is refused.
    """

    def __init__(self, own: str, second: Second, standbys: int) -> None:
        self._own = own
        self._second = second
        self._most = standbys
        self._claims: dict[int, int] = {}
        self._others: Mapping[str, int] = {}

    @property
    def claim(self) -> int | None:
        """The best claim of the consumers here; `None` without one."""
        best = self._best()
        return None if best is None else self._claims[best]

    @property
    def winner(self) -> str | None:
        """The node that the consumer with the name is at; `None` if there is none."""
        claims = dict(self._others)
        if self.claim is not None:
            claims[self._own] = self.claim
        return direct_node(claims, newest=self._second is Second.NEWEST)

    @property
    def active(self) -> int | None:
        """The consumer here that has the name."""
        return self._best() if self.winner == self._own else None

    @property
    def standby(self) -> tuple[int, ...]:
        """The consumers on standby, the next one first."""
        active = self.active
        return tuple(each for each in self._claims if each != active)

    def add(self, consumer: int, milliseconds: int) -> DirectAdmission:
        """Add a consumer, as the rule says.

        Args:
            consumer: Its number.
            milliseconds: The time, since an epoch that all nodes have.
        """
        known = [*self._claims.values(), *self._others.values()]
        if known and self._second is Second.REFUSE:
            return DirectAdmission(admitted=False)
        if self._claims and self._second is Second.STANDBY and len(self.standby) >= self._most:
            return DirectAdmission(admitted=False)
        # More than each that is known, so that a clock that is slow makes nothing first or older;
        # and not 0, which is no claim.
        claim = min(max([1, milliseconds, *(each + 1 for each in known)]), MAX_NUMBER)
        displaced = self._best() if self._second is Second.NEWEST else None
        if displaced is not None:
            del self._claims[displaced]
        self._claims[consumer] = claim
        return DirectAdmission(admitted=True, displaced=displaced)

    def remove(self, consumer: int) -> None:
        """Remove a consumer; do nothing if it is not there."""
        self._claims.pop(consumer, None)

    def set_others(self, claims: Mapping[str, int]) -> tuple[int, ...]:
        """Receive the best claims of other nodes; return the consumers here that have to go.

        Args:
            claims: The claim of each other node with consumers.
        """
        self._others = dict(claims)
        if self._second is Second.STANDBY or self.winner == self._own:
            return ()
        displaced = tuple(self._claims)
        self._claims.clear()
        return displaced

    def _best(self) -> int | None:
        # Claims grow with each consumer, so that the first one has the smallest.
        return next(iter(self._claims), None)
