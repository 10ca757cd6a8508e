"""Outcomes of a delivery, and the one outcome of a delivery with several copies.

An outcome is final and there is one for each unsettled delivery. *Released* means that the message
was certainly not handed over, so that it is safe to send it again; *modified* means that it is in
doubt. `Received` is a state and no outcome.

A delivery with copies has a `FanOut`, which counts the outcomes of the copies and decides by the
number of acceptances that the name asks for:

| accepts | accepted | otherwise |
| --- | --- | --- |
| 1 (any) | at least one copy was accepted, and none rejected | rejected > modified > released |
| n | n copies were accepted | rejected > modified > released |
| `ALL` | all copies were accepted | rejected > modified > released |

A delivery that fails although a copy was accepted is modified, and never released. The outcome is
decided as soon as the copies that are open cannot change it; what they tell later is information.
A copy over a link stands for all consumers behind it, and its outcome comes with their `Tally`.

A node that is not the ingress does not decide: it tells its tally when all of its copies have
ended, and what makes the delivery accepted is for the ingress to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = [
    "ACCEPTED",
    "ALL",
    "MODIFIED",
    "RECEIVED",
    "RELEASED",
    "Accepted",
    "DeliveryState",
    "FanOut",
    "Modified",
    "Outcome",
    "Received",
    "Rejected",
    "Released",
    "Tally",
]

ALL: Final = 0
"""The number of acceptances that stands for all copies."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The outcome of a delivery that its consumer has taken over."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The outcome of a delivery that its consumer, or a dispatcher, refuses for good.

    Attributes:
        condition: The name of the error, such as `amqp:not-found`.
        description: The error in words; may be empty.
    """

    condition: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """The outcome of a delivery that was certainly not handed over."""


@dataclass(frozen=True, slots=True)
class Modified:
    """The outcome of a delivery that is in doubt.

    Attributes:
        failed: Whether the attempt counts as a failed one.
        undeliverable_here: Whether the consumer is not to be sent the message again.
    """

    failed: bool = True
    undeliverable_here: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """The state of a delivery of which the consumer has a part; it is not final."""


Outcome: TypeAlias = Accepted | Rejected | Released | Modified
"""A final state of a delivery."""

DeliveryState: TypeAlias = Outcome | Received
"""A state of a delivery that a consumer tells."""

ACCEPTED: Final = Accepted()
"""The only value of `Accepted`."""
MODIFIED: Final = Modified()
"""The outcome of a delivery for which a consumer or a link was lost."""
RELEASED: Final = Released()
"""The only value of `Released`."""
RECEIVED: Final = Received()
"""The only value of `Received`."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of copies by outcome.

    Attributes:
        accepted: Copies that were accepted.
        rejected: Copies that were rejected.
        modified: Copies that are in doubt.
        released: Copies that were not handed over.
    """

    accepted: int = 0
    rejected: int = 0
    modified: int = 0
    released: int = 0

    @classmethod
    def of(cls, outcome: Outcome) -> Tally:
        """Return the tally of a single copy."""
        match outcome:
            case Accepted():
                return cls(accepted=1)
            case Rejected():
                return cls(rejected=1)
            case Modified():
                return cls(modified=1)
            case _:
                return cls(released=1)

    def __add__(self, other: Tally) -> Tally:
        """Return both together."""
        return Tally(
            self.accepted + other.accepted,
            self.rejected + other.rejected,
            self.modified + other.modified,
            self.released + other.released,
        )

    @property
    def copies(self) -> int:
        """The number of copies."""
        return self.accepted + self.rejected + self.modified + self.released


class FanOut:
    """The copies of one delivery, and its outcome.

    Args:
        consumers: Copies for consumers of this node.
        links: Copies for next nodes; each stands for at least one consumer.
        accepts: Acceptances that make the delivery accepted, or `ALL`.
        early: Whether the outcome is decided before all copies have ended. Not at a node that has
            to tell all of its tally.

    Raises:
        ValueError: There is no copy, or a number is negative.
    """

    __slots__ = (
        "_accepts",
        "_condition",
        "_consumers",
        "_decided",
        "_early",
        "_links",
        "_modified",
        "tally",
    )

    def __init__(
        self, consumers: int, links: int = 0, accepts: int = 1, *, early: bool = True
    ) -> None:
        if min(consumers, links, accepts) < 0 or consumers + links == 0:
            raise ValueError(f"a fan-out of {consumers} and {links} copies for {accepts} accepts")
        self._consumers = consumers
        self._links = links
        self._accepts = accepts
        self._early = early
        self._condition: Rejected | None = None
        self._modified: Modified | None = None
        self._decided: Outcome | None = None
        self.tally = Tally()

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the delivery; `None` while copies that are open can change it."""
        return self._decided

    @property
    def open(self) -> int:
        """The number of copies that have no outcome yet."""
        return self._consumers + self._links

    def consumer_ended(self, outcome: Outcome) -> Outcome | None:
        """Receive the outcome of a copy for a consumer; return that of the delivery, once."""
        self._consumers -= 1
        return self._ended(outcome, Tally.of(outcome))

    def link_ended(self, outcome: Outcome, tally: Tally | None = None) -> Outcome | None:
        """Receive the outcome of a copy for a next node; return that of the delivery, once.

        Args:
            outcome: The outcome that the next node tells.
            tally: Its numbers. Without them the copy counts as one.
        """
        self._links -= 1
        if tally is None or not tally.copies:
            tally = Tally.of(outcome)
        return self._ended(outcome, tally)

    def _ended(self, outcome: Outcome, tally: Tally) -> Outcome | None:
        if self._consumers < 0 or self._links < 0:
            raise AssertionError("more outcomes than copies")
        if isinstance(outcome, Rejected):
            # The first condition is told: those of the others are not known to belong to it.
            self._condition = self._condition or outcome
        elif isinstance(outcome, Modified):
            self._modified = self._modified or outcome
        self.tally += tally
        if self._decided is not None or (self.open and not self._early):
            return None
        ends = {type(self._result(self.tally + each)) for each in self._extensions()}
        if len(ends) == 1:
            self._decided = self._result(self.tally)
        return self._decided

    def _extensions(self) -> Iterator[Tally]:
        """Yield the tallies that the open copies can still add, as far as they differ in effect."""
        if not self.open:
            yield Tally()
            return
        # A link may stand for as many consumers as are asked for.
        yield Tally(accepted=self._consumers + self._links * max(self._accepts, 1))
        yield from (Tally(rejected=1), Tally(modified=1), Tally(released=1))

    def _result(self, tally: Tally) -> Outcome:
        """Return the outcome that a tally gives if no copy is open."""
        # Facts of routers: "rejected > accepted > modified > released"
        if self._accepts > 1 and tally.accepted >= self._accepts:
            return ACCEPTED
        if tally.rejected:
            return self._condition or Rejected()
        if self._is_accepted(tally):
            return ACCEPTED
        if tally.accepted or tally.modified:
            return self._modified or MODIFIED
        return RELEASED

    def _is_accepted(self, tally: Tally) -> bool:
        """Whether a tally without rejections is enough."""
        if self._accepts == ALL:
            return tally.accepted == tally.copies
        return tally.accepted >= self._accepts
