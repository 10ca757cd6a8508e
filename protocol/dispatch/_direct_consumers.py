"""The consumers of a direct name: one has it, and others are refused, wait, or take its place.

"Direct routing allows for only one consumer to use an address at a time." What becomes of a second
one is provisioned: it is *refused*, the *newest* takes the place of the one before, or it is on
*standby* until the place is free.
"""

from __future__ import annotations

from typing import NamedTuple

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
        second: The rule for a second consumer.
        standbys: Consumers on standby. Beyond: a further one is refused.
    """

    def __init__(self, second: Second, standbys: int) -> None:
        self._second = second
        self._most = standbys
        self._standby: dict[int, None] = {}
        self._elsewhere = False
        self.active: int | None = None
        """The consumer here that has the name."""

    @property
    def standby(self) -> tuple[int, ...]:
        """The consumers on standby, the next one first."""
        return tuple(self._standby)

    def add(self, consumer: int) -> DirectAdmission:
        """Add a consumer, as the rule says."""
        if self.active is None and (not self._elsewhere or self._second is Second.NEWEST):
            self.active = consumer
            return DirectAdmission(admitted=True)
        if self._second is Second.NEWEST:
            displaced, self.active = self.active, consumer
            return DirectAdmission(admitted=True, displaced=displaced)
        if self._second is Second.STANDBY and len(self._standby) < self._most:
            self._standby[consumer] = None
            return DirectAdmission(admitted=True)
        return DirectAdmission(admitted=False)

    def remove(self, consumer: int) -> int | None:
        """Remove a consumer; return the one that has the name now instead of it."""
        self._standby.pop(consumer, None)
        if self.active != consumer:
            return None
        self.active = None
        return self._promote()

    def taken_elsewhere(self, *, newer: bool) -> int | None:
        """Receive word of a consumer at another node; return the one here that has to go for it.

        Args:
            newer: Whether it has attached later than the one here. With the other rules the
                older one stays, so it says which of the two was first.
        """
        self._elsewhere = True
        goes = newer if self._second is Second.NEWEST else not newer
        if not goes or self.active is None:
            return None
        displaced, self.active = self.active, None
        return displaced

    def gone_elsewhere(self) -> int | None:
        """Receive word that no other node has a consumer; return the one that gets the name."""
        self._elsewhere = False
        return self._promote() if self.active is None else None

    def _promote(self) -> int | None:
        if self._standby and not self._elsewhere:
            self.active = next(iter(self._standby))
            del self._standby[self.active]
        return self.active
