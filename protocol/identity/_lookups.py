"""Look-ups under way: which nodes are asked for an identity, and which have answered.

All that waits for an identity waits for one look-up. So many nodes are asked at a time, those first
that were asked longest ago; as one knows nothing, or does not answer, another one is asked. An
identity that none of them knows is *missing* for a while: what wants it in that time asks none.

Times are seconds of a clock that does not go back.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias

from ..options import Count, Seconds, check_options
from ._identities import Identity

__all__ = [
    "AskNode",
    "LookupEnd",
    "LookupEvent",
    "LookupFailure",
    "LookupLimits",
    "LookupOutcome",
    "LookupStatistics",
    "LookupTable",
]

_BETWEEN = 1.0
"""Least time after which a node that joins makes what is missing be asked for again, in seconds."""
_SLACK = 64
"""Times of look-ups that have ended which are kept before they are swept, besides as many as there
are look-ups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupLimits:
    """Limits of look-ups.

    Attributes:
        max_lookups: Look-ups under way. Beyond: what needs another one is refused.
        max_asked: Nodes that are asked for one identity at a time. Beyond: further ones are asked
            when these have answered, or after `patience`.
        patience: Time after which a node that has not answered is not waited for, in seconds. The
            next ones are asked then.
        timeout: Time after which a look-up ends, in seconds, whether all have answered or not.
        max_missing: Identities that are remembered as missing. Beyond: the oldest is let go, and
            asked for again.
        missing_time: Time for which an identity is missing, in seconds. Then it is asked for again.

    Raises:
        ValueError: A value is out of its range.
    """

    max_lookups: Count = 1024
    max_asked: Count = 8
    patience: Seconds = 1.0
    timeout: Seconds = 5.0
    max_missing: Count = 4096
    missing_time: Seconds = 3.0

    def __post_init__(self) -> None:
        check_options(self)


class LookupOutcome(StrEnum):
    """The outcome of a wish to look up an identity. As a value, the text for people.

    With `STARTED` and `UNDER_WAY` it is looked up; with any other it is not.
    """

    STARTED = "a look-up of it begins"
    UNDER_WAY = "a look-up of it is under way"
    MISSING = "it was not found a moment ago"
    LOOKUPS = "as many look-ups as may be under way"


class LookupFailure(StrEnum):
    """The reason for which a look-up ends without an answer. As a value, the text for people."""

    NOT_FOUND = "it was not found: no node that there is a link to knows it"
    TIMEOUT = "the nodes that were asked for it have not answered in time"
    NONE_ASKED = "there was no node to ask for it"


class AskNode(NamedTuple):
    """A node is to be asked for an identity.

    Attributes:
        identity: The identity.
        node: The node.
    """

    identity: Identity
    node: Identity


class LookupEnd(NamedTuple):
    """A look-up has ended without an answer.

    Attributes:
        identity: The identity.
        reason: Why.
    """

    identity: Identity
    reason: LookupFailure


LookupEvent: TypeAlias = AskNode | LookupEnd
"""An effect of what happens to look-ups."""


@dataclass(frozen=True, slots=True)
class LookupStatistics:
    """The look-ups at one moment.

    Attributes:
        lookups: Look-ups under way.
        missing: Identities that are remembered as missing.
        asked: Nodes that were asked since the start, each time.
        outcomes: The number of wishes with each outcome.
        ended: The number of look-ups that have ended for each reason.
        found: The number of look-ups that were answered.
    """

    lookups: int
    missing: int
    asked: int
    outcomes: tuple[tuple[LookupOutcome, int], ...]
    ended: tuple[tuple[LookupFailure, int], ...]
    found: int


class _Lookup:
    """A look-up under way.

    Attributes:
        deadline: When it ends, in seconds.
        due: When the nodes that are waited for are waited for no longer, in seconds.
        asked: The nodes that were asked.
        awaited: Those of them that are waited for.
        is_silent: Whether one of them has not answered in time.
    """

    __slots__ = ("asked", "awaited", "deadline", "due", "is_silent")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.due = deadline
        self.asked: set[Identity] = set()
        self.awaited: set[Identity] = set()
        self.is_silent = False


