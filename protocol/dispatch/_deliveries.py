"""The unsettled deliveries of a name at one node: each has exactly one outcome.

A delivery that is bound has a copy for each target, under a token of its own, which stands on the
return route of that copy. A disposition comes back to the token, from its target and no other; the
outcomes of the copies make that of the delivery, which is told the way that it came from, once.

| event | a copy that was sent | a copy that waits for credit |
| --- | --- | --- |
| its consumer or link is lost | modified | released |
| its time is over | modified, and its target is told | released, and it is withdrawn |
| the link that the delivery came by is lost | its target is told: modified | it is withdrawn |
| the node before abandons it | its target is told: modified | it is withdrawn |
| the producer is lost | goes on; its outcome is told no further | goes on |
| the producer settles first | its target is told: settled | goes on as a pre-settled message |

A delivery to one target that comes back as released is sent to another one, if its payload was
kept: within limits of tries and time, and to each target once. *Received* ends that: the consumer
has a part of it. A pre-settled message has no record here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeAlias, TypeVar

from ._choice import ConsumerTarget, Target
from ._delivery_limits import DeliveryLimits
from ._outcomes import (
    MODIFIED,
    RELEASED,
    Accepted,
    DeliveryState,
    FanOut,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    Tally,
)
from ._transit import Identity

__all__ = [
    "CopyEnd",
    "CopyEnded",
    "Decided",
    "Deliveries",
    "DeliveriesStatistics",
    "Delivery",
    "DeliveryEvent",
    "Reforward",
]

Way = TypeVar("Way")
"""The way back to the producer, such as a return route."""
Kept = TypeVar("Kept")
"""The message of a delivery that may be sent again."""


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


@dataclass(slots=True, eq=False)
class Delivery(Generic[Way, Kept]):
    """An unsettled delivery.

    Attributes:
        source: The link or producer that it came from; `None` once the producer is lost.
        way: The way back to the producer.
        identity: The identity of the delivery.
        token: The token of the node before, if it came from one.
        kept: The message, if it may be sent to another target.
        since: When it was bound first, in seconds.
        deadline: When it ends in any case, in seconds; `None` never does.
        tried: Targets that have released it.
        copies: The targets of its open copies, by token.
        outcome: Its outcome.
        fan_out: The outcomes of its copies, if it is a multicast.
    """

    source: Hashable
    way: Way
    identity: Identity
    token: bytes | None
    kept: Kept | None
    since: float
    deadline: float | None
    tried: set[Target] = field(default_factory=set[Target])
    copies: dict[bytes, Target] = field(default_factory=dict[bytes, Target])
    outcome: Outcome | None = None
    fan_out: FanOut | None = None

    @property
    def tally(self) -> Tally | None:
        """The outcomes of its copies, if it is a multicast."""
        return None if self.fan_out is None else self.fan_out.tally


@dataclass(frozen=True, slots=True)
class Decided(Generic[Way, Kept]):
    """The outcome of a delivery, to be told the way it came from unless its source is `None`.

    Attributes:
        delivery: The delivery.
        outcome: Its outcome.
    """

    delivery: Delivery[Way, Kept]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Reforward(Generic[Way, Kept]):
    """The call for another target, to be answered by `rebind` or `give_up` at once.

    Attributes:
        delivery: The delivery, with the targets that were tried.
    """

    delivery: Delivery[Way, Kept]


@dataclass(frozen=True, slots=True)
class CopyEnded:
    """The end of a copy.

    Attributes:
        token: Its token.
        target: Its target, which has a message less.
        end: Why.
        sent: Whether it had been sent.
        seconds: Time from sending to its outcome, if its target took it.
    """

    token: bytes
    target: Target
    end: CopyEnd
    sent: bool
    seconds: float | None = None


DeliveryEvent: TypeAlias = Decided[Way, Kept] | Reforward[Way, Kept] | CopyEnded
"""An event of the unsettled deliveries, in the order in which they are to be handled."""


@dataclass(frozen=True, slots=True)
class DeliveriesStatistics:
    """The unsettled deliveries of a name at one moment.

    Attributes:
        unsettled: Number of deliveries without an outcome, or with open copies.
        copies: Number of open copies.
        accepted: Number of deliveries that were accepted since the start.
        rejected: Number of those that were rejected.
        released: Number of those that were released.
        modified: Number of those that are in doubt.
        reforwarded: Number of times that a released delivery was sent to another target.
        unreturned: Number of deliveries of which the way back was lost, or that were settled first.
        overdue: Number of copies that were ended because their time was over.
        forged: Number of dispositions from another sender than the target of the copy.
        repeated: Number of dispositions for copies that had ended.
        unknown: Number of dispositions and ends for tokens that are not known.
        refused: Number of deliveries that were refused, because of `max_unsettled` or because
            the node before has another one with this token.
    """

    unsettled: int
    copies: int
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


@dataclass(slots=True, eq=False)
class _Copy(Generic[Way, Kept]):
    """An open copy of a delivery."""

    token: bytes
    target: Target
    delivery: Delivery[Way, Kept]
    sent: float | None


_COUNTED: Final[dict[type[Outcome], str]] = {
    Accepted: "accepted",
    Rejected: "rejected",
    Released: "released",
    Modified: "modified",
}
_SPARE_DEADLINES: Final = 64
"""Deadlines of ended copies that may lie in the heap beyond as many as there are open copies."""


class Deliveries(Generic[Way, Kept]):
    """The table of the unsettled deliveries of a name.

    Args:
        make_token: Gives 8 random bytes.
        limits: The limits.
    """

    def __init__(
        self, make_token: Callable[[], bytes], limits: DeliveryLimits | None = None
    ) -> None:
        self._make_token = make_token
        self._limits = limits or DeliveryLimits()
        self._copies: dict[bytes, _Copy[Way, Kept]] = {}
        self._of_target: dict[Target, dict[bytes, _Copy[Way, Kept]]] = {}
        self._of_source: dict[Hashable, dict[Delivery[Way, Kept], None]] = {}
        self._deadlines: list[tuple[float, bytes]] = []
        self._of_token: dict[tuple[Hashable, bytes], Delivery[Way, Kept]] = {}
        self._finished: dict[bytes, None] = {}
        self._unsettled = 0
        self._counts = Counter[str]()

    # --- binding ----------------------------------------------------------------------------

    def bind(
        self,
        source: Hashable,
        way: Way,
        identity: Identity,
        targets: Sequence[Target],
        now: float,
        *,
        token: bytes | None = None,
        kept: Kept | None = None,
        accepts: int | None = None,
        early: bool = True,
        deadline: float | None = None,
    ) -> Delivery[Way, Kept] | None:
        """Begin a delivery with a copy for each target; `None` if the table is full.

        Args:
            source: The link or producer that it came from, not `None`.
            way: The way back to the producer.
            identity: Its identity.
            targets: At least one target; only one if it is no multicast.
            now: The time, in seconds.
            token: The token of the node before, if it came from one.
            kept: The message, if it may be sent to another target.
            accepts: Acceptances that make a multicast accepted, or `ALL`; `None` if it is none.
            early: Whether a multicast is decided before all copies have ended: at its ingress.
            deadline: When it ends in any case, in seconds.
        """
        of_token = None if token is None else (source, token)
        if self._unsettled >= self._limits.max_unsettled or of_token in self._of_token:
            self._counts["refused"] += 1
            return None
        delivery = Delivery(source, way, identity, token, kept, now, deadline)
        if accepts is not None:
            here = sum(isinstance(target, ConsumerTarget) for target in targets)
            delivery.fan_out = FanOut(here, len(targets) - here, accepts, early=early)
        if of_token is not None:
            self._of_token[of_token] = delivery
        self._unsettled += 1
        self._of_source.setdefault(source, {})[delivery] = None
        for target in targets:
            self._add_copy(delivery, target)
        return delivery

    def rebind(self, delivery: Delivery[Way, Kept], target: Target) -> bytes:
        """Send a released delivery to another target; return the token of the copy."""
        self._counts["reforwarded"] += 1
        return self._add_copy(delivery, target)

    def give_up(self, delivery: Delivery[Way, Kept]) -> list[DeliveryEvent[Way, Kept]]:
        """End a released delivery for which there is no other target."""
        events: list[DeliveryEvent[Way, Kept]] = []
        self._decide(delivery, RELEASED, events)
        return events

    def way_of(self, token: bytes) -> Way | None:
        """Return the way back of an open copy; `None` if the token is not that of one."""
        copy = self._copies.get(token)
        return None if copy is None else copy.delivery.way

    def sent(self, token: bytes, now: float) -> None:
        """Receive word that a copy was sent; from now on it is in doubt if its target is lost."""
        copy = self._copies.get(token)
        if copy is not None and copy.sent is None:
            copy.sent = now

    # --- outcomes ---------------------------------------------------------------------------

    def disposition(
        self,
        token: bytes,
        state: DeliveryState,
        target: Target,
        now: float,
        tally: Tally | None = None,
    ) -> list[DeliveryEvent[Way, Kept]]:
        """Receive the state of a copy.

        Args:
            token: The token of the copy.
            state: Its state.
            target: The consumer or link that tells it.
            now: The time, in seconds.
            tally: The outcomes behind a link.
        """
        copy = self._copies.get(token)
        if copy is None:
            self._counts["repeated" if token in self._finished else "unknown"] += 1
            return []
        if copy.target != target or copy.sent is None:
            self._counts["forged"] += 1
            return []
        if isinstance(state, Received):
            copy.delivery.kept = None
            return []
        return self._end(copy, state, CopyEnd.TOLD, now, tally)

    def target_lost(self, target: Target, now: float) -> list[DeliveryEvent[Way, Kept]]:
        """Receive the loss of a consumer or link: what was sent is in doubt, the rest released."""
        events: list[DeliveryEvent[Way, Kept]] = []
        for copy in list(self._of_target.get(target, {}).values()):
            # Of what was "sent to consumer, unsettled" the outcome is modified if the "consumer
            # leaves, or a transit router dies"; what was "queued for a consumer, not yet sent" is
            # released.
            outcome = RELEASED if copy.sent is None else MODIFIED
            events += self._end(copy, outcome, CopyEnd.LOST, now)
        return events

    def source_lost(self, source: Hashable) -> list[DeliveryEvent[Way, Kept]]:
        """Receive the loss of the link that deliveries came by: targets are told."""
        events: list[DeliveryEvent[Way, Kept]] = []
        for delivery in list(self._of_source.get(source, ())):
            events += self._abandoned(delivery)
        return events

    def _abandoned(self, delivery: Delivery[Way, Kept]) -> list[DeliveryEvent[Way, Kept]]:
        events: list[DeliveryEvent[Way, Kept]] = []
        for token in list(delivery.copies):
            copy = self._drop(token)
            end = CopyEnd.WITHDRAWN if copy.sent is None else CopyEnd.ABANDONED
            events.append(_ended(copy, end))
        self._unreturned(delivery)
        return events

    def source_ended(
        self, source: Hashable, token: bytes, *, settled: bool
    ) -> list[DeliveryEvent[Way, Kept]]:
        """Receive word of the node before that it does not wait for an outcome any more.

        Args:
            source: The link to that node.
            token: Its token.
            settled: Whether the producer has settled; otherwise the delivery is abandoned.
        """
        delivery = self._of_token.get((source, token))
        if delivery is None:
            self._counts["unknown"] += 1
            return []
        return self.sender_settled(delivery) if settled else self._abandoned(delivery)

    def producer_lost(self, source: Hashable) -> None:
        """Receive the loss of a producer: its deliveries go on, and nothing is told back."""
        # "sender's connection dies: downstream peers just unlinked; consumer is not told".
        for delivery in self._of_source.pop(source, ()):
            self._counts["unreturned"] += 1
            delivery.source = None
            self._of_source.setdefault(None, {})[delivery] = None

    def sender_settled(self, delivery: Delivery[Way, Kept]) -> list[DeliveryEvent[Way, Kept]]:
        """Receive the settlement by the producer: there is no outcome to be told any more."""
        # "Sender settling early settles all copies."
        if not self._has(delivery):
            return []
        events: list[DeliveryEvent[Way, Kept]] = [
            _ended(self._drop(token), CopyEnd.SETTLED) for token in list(delivery.copies)
        ]
        self._unreturned(delivery)
        return events

    # --- time -------------------------------------------------------------------------------

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds; `None` if no copy has a deadline."""
        while self._deadlines and self._deadlines[0][1] not in self._copies:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, now: float) -> list[DeliveryEvent[Way, Kept]]:
        """End the copies of which the time is over: one slow consumer holds up no sender."""
        events: list[DeliveryEvent[Way, Kept]] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            copy = self._copies.get(heappop(self._deadlines)[1])
            if copy is None:
                continue
            self._counts["overdue"] += 1
            if copy.sent is None:
                events += self._end(copy, RELEASED, CopyEnd.WITHDRAWN, now)
            else:
                events += self._end(copy, MODIFIED, CopyEnd.ABANDONED, now)
        return events

    def statistics(self) -> DeliveriesStatistics:
        """Return the figures of the table at this moment."""
        counts = self._counts
        return DeliveriesStatistics(
            unsettled=self._unsettled,
            copies=len(self._copies),
            accepted=counts["accepted"],
            rejected=counts["rejected"],
            released=counts["released"],
            modified=counts["modified"],
            reforwarded=counts["reforwarded"],
            unreturned=counts["unreturned"],
            overdue=counts["overdue"],
            forged=counts["forged"],
            repeated=counts["repeated"],
            unknown=counts["unknown"],
            refused=counts["refused"],
        )

    # --- records ----------------------------------------------------------------------------

    def _add_copy(self, delivery: Delivery[Way, Kept], target: Target) -> bytes:
        token = self._make_token()
        while token in self._copies or token in self._finished:
            token = self._make_token()
        copy = _Copy(token, target, delivery, None)
        self._copies[token] = copy
        self._of_target.setdefault(target, {})[token] = copy
        delivery.copies[token] = target
        if delivery.deadline is not None:
            if len(self._deadlines) > 2 * len(self._copies) + _SPARE_DEADLINES:
                self._deadlines = [each for each in self._deadlines if each[1] in self._copies]
                heapify(self._deadlines)
            heappush(self._deadlines, (delivery.deadline, token))
        return token

    def _drop(self, token: bytes) -> _Copy[Way, Kept]:
        copy = self._copies.pop(token)
        del copy.delivery.copies[token]
        tokens = self._of_target[copy.target]
        del tokens[token]
        if not tokens:
            del self._of_target[copy.target]
        self._finished[token] = None
        if len(self._finished) > self._limits.finished_tokens:
            del self._finished[next(iter(self._finished))]
        return copy

    def _end(
        self,
        copy: _Copy[Way, Kept],
        outcome: Outcome,
        end: CopyEnd,
        now: float,
        tally: Tally | None = None,
    ) -> list[DeliveryEvent[Way, Kept]]:
        delivery = self._drop(copy.token).delivery
        events: list[DeliveryEvent[Way, Kept]] = [_ended(copy, end, outcome, now)]
        decided: Outcome | None = outcome
        if delivery.fan_out is not None:
            if isinstance(copy.target, ConsumerTarget):
                decided = delivery.fan_out.consumer_ended(outcome)
            else:
                decided = delivery.fan_out.link_ended(outcome, tally)
        elif isinstance(outcome, Released):
            delivery.tried.add(copy.target)
            if self._may_try_again(delivery, now):
                return [*events, Reforward(delivery)]
        if decided is not None:
            self._decide(delivery, decided, events)
        elif not delivery.copies:
            self._forget(delivery)
        return events

    def _may_try_again(self, delivery: Delivery[Way, Kept], now: float) -> bool:
        """Whether a released delivery may be sent to another target."""
        return (
            delivery.kept is not None
            and len(delivery.tried) < self._limits.max_tries
            and now < delivery.since + self._limits.try_time
            and (delivery.deadline is None or now < delivery.deadline)
        )

    def _decide(
        self,
        delivery: Delivery[Way, Kept],
        outcome: Outcome,
        events: list[DeliveryEvent[Way, Kept]],
    ) -> None:
        delivery.outcome = outcome
        self._counts[_COUNTED[type(outcome)]] += 1
        events.append(Decided(delivery, outcome))
        if not delivery.copies:
            self._forget(delivery)

    def _has(self, delivery: Delivery[Way, Kept]) -> bool:
        return delivery in self._of_source.get(delivery.source, ())

    def _unreturned(self, delivery: Delivery[Way, Kept]) -> None:
        if delivery.outcome is None:
            self._counts["unreturned"] += 1
        self._forget(delivery)

    def _forget(self, delivery: Delivery[Way, Kept]) -> None:
        deliveries = self._of_source[delivery.source]
        del deliveries[delivery]
        if not deliveries:
            del self._of_source[delivery.source]
        if delivery.token is not None:
            self._of_token.pop((delivery.source, delivery.token), None)
        self._unsettled -= 1


def _ended(
    copy: _Copy[Way, Kept], end: CopyEnd, outcome: Outcome | None = None, now: float = 0.0
) -> CopyEnded:
    seconds = None
    if end is CopyEnd.TOLD and copy.sent is not None and not isinstance(outcome, Released):
        seconds = now - copy.sent
    return CopyEnded(copy.token, copy.target, end, copy.sent is not None, seconds)
