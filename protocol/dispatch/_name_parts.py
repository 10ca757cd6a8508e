"""The parts of the state of a name at one node, and what it tells of them.

Here are the choice of a target for a message, and all that is told without another message being
sent: outcomes, drops, credit, and the consumers and paths that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import lru_cache
from typing import Final, Generic, TypeVar

from ._choice import Chooser
from ._deliveries import Deliveries
from ._delivery import Delivery
from ._delivery_limits import NodeTotals
from ._duplicate_window import DuplicateWindow
from ._loads import ConsumerTarget, LinkTarget, Target
from ._name_consumers import NameConsumer, NameConsumers
from ._name_events import Announced, Dropped, DropReason, NameEvent, NamePaths, Refusal, Told
from ._outcomes import Outcome, Released
from ._producer_window import ProducerWindows
from ._semantics import Semantics
from ._semantics_parts import Gate, Mechanism, RoutingPattern

__all__ = ["NameParts"]

M = TypeVar("M")


class NameParts(Generic[M]):
    """The parts of the state of a name, and what is told of them; see `NameState`.

    Args:
        own: The name of the node in the network.
        semantics: The semantics of the name.
        make_token: Gives 8 random bytes.
        totals: What all names of the node have together, with its limits.
    """

    __slots__ = (
        "_announced",
        "_chooser",
        "_consumers",
        "_deliveries",
        "_duplicates",
        "_events",
        "_make_id",
        "_own",
        "_told_paths",
        "_too_late",
        "_totals",
        "_windows",
        "semantics",
    )

    def __init__(
        self,
        own: str,
        semantics: Semantics,
        make_token: Callable[[], bytes],
        totals: NodeTotals | None = None,
    ) -> None:
        self._own: Final = own
        self._make_id: Final = make_token
        self._totals: Final = totals or NodeTotals()
        self._chooser: Final = Chooser()
        self._consumers: NameConsumers[M] = NameConsumers(own, self._chooser, self._totals)
        self._deliveries: Deliveries[M] = Deliveries(make_token, self._totals)
        self._windows: Final = ProducerWindows()
        self._duplicates: DuplicateWindow | None = None
        self._events: list[NameEvent[M]] = []
        self._too_late: float | None = None
        self._told_paths = 0
        self._announced: tuple[int | None, int] = (None, 0)
        self.semantics = semantics

    def events(self) -> list[NameEvent[M]]:
        """Remove and return the events that have not been taken yet."""
        events, self._events = self._events, []
        return events

    @property
    def paths(self) -> int:
        """The number of active consumers here, and of nodes with consumers."""
        return self._chooser.paths

    def refusal(self, *, circuits: bool = False) -> Refusal | None:
        """Return why the name takes no messages, or no circuits; `None` if it does."""
        it = self.semantics
        if it.pattern is RoutingPattern.UNAVAILABLE:
            return Refusal.UNAVAILABLE
        if circuits is (it.mechanism is Mechanism.LINK):
            return None
        return Refusal.MESSAGES if circuits else Refusal.CIRCUITS

    @property
    def deliveries(self) -> Deliveries[M]:
        """The table of its deliveries, to be read."""
        return self._deliveries

    # --- targets ----------------------------------------------------------------------------

    def _choose(self, delivery: Delivery[M], now: float) -> tuple[Target, ...]:
        if delivery.until is not None and delivery.until <= now:
            self._totals.counts[DropReason.EXPIRED] += 1
            return ()
        chooser, pattern = self._chooser, self.semantics.pattern
        ingress, path, tried = delivery.identity[0], delivery.path, delivery.tried
        if pattern is RoutingPattern.MULTICAST:
            return chooser.multicast(ingress, path, tried, now)
        target = self._choose_one(ingress, path, tried)
        if target is None and path and not tried:
            # The node before may have chosen by the paths before. What a target here has released
            # does not go to it again, by another path.
            target = chooser.on_the_way(ingress, path, self._totals.paths.before(now))
        return () if target is None else (target,)

    def _choose_one(
        self, ingress: str, passed: Container[bytes], tried: Container[Target] = ()
    ) -> Target | None:
        """Return the one target that the pattern has for a message or a circuit."""
        chooser, pattern = self._chooser, self.semantics.pattern
        if pattern is RoutingPattern.DIRECT:
            return chooser.direct(ingress, passed, tried)
        if pattern is RoutingPattern.CLOSEST:
            return chooser.closest(ingress, passed, tried)
        return chooser.balanced(ingress, passed, tried)

    def _record_of(self, target: Target) -> NameConsumer[M] | None:
        return self._consumers.get(target.consumer) if isinstance(target, ConsumerTarget) else None

    # --- what is told -----------------------------------------------------------------------

    def _tell(self, delivery: Delivery[M], outcome: Outcome, *, bound: bool = True) -> None:
        """Report the outcome of an unsettled message, and give its producer the credit back."""
        if self._duplicates is not None and bound:
            self._duplicates.decided(delivery.identity, outcome)
        if bound and isinstance(outcome, Released):
            self._totals.multicasts.released(delivery.identity)
        source = delivery.source
        self._events.append(Told(delivery, outcome, delivery.tally))
        if not isinstance(source, int) or source not in self._windows:
            return
        if isinstance(outcome, Released) and not self.paths:
            # It is "released + drain" for a "targeted, consumer just gone".
            self._events += self._windows.unroutable(source, settled=False)[1]
        else:
            self._events += self._windows.settled(source)

    def _drop(self, delivery: Delivery[M], reason: DropReason) -> None:
        self._totals.counts[reason] += 1
        self._events.append(Dropped(delivery, reason))

    def _finish(self, delivery: Delivery[M], outcome: Outcome) -> None:
        """End a message that no target has."""
        if delivery.settled:
            self._drop(delivery, DropReason.NO_CONSUMER)
            return
        self._deliveries.end(delivery, outcome)
        self._tell(delivery, outcome)

    def settled(self, producer: int) -> None:
        """Give a producer credit back for a message that another name has told the outcome of."""
        self._events += self._windows.settled(producer)

    def _refresh_credit(self) -> None:
        """Give credit by what consumers have left, which each message changes, if that counts."""
        if self.semantics.gate is Gate.CREDIT:
            self._refresh()

    def _refresh(self) -> None:
        """Give credit by the paths that there are, and report what has changed of consumers."""
        credit = 0
        if self.semantics.gate is Gate.CREDIT:
            window, chooser = self.semantics.window, self._chooser
            links = (window - chooser.load(LinkTarget(link)) for link in chooser.links)
            credit = self._consumers.credit() + sum(max(0, each) for each in links)
        self._events += self._windows.set_paths(self.paths, credit)
        if self.paths != self._told_paths:
            self._told_paths = self.paths
            self._events.append(NamePaths(self.paths))
        claim = self._consumers.claim
        told = _told(claim, 0 if claim is None else self.semantics.hint)
        if told != self._announced:
            self._announced = told
            self._events.append(Announced(claim))


@lru_cache(64)
def _told(claim: int | None, hint: int) -> tuple[int | None, int]:
    """Return what others are told of the consumers of a name, the same for most names."""
    return claim, hint
