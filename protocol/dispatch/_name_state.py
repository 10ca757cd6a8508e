"""The state of one name at one node: its consumers, its producers and its messages, without I/O.

It composes the parts: the choice of targets, the deliveries and the hold, the queues of consumers,
the windows of producers, duplicates, and the chain for undeliverable messages. Time is an argument.
What is to be done comes out as events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, TypeVar

from ._choice import is_too_far
from ._copies import OpenCopy
from ._delivery import Ages
from ._delivery_limits import NodeTotals, Share
from ._delivery_table import earlier
from ._duplicate_window import DuplicateWindow
from ._fast_path import FastPath, Promote
from ._graph import Paths
from ._loads import LinkTarget, Target
from ._name_events import ConsumerActive, ConsumerEnded, DropReason, Refusal
from ._name_messages import NameMessages
from ._semantics import Semantics
from ._semantics_parts import Gate, Mechanism, RoutingPattern, Settlement, Weigh
from ._small_table import EMPTY, SmallTable
from ._transit import DIGEST_SIZE

__all__ = ["NameState"]

M = TypeVar("M")

_NO_AGES: Final = Ages()  # of most of many names


class NameState(NameMessages[M]):
    """The consumers, producers and messages of a name at one node.

    Args:
        own: The name of the node in the network.
        semantics: The semantics of the name.
        make_token: Gives 8 random bytes.
        totals: What all names of the node have together, with its limits.
    """

    __slots__ = ("_shares",)

    def __init__(
        self,
        own: str,
        semantics: Semantics,
        make_token: Callable[[], bytes],
        totals: NodeTotals | None = None,
    ) -> None:
        super().__init__(own, semantics, make_token, totals)
        self._shares: dict[int, Share] | None = None  # those of producers, by their number
        self._configure(None)

    @property
    def idle(self) -> bool:
        """Whether nothing of it is left that has to be kept."""
        return not (
            self.busy
            or len(self._consumers)
            or self._consumers.has_nodes
            or (self._duplicates is not None and len(self._duplicates))
        )

    @property
    def busy(self) -> bool:
        """Whether it has producers or messages here."""
        return bool(len(self._windows) or len(self._deliveries))

    @property
    def remote_paths(self) -> int:
        """The number of other nodes with consumers that there is a path to."""
        return self._chooser.paths - len(self._chooser.consumers)

    @property
    def producers(self) -> int:
        """The number of its producers."""
        return len(self._windows)

    def load(self, target: Target) -> int:
        """Return the number of messages that are bound to a target and not settled."""
        return self._chooser.load(target)

    # --- semantics --------------------------------------------------------------------------

    def update(self, semantics: Semantics, now: float) -> None:
        """Apply other semantics while messages are under way.

        Deliveries that are bound go on. Messages on hold go through the new chain.
        """
        if semantics == self.semantics:
            return
        before, self.semantics = self.semantics, semantics
        for number, reason in self._configure(before):
            self.remove_consumer(number, now, reason)
        circuits = before.mechanism is Mechanism.LINK
        refusal = self.refusal(circuits=circuits)
        for record in self._consumers if refusal is not None else ():
            self.remove_consumer(record.number, now, refusal)
        if semantics.retry != before.retry:
            for delivery in self._deliveries.set_hold(semantics.retry):
                delivery.begin()
                self._place(delivery, now)
        self._consumers_changed(now)

    def plan_fast_path(
        self, promote: Promote[M], known: SmallTable[int, Any] = EMPTY, wait: float = inf
    ) -> FastPath[M] | None:
        """Open the fast path for messages that enter here; `None` if the name has none now.

        Args:
            promote: Makes the full record of a message that leaves the fast path.
            known: What the caller has for each consumer, by its number.
            wait: Time for which the sender waits for an outcome, in seconds.
        """
        it, active = self.semantics, [each for each in self._consumers if each.active]
        if (
            not (active or self._chooser.has_remotes)
            or self.refusal() is not None
            or it.pattern is RoutingPattern.MULTICAST
            or it.weigh is Weigh.TIME
            or it.gate is Gate.CREDIT
            or it.reliability.settle is Settlement.AT_ONCE
            or self._duplicates is not None
        ):
            return None
        fast = self._deliveries.fast
        if fast is None:
            fast = self._deliveries.fast = FastPath(
                self._deliveries, self._chooser, self._totals, promote
            )
        if not fast.is_open:
            fast.settle_time = self._deliveries.settle_time
            fast.longest = min(wait, fast.settle_time)
            fast.plan(it.pattern, active, known)
        return fast

    def is_near(self, passed: int) -> bool:
        """Whether a message that has passed so many nodes may go on from here."""
        return not is_too_far(passed, self._totals.paths.radius)

    def serve(self, number: int, now: float) -> None:
        """Hand a consumer what waits for it, as it has credit again."""
        record = self._consumers.get(number)
        if record is not None:
            self._pump(record, now)

    def _configure(self, before: Semantics | None) -> list[tuple[int, Refusal]]:
        """Set what depends on the semantics; return the consumers that have to go."""
        self._deliveries.leave_fast_path()
        it = self.semantics
        self._chooser.link_window = it.window
        self._chooser.by_load = it.weigh is Weigh.LOAD
        self._chooser.by_time = it.weigh is Weigh.TIME
        if before is None or it.settle_time != before.settle_time:
            self._deliveries.set_settle_time(it.settle_time)
        by_credit, always = it.gate is Gate.CREDIT, it.gate is Gate.OPEN
        self._events += self._windows.configure(it.window, by_credit=by_credit, always=always)
        seconds = it.reliability.deduplicate
        if before is None or seconds != before.reliability.deduplicate:
            most = self._totals.limits.duplicate_ids
            self._duplicates = DuplicateWindow(seconds, most) if seconds else None
        if before is None:
            self._deliveries.set_hold(it.retry)
        rule = it.pattern, it.second
        anew = before is None or rule != (before.pattern, before.second)
        return self._consumers.configure(it, anew=anew)

    # --- consumers --------------------------------------------------------------------------

    def add_consumer(
        self,
        number: int,
        window: int,
        now: float,
        *,
        milliseconds: int = 0,
        by_credit: bool = False,
        share: Share | None = None,
        circuits: bool = False,
    ) -> Refusal | None:
        """Attach a consumer; return the reason why it cannot be.

        Args:
            number: Its number at this node, which no other consumer has.
            window: Messages that it has at a time.
            now: The time, in seconds.
            milliseconds: The time since an epoch that all nodes have, for a direct name.
            by_credit: Whether its credit is given by `credit` only.
            share: What its source has at this node.
            circuits: Whether it is a container, which takes circuits and no messages.
        """
        refusal = self.refusal(circuits=circuits)
        if refusal is not None:
            return refusal
        added = self._consumers.add(
            number, window, self.semantics, milliseconds, by_credit=by_credit, share=share
        )
        if isinstance(added, Refusal):
            self._totals.counts[added] += 1
            return added
        for other, reason in added:
            self.remove_consumer(other, now, reason)
        self._consumers_changed(now)
        return None

    def remove_consumer(self, number: int, now: float, reason: Refusal | None = None) -> None:
        """Detach a consumer: what it has is in doubt, and what waits for it goes elsewhere.

        Args:
            number: Its number; nothing happens if it is not there.
            now: The time, in seconds.
            reason: The reason that it is told, if it has not asked for it.
        """
        self._deliveries.leave_fast_path()
        record = self._consumers.remove(number)
        if record is None:
            return
        if reason is not None:
            self._events.append(ConsumerEnded(number, reason))
        self._consumers_changed(now)
        self._act(self._deliveries.target_lost(record.target, now), now)
        for delivery in record.queue.clear():
            self._rescue(delivery, DropReason.GONE, now)
        self._refresh()

    def credit(self, number: int, more: int, now: float) -> None:
        """Receive credit of a consumer."""
        record = self._consumers.get(number)
        if record is not None:
            record.queue.credit += more
            self._pump(record, now)
            self._refresh()

    def drain(self, number: int, now: float) -> int:
        """Hand a consumer what there is, and remove the credit that is left; return it."""
        record = self._consumers.get(number)
        if record is None:
            return 0
        self._pump(record, now)
        left = record.queue.drain()
        self._refresh()
        return left

    def is_active(self, number: int) -> bool:
        """Whether a consumer is there, and not on standby."""
        record = self._consumers.get(number)
        return record is not None and record.active

    def _consumers_changed(self, now: float) -> None:
        """Give messages to the consumers that are to have them now."""
        self._deliveries.leave_fast_path()
        open_at = {each.number: self._deliveries.open_at(each.target) for each in self._consumers}
        begun, stopped = self._consumers.change(open_at)
        self._chooser.set_remotes(self._consumers.nodes)
        self._refresh()
        for record in begun:
            self._events.append(ConsumerActive(record.number, active=True))
            self._try_held(self._deliveries.joined(record.target), now)
        for record in stopped:
            self._events.append(ConsumerActive(record.number, active=False))
            self._act(self._deliveries.target_lost(record.target, now, sent=False), now)
            for delivery in record.queue.clear():
                self._rescue(delivery, DropReason.GONE, now)
        self._refresh()

    # --- circuits ---------------------------------------------------------------------------

    def place_circuit(self, path: bytes) -> Target | None:
        """Return the container, or the link towards one, that a circuit goes to.

        It stays there. Balanced counts the circuits at each, and not what they carry.

        Args:
            path: The digests of the nodes that its attach has passed.
        """
        # "Link routing uses the same routing table that message routing uses. The difference is
        # that the routing occurs during the link-attach operation".
        if self.refusal(circuits=True) is not None:
            return None
        passed = {path[at : at + DIGEST_SIZE] for at in range(0, len(path), DIGEST_SIZE)}
        return self._choose_one(self._own, passed)

    def circuit_begun(self, target: Target) -> None:
        """Count a circuit that goes to a target."""
        self._chooser.bound(target)

    def circuit_ended(self, target: Target) -> None:
        """Count a circuit of a target as ended."""
        self._chooser.settled(target)

    # --- producers --------------------------------------------------------------------------

    def add_producer(
        self, number: int, *, anonymous: bool = False, share: Share | None = None
    ) -> Refusal | None:
        """Attach a producer; return the reason why it cannot be."""
        limits, totals = self._totals.limits, self._totals
        refusal = self.refusal()
        if refusal is not None:
            return refusal
        most = totals.producers >= limits.max_node_producers
        if most or len(self._windows) >= limits.max_producers:
            totals.counts[Refusal.PRODUCERS] += 1
            return Refusal.PRODUCERS
        if share is not None:
            shares = self._shares = self._shares or {}
            node = share.may_have("producers", 1, limits.max_node_producers)
            if not (node and share.may_join(shares.values(), limits.max_producers)):
                totals.counts[Refusal.SHARE] += 1
                return Refusal.SHARE
            shares[number] = share
            share.count("producers", 1)
        totals.producers += 1
        self._events += self._windows.add(number, self.semantics.window, anonymous=anonymous)
        return None

    def remove_producer(self, number: int) -> None:
        """Detach a producer: what it has sent goes on. Nothing happens if it is not there."""
        self._deliveries.producer_lost(number)
        if number in self._windows:
            self._totals.producers -= 1
            if self._shares and (share := self._shares.pop(number, None)) is not None:
                share.count("producers", -1)
            self._events += self._windows.remove(number)

    def credit_of(self, producer: int) -> int:
        """Return the credit of a producer; 0 if it is not there."""
        return self._windows.credit(producer) if producer in self._windows else 0

    def drained(self, producer: int) -> None:
        """Receive word that a producer has given its credit back."""
        if producer in self._windows:
            self._events += self._windows.drained(producer)

    # --- the network ------------------------------------------------------------------------

    def set_nodes(self, nodes: Mapping[str, int], now: float) -> None:
        """Replace the other nodes that have consumers.

        Args:
            nodes: The claim of each; 0 if the name is not direct there.
            now: The time, in seconds.
        """
        gone = self._consumers.set_nodes(nodes, self.semantics.second)
        for number, reason in gone:
            self.remove_consumer(number, now, reason)
        self._change_ways(lambda: self._consumers_changed(now), now)

    def set_paths(self, paths: Paths, link_to: Callable[[str], str | None], now: float) -> None:
        """Replace the paths of the network.

        Args:
            paths: The paths from and through this node.
            link_to: Gives the link to a neighbour, `None` if there is none.
            now: The time, in seconds.
        """
        overlap = self._totals.limits.path_overlap
        self._totals.paths.change(paths, now, overlap)
        many = self.semantics.pattern is RoutingPattern.MULTICAST
        until = now + overlap if many else None
        self._change_ways(lambda: self._chooser.set_paths(paths, link_to, until), now)

    def link_lost(self, link: str, now: float) -> None:
        """Receive the loss of a link to another dispatcher, in both directions."""
        self._change_ways(lambda: self._chooser.link_lost(link), now)
        self._act(self._deliveries.target_lost(LinkTarget(link), now), now)
        self._act(self._deliveries.source_lost(link), now)
        self._refresh()

    def _change_ways(self, change: Callable[[], object], now: float) -> None:
        """Change the ways to other nodes: a link that leads to others now may be tried again."""
        self._deliveries.leave_fast_path()
        before = self._chooser.links
        change()
        after = self._chooser.links
        for link in before.keys() | after.keys():
            if before.get(link) != after.get(link):
                self._deliveries.forget_tried(LinkTarget(link))
        self._refresh()
        for link, nodes in after.items():
            if nodes - before.get(link, frozenset()):
                self._try_held(self._deliveries.joined(LinkTarget(link)), now)

    # --- time -------------------------------------------------------------------------------

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds; `None` if nothing is due."""
        first = earlier(self._deliveries.get_timer(), self._too_late)
        if self._duplicates is None:
            return first
        return earlier(first, self._duplicates.get_timer())

    def due(self, now: float) -> None:
        """Perform what is due."""
        self._act(self._deliveries.due(now), now)
        if lapsed := self._deliveries.lapsed(now):
            self._lapse(lapsed, now)
        if self._duplicates is not None:
            self._duplicates.expire(now)
        if self._too_late is not None and self._too_late <= now:
            for record in self._consumers:
                self._pump(record, now)
            times = [each.queue.get_timer() for each in self._consumers]
            self._too_late = min((each for each in times if each is not None), default=None)
        self._refresh()

    def _lapse(self, copies: list[OpenCopy[M]], now: float) -> None:
        """End the copies that consumers have had for too long."""
        for copy in copies:
            if events := self._deliveries.lapse(copy, now):
                self._totals.counts[DropReason.NOT_SETTLED] += 1
                self._act(events, now)
        for target in dict.fromkeys(copy.target for copy in copies):
            record = self._record_of(target)
            # Its client has no word of a message that is not waited for any more.
            if record is not None and record.by_credit:
                self.remove_consumer(record.number, now, Refusal.SETTLE_TIME)

    def get_ages(self, now: float) -> Ages:
        """Return what has waited for long.

        Args:
            now: The time, in seconds.
        """
        before = now - self._totals.limits.stuck_time
        oldest, stuck = self._deliveries.get_ages(now)
        consumers = self._consumers.blocked(before)
        if not len(self._windows):
            return Ages(oldest, stuck, consumers) if stuck or oldest or consumers else _NO_AGES
        last = map(self._deliveries.get_last, self._windows.without_credit())
        producers = sum(each is None or each < before for each in last)
        return Ages(oldest, stuck, consumers, producers)
