"""The fast path of a name: for messages of which only the consumer has to be remembered.

Most messages are sent to one consumer that has credit, or over the one link that leads to
consumers, and are accepted. Such a message needs no full record: on the fast path there is one
entry for each, under its token. It counts as each other one, in the load and the credit of its
target, in the limits of the node and in the share of its source. Whatever else happens to it, the
entry is first *promoted*: the full record is made, as if there had been one all along.

```
begin, begin_on ─▶ entry ─▶ accepted by its target
                     └──▶ promoted: released, rejected, late, its consumer or link changes, ...
```

A name has the fast path while its semantics, its consumers and the ways to other nodes are as they
were when it was planned; each change closes it, until it is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ._choice import Chooser
from ._consumer_queue import ConsumerQueue
from ._delivery import Delivery
from ._delivery_limits import NodeTotals, Share
from ._loads import ConsumerTarget, LinkTarget, Load
from ._name_consumers import NameConsumer
from ._semantics_parts import RoutingPattern
from ._small_table import EMPTY, SmallTable

__all__ = ["FastDelivery", "FastLink", "FastPath", "FastTarget", "Promote"]

M = TypeVar("M")

_EARLY: Final = 1.0
"""Entries that have less time left are promoted with those that are due, in seconds, so that
entries with many different times are looked at no more than once in it."""


@dataclass(slots=True, eq=False)
class FastTarget(Generic[M]):
    """A consumer of this node, as the target of messages on the fast path.

    Attributes:
        number: Its number.
        load: Its load.
        queue: Its queue, with its credit.
        record: Its record.
        consumer: What the caller has for it.
    """

    number: int
    load: Load
    queue: ConsumerQueue[Delivery[M]]
    record: NameConsumer[M]
    consumer: Any

    @property
    def target(self) -> ConsumerTarget:
        """It as the target of a copy."""
        return self.record.target


@dataclass(slots=True, eq=False)
class FastLink:
    """The link to the next node, as the target of messages on the fast path.

    Attributes:
        target: It as the target of a copy.
        load: Its load.
    """

    target: LinkTarget
    load: Load


FastHanded: TypeAlias = tuple[FastTarget[M], int, float, float, Any, Share | None]
FastSent: TypeAlias = tuple[FastLink, int, float, float, Any, Share | None]
FastDelivery: TypeAlias = FastHanded[M] | FastSent
"""An unsettled message on the fast path. A plain tuple, as one is made for each: the consumer or
the link that has it; its bytes; when it was sent, and when it is promoted at the latest, in
seconds, infinity being never; what its full record is made from; and what its source has at this
node, `None` if it has entered here."""


Promote: TypeAlias = Callable[[bytes, FastDelivery[M]], Delivery[M]]
"""Function that makes the full record of an entry, by its token."""


class Unsettled(Protocol):
    """The deliveries of a name that are not on the fast path."""

    unsettled: int


class FastPath(Generic[M]):
    """The fast path of a name.

    Args:
        deliveries: The other deliveries of the name.
        chooser: Has the loads of its consumers.
        totals: What all names of the node have together.
        promote: Makes the full record of an entry.

    Attributes:
        is_open: Whether messages may go it.
        plans: Number of times that it was closed: what was found before does not hold any more.
        only: The one consumer, if the name has one and no other node has any.
        entries: The unsettled messages, by token, in the order in which they came.
        accepted: Number of messages that were accepted.
        settle_time: Time in which a consumer here has to settle a message, in seconds: the limit
            of an entry is no later.
        longest: The limit of an entry of a message that has entered here is no later either.
    """

    __slots__ = (
        "_chooser",
        "_consumers",
        "_deliveries",
        "_most",
        "_most_size",
        "_pattern",
        "_timer",
        "_totals",
        "accepted",
        "entries",
        "is_open",
        "longest",
        "only",
        "plans",
        "promote",
        "settle_time",
    )

    def __init__(
        self, deliveries: Unsettled, chooser: Chooser, totals: NodeTotals, promote: Promote[M]
    ) -> None:
        self._deliveries: Final = deliveries
        self.is_open = False
        self.plans = 0
        self.only: FastTarget[M] | None = None
        self.entries: Final[dict[bytes, FastDelivery[M]]] = {}
        self.accepted = 0
        self.promote: Final = promote
        self.settle_time = self.longest = totals.limits.settle_time
        self._totals: Final = totals
        self._most: Final = totals.limits.max_unsettled
        self._most_size: Final = totals.limits.max_unsettled_size
        self._consumers: dict[int, FastTarget[M]] = {}
        self._chooser: Final = chooser
        self._pattern = RoutingPattern.BALANCED
        self._timer = inf

    def plan(
        self,
        pattern: RoutingPattern,
        consumers: list[NameConsumer[M]],
        known: SmallTable[int, Any] = EMPTY,
    ) -> None:
        """Open the fast path for the consumers that there are now.

        Args:
            pattern: The pattern of the name, which is no multicast.
            consumers: The active consumers.
            known: What the caller has for each, by its number.
        """
        loads = self._chooser.loads
        targets = [
            FastTarget(each.number, loads[each.number], each.queue, each, known.get(each.number))
            for each in consumers
        ]
        self._consumers = {each.number: each for each in targets}
        self._pattern = pattern
        self.only = targets[0] if len(targets) == 1 and not self._chooser.has_remotes else None
        self.is_open = True

    def close(self) -> list[tuple[bytes, FastDelivery[M]]]:
        """Close it until it is planned again; remove and return its entries."""
        self.is_open = False
        self.plans += 1
        left = list(self.entries.items())
        for token, _ in left:
            self.take(token)
        return left

    # --- messages ---------------------------------------------------------------------------

    def choose(self) -> FastTarget[M] | None:
        """Return the consumer that gets the next message; `None` if the full choice has to say.

        If there is `only` one, it is that one.
        """
        number = self._chooser.consumer_here(self._pattern)
        return None if number is None else self._consumers[number]

    def link(self, ingress: str, passed: Container[bytes]) -> str | None:
        """Return the one link that each message goes to, until the next change; `None` otherwise.

        Args:
            ingress: The node where the message entered.
            passed: The digests of the nodes that it has passed.
        """
        return self._chooser.only_link(ingress, passed)

    def link_target(self, link: str) -> FastLink:
        """Return a link as the target of messages, until the next change."""
        return FastLink(LinkTarget(link), self._chooser.link_load(link))

    def begin(self, token: bytes, entry: FastHanded[M]) -> bool:
        """Begin an unsettled message; return whether there is room and credit for it."""
        target, size, _, limit, _, share = entry
        queue, totals = target.queue, self._totals
        entries = self.entries
        if (
            not queue.credit
            or queue.waiting
            or totals.size + size > self._most_size
            or len(entries) + self._deliveries.unsettled >= self._most
            or (share is not None and not share.begin(size, self._most, self._most_size))
        ):
            return False
        if self.only is None:
            self.took(target)
        queue.credit -= 1
        target.load.messages += 1
        totals.size += size
        if limit < self._timer:
            self._timer = limit
        entries[token] = entry
        return True

    def begin_on(self, token: bytes, entry: FastSent) -> bool:
        """Begin an unsettled message that goes over a link; return whether there is room for it."""
        target, size, _, limit, _, share = entry
        totals, entries = self._totals, self.entries
        if (
            totals.size + size > self._most_size
            or len(entries) + self._deliveries.unsettled >= self._most
            or (share is not None and not share.begin(size, self._most, self._most_size))
        ):
            return False
        target.load.messages += 1
        totals.size += size
        if limit < self._timer:
            self._timer = limit
        entries[token] = entry
        return True

    def took(self, target: FastTarget[M]) -> None:
        """Go on with the rotation of several consumers, before a message of one is counted."""
        self._chooser.took(target.number, self._pattern)

    def accept(self, token: bytes) -> FastDelivery[M]:
        """End an entry as accepted; return it. What waits for its consumer is served then."""
        entry = self.entries.pop(token)
        target, size, _, _, _, share = entry
        self._totals.size -= size
        self.accepted += 1
        target.load.messages -= 1
        if share is not None:
            share.end(size)
        if isinstance(target, FastTarget) and not target.record.by_credit:
            target.queue.credit += 1
        return entry

    def take(self, token: bytes) -> FastDelivery[M]:
        """Remove an entry that is promoted: its load and its credit stay as they are."""
        entry = self.entries.pop(token)
        _, size, _, _, _, share = entry
        self._totals.size -= size
        if share is not None:
            share.end(size)
        return entry

    # --- time -------------------------------------------------------------------------------

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds; `None` if nothing has its time."""
        if not self.entries:
            self._timer = inf
        return None if self._timer == inf else self._timer

    def due(self, now: float) -> list[tuple[bytes, FastDelivery[M]]]:
        """Remove and return the entries of which the time is over, or will be soon."""
        timer = self.get_timer()
        if timer is None or timer > now:
            return []
        end = now + _EARLY
        late = [token for token, entry in self.entries.items() if entry[3] <= end]
        taken = [(token, self.take(token)) for token in late]
        self._timer = min((each[3] for each in self.entries.values()), default=inf)
        return taken
