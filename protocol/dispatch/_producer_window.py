"""The credit of the producers of one name at one node.

Each producer has a *window*. Its credit, its unsettled deliveries and what is *pending* are as many
as the window, always. Credit is given when there is a path to a consumer; without one, it is
pending.

| event | a producer of the name | an anonymous producer |
| --- | --- | --- |
| it attaches, and there is a path | the window | the window |
| it attaches, and there is none | nothing; its window is pending | the window |
| the first path comes | all that is pending, and no drain | nothing |
| the last path goes | nothing: credit that was given stays | nothing |
| a delivery is settled | one, or pending without a path | one |
| a message has no path | it is released; the rest is drained | it is released; one is returned |
| a message has no next hop, but a path | it is released; one is returned | the same |
| it has drained | its credit is pending | the same |

A pre-settled message is dropped where an unsettled one is released, and is settled at once. With
the gate `credit` all producers of the name together have no more credit than its consumers have
beyond what waits for them; a link to other nodes counts as the window of the name, less what is
unsettled on it. A message uses a consumer's credit when it is sent, and credit comes back to its
producer with the next word of what consumers have. With the gate `open` each producer of the name
is treated as an anonymous one.

When a window is made smaller, credit beyond it is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ._outcomes import RELEASED, Outcome, Rejected

__all__ = ["NOT_FOUND", "CreditChange", "ProducerWindows"]

NOT_FOUND: Final = Rejected("amqp:not-found", "no such name")
"""The outcome of a delivery for a name that is unavailable."""


_NONE: Final[dict[Any, Any]] = {}


class CreditChange(NamedTuple):
    """A change of what a producer may send, to be told to it.

    Attributes:
        producer: Its number.
        credit: Messages that it may send beyond those that it was told before; less than 0 if
            credit is taken back.
        drain: Whether it has to use its credit up or give it back.
    """

    producer: int
    credit: int
    drain: bool


@dataclass(slots=True)
class _Window:
    """The window of one producer."""

    size: int
    anonymous: bool
    always: bool
    credit: int = 0
    unsettled: int = 0
    draining: bool = False

    @property
    def pending(self) -> int:
        return max(0, self.size - self.credit - self.unsettled)


class ProducerWindows:
    """The windows of the producers of a name.

    Args:
        by_credit: Whether producers have no more credit than consumers gave: the gate `credit`.
        always: Whether each producer has a window at any time: the gate `open`.
    """

    __slots__ = (
        "_allowed",
        "_always",
        "_by_credit",
        "_given",
        "_paths",
        "_pending",
        "_producers",
        "dropped",
        "refused",
    )

    def __init__(self, *, by_credit: bool = False, always: bool = False) -> None:
        self._by_credit = by_credit
        self._always = always
        # Most names have no producer here: these are made for the first one.
        self._producers: dict[int, _Window] = _NONE
        self._pending: dict[int, None] = _NONE
        self._paths = 0
        self._allowed = 0
        self._given = 0
        self.refused = 0
        """Number of messages beyond the credit of their producer."""
        self.dropped = 0
        """Number of pre-settled messages without a consumer."""

    @property
    def paths(self) -> int:
        """The number of consumers and of nodes with consumers."""
        return self._paths

    def credit(self, producer: int) -> int:
        """Return the credit of a producer."""
        return self._producers[producer].credit

    def add(self, producer: int, window: int, *, anonymous: bool = False) -> list[CreditChange]:
        """Add a producer.

        Args:
            producer: Its number.
            window: Messages that it may send before any is settled.
            anonymous: Whether it names the destination of each message in the message.
        """
        if self._producers is _NONE:
            self._producers, self._pending = {}, {}
        self._producers[producer] = _Window(window, anonymous, anonymous or self._always)
        return self._grant((producer,))

    def remove(self, producer: int) -> list[CreditChange]:
        """Remove a producer; return what others get of its credit."""
        window = self._producers.pop(producer)
        self._pending.pop(producer, None)
        if not window.always:
            self._given -= window.credit
        return self._grant(tuple(self._pending)) if self._by_credit else []

    def configure(
        self, window: int, *, by_credit: bool = False, always: bool = False
    ) -> list[CreditChange]:
        """Apply another window and gate to the producers that there are.

        Args:
            window: Messages that each may send before any is settled.
            by_credit: As for a new object.
            always: As for a new object.
        """
        self._by_credit, self._always = by_credit, always
        for each in self._producers.values():
            each.size = window
            each.always = each.anonymous or always
        changes: list[CreditChange] = []
        for producer, each in self._producers.items():
            over = each.credit - max(0, each.size - each.unsettled)
            if over > 0:
                each.credit -= over
                changes.append(CreditChange(producer, -over, drain=False))
        windows = self._producers.values()
        self._given = sum(each.credit for each in windows if not each.always)
        return [*changes, *self._grant(tuple(self._producers))]

    def __contains__(self, producer: object) -> bool:
        """Whether there is such a producer."""
        return producer in self._producers

    def __len__(self) -> int:
        """Return the number of producers."""
        return len(self._producers)

    def without_credit(self) -> list[int]:
        """Return the producers that have no credit."""
        return [number for number, window in self._producers.items() if not window.credit]

    def set_paths(self, paths: int, credit: int = 0) -> list[CreditChange]:
        """Receive the number of paths, and the credit that consumers have left.

        Args:
            paths: Consumers, and nodes with consumers.
            credit: Their credit; only the gate `credit` uses it.
        """
        before, self._paths, self._allowed = self._paths, paths, credit
        if paths and (self._by_credit or not before):
            return self._grant(tuple(self._pending))
        return []

    def sent(self, producer: int, *, settled: bool) -> list[CreditChange] | None:
        """Receive a message of a producer; `None` if it is beyond its credit, and refused.

        Args:
            producer: Its number.
            settled: Whether the message is pre-settled, so that its credit comes back at once.
        """
        window = self._producers[producer]
        if not window.credit:
            self.refused += 1
            return None
        self._use(window, 1)
        if not window.always:
            # The credit of a consumer that this one stood for is used up with it.
            self._allowed = max(0, self._allowed - 1)
        if not settled:
            window.unsettled += 1
            return []
        return self._grant((producer,))

    def settled(self, producer: int) -> list[CreditChange]:
        """Receive the settlement of a delivery; nothing happens if the producer has gone."""
        window = self._producers.get(producer)
        if window is None:
            return []
        if not window.unsettled:
            raise AssertionError("more settlements than deliveries")
        window.unsettled -= 1
        return self._grant((producer,))

    def unroutable(
        self, producer: int, *, settled: bool, unavailable: bool = False
    ) -> tuple[Outcome | None, list[CreditChange]]:
        """Receive word that a message, counted by `sent`, can go nowhere.

        Args:
            producer: The producer.
            settled: Whether the message is pre-settled.
            unavailable: Whether its name is provisioned as unavailable.

        Returns:
            The outcome, `None` for a pre-settled one, which is dropped; and the changes of credit.
        """
        outcome: Outcome | None = NOT_FOUND if unavailable else RELEASED
        changes: list[CreditChange] = []
        if settled:
            self.dropped += 1
            outcome = None
        else:
            changes = self.settled(producer)
        window = self._producers[producer]
        if not window.always and not self._paths and window.credit and not window.draining:
            window.draining = True
            changes.append(CreditChange(producer, 0, drain=True))
        return outcome, changes

    def drained(self, producer: int) -> list[CreditChange]:
        """Receive word that a producer has given its credit back."""
        window = self._producers[producer]
        self._use(window, window.credit)
        # While a consumer is there its request to drain has been taken back, and this is late.
        return self._grant((producer,))

    def _use(self, window: _Window, credit: int) -> None:
        window.credit -= credit
        if not window.always:
            self._given -= credit

    def _grant(self, producers: Iterable[int]) -> list[CreditChange]:
        """Give producers what is pending, as far as it may be given."""
        producers = tuple(producers)
        changes: list[CreditChange] = []
        for index, producer in enumerate(producers):
            window = self._producers[producer]
            credit = self._share(window, len(producers) - index)
            if credit or (window.draining and self._paths):
                window.draining = False
                window.credit += credit
                self._given += 0 if window.always else credit
                changes.append(CreditChange(producer, credit, drain=False))
            if window.pending or window.draining:
                self._pending[producer] = None
            else:
                self._pending.pop(producer, None)
        return changes

    def _share(self, window: _Window, among: int) -> int:
        """Return the credit that a producer gets, of so many that wait."""
        if window.always:
            return window.pending
        if not self._paths:
            return 0
        if not self._by_credit:
            return window.pending
        left = max(0, self._allowed - self._given)
        return min(window.pending, -(-left // among))
