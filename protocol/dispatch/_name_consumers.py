"""The consumers of a name at one node: which of them have messages, their queues and credit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from ._choice import Chooser
from ._consumer_queue import ConsumerQueue
from ._delivery import Delivery
from ._delivery_limits import NodeTotals, Share
from ._direct_consumers import DirectConsumers
from ._loads import ConsumerTarget
from ._name_events import Refusal
from ._semantics import Semantics
from ._semantics_parts import Overflow, RoutingPattern, Second
from ._small_table import EMPTY, SmallTable, put, without

__all__ = ["ConsumerChange", "NameConsumer", "NameConsumers"]

M = TypeVar("M")

# Each call of `frozenset` makes a new object, and most names have no node but this one.
_NOWHERE: Final = frozenset[str]()
_NO_NODES: Final[Mapping[str, int]] = {}


@dataclass(slots=True, eq=False)
class NameConsumer(Generic[M]):
    """A consumer of a name.

    Attributes:
        number: Its number at this node.
        window: Messages that it has at a time.
        milliseconds: When it attached.
        by_credit: Whether its credit is given by calls only; otherwise a message that it has
            settled gives one back.
        queue: The messages that wait for its credit.
        share: What its source has at this node.
        active: Whether it has messages; a standby has none.
        handed: Pre-settled messages that it has and has not handled.
        target: It as the target of a copy.
    """

    number: int
    window: int
    milliseconds: int
    by_credit: bool
    queue: ConsumerQueue[Delivery[M]]
    share: Share | None = None
    active: bool = False
    handed: int = 0
    target: ConsumerTarget = field(init=False)

    def __post_init__(self) -> None:
        self.target = ConsumerTarget(self.number)


class ConsumerChange(NamedTuple, Generic[M]):
    """The consumers that have messages now, and those that have none any more.

    Attributes:
        begun: Those that have messages now.
        stopped: Those that are on standby now.
    """

    begun: list[NameConsumer[M]]
    stopped: list[NameConsumer[M]]


class NameConsumers(Generic[M]):
    """The consumers of a name, a part of `NameState`.

    Args:
        own: The name of the node.
        chooser: Is told of those that have messages.
        totals: What all names of the node have together.
    """

    __slots__ = ("_chooser", "_direct", "_nodes", "_own", "_records", "_totals")

    def __init__(self, own: str, chooser: Chooser, totals: NodeTotals) -> None:
        self._own = own
        self._chooser = chooser
        self._totals = totals
        self._records: SmallTable[int, NameConsumer[M]] = EMPTY
        self._direct: DirectConsumers | None = None
        self._nodes: Mapping[str, int] = _NO_NODES

    def __len__(self) -> int:
        """Return the number of consumers, standbys included."""
        return len(self._records)

    def __iter__(self) -> Iterator[NameConsumer[M]]:
        """Return an iterator over the consumers, in the order of their attaching."""
        return iter(tuple(self._records.values()))

    def get(self, number: int) -> NameConsumer[M] | None:
        """Return a consumer."""
        return self._records.get(number)

    def blocked(self, before: float) -> int:
        """Return the number of those that are blocked: see `ConsumerQueue.is_blocked`."""
        return sum([each.queue.is_blocked(before) for each in self._records.values()])

    @property
    def claim(self) -> int | None:
        """The claim that others are told: `None` without a consumer, 0 if not direct."""
        if self._direct is not None:
            return self._direct.claim
        return 0 if self._records else None

    @property
    def has_nodes(self) -> bool:
        """Whether other nodes have consumers."""
        return bool(self._nodes)

    @property
    def nodes(self) -> frozenset[str]:
        """The other nodes that messages may go to."""
        if self._direct is None:
            return frozenset(self._nodes) if self._nodes else _NOWHERE
        winner = self._direct.winner
        return _NOWHERE if winner is None or winner == self._own else frozenset({winner})

    def configure(self, semantics: Semantics, *, anew: bool) -> list[tuple[int, Refusal]]:
        """Apply semantics; return the consumers that have to go, each with its reason.

        Args:
            semantics: The semantics.
            anew: Whether the rule for a second consumer may differ from that before.
        """
        newest = semantics.overflow is Overflow.NEWEST
        for record in self:
            record.queue.window, record.queue.newest = semantics.window, newest
        if not anew:
            return []
        self._direct = None
        gone: list[tuple[int, Refusal]] = []
        if semantics.pattern is RoutingPattern.DIRECT:
            standbys = self._totals.limits.max_consumers
            self._direct = DirectConsumers(self._own, semantics.second, standbys)
            for record in self:
                gone += self._claim(self._direct, record)
            gone += self._set_others(semantics.second)
        return gone

    def add(
        self,
        number: int,
        window: int,
        semantics: Semantics,
        milliseconds: int,
        *,
        by_credit: bool,
        share: Share | None = None,
    ) -> Refusal | list[tuple[int, Refusal]]:
        """Add a consumer; return the reason why not, or the consumers that have to go for it."""
        limits, totals = self._totals.limits, self._totals
        most = totals.consumers >= limits.max_node_consumers
        if most or len(self._records) >= limits.max_consumers:
            return Refusal.CONSUMERS
        if share is not None:
            others = [each.share for each in self._records.values()]
            node = share.may_have("consumers", 1, limits.max_node_consumers)
            if not (node and share.may_join(others, limits.max_consumers)):
                return Refusal.SHARE
        newest = semantics.overflow is Overflow.NEWEST
        queue: ConsumerQueue[Delivery[M]] = ConsumerQueue(semantics.window, totals, newest=newest)
        queue.credit = 0 if by_credit else window
        record = NameConsumer(number, window, milliseconds, by_credit, queue, share)
        gone: list[tuple[int, Refusal]] = []
        if self._direct is not None:
            gone = self._claim(self._direct, record)
            if (number, Refusal.TAKEN) in gone:
                return Refusal.TAKEN
        self._records = put(self._records, number, record)
        totals.consumers += 1
        if share is not None:
            share.count("consumers", 1)
        return gone

    def remove(self, number: int) -> NameConsumer[M] | None:
        """Remove a consumer; return it, unless it is not there."""
        record = self._records.get(number)
        if record is not None:
            self._records = without(self._records, number)
            self._totals.consumers -= 1
            if record.share is not None:
                record.share.count("consumers", -1)
            self._chooser.remove_consumer(number)
            if self._direct is not None:
                self._direct.remove(number)
        return record

    def set_nodes(self, nodes: Mapping[str, int], second: Second) -> list[tuple[int, Refusal]]:
        """Receive the claims of other nodes; return the consumers that have to go."""
        self._nodes = dict(nodes) if nodes else _NO_NODES
        return self._set_others(second)

    def change(self, messages_of: dict[int, int] | None = None) -> ConsumerChange[M]:
        """Give messages to those that are to have them now, and to no other.

        Args:
            messages_of: Messages that consumers have still from a time when they were active.
        """
        made: ConsumerChange[M] = ConsumerChange([], [])
        active = None if self._direct is None else self._direct.active
        for record in self:
            wanted = self._direct is None or record.number == active
            if record.active and not wanted:
                self._chooser.remove_consumer(record.number)
                made.stopped.append(record)
            elif wanted and not record.active:
                messages = (messages_of or {}).get(record.number, 0) + record.handed
                self._chooser.add_consumer(record.number, record.window, messages)
                made.begun.append(record)
            record.active = wanted
        return made

    def credit(self) -> int:
        """Return the credit of the active consumers beyond what waits for them."""
        return sum(max(0, each.queue.credit - len(each.queue)) for each in self if each.active)

    def _claim(self, direct: DirectConsumers, record: NameConsumer[M]) -> list[tuple[int, Refusal]]:
        admission = direct.add(record.number, record.milliseconds)
        if not admission.admitted:
            return [(record.number, Refusal.TAKEN)]
        return [] if admission.displaced is None else [(admission.displaced, Refusal.DISPLACED)]

    def _set_others(self, second: Second) -> list[tuple[int, Refusal]]:
        if self._direct is None:
            return []
        # A node that has told no claim does not know yet that the name is direct.
        claims = {node: claim for node, claim in self._nodes.items() if claim}
        reason = Refusal.DISPLACED if second is Second.NEWEST else Refusal.TAKEN
        return [(number, reason) for number in self._direct.set_others(claims)]
