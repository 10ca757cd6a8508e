"""A name at a node: its pure state, with the routes, workers and messages that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ...protocol.dispatch import (
    Ages,
    ConsumerTarget,
    CopyEnd,
    CopyEnded,
    DeliveriesStatistics,
    Delivery,
    DeliveryState,
    FastDelivery,
    FastPath,
    Name,
    NameState as PureState,
    Paths,
    Refusal,
    Semantics,
    Share,
    Tally,
    Target,
)
from ...protocol.dispatch._small_table import EMPTY, SmallTable, put, without
from ...protocol.eventlog import Outcome as Logged
from ._arrival import Arrival, TransitPath
from ._consumer_record import ConsumerRecord
from ._errors import ConsumerRefused
from ._recorded import (
    consumer_label,
    count_copy,
    count_end,
    count_received,
    label_of,
)

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["NameState"]


class NameState:
    """A name at a node: what its pure state asks for is done here, on the node's loop.

    Args:
        core: The dispatcher that it belongs to.
        name: The name.
        semantics: Its semantics.

    Attributes:
        name: The name.
        consumers: Its consumers, by number.
        scheduled: When the dispatcher looks at it again, in seconds.
        announced: What other nodes were told of its consumers; `None` if there are none.
        dropped: Number of messages that were dropped.
        share: What the source has of which the name is one; `None`: the program itself.
        fast: Its fast path, once it has had one.
        pure: What is known of it, without I/O.
        performing: Whether what its pure state asks for is being done.
        circuits: Number of its circuits at this node.
    """

    __slots__ = (
        "_core",
        "_gone",
        "_label",
        "_slow",
        "announced",
        "circuits",
        "consumers",
        "dropped",
        "fast",
        "name",
        "performing",
        "pure",
        "scheduled",
        "share",
    )

    def __init__(
        self, core: DispatchCore, name: Name, semantics: Semantics, share: Share | None = None
    ) -> None:
        self._core: Final = core
        # A call of `PureState[Arrival]` would give each state an attribute more.
        self.pure: Final[PureState[Arrival]] = PureState(
            core.own, semantics, core.make_token, core.totals
        )
        self.name: Final = name
        self._label = ""  # made when it is used
        self.consumers: SmallTable[int, ConsumerRecord] = EMPTY
        self.scheduled: float | None = None
        self.announced: int | None = None
        self.dropped = 0
        self.share: Final = share
        self.circuits = 0
        self.fast: FastPath[Arrival] | None = None
        self._slow = -1  # the changes up to which it is known to have no fast path
        self.performing = False
        self._gone = 0, ""  # the last consumer that has gone, with its label

    @property
    def label(self) -> str:
        """The name in an event log."""
        if not self._label:
            self._label = label_of(self.name)
        return self._label

    def label_of(self, record: ConsumerRecord) -> str:
        """Return the name of a consumer in an event log, which most never need."""
        if not record.label:
            record.label = consumer_label(self._core.node, record)
        return record.label

    @property
    def semantics(self) -> Semantics:
        """Its semantics."""
        return self.pure.semantics

    @property
    def idle(self) -> bool:
        """Whether nothing of it is left that has to be kept."""
        return self.pure.idle and not self.circuits

    @property
    def busy(self) -> bool:
        """Whether it has producers, messages or circuits here."""
        return self.pure.busy or bool(self.circuits)

    @property
    def paths(self) -> int:
        """The number of consumers here, and of nodes with consumers."""
        return self.pure.paths

    @property
    def nodes(self) -> int:
        """The number of other nodes with consumers that there is a path to."""
        return self.pure.remote_paths

    @property
    def producers(self) -> int:
        """The number of its producers."""
        return self.pure.producers

    def statistics(self) -> DeliveriesStatistics:
        """Return the figures of its deliveries at this moment."""
        return self.pure.deliveries.statistics()

    def count_released(self) -> None:
        """Count a message that was released before it was bound."""
        self.pure.deliveries.count_released()

    def get_ages(self, now: float) -> Ages:
        """Return what has waited for long."""
        return self.pure.get_ages(now)

    def update(self, semantics: Semantics) -> None:
        """Apply other semantics while messages are under way."""
        self.pure.update(semantics, self._core.now())
        self._perform()

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds."""
        return self.pure.get_timer()

    def due(self, now: float) -> None:
        """Perform what is due."""
        self.pure.due(now)
        self._perform()
        self._core.names.tidy(self)

    # --- the fast path ----------------------------------------------------------------------

    def plan_fast_path(self) -> bool:
        """Open the fast path, if there is one as things are; return whether it is open."""
        if self.fast is not None and self.fast.is_open:
            return True
        changes = self.pure.deliveries.changes
        if self._slow == changes:
            return False
        self._slow = changes
        if not all(record.is_fast for record in self.consumers.values()):
            return False
        wait = self._core.options.outcome_timeout
        fast = self.pure.plan_fast_path(self._full_record, self.consumers, wait)
        self.fast = fast or self.fast
        return self.fast is not None and self.fast.is_open

    def _full_record(self, token: bytes, entry: FastDelivery[Arrival]) -> Delivery[Arrival]:
        return self._delivery(self._core.fast.promoted(self, token, entry))

    def promote(self, token: bytes) -> None:
        """Make the full record of a message that is on the fast path."""
        self.pure.deliveries.promote(token)

    def is_near(self, path: tuple[bytes, ...]) -> bool:
        """Whether a message that has passed these nodes may go on from here."""
        return self.pure.is_near(len(path))

    def serve(self, number: int) -> None:
        """Hand a consumer what waits for it, as it has credit again."""
        self.pure.serve(number, self._core.now())
        self._perform()

    # --- messages ---------------------------------------------------------------------------

    def bind(self, arrival: Arrival) -> None:
        """Bind a message: from now on its outcome is told, or its drop is counted."""
        count_received(self._core.node, arrival, self.label)
        if not self._core.keep(self.name, arrival):
            return
        self.pure.bind(self._delivery(arrival), self._core.now())
        self._perform()

    def send(self, producer: int, arrival: Arrival) -> bool:
        """Bind a message of a producer of the name; return whether it has credit for it."""
        if not self.credit_of(producer):
            return False
        count_received(self._core.node, arrival, self.label)
        if not self._core.keep(self.name, arrival):
            return True
        sent = self.pure.send(producer, self._delivery(arrival), self._core.now())
        self._perform()
        return sent

    def has_room(self, size: int, share: Share | None = None) -> bool:
        """Whether there is room for a message of some bytes that waits for its outcome.

        Args:
            size: The bytes.
            share: What its source has at this node.
        """
        return self.pure.deliveries.has_room(size, share)

    def _delivery(self, arrival: Arrival) -> Delivery[Arrival]:
        """Return the record of a message, which is the same after a redirect."""
        path = arrival.reply_path
        token = None
        if isinstance(path, TransitPath):
            token = path.token
            if not self._core.copies.came(path.link, token, self, anew=arrival.delivery is None):
                arrival.repeated = True
        if arrival.delivery is None:
            arrival.delivery = Delivery(
                arrival,
                len(arrival.message.payload),
                arrival.source if arrival.settled or path is not None else None,
                arrival.identity,
                settled=arrival.settled,
                path=arrival.path,
                token=token,
                until=arrival.until,
                deadline=arrival.deadline,
                redirected=arrival.redirected,
                share=arrival.share,
            )
        delivery = arrival.delivery
        delivery.promised, delivery.deadline = arrival.promised, arrival.deadline
        return delivery

    def disposition(
        self, token: bytes, state: DeliveryState, target: Target, tally: Tally | None = None
    ) -> None:
        """Receive the state of a copy from its target."""
        self.pure.disposition(token, state, target, self._core.now(), tally)
        self._perform()

    def source_ended(self, link: str, token: bytes, *, settled: bool) -> None:
        """Receive word of the node before this one that it waits for an outcome no more."""
        self.pure.source_ended(link, token, self._core.now(), settled=settled)
        self._perform()

    def arrival_of(self, token: bytes) -> Arrival | None:
        """Return the message of an open copy."""
        delivery = self.pure.deliveries.of_token(token)
        return None if delivery is None else delivery.message

    def handled(self, record: ConsumerRecord) -> None:
        """Receive word that a consumer has handled a pre-settled message."""
        self.pure.handled(record.number, self._core.now())
        self._perform()

    # --- consumers --------------------------------------------------------------------------

    def add_consumer(self, record: ConsumerRecord) -> None:
        """Attach a consumer.

        Raises:
            ConsumerRefused: The name takes no further one.
        """
        self.consumers = put(self.consumers, record.number, record)
        refusal = self.pure.add_consumer(
            record.number,
            record.window,
            self._core.now(),
            milliseconds=self._core.milliseconds(),
            by_credit=record.by_credit,
            share=record.share,
            circuits=record.circuits,
        )
        if refusal is not None:
            self.consumers = without(self.consumers, record.number)
            raise ConsumerRefused(self.name.text, refusal)
        self._perform()

    def remove_consumer(self, number: int, reason: Refusal | None = None) -> None:
        """Detach a consumer: what it has is in doubt, and what waits for it goes elsewhere.

        Args:
            number: Its number.
            reason: The reason that it is told, if it has not asked for it.
        """
        record = self._take(number)
        if record is None:
            return
        self.pure.remove_consumer(number, self._core.now())
        self._perform()
        if reason is not None:
            record.ended(reason)

    def credit(self, number: int, messages: int) -> None:
        """Receive credit of a consumer that gives it by calls."""
        self.pure.credit(number, messages, self._core.now())
        self._perform()

    def drain(self, number: int) -> int:
        """Hand a consumer what waits for it, and remove its other credit; return how much."""
        left = self.pure.drain(number, self._core.now())
        self._perform()
        return left

    def load(self, number: int) -> int:
        """Return the number of messages that a consumer has, or that wait for it."""
        return self.pure.load(ConsumerTarget(number))

    # --- circuits ---------------------------------------------------------------------------

    def place_circuit(self, path: bytes) -> Target | None:
        """Return the container, or the link towards one, that a circuit goes to."""
        return self.pure.place_circuit(path)

    def circuit_begun(self, target: Target) -> None:
        """Count a circuit that goes to a target."""
        self.circuits += 1
        self.pure.circuit_begun(target)

    def circuit_ended(self, target: Target) -> None:
        """Count a circuit of a target as ended."""
        self.circuits -= 1
        self.pure.circuit_ended(target)

    # --- producers --------------------------------------------------------------------------

    def add_producer(self, number: int, share: Share | None = None) -> None:
        """Attach a producer.

        Args:
            number: Its number.
            share: What its source has at this node.

        Raises:
            ConsumerRefused: The name is unavailable, or has too many.
        """
        refusal = self.pure.add_producer(number, share=share)
        if refusal is not None:
            raise ConsumerRefused(self.name.text, refusal)
        self._perform()

    def remove_producer(self, number: int) -> None:
        """Detach a producer, if it is one of the name: what it has sent goes on."""
        self.pure.remove_producer(number)
        self._perform()

    def credit_of(self, number: int) -> int:
        """Return the credit of a producer."""
        return self.pure.credit_of(number)

    def settled(self, number: int) -> None:
        """Give a producer credit back for a message that went to another name."""
        self.pure.settled(number)
        self._perform()

    # --- the network ------------------------------------------------------------------------

    def set_nodes(self, nodes: Mapping[str, int]) -> None:
        """Replace the other nodes that have consumers, with their claims."""
        self.pure.set_nodes(nodes, self._core.now())
        self._perform()

    def set_paths(self, paths: Paths, link_to: Callable[[str], str | None]) -> None:
        """Replace the paths of the network."""
        self.pure.set_paths(paths, link_to, self._core.now())
        self._perform()

    def link_lost(self, link: str) -> None:
        """Receive the loss of a link to another dispatcher, in both directions."""
        self.pure.link_lost(link, self._core.now())
        self._perform()

    # --- what the state asks for ------------------------------------------------------------

    def _perform(self) -> None:
        """Perform what the state asks for, and what comes of that."""
        if self.performing:
            return
        self.performing = True
        perform = self._core.actions.perform
        try:
            while events := self.pure.events():
                for event in events:
                    try:
                        perform(self, event)
                    except Exception as error:  # noqa: BLE001 - the others must be performed too
                        self._core.fault("an event of a name", error)
        finally:
            self.performing = False
        self._core.schedule.arm(self)

    def count_copy(self, event: CopyEnded, number: int) -> None:
        """Count the end of a copy that a consumer had, which may have gone."""
        record = self.consumers.get(number)
        gone, label = self._gone
        consumer = label if gone == number else ""
        if record is not None:
            consumer = self.label_of(record)
        given_up = Logged.SETTLED if event.end is CopyEnd.SETTLED else Logged.MODIFIED
        count_copy(self._core.node, self.label, consumer, event.outcome or given_up)

    def stop(self) -> None:
        """End the unsettled messages, as the dispatcher stops, but for those on disk."""
        now = self._core.now()
        for delivery in self.pure.deliveries.left():
            if not delivery.settled and not delivery.message.stored:
                self.pure.stop(delivery, now)
        self._perform()

    def stop_unread(self, token: bytes) -> None:
        """End a message that a consumer has not read, as both stop with the dispatcher."""
        self.pure.stop_unread(token, self._core.now())
        self._perform()

    def stopped(self) -> None:
        """Count what has not ended, as the dispatcher has stopped."""
        for delivery in self.pure.deliveries.left():
            on_disk = bool(delivery.message.stored)
            count_end(delivery.message, Logged.CANCELED if on_disk else Logged.DROP)

    def consumer_ended(self, number: int, reason: Refusal) -> None:
        """Remove a consumer that has to go, and tell it why."""
        record = self._take(number)
        if record is not None:
            record.ended(reason)

    def _take(self, number: int) -> ConsumerRecord | None:
        """Remove the record of a consumer, if it is there; return it."""
        record = self.consumers.get(number)
        if record is not None:
            self.consumers = without(self.consumers, number)
            self._gone = number, self.label_of(record)
            record.active = False
        return record