class LookupTable:
    """The look-ups under way, by identity, and the nodes to ask.

    Args:
        limits: The limits.
    """

    __slots__ = (
        "_asked",
        "_cleared_at",
        "_ended",
        "_found",
        "_limits",
        "_lookups",
        "_missing",
        "_nodes",
        "_outcomes",
        "_times",
    )

    def __init__(self, limits: LookupLimits | None = None) -> None:
        self._limits = LookupLimits() if limits is None else limits
        # The node that was asked longest ago is the first.
        self._nodes: OrderedDict[Identity, None] = OrderedDict()
        self._lookups: dict[Identity, _Lookup] = {}
        # Identities that are missing, and until when; the oldest is the first.
        self._missing: OrderedDict[Identity, float] = OrderedDict()
        self._times: list[tuple[float, Identity]] = []
        self._cleared_at = -_BETWEEN
        self._asked = 0
        self._found = 0
        self._outcomes: Counter[LookupOutcome] = Counter()
        self._ended: Counter[LookupFailure] = Counter()

    def start(self, identity: Identity, now: float) -> tuple[LookupOutcome, list[LookupEvent]]:
        """Look up an identity, unless that is under way or none has known it a moment ago.

        Args:
            identity: The identity.
            now: The time, in seconds.
        """
        events: list[LookupEvent] = []
        outcome = self._outcome(identity, now)
        self._outcomes[outcome] += 1
        if outcome is LookupOutcome.STARTED:
            lookup = self._lookups[identity] = _Lookup(now + self._limits.timeout)
            heappush(self._times, (lookup.deadline, identity))
            self._ask(identity, lookup, now, events)
        return outcome, events

    def is_awaited(self, identity: Identity, node: Identity) -> bool:
        """Whether a node was asked for an identity, and has not answered."""
        lookup = self._lookups.get(identity)
        return lookup is not None and node in lookup.awaited

    def node_joined(self, node: Identity, now: float) -> list[LookupEvent]:
        """Add a node that can be asked, for the look-ups under way as well.

        What was missing is missing no longer, as it may know it; that is so once a second, as a
        node can join again and again.
        """
        self._nodes[node] = None
        if now >= self._cleared_at + _BETWEEN:
            self._missing.clear()
            self._cleared_at = now
        events: list[LookupEvent] = []
        for identity, lookup in self._lookups.items():
            self._ask(identity, lookup, now, events)
        return events

    def node_lost(self, node: Identity, now: float) -> list[LookupEvent]:
        """Remove a node: it does not answer any more."""
        self._nodes.pop(node, None)
        events: list[LookupEvent] = []
        for identity, lookup in tuple(self._lookups.items()):
            if node in lookup.awaited:
                lookup.awaited.remove(node)
                self._go_on(identity, lookup, now, events)
        return events

    def knows_nothing(self, identity: Identity, node: Identity, now: float) -> list[LookupEvent]:
        """Receive the answer of a node that it knows nothing which is of use."""
        events: list[LookupEvent] = []
        lookup = self._lookups.get(identity)
        if lookup is not None and node in lookup.awaited:
            lookup.awaited.remove(node)
            self._go_on(identity, lookup, now, events)
        return events

    def found(self, identity: Identity) -> bool:
        """End the look-up of an identity, as more is known of it; return whether there was one."""
        self._missing.pop(identity, None)
        lookup = self._lookups.pop(identity, None)
        if lookup is None:
            return False
        self._found += 1
        self._sweep()
        return True

    def get_timer(self) -> float | None:
        """Return when `handle_timer` is to be called, in seconds; `None` for never.

        It may be earlier than there is something to do.
        """
        return self._times[0][0] if self._times else None

    def handle_timer(self, now: float) -> list[LookupEvent]:
        """Ask further nodes for those that do not answer, and end what is over its time.

        Args:
            now: The time, in seconds.
        """
        events: list[LookupEvent] = []
        while self._times and self._times[0][0] <= now:
            _, identity = heappop(self._times)
            lookup = self._lookups.get(identity)
            if lookup is None:
                continue
            if lookup.deadline <= now:
                self._end(identity, _reason(lookup), now, events)
            elif lookup.due <= now:
                lookup.is_silent = lookup.is_silent or bool(lookup.awaited)
                lookup.awaited.clear()
                self._go_on(identity, lookup, now, events)
        return events

    def statistics(self) -> LookupStatistics:
        """Return the look-ups at this moment."""
        return LookupStatistics(
            lookups=len(self._lookups),
            missing=len(self._missing),
            asked=self._asked,
            outcomes=tuple((each, self._outcomes[each]) for each in LookupOutcome),
            ended=tuple((each, self._ended[each]) for each in LookupFailure),
            found=self._found,
        )

    def _outcome(self, identity: Identity, now: float) -> LookupOutcome:
        if identity in self._lookups:
            return LookupOutcome.UNDER_WAY
        until = self._missing.get(identity)
        if until is not None and now < until:
            return LookupOutcome.MISSING
        if len(self._lookups) >= self._limits.max_lookups:
            return LookupOutcome.LOOKUPS
        self._missing.pop(identity, None)
        return LookupOutcome.STARTED

    def _ask(
        self, identity: Identity, lookup: _Lookup, now: float, events: list[LookupEvent]
    ) -> None:
        """Ask as many further nodes for an identity as may be waited for."""
        free = self._limits.max_asked - len(lookup.awaited)
        chosen: list[Identity] = []
        for node in self._nodes:
            if len(chosen) >= free:
                break
            if node not in lookup.asked and node != identity:
                chosen.append(node)
        for node in chosen:
            self._nodes.move_to_end(node)
            lookup.asked.add(node)
            lookup.awaited.add(node)
            self._asked += 1
            events.append(AskNode(identity, node))
        if chosen:
            lookup.due = min(lookup.deadline, now + self._limits.patience)
            heappush(self._times, (lookup.due, identity))

    def _go_on(
        self, identity: Identity, lookup: _Lookup, now: float, events: list[LookupEvent]
    ) -> None:
        """Ask further nodes, or end the look-up if all have answered that they know nothing."""
        self._ask(identity, lookup, now, events)
        if not lookup.awaited and not lookup.is_silent:
            self._end(identity, LookupFailure.NOT_FOUND, now, events)

    def _end(
        self, identity: Identity, reason: LookupFailure, now: float, events: list[LookupEvent]
    ) -> None:
        del self._lookups[identity]
        self._ended[reason] += 1
        if reason is not LookupFailure.NONE_ASKED:
            self._missing[identity] = now + self._limits.missing_time
            if len(self._missing) > self._limits.max_missing:
                self._missing.popitem(last=False)
        events.append(LookupEnd(identity, reason))
        self._sweep()

    def _sweep(self) -> None:
        """Remove the times of what has ended, if they are most of all."""
        if len(self._times) <= 2 * len(self._lookups) + _SLACK:
            return
        times: list[tuple[float, Identity]] = []
        for identity, lookup in self._lookups.items():
            times += {(lookup.due, identity), (lookup.deadline, identity)}
        heapify(times)
        self._times = times


def _reason(lookup: _Lookup) -> LookupFailure:
    return LookupFailure.TIMEOUT if lookup.asked else LookupFailure.NONE_ASKED
