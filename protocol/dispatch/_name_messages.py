"""What comes of each message of a name at one node, without I/O.

```
bind ─▶ choose ─▶ queue of a consumer ─▶ Hand ─▶ disposition ─▶ Told
          │  └──▶ SendOn to the next node ──┘          │ released: another target
          └─ nothing: hold and retry, redirect, release ◀┘
```

A message that is bound has one outcome: it is told, or a pre-settled one is handed on or dropped
with its reason. Each call leaves events, which are taken by `events` and performed in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from ._choice import is_too_far
from ._delivery import (
    CopyEnd,
    CopyEnded,
    Decided,
    Delivery,
    DeliveryEvent,
    HoldEnded,
    Returned,
    Unreturned,
)
from ._loads import LinkTarget, Target
from ._name_consumers import NameConsumer
from ._name_events import (
    DropReason,
    Hand,
    Held,
    Redirected,
    Refusal,
    SendOn,
)
from ._name_parts import NameParts
from ._outcomes import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    DeliveryState,
    Outcome,
    Rejected,
    Tally,
)
from ._producer_window import NOT_FOUND
from ._semantics_parts import (
    Last,
    Redirect,
    Retry,
    RoutingPattern,
    Settlement,
)
from ._transit import MAX_PATH
from ._undeliverable import last_outcome, next_part

__all__ = ["NameMessages"]

M = TypeVar("M")

_REFUSED: Final = {
    Refusal.UNAVAILABLE: (DropReason.UNAVAILABLE, NOT_FOUND),
    Refusal.CIRCUITS: (
        DropReason.CIRCUITS,
        Rejected("amqp:not-allowed", "the name takes circuits, and no messages"),
    ),
}


class NameMessages(NameParts[M]):
    """The messages of a name: the part of `NameState` that binds them and tells their outcomes.

    Args:
        own: The name of the node in the network.
        semantics: The semantics of the name.
        make_token: Gives 8 random bytes.
        totals: What all names of the node have together, with its limits.
    """

    __slots__ = ()

    # --- messages ---------------------------------------------------------------------------

    def send(self, producer: int, delivery: Delivery[M], now: float) -> bool:
        """Bind a message of a producer of the name; return whether it has credit for it."""
        # Without a way back there is no outcome to wait for: its credit comes back at once.
        settled = delivery.settled or delivery.source is None
        changes = self._windows.sent(producer, settled=settled)
        if changes is None:
            return False
        self._events += changes
        self.bind(delivery, now)
        return True

    def bind(self, delivery: Delivery[M], now: float) -> None:
        """Bind a message: from now on its outcome is told, or its drop is counted."""
        reason: DropReason | None = None
        outcome: Outcome = RELEASED
        delivery.begin()
        refusal = self.refusal()
        # While some nodes know of new paths and others do not, a multicast takes a longer way than
        # any path, and passes no node twice. No second copy of it need come instead.
        many = self.semantics.pattern is RoutingPattern.MULTICAST
        most = MAX_PATH if many else self._totals.paths.greatest_radius(now)
        if refusal is not None:
            reason, outcome = _REFUSED[refusal]
        elif is_too_far(len(delivery.path), most):
            reason = DropReason.TOO_FAR
        elif self._duplicates is not None:
            known = self._duplicates.arrived(delivery.identity, now)
            if known is not None:
                reason, outcome = DropReason.DUPLICATE, known
        elif self._is_second_copy(delivery):
            reason, outcome = DropReason.DUPLICATE, MODIFIED
        if reason is None and not delivery.settled:
            at_once = self.semantics.reliability.settle is Settlement.AT_ONCE
            if at_once and not delivery.promised:
                self._tell(delivery, ACCEPTED)
                delivery.settled = True
            elif not self._deliveries.enter(delivery, now):
                one = self._deliveries.may_have(delivery.size, delivery.share)
                reason = DropReason.UNSETTLED if one else DropReason.SHARE
        if reason is None:
            self._place(delivery, now)
        elif delivery.settled:
            self._drop(delivery, reason)
        else:
            self._totals.counts[reason] += 1
            self._tell(delivery, outcome, bound=reason in (DropReason.UNSETTLED, DropReason.SHARE))
        self._refresh_credit()

    def _is_second_copy(self, delivery: Delivery[M]) -> bool:
        """Whether a multicast of another node has come already, by another path."""
        multicast = self.semantics.pattern is RoutingPattern.MULTICAST
        if not multicast or delivery.identity[0] == self._own:
            return False
        return not self._totals.multicasts.arrived(delivery.identity)

    def go_on(self, delivery: Delivery[M], now: float) -> None:
        """Go on with a message that could not be redirected, along the rest of the chain."""
        if delivery.settled or self._deliveries.enter(delivery, now):
            self._undeliverable(delivery, now)
        else:
            self._tell(delivery, RELEASED)
        self._refresh()

    def bind_to(
        self, delivery: Delivery[M], target: Target, limit: float, now: float
    ) -> bytes | None:
        """Bind a message to what is no consumer of the name, as it is redirected to a route.

        Args:
            delivery: The message, which is unsettled.
            target: What its outcome comes from, by `disposition`.
            limit: When it is in doubt in any case, in seconds.
            now: The time, in seconds.

        Returns:
            The token of its copy, which is sent now; `None` if there is no room.
        """
        if not self._deliveries.enter(delivery, now):
            return None
        (token,) = self._deliveries.bind(delivery, (target,), limit=limit)
        self._deliveries.sent(token, now)
        return token

    def _place(self, delivery: Delivery[M], now: float) -> None:
        """Send a message to a target, or go on with it as undeliverable."""
        targets = self._choose(delivery, now)
        if targets:
            self._bind(delivery, targets, now)
        else:
            self._undeliverable(delivery, now)

    def _bind(self, delivery: Delivery[M], targets: tuple[Target, ...], now: float) -> None:
        delivery.spread = self.semantics.pattern is RoutingPattern.MULTICAST
        if delivery.settled:
            self._deliveries.leave(delivery)
            for target in targets:
                self._send(delivery, target, None, now)
            return
        accepts, limit = None, delivery.deadline
        if delivery.promised:
            # Nothing else waits for its outcome, which may be lost with the word of another node.
            limit = now + self._totals.limits.promise_time
        entered_here = delivery.identity[0] == self._own
        early = entered_here and not delivery.promised
        reliability = self.semantics.reliability
        if delivery.spread:
            # How many acceptances are enough is for the ingress to say.
            accepts = reliability.accepts if entered_here else 1
            end = now + reliability.deadline
            limit = end if limit is None else min(limit, end)
        tokens = self._deliveries.bind(delivery, targets, accepts=accepts, early=early, limit=limit)
        for token, target in zip(tokens, targets, strict=True):
            self._send(delivery, target, token, now)

    def _send(self, delivery: Delivery[M], target: Target, token: bytes | None, now: float) -> None:
        if isinstance(target, LinkTarget):
            if token is not None:
                self._chooser.bound(target)
                self._deliveries.sent(token, now)
            self._events.append(SendOn(target.link, token, delivery))
            return
        record = self._consumers.get(target.consumer)
        if record is None:
            raise AssertionError("a target that is not there")
        self._chooser.bound(target)
        if record.queue.pass_by():
            self._hand(record, delivery, token, now)
            return
        for dropped, reason in record.queue.put(delivery, token, delivery.until, now):
            self._chooser.settled(target)
            self._drop(dropped, reason)
        if delivery.until is not None:
            known = self._too_late
            self._too_late = delivery.until if known is None else min(known, delivery.until)
        self._pump(record, now)

    def _pump(self, record: NameConsumer[M], now: float) -> None:
        """Hand a consumer what its credit allows."""
        if not record.queue:
            return
        for late in record.queue.expire(now):
            if late.token is not None:
                self._act(self._deliveries.too_late(late.token, now), now)
            else:
                self._chooser.settled(record.target)
                self._rescue(late.message, DropReason.EXPIRED, now)
        for waiting in record.queue.take():
            self._hand(record, waiting.message, waiting.token, now)

    def _hand(
        self, record: NameConsumer[M], delivery: Delivery[M], token: bytes | None, now: float
    ) -> None:
        if token is None:
            record.handed += 1
        else:
            self._deliveries.sent(token, now)
        self._events.append(Hand(record.number, token, delivery))

    # --- outcomes ---------------------------------------------------------------------------

    def disposition(
        self,
        token: bytes,
        state: DeliveryState,
        target: Target,
        now: float,
        tally: Tally | None = None,
    ) -> None:
        """Receive the state of a copy from its target."""
        self._act(self._deliveries.disposition(token, state, target, now, tally), now)
        self._refresh_credit()

    def handled(self, consumer: int, now: float) -> None:
        """Receive word that a consumer has handled a pre-settled message."""
        record = self._consumers.get(consumer)
        if record is None or not record.handed:
            return
        record.handed -= 1
        self._chooser.settled(record.target)
        record.queue.credit += not record.by_credit
        self._pump(record, now)
        self._refresh_credit()

    def source_ended(self, source: str, token: bytes, now: float, *, settled: bool) -> None:
        """Receive word of the node before that it does not wait for an outcome any more."""
        self._act(self._deliveries.source_ended(source, token, settled=settled), now)
        self._refresh()

    def sender_settled(self, delivery: Delivery[M], now: float) -> None:
        """Receive the settlement of a delivery by its producer, before there is an outcome."""
        waits = delivery.outcome is None and not delivery.settled
        self._act(self._deliveries.sender_settled(delivery), now)
        if waits and isinstance(delivery.source, int) and delivery.source in self._windows:
            self.settled(delivery.source)
        self._refresh()

    def stop(self, delivery: Delivery[M], now: float) -> None:
        """End an unsettled message, as the dispatcher stops: no other target is tried.

        If a target has it, it is in doubt; else it is released.
        """
        for event in self._deliveries.stop(delivery, now):
            if isinstance(event, CopyEnded):
                if not event.sent:
                    self._leave_queue(event)
                self._events.append(event)
                self._chooser.settled(event.target)
            elif isinstance(event, Decided):
                self._tell(event.delivery, event.outcome)
        if delivery.outcome is None:
            self._finish(delivery, RELEASED)

    def stop_unread(self, token: bytes, now: float) -> None:
        """End a message that a consumer has not read, as both stop: see `stop`.

        A multicast that another target has goes on until that stops.
        """
        delivery = self._deliveries.unread(token)
        if delivery is not None:
            self.stop(delivery, now)

    def _act(self, events: list[DeliveryEvent[M]], now: float) -> None:
        # Copies that have ended leave their queues first: none is handed over in between.
        for event in events:
            if isinstance(event, CopyEnded) and not event.sent:
                self._leave_queue(event)
        for event in events:
            if isinstance(event, CopyEnded):
                self._copy_ended(event, now)
            elif isinstance(event, Decided):
                self._tell(event.delivery, event.outcome)
            elif isinstance(event, Returned):
                self._returned(event, now)
            elif isinstance(event, HoldEnded):
                reason = DropReason.NO_ROOM if event.no_room else DropReason.HOLD_ENDED
                self._totals.counts[reason] += 1
                event.delivery.part = self.semantics.retry
                self._undeliverable(event.delivery, now)
            elif isinstance(event, Unreturned):
                self._events.append(event)
            else:
                self._try_held([event.delivery], now)

    def _returned(self, event: Returned[M], now: float) -> None:
        delivery, retry = event.delivery, self.semantics.retry
        # What the route of a redirect did not take goes on behind the redirect.
        again = event.again and not isinstance(delivery.part, Redirect)
        if event.doubt:
            self._totals.counts[DropReason.DOUBT] += 1
            if delivery.spread and self._duplicates is None:
                # Nodes behind may have seen it: what is sent again on purpose is no second copy
                # there, unless duplicates are to be known.
                delivery.identity = (*delivery.identity[:2], self._make_id())
            if retry is not None and 0 < retry.rounds <= delivery.doubts:
                delivery.part, again = retry, False
        if again:
            self._place(delivery, now)
        else:
            self._undeliverable(delivery, now)

    def _leave_queue(self, event: CopyEnded) -> None:
        record = self._record_of(event.target)
        if record is not None and event.end is CopyEnd.SETTLED:
            for dropped, reason in record.queue.settle(event.token):
                self._chooser.settled(event.target)
                self._drop(dropped, reason)
        elif record is not None:
            record.queue.withdraw(event.token)

    def _copy_ended(self, event: CopyEnded, now: float) -> None:
        self._events.append(event)
        record = self._record_of(event.target)
        if record is not None and event.end is CopyEnd.SETTLED and not event.sent:
            return  # it waits on, as a pre-settled message
        self._chooser.settled(event.target, event.seconds)
        if record is not None:
            record.queue.credit += event.sent and not record.by_credit
            self._pump(record, now)

    # --- what is undeliverable --------------------------------------------------------------

    def _undeliverable(self, delivery: Delivery[M], now: float) -> None:
        """Go on with a message that no target takes, along the chain of the semantics."""
        if delivery.identity[0] != self._own:
            # The chain applies where the message entered: the nodes behind release it to there.
            self._finish(delivery, RELEASED)
            return
        chain = self.semantics.undeliverable
        while True:
            after = delivery.part if delivery.part in chain else None
            part = next_part(chain, after, redirected=delivery.redirected)
            if isinstance(part, Retry):
                if self._deliveries.hold(delivery, now):
                    self._events.append(Held(delivery))
                    return
                self._totals.counts[DropReason.NO_ROOM] += 1
                delivery.part = part
            elif isinstance(part, Redirect):
                self._deliveries.leave(delivery)
                delivery.part, delivery.redirected = part, True
                self._events.append(Redirected(delivery, part))
                return
            else:
                outcome = last_outcome(part, settled=delivery.settled)
                if part is Last.DROP and not delivery.settled:
                    self._drop(delivery, DropReason.PROVISIONED)
                self._finish(delivery, RELEASED if outcome is None else outcome)
                return

    def _try_held(self, held: Iterable[Delivery[M]], now: float) -> None:
        for delivery in held:
            targets = self._choose(delivery, now)
            if targets:
                self._bind(delivery, targets, now)

    # --- together ---------------------------------------------------------------------------

    def _rescue(self, delivery: Delivery[M], reason: DropReason, now: float) -> None:
        """Go on with a pre-settled message that its consumer cannot have; drop a mere copy."""
        if delivery.spread:
            self._drop(delivery, reason)
        else:
            self._place(delivery, now)
