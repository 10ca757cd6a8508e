"""The state of one name at one node, and all that happens to a message there.

```
bind ─▶ choose ─▶ queue of a consumer ─▶ hand ─▶ outcome ─▶ the way back
          │  └──▶ link to the next node ──┘          │ released: another target
          └─ nothing: hold and retry, redirect, release ◀┘
```

Each step is a plain function on the node's loop. So a message takes no turn of a worker here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ...protocol import OnwardError
from ...protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    NOT_FOUND,
    RELEASED,
    Accepted,
    Chooser,
    ConsumerQueue,
    ConsumerTarget,
    CopyEnd,
    CopyEnded,
    CreditChange,
    Decided,
    Deliveries,
    Delivery,
    DeliveryEvent,
    DeliveryState,
    DirectConsumers,
    DuplicateWindow,
    Gate,
    Held,
    HoldQueue,
    LinkTarget,
    Mechanism,
    Name,
    Outcome,
    Overflow,
    ProducerWindows,
    Redirect,
    Released,
    RemoteNode,
    Retry,
    RoutingPattern,
    Semantics,
    Settlement,
    Tally,
    Target,
    Weigh,
    is_too_far,
    last_outcome,
    next_part,
)
from ._arrival import Arrival, ProducerWay, TransitWay
from ._consumer_record import Accept, ConsumerRecord
from ._errors import ConsumerRefused

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["NameState"]

_Event = DeliveryEvent[Arrival, Arrival]


class NameState:
    """The consumers, producers, deliveries and held messages of a name.

    Args:
        core: The dispatcher that it belongs to.
        name: The name.
        semantics: Its semantics.

    Attributes:
        name: The name.
        semantics: Its semantics.
        consumers: Its consumers, by number.
        deliveries: Its unsettled deliveries.
        windows: The windows of its producers.
        scheduled: When the dispatcher looks at it again, in seconds.
    """

    def __init__(self, core: DispatchCore, name: Name, semantics: Semantics) -> None:
        self._core: Final = core
        self.name: Final = name
        self.semantics = semantics
        self.consumers: dict[int, ConsumerRecord] = {}
        self.deliveries = Deliveries[Arrival, Arrival](core.token, core.options.deliveries)
        self.scheduled: float | None = None
        self.announced: int | None = None
        self.producers: dict[int, None] = {}
        self.dropped = 0
        """Number of messages that were dropped."""
        self._remotes: tuple[RemoteNode, ...] = ()
        self._active_since = 0.0
        self._told_paths = 0
        self._build()

    def _build(self) -> None:
        """Make what depends on the semantics."""
        it = self.semantics
        self.chooser = Chooser(by_load=it.weigh is Weigh.LOAD, by_time=it.weigh is Weigh.TIME)
        self.windows = ProducerWindows(
            by_credit=it.gate is Gate.CREDIT, always=it.gate is Gate.OPEN
        )
        self.direct: DirectConsumers | None = None
        if it.pattern is RoutingPattern.DIRECT:
            self.direct = DirectConsumers(it.second, self._core.options.max_consumers)
        self.duplicates: DuplicateWindow | None = None
        if it.reliability.deduplicate:
            most = self._core.options.deliveries.duplicate_ids
            self.duplicates = DuplicateWindow(it.reliability.deduplicate, most)
        self.hold: HoldQueue[Arrival] | None = None
        if (retry := it.retry) is not None:
            self.hold = HoldQueue[Arrival](
                messages=retry.hold.messages,
                size=retry.hold.size,
                age=retry.hold.age,
                rounds=retry.rounds,
                first=retry.first,
                longest=retry.longest,
            )

    def update(self, semantics: Semantics) -> None:
        """Apply other semantics while messages are under way.

        Deliveries that are bound go on. Loads begin anew, and messages on hold are sent through
        the new chain.
        """
        if semantics == self.semantics:
            return
        self.semantics = semantics
        held = self.hold.clear() if self.hold is not None else []
        unsettled = [copy.target for copy in self._copies()]
        self._build()
        for record in list(self.consumers.values()):
            record.active = False
            self._admit(record)
        for target in unsettled:
            self.chooser.bound(target)
        self.chooser.set_remotes(self._remotes)
        for number in self.producers:
            # What was told as credit before stays told: producers of this node read it anew.
            self._credit(self.windows.add(number, semantics.window))
        self._paths_changed()
        for each in held:
            each.message.held = None
            self.bind(each.message)

    def _copies(self) -> list[_Copy]:
        return [
            _Copy(token, target)
            for token, (state, target) in self._core.tokens.items()
            if state is self
        ]

    @property
    def _refused(self) -> bool:
        """Whether the name takes no messages: another node may have said that it is of circuits."""
        it = self.semantics
        return it.pattern is RoutingPattern.UNAVAILABLE or it.mechanism is Mechanism.LINK

    @property
    def idle(self) -> bool:
        """Whether nothing of it is left that has to be kept."""
        return not (
            self.consumers
            or self.producers
            or self._remotes
            or self.deliveries.statistics().unsettled
            or (self.hold is not None and self.hold.statistics().held)
            or (self.duplicates is not None and len(self.duplicates))
        )

    # --- messages ---------------------------------------------------------------------------

    def bind(self, arrival: Arrival) -> None:
        """Bind a message: from now on its outcome is told, or its drop is counted."""
        core, now = self._core, self._core.now()
        if not core.keep(self.name, arrival):
            return
        if self._refused:
            self._finish(arrival, NOT_FOUND)
            return
        if is_too_far(len(arrival.path), core.paths.radius):
            core.counts["passed too many nodes"] += 1
            self._finish(arrival, RELEASED)
            return
        if self.duplicates is not None:
            known = self.duplicates.arrived(arrival.identity, now)
            if known is not None:
                core.counts["duplicates"] += 1
                core.ways.tell(arrival, known)
                return
        if self.semantics.reliability.settle is Settlement.AT_ONCE and not arrival.settled:
            core.ways.tell(arrival, ACCEPTED)
            arrival.settled = True
        targets = self._choose(arrival, ())
        if targets:
            self._place(arrival, targets)
        else:
            self._undeliverable(arrival)
        core.arm(self)

    def _choose(
        self, arrival: Arrival, tried: tuple[Target, ...] | set[Target]
    ) -> tuple[Target, ...]:
        chooser, ingress, passed = self.chooser, arrival.ingress, arrival.path
        pattern = self.semantics.pattern
        if pattern is RoutingPattern.MULTICAST:
            return chooser.multicast(ingress, passed, tried)
        if pattern is RoutingPattern.DIRECT:
            target = chooser.direct(ingress, passed, tried)
        elif pattern is RoutingPattern.CLOSEST:
            target = chooser.closest(ingress, passed, tried)
        else:
            target = chooser.balanced(ingress, passed, tried)
        return () if target is None else (target,)

    def _place(self, arrival: Arrival, targets: tuple[Target, ...]) -> None:
        """Send a message to targets, with a record of it if it is unsettled."""
        if arrival.held is not None:
            arrival.held.tried.update(targets)
        if arrival.settled:
            for target in targets:
                self._send(arrival, target, None)
            return
        multicast = self.semantics.pattern is RoutingPattern.MULTICAST
        now, deadline = self._core.now(), arrival.deadline
        if multicast:
            limit = now + self.semantics.reliability.deadline
            deadline = limit if deadline is None else min(deadline, limit)
        delivery = self.deliveries.bind(
            arrival.source,
            arrival,
            arrival.identity,
            targets,
            now,
            token=arrival.way.token if isinstance(arrival.way, TransitWay) else None,
            kept=None if multicast else arrival,
            accepts=self._accepts(arrival) if multicast else None,
            early=arrival.ingress == self._core.own,
            deadline=deadline,
        )
        if delivery is None:
            self._core.counts["more than max_unsettled"] += 1
            self._finish(arrival, RELEASED)
            return
        if isinstance(arrival.way, TransitWay):
            self._core.upstream[arrival.source, arrival.way.token] = self
        for token, target in tuple(delivery.copies.items()):
            self._core.tokens[token] = self, target
            self._send(arrival, target, token, deadline)

    def _accepts(self, arrival: Arrival) -> int:
        """Return the acceptances that a multicast needs here: they are for its ingress to count."""
        return self.semantics.reliability.accepts if arrival.ingress == self._core.own else 1

    def _send(
        self,
        arrival: Arrival,
        target: Target,
        token: bytes | None,
        deadline: float | None = None,
    ) -> None:
        if isinstance(target, ConsumerTarget):
            record = self.consumers[target.consumer]
            self.chooser.bound(target)
            dropped = record.queue.dropped
            record.queue.put(arrival, token, arrival.until)
            if record.queue.dropped > dropped:
                self.chooser.settled(target)
                self._dropped(arrival, "over the window of a consumer")
            self._pump(record)
            return
        if token is not None:
            self.chooser.bound(target)
            self.deliveries.sent(token, self._core.now())
        if self._core.send_on(self.name, arrival, target.link, token, deadline):
            return
        if token is None:
            self._dropped(arrival, "link down")
        else:
            self._act(self.deliveries.disposition(token, RELEASED, target, self._core.now()))

    def _pump(self, record: ConsumerRecord) -> None:
        """Hand a consumer what its credit allows."""
        record.pumping = False
        now = self._core.now()
        for waiting in record.queue.take(now):
            token, arrival = waiting.token, waiting.message
            late = waiting.until is not None and waiting.until <= now
            if token is not None:
                self.deliveries.sent(token, now)
            state: Outcome | None = RELEASED
            if not late:
                try:
                    self._core.hand(record, arrival, token)
                except OnwardError as error:
                    if token is None:
                        self._core.node.dead_letter(arrival.message, error)
                else:
                    state = ACCEPTED if record.accept is Accept.HANDED else None
            if token is None:
                if late or state is not None or record.worker is None:
                    self.handled(record)
            elif state is not None:
                self._act(self.deliveries.disposition(token, state, record.target, now))
        self._credit_changed()

    def _pump_soon(self, record: ConsumerRecord) -> None:
        """Hand a consumer what its credit allows, once this step is over."""
        if record.queue and not record.pumping:
            record.pumping = True
            self._core.soon(lambda: self._pump(record))

    def handled(self, record: ConsumerRecord) -> None:
        """Receive word that a consumer has handled a pre-settled message."""
        self.chooser.settled(record.target)
        record.queue.credit += not record.by_credit
        self._credit_changed()
        self._pump_soon(record)

    # --- outcomes ---------------------------------------------------------------------------

    def disposition(
        self, token: bytes, state: DeliveryState, target: Target, tally: Tally | None = None
    ) -> None:
        """Receive the state of a copy from its target."""
        self._act(self.deliveries.disposition(token, state, target, self._core.now(), tally))
        self._core.arm(self)

    def source_ended(self, link: str, token: bytes, *, settled: bool) -> None:
        """Receive word of the node before this one that it waits for an outcome no more."""
        self._act(self.deliveries.source_ended(link, token, settled=settled))

    def due(self, now: float) -> None:
        """Perform what is due."""
        self._act(self.deliveries.due(now))
        if self.hold is not None:
            begun, expired = self.hold.due(now)
            for held in begun:
                self._try_held(held)
            for held in expired:
                self._core.counts["held until their time was over"] += 1
                self._next_part(held.message, self.semantics.retry)
        self._core.arm(self)

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds."""
        times = [self.deliveries.get_timer(), None if self.hold is None else self.hold.get_timer()]
        return min((each for each in times if each is not None), default=None)

    def _act(self, events: list[_Event]) -> None:
        waiting = deque(events)
        while waiting:
            event = waiting.popleft()
            if isinstance(event, CopyEnded):
                self._copy_ended(event)
            elif isinstance(event, Decided):
                self._decided(event.delivery, event.outcome)
            else:
                delivery = event.delivery
                targets = self._choose(delivery.way, delivery.tried)
                if not targets:
                    waiting.extendleft(reversed(self.deliveries.give_up(delivery)))
                    continue
                token = self.deliveries.rebind(delivery, targets[0])
                self._core.tokens[token] = self, targets[0]
                if delivery.way.held is not None:
                    delivery.way.held.tried.add(targets[0])
                self._send(delivery.way, targets[0], token, delivery.deadline)

    def _copy_ended(self, event: CopyEnded) -> None:
        self._core.ended(event.token)
        self.chooser.settled(event.target, event.seconds)
        if isinstance(event.target, LinkTarget):
            if event.end in (CopyEnd.ABANDONED, CopyEnd.SETTLED):
                settled = event.end is CopyEnd.SETTLED
                self._core.tell_end(event.target.link, event.token, settled=settled)
            return
        record = self.consumers.get(event.target.consumer)
        if record is None:
            return
        if event.end is CopyEnd.SETTLED and not event.sent:
            record.queue.settle(event.token)
            return
        if event.sent:
            record.queue.credit += not record.by_credit
            self._credit_changed()
            if event.end in (CopyEnd.ABANDONED, CopyEnd.SETTLED) and record.worker is not None:
                record.worker.abandoned(event.token, MODIFIED)
        else:
            record.queue.withdraw(event.token)
        self._pump_soon(record)

    def _decided(self, delivery: Delivery[Arrival, Arrival], outcome: Outcome) -> None:
        arrival = delivery.way
        if delivery.source is None:
            arrival.way = None
        if isinstance(outcome, Released) and arrival.ingress == self._core.own:
            self._undeliverable(arrival)
            return
        self._finish(arrival, outcome, delivery.tally)

    def _finish(self, arrival: Arrival, outcome: Outcome, tally: Tally | None = None) -> None:
        """End a message with an outcome; a pre-settled one is dropped."""
        core = self._core
        if self.duplicates is not None:
            self.duplicates.decided(arrival.identity, outcome)
        if arrival.settled:
            if not isinstance(outcome, Accepted):
                self._dropped(arrival, "no consumer took it")
            return
        way = arrival.way
        core.ways.tell(arrival, outcome, tally)
        if isinstance(outcome, Released) and isinstance(way, ProducerWay) and not self.paths:
            self._drain(way.producer)

    def _drain(self, producer: int) -> None:
        """Withdraw the credit of a producer of a name without a consumer."""
        if self.semantics.gate is Gate.OPEN or producer not in self.producers:
            return
        # "targeted, consumer just gone: released + drain". A producer of this node drains at once.
        self._credit(self.windows.drained(producer))
        self._core.credit(producer)

    def _dropped(self, arrival: Arrival, reason: str) -> None:
        self.dropped += 1
        self._core.counts[reason] += 1
        self._core.node.dead_letter(arrival.message, reason)

    # --- what is undeliverable --------------------------------------------------------------

    def _undeliverable(self, arrival: Arrival) -> None:
        """Go on with a message that no target takes, along the chain of the semantics."""
        if arrival.ingress != self._core.own:
            # The chain applies where the message entered: the nodes behind release it to there.
            self._finish(arrival, RELEASED)
            return
        held, hold = arrival.held, self.hold
        if held is not None and hold is not None:
            if hold.put_back(held, self._core.now()):
                self._core.arm(self)
                return
            self._next_part(arrival, self.semantics.retry)
            return
        self._next_part(arrival, arrival.after)

    def _next_part(self, arrival: Arrival, after: Retry | Redirect | None) -> None:
        chain = self.semantics.undeliverable
        while True:
            if after is not None and after not in chain:
                after = None
            part = next_part(chain, after, redirected=arrival.redirected)
            if isinstance(part, Retry):
                arrival.after = after = part
                if self._hold(arrival):
                    return
            elif isinstance(part, Redirect):
                arrival.after = after = part
                if self._core.redirect(arrival, part):
                    self._core.counts["redirected"] += 1
                    return
            else:
                outcome = last_outcome(part, settled=arrival.settled)
                if isinstance(outcome, Accepted):
                    self._dropped(arrival, "dropped as provisioned")
                self._finish(arrival, RELEASED if outcome is None else outcome)
                return

    def _hold(self, arrival: Arrival) -> bool:
        if self.hold is None:
            return False
        size = len(arrival.message.payload)
        until = arrival.until if arrival.deadline is None else arrival.deadline
        arrival.held = self.hold.put(arrival, size, self._core.now(), until)
        if arrival.held is None:
            self._core.counts["no room to hold it"] += 1
            return False
        self._core.arm(self)
        return True

    def _try_held(self, held: Held[Arrival]) -> None:
        if self.hold is None:
            return
        targets = self._choose(held.message, held.tried)
        targets = tuple(each for each in targets if self.hold.asked(held, each))
        if targets:
            self.hold.taken(held)
            self._place(held.message, targets)

    # --- consumers --------------------------------------------------------------------------

    def add_consumer(self, record: ConsumerRecord) -> None:
        """Attach a consumer.

        Raises:
            ConsumerRefused: The name takes no further one.
        """
        text = self.name.text
        if self._refused:
            raise ConsumerRefused(text, "unavailable")
        if len(self.consumers) >= self._core.options.max_consumers:
            raise ConsumerRefused(text, "max_consumers is reached")
        self.consumers[record.number] = record
        if not self._admit(record):
            raise ConsumerRefused(text, "it is direct and has a consumer")
        self._core.arm(self)

    def credit(self, number: int, messages: int) -> None:
        """Give a consumer, which has it by calls, credit."""
        record = self.consumers.get(number)
        if record is not None:
            record.queue.credit += messages
            self._credit_changed()
            self._pump(record)
            self._core.arm(self)

    def drain(self, number: int) -> int:
        """Hand a consumer what waits for it, and take back its other credit; return how much."""
        record = self.consumers.get(number)
        if record is None:
            return 0
        self._pump(record)
        left = record.queue.drain()
        self._credit_changed()
        return left

    def new_queue(self, window: int) -> ConsumerQueue[Arrival]:
        """Make the queue of a consumer."""
        newest = self.semantics.overflow is Overflow.NEWEST
        queue = ConsumerQueue[Arrival](self.semantics.window, newest=newest)
        queue.credit = window
        return queue

    def _admit(self, record: ConsumerRecord) -> bool:
        """Admit a consumer, to have messages or to stand by; return whether the name takes it."""
        if self.direct is None:
            self._activate(record)
            return True
        admission = self.direct.add(record.number)
        if not admission.admitted:
            self.remove_consumer(record.number, "it is direct and has a consumer")
            return False
        if admission.displaced is not None:
            self._displace(admission.displaced)
        if self.direct.active == record.number:
            self._activate(record)
        return True

    def _activate(self, record: ConsumerRecord) -> None:
        record.active = True
        self._active_since = self._core.now()
        self.chooser.add_consumer(record.number, record.window)
        self._paths_changed()
        if self.hold is not None:
            for held in self.hold.target_joined(record.target):
                self._try_held(held)

    def _displace(self, number: int) -> None:
        self.remove_consumer(number, "another consumer has taken its place")

    def remove_consumer(self, number: int, reason: str = "") -> None:
        """Detach a consumer: what it has is in doubt, and what waits for it goes elsewhere.

        Args:
            number: Its number.
            reason: The reason that it is told, if it has not asked for it.
        """
        record = self.consumers.pop(number, None)
        if record is None:
            return
        self.chooser.remove_consumer(number)
        was_active, record.active = record.active, False
        self._act(self.deliveries.target_lost(record.target, self._core.now()))
        # What is left in its queue is pre-settled.
        while record.queue:
            record.queue.credit = 1
            for waiting in record.queue.take(self._core.now()):
                self._rescue(waiting.message)
        promoted = self.direct.remove(number) if self.direct is not None else None
        if promoted is not None and promoted in self.consumers:
            self._activate(self.consumers[promoted])
        elif was_active:
            self._paths_changed()
        if reason:
            record.ended(reason)
        self._core.arm(self)

    def _rescue(self, arrival: Arrival) -> None:
        """Send a pre-settled message, which waited for a consumer that has gone, to another one."""
        if self.semantics.pattern is not RoutingPattern.MULTICAST:
            targets = self._choose(arrival, ())
            if targets:
                self._place(arrival, targets)
                return
        self._dropped(arrival, "its consumer has gone")

    # --- producers and paths ----------------------------------------------------------------

    @property
    def paths(self) -> int:
        """The number of consumers here, and of nodes with consumers."""
        return self.chooser.paths

    def add_producer(self, number: int) -> None:
        """Attach a producer.

        Raises:
            ConsumerRefused: The name is unavailable, or has too many.
        """
        if self._refused:
            raise ConsumerRefused(self.name.text, "unavailable")
        if len(self.producers) >= self._core.options.max_producers:
            raise ConsumerRefused(self.name.text, "max_producers is reached")
        self.producers[number] = None
        self._credit(self.windows.add(number, self.semantics.window))

    def remove_producer(self, number: int) -> None:
        """Detach a producer: what it has sent goes on."""
        self.deliveries.producer_lost(number)
        if number in self.producers:
            del self.producers[number]
            self._credit(self.windows.remove(number))

    def settled(self, number: int) -> None:
        """Give a producer credit back for a delivery that has its outcome."""
        self._credit(self.windows.settled(number))

    def _credit(self, changes: list[CreditChange]) -> None:
        for change in changes:
            self._core.credit(change.producer)

    def set_remotes(self, remotes: tuple[RemoteNode, ...]) -> None:
        """Replace the other nodes that have consumers."""
        had = bool(self._remotes)
        self._remotes = remotes
        self.chooser.set_remotes(remotes)
        if self.direct is not None and had != bool(remotes):
            self._direct_elsewhere(remotes)
        self._paths_changed()
        if self.hold is not None:
            for link in {each.link for each in remotes}:
                for held in self.hold.target_joined(LinkTarget(link)):
                    self._try_held(held)

    def _direct_elsewhere(self, remotes: tuple[RemoteNode, ...]) -> None:
        direct = self.direct
        if direct is None:
            return
        if remotes:
            # The consumer that other nodes have been told of is the older one. If both have come
            # in that time, the order of the names of their nodes decides.
            known = self._core.now() - self._active_since > 2 * self._core.options.network.gather
            newer = known or min(each.node for each in remotes) > self._core.own
            displaced = direct.taken_elsewhere(newer=newer)
            if displaced is not None:
                self._displace(displaced)
        else:
            promoted = direct.gone_elsewhere()
            if promoted is not None and promoted in self.consumers:
                self._activate(self.consumers[promoted])

    def _paths_changed(self) -> None:
        """Give credit by the paths that there are, and tell the network about consumers here."""
        self._credit(self.windows.set_paths(self.paths, self._consumer_credit()))
        self._core.announce(self, bool(self.chooser.consumers))
        if self.paths != self._told_paths:
            self._told_paths = self.paths
            self._core.watched(self)

    def _consumer_credit(self) -> int:
        """Return the credit of consumers; a link to others counts as a window."""
        here = sum(each.queue.credit for each in self.consumers.values() if each.active)
        return here + self.semantics.window * len({each.link for each in self._remotes})

    def _credit_changed(self) -> None:
        if self.semantics.gate is Gate.CREDIT:
            self._credit(self.windows.set_paths(self.paths, self._consumer_credit()))

    def link_lost(self, link: str) -> None:
        """Receive the loss of a link to another dispatcher, in both directions."""
        target = LinkTarget(link)
        self.chooser.set_remotes(each for each in self._remotes if each.link != link)
        self._act(self.deliveries.target_lost(target, self._core.now()))
        self.chooser.link_lost(link)
        self._act(self.deliveries.source_lost(link))
        self._core.forget_upstream(link)
        self._core.arm(self)


class _Copy:
    """A token and its target."""

    __slots__ = ("target", "token")

    def __init__(self, token: bytes, target: Target) -> None:
        self.token = token
        self.target = target
