"""A delivery: the one record of a message at a node, from its entry to its outcome, and its events.

The message itself is opaque here: it has the way back to its producer in it. A delivery is at one
of three places: it has open copies, or it is on hold, or the caller chooses targets for it. What it
was tried with, how often, and until when stays in the record wherever it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from ._delivery_limits import Share
from ._loads import Target
from ._outcomes import Accepted, FanOut, Modified, Outcome, Rejected, Released, Tally
from ._semantics_parts import Redirect, Retry
from ._transit import Identity

__all__ = [
    "Ages",
    "CopyEnd",
    "CopyEnded",
    "Decided",
    "DeliveriesStatistics",
    "Delivery",
    "DeliveryEvent",
    "HoldEnded",
    "Returned",
    "Round",
    "Unreturned",
]

M = TypeVar("M")
"""A message, with the way back to its producer."""


class CopyEnd(Enum):
    """The reason why a copy has ended, and so what its target has to be told."""

    TOLD = "told"
    """Its target has told its outcome."""
    LOST = "lost"
    """Its target is lost."""
    WITHDRAWN = "withdrawn"
    """It was not sent. It is to be taken from the queue of its target."""
    ABANDONED = "abandoned"
    """It was sent. Its target is to be told that the delivery has ended as modified."""
    SETTLED = "settled"
    """The producer has settled. Its target is to be told, or gets it as a pre-settled message."""


# Calls of `set[Target]` take three times as long, and each message makes one.
def _no_targets() -> set[Target]:
    return set()


def _no_copies() -> dict[bytes, Target]:
    return {}


@dataclass(slots=True, eq=False)
class Delivery(Generic[M]):
    """A message at a node, from its entry to its outcome.

    Attributes:
        message: The message.
        size: Its bytes.
        source: The link or producer that it came from; `None` once the producer is lost.
        identity: Its identity.
        settled: Whether it is pre-settled.
        path: The digests of the nodes that it has passed.
        token: The token of the node before, if it came from one and is not settled.
        until: When it is not worth handling any more, in seconds; `None` always is.
        deadline: When its outcome is decided in any case, in seconds; `None` never is.
        redirected: Whether it was redirected.
        promised: Whether its producer was told that it is accepted, and it is kept elsewhere until
            a consumer has settled it: no limit here refuses it, and in doubt it is sent again.
        share: What its source has at this node; `None`: the program itself.
        doubts: How often a target had it and left it in doubt.
        since: When it was bound first in this round, in seconds.
        limit: When the copies that it has now end in any case, in seconds.
        spread: Whether it was sent to all consumers, so that a copy is for its target alone.
        kept: Whether it may be sent to another target: none has a part of it.
        tried: The targets that it was sent to, in this round.
        tries: How often it was bound, in this round.
        copies: The targets of its open copies, by token.
        fan_out: The outcomes of its copies, if it is a multicast.
        outcome: Its outcome.
        part: The part of the chain for undeliverable messages that was used up.
        hold_until: When its time on hold is over, in seconds; `None` before it was there.
        next_round: When its next round begins, in seconds.
        rounds: Rounds that have begun.
    """

    message: M
    size: int
    source: Hashable
    identity: Identity
    settled: bool = False
    path: tuple[bytes, ...] = ()
    token: bytes | None = None
    until: float | None = None
    deadline: float | None = None
    redirected: bool = False
    promised: bool = False
    share: Share | None = None
    doubts: int = 0
    since: float = 0.0
    limit: float | None = None
    spread: bool = False
    kept: bool = True
    tried: set[Target] = field(default_factory=_no_targets)
    tries: int = 0
    copies: dict[bytes, Target] = field(default_factory=_no_copies)
    fan_out: FanOut | None = None
    outcome: Outcome | None = None
    part: Retry | Redirect | None = None
    hold_until: float | None = None
    next_round: float = 0.0
    rounds: int = 0

    def begin(self) -> None:
        """Forget what it was tried with, as at its entry: it has come to another name or chain."""
        self.part = self.hold_until = None
        self.rounds = self.tries = self.doubts = 0
        self.tried.clear()

    @property
    def tally(self) -> Tally | None:
        """The outcomes of its copies, if it is a multicast."""
        return None if self.fan_out is None else self.fan_out.tally


class Decided(NamedTuple, Generic[M]):
    """The outcome of a delivery that a target has, or may have.

    Attributes:
        delivery: The delivery.
        outcome: Its outcome, which is not released.
    """

    delivery: Delivery[M]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Returned(Generic[M]):
    """The return of a delivery that no target has: to be answered by `bind`, `hold` or `end`.

    Attributes:
        delivery: The delivery.
        again: Whether it may be sent to another target at once.
        doubt: Whether a target may have handled it; it was promised, and so it is sent again.
    """

    delivery: Delivery[M]
    again: bool
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Round(Generic[M]):
    """The beginning of a round for a delivery on hold: it stays there unless it is bound.

    Attributes:
        delivery: The delivery.
    """

    delivery: Delivery[M]


@dataclass(frozen=True, slots=True)
class HoldEnded(Generic[M]):
    """The end of the rounds or of the time on hold: to be answered by `bind` or `end`.

    Attributes:
        delivery: The delivery.
        no_room: Whether it had no room on hold any more, as its producer has settled it.
    """

    delivery: Delivery[M]
    no_room: bool = False


class CopyEnded(NamedTuple):
    """The end of a copy.

    Attributes:
        token: Its token.
        target: Its target, which has a message less.
        end: Why.
        sent: Whether it had been sent.
        seconds: Time from sending to its outcome, if its target took it.
        outcome: Its outcome; `None` if its producer has settled, or nothing waits for it any more.
    """

    token: bytes
    target: Target
    end: CopyEnd
    sent: bool
    seconds: float | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Unreturned(Generic[M]):
    """The end of a delivery of which no outcome is told, as nothing waits for one any more.

    Attributes:
        delivery: The delivery. It is pre-settled from now on if its producer has settled it.
    """

    delivery: Delivery[M]


DeliveryEvent: TypeAlias = (
    Decided[M] | Returned[M] | Round[M] | HoldEnded[M] | CopyEnded | Unreturned[M]
)
"""An event of the deliveries, in the order in which they are to be handled."""


@dataclass(frozen=True, slots=True)
class DeliveriesStatistics:
    """The unsettled deliveries of a name at one moment.

    Attributes:
        unsettled: Number of deliveries without an outcome, or with open copies.
        size: Bytes of their messages.
        copies: Number of open copies.
        held: Number of deliveries on hold, pre-settled ones included.
        held_settled: Number of the pre-settled ones.
        held_size: Bytes of their messages.
        accepted: Number of deliveries that were accepted since the start.
        rejected: Number of those that were rejected.
        released: Number of those that were released.
        modified: Number of those that are in doubt.
        reforwarded: Number of times that a returned delivery was sent to another target.
        unreturned: Number of deliveries of which the way back was lost, or that were settled first.
        overdue: Number of copies that were ended because their time was over.
        forged: Number of dispositions from another sender than the target of the copy.
        repeated: Number of dispositions for copies that had ended.
        unknown: Number of dispositions and ends for tokens that are not known.
        refused: Number of deliveries that were refused: there were `max_unsettled`, or
            `max_unsettled_size`, or the node before has another one with this token.
        hold_expired: Number of deliveries with their rounds or time on hold over.
        hold_refused: Number of deliveries for which there was no room on hold.
    """

    unsettled: int
    size: int
    copies: int
    held: int
    held_settled: int
    held_size: int
    accepted: int
    rejected: int
    released: int
    modified: int
    reforwarded: int
    unreturned: int
    overdue: int
    forged: int
    repeated: int
    unknown: int
    refused: int
    hold_expired: int
    hold_refused: int


class Ages(NamedTuple):
    """Figures of a name, or of a node, on what has waited for long, at one moment.

    Attributes:
        oldest: The time for which a target has had a message without an outcome, of the oldest one,
            in seconds; 0 if there is none.
        stuck: Number of copies that a target has had for longer than `DeliveryLimits.stuck_time`.
        consumers: Number of consumers without credit for which a message has waited as long.
        producers: Number of producers without credit that have sent nothing for as long.
    """

    oldest: float = 0.0
    stuck: int = 0
    consumers: int = 0
    producers: int = 0


OUTCOME_FIGURES: Final[dict[type[Outcome], str]] = {
    Accepted: "accepted",
    Rejected: "rejected",
    Released: "released",
    Modified: "modified",
}
"""The figures of outcomes."""
FIGURES: Final = (
    *OUTCOME_FIGURES.values(),
    *("reforwarded", "unreturned", "overdue", "forged", "repeated", "unknown", "refused"),
)
"""The figures that are counted."""
