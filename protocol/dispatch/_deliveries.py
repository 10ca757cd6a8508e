"""The unsettled deliveries of a name at one node, and those on hold: each has exactly one outcome.

A delivery that is bound has a copy for each target, under a token of its own, which stands on the
return route of that copy. A disposition comes back to the token, from its target and no other; the
outcomes of the copies make that of the delivery, which is told the way that it came from, once.

| event | a copy that was sent | a copy that waits for credit | on hold |
| --- | --- | --- | --- |
| its consumer or link is lost | modified | released | |
| its time is over | modified, and its target is told | released, withdrawn | it ends |
| a consumer has it for too long | modified, and it is told | | |
| the link that it came by is lost | its target is told: modified | withdrawn | gone |
| the node before abandons it | its target is told: modified | withdrawn | gone |
| the producer is lost | goes on; its outcome is told no further | goes on | stays |
| the producer settles first | its target is told: settled | goes on pre-settled | so does it |

What goes on pre-settled has to have room as such, by `DeliveryLimits.max_settled_size`.

A delivery that is *promised* was accepted before a consumer had it, and is kept elsewhere: in
doubt, it is returned, so that another consumer gets it, perhaps for the second time. A multicast is
if all copies have ended and no consumer has accepted it.

A delivery that no target has is *returned*: it may be sent to another target, if none has a part of
it, within limits of tries and time, and to each target once in a round; it may be held; or it ends.
A pre-settled message has no record here but for the time that it is on hold.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeVar

from ._copies import OpenCopy
from ._delivery import (
    OUTCOME_FIGURES,
    CopyEnd,
    CopyEnded,
    Decided,
    Delivery,
    DeliveryEvent,
    HoldEnded,
    Returned,
    Round,
    Unreturned,
)
from ._delivery_table import DeliveryTable, earlier
from ._loads import ConsumerTarget, Target
from ._outcomes import (
    MODIFIED,
    RELEASED,
    DeliveryState,
    Modified,
    Outcome,
    Received,
    Released,
    Tally,
)

__all__ = ["Deliveries"]

M = TypeVar("M")


_SETTLE_PAUSE: Final = 1.0
"""Least time between two looks for copies that are not settled, in seconds."""


class Deliveries(DeliveryTable[M]):
    """The deliveries of a name: what becomes of each copy, and so of each delivery.

    Args:
        make_token: Gives 8 random bytes.
        totals: What all names of the node have together.
    """

    __slots__ = ()

    # --- outcomes ---------------------------------------------------------------------------

    def disposition(
        self,
        token: bytes,
        state: DeliveryState,
        target: Target,
        now: float,
        tally: Tally | None = None,
    ) -> list[DeliveryEvent[M]]:
        """Receive the state of a copy.

        Args:
            token: The token of the copy.
            state: Its state.
            target: The consumer or link that tells it.
            now: The time, in seconds.
            tally: The outcomes behind a link.
        """
        self.promote(token)
        copy = self._copies.get(token)
        if copy is None:
            self._counts["repeated" if self._copies.is_finished(token) else "unknown"] += 1
            return []
        if copy.target != target or copy.sent is None:
            self._counts["forged"] += 1
            return []
        if isinstance(state, Received):
            copy.delivery.kept = False
            return []
        return self._end(copy, state, CopyEnd.TOLD, now, tally)

    def too_late(self, token: bytes, now: float) -> list[DeliveryEvent[M]]:
        """Receive word that a copy was not sent, as its message is not worth handling any more."""
        copy = self._copies.get(token)
        return [] if copy is None else self._end(copy, RELEASED, CopyEnd.ABANDONED, now)

    def target_lost(
        self, target: Target, now: float, *, sent: bool = True
    ) -> list[DeliveryEvent[M]]:
        """Receive the loss of a consumer or link: what was sent is in doubt, the rest released.

        Without `sent`, what was sent goes on: the target only gets no more.
        """
        events: list[DeliveryEvent[M]] = []
        for copy in self._copies.of_target(target):
            # Of what was "sent to consumer, unsettled" the outcome is modified if the "consumer
            # leaves, or a transit router dies"; what was "queued for a consumer, not yet sent" is
            # released.
            if copy.sent is None:
                events += self._end(copy, RELEASED, CopyEnd.LOST, now)
            elif sent:
                events += self._end(copy, MODIFIED, CopyEnd.LOST, now)
        return events

    def source_lost(self, source: Hashable) -> list[DeliveryEvent[M]]:
        """Receive the loss of the link that deliveries came by: targets are told."""
        events: list[DeliveryEvent[M]] = []
        # The newest first: so what waits is not handed over in place of what has ended.
        for delivery in reversed(list(self._of_source.get(source, ()))):
            events += self._abandoned(delivery)
        return events

    def source_ended(
        self, source: Hashable, token: bytes, *, settled: bool
    ) -> list[DeliveryEvent[M]]:
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

    def sender_settled(self, delivery: Delivery[M]) -> list[DeliveryEvent[M]]:
        """Receive the settlement by the producer: there is no outcome to be told any more."""
        # "Sender settling early settles all copies."
        if not self._has(delivery):
            return []
        events = [self._ended(token, CopyEnd.SETTLED) for token in list(delivery.copies)]
        unreturned = self._unreturned(delivery)
        delivery.settled = True
        if self._hold is None or self._hold.became_settled(delivery):
            return [*events, *unreturned]
        # It goes on along the chain of its name, and has its end there.
        return [*events, HoldEnded(delivery, no_room=True)]

    def stop(self, delivery: Delivery[M], now: float) -> list[DeliveryEvent[M]]:
        """End the copies of a delivery, as its dispatcher stops: see `target_lost`.

        Consumers are told. Other dispatchers are not: they learn of the end as such.
        """
        events: list[DeliveryEvent[M]] = []
        copies = [copy for copy in map(self._copies.get, delivery.copies) if copy is not None]
        for copy in copies:
            outcome = RELEASED if copy.sent is None else MODIFIED
            here = isinstance(copy.target, ConsumerTarget)
            end = CopyEnd.ABANDONED if here else CopyEnd.LOST
            events += self._end(copy, outcome, end, now)
        return events

    # --- time -------------------------------------------------------------------------------

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds; `None` if nothing has its time."""
        if not self._copies:
            self._settle_at = None
        first = earlier(self._copies.get_timer(), self._settle_at)
        if self.fast is not None:
            first = earlier(first, self.fast.get_timer())
        return first if self._hold is None else earlier(first, self._hold.get_timer())

    def due(self, now: float) -> list[DeliveryEvent[M]]:
        """End the copies of which the time is over: one slow consumer holds up no sender.

        Rounds of deliveries on hold begin, and those with their time over have left the hold.
        """
        events: list[DeliveryEvent[M]] = []
        if self.fast is not None:
            self._adopt(self.fast, self.fast.due(now))
        for copy in self._copies.overdue(now):
            self._counts["overdue"] += 1
            outcome = RELEASED if copy.sent is None else MODIFIED
            events += self._end(copy, outcome, CopyEnd.ABANDONED, now)
        if self._hold is not None:
            begun, expired = self._hold.due(now)
            events += [Round(delivery) for delivery in begun]
            events += [HoldEnded(delivery) for delivery in expired]
        return events

    def lapsed(self, now: float) -> list[OpenCopy[M]]:
        """Return the copies that consumers here have had for `settle_time`: see `lapse`."""
        if self._settle_at is None or now < self._settle_at:
            return []
        end, late, first = now - self.settle_time, list[OpenCopy[M]](), None
        for copy in self._copies:
            if copy.sent is None or not isinstance(copy.target, ConsumerTarget):
                continue
            if copy.sent <= end:
                late.append(copy)
            else:
                first = earlier(first, copy.sent)
        self._settle_at = None
        if first is not None:
            # Copies with many different times are looked at no more than once in this time.
            self._settle_at = max(first + self.settle_time, now + _SETTLE_PAUSE)
        return late

    def lapse(self, copy: OpenCopy[M], now: float) -> list[DeliveryEvent[M]]:
        """End a copy that its consumer has had for too long, unless it has ended."""
        if self._copies.get(copy.token) is not copy:
            return []
        return self._end(copy, MODIFIED, CopyEnd.ABANDONED, now)

    # --- records ----------------------------------------------------------------------------

    def _ended(
        self,
        token: bytes,
        end: CopyEnd,
        seconds: float | None = None,
        outcome: Outcome | None = None,
    ) -> CopyEnded:
        copy = self._copies.drop(token)
        if end is CopyEnd.ABANDONED and copy.sent is None:
            end = CopyEnd.WITHDRAWN
        return CopyEnded(token, copy.target, end, copy.sent is not None, seconds, outcome)

    def _end(
        self,
        copy: OpenCopy[M],
        outcome: Outcome,
        end: CopyEnd,
        now: float,
        tally: Tally | None = None,
    ) -> list[DeliveryEvent[M]]:
        delivery = copy.delivery
        taken = end is CopyEnd.TOLD and not isinstance(outcome, Released)
        seconds = now - copy.sent if taken and copy.sent is not None else None
        events: list[DeliveryEvent[M]] = [self._ended(copy.token, end, seconds, outcome)]
        decided: Outcome | None = outcome
        if delivery.fan_out is not None:
            if isinstance(copy.target, ConsumerTarget):
                decided = delivery.fan_out.consumer_ended(outcome)
            else:
                decided = delivery.fan_out.link_ended(outcome, tally)
        # One consumer that has accepted a multicast is not to have it again for another's sake.
        taken_by_some = delivery.fan_out is not None and delivery.fan_out.tally.accepted > 0
        doubt = isinstance(decided, Modified) and delivery.promised and not taken_by_some
        if doubt:
            delivery.doubts += 1
            delivery.kept = True
        if doubt or isinstance(decided, Released):
            # A multicast without any copy left is not sent again at once: it has had all targets.
            again = delivery.fan_out is None and self._may_try_again(delivery, now)
            events.append(Returned(delivery, again, doubt))
        elif decided is not None:
            delivery.outcome = decided
            self._counts[OUTCOME_FIGURES[type(decided)]] += 1
            events.append(Decided(delivery, decided))
        if not delivery.copies and delivery.outcome is not None:
            self._forget(delivery)
        return events

    def _may_try_again(self, delivery: Delivery[M], now: float) -> bool:
        """Whether a returned delivery may be sent to another target."""
        return (
            delivery.kept
            and delivery.tries < self._limits.max_tries
            and now < delivery.since + self._limits.try_time
            and (delivery.limit is None or now < delivery.limit)
        )

    def _abandoned(self, delivery: Delivery[M]) -> list[DeliveryEvent[M]]:
        events = [self._ended(token, CopyEnd.ABANDONED) for token in list(delivery.copies)]
        self._unhold(delivery)
        return [*events, *self._unreturned(delivery)]

    def _unreturned(self, delivery: Delivery[M]) -> list[DeliveryEvent[M]]:
        self._forget(delivery)
        if delivery.outcome is not None:
            return []
        self._counts["unreturned"] += 1
        return [Unreturned(delivery)]
