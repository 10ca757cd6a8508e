"""The targets of the messages of a name at one node, and the load of each.

The load of a consumer is the number of messages that wait for it or that it has not settled; that
of a link counts the unsettled messages of this name on it. A name can weigh loads by the average
time to settlement: then a consumer that is twice as slow counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from ._small_table import EMPTY, SmallTable, put, without

__all__ = ["ConsumerTarget", "LinkTarget", "Load", "Loads", "Target"]

_AVERAGED: Final = 8
"""Settlements over which the average time is formed, by exponential decay."""


_NONE: Final[dict[Any, Any]] = {}


class ConsumerTarget(NamedTuple):
    """A consumer of this node, as the target of a copy.

    Attributes:
        consumer: Its number at this node.
    """

    consumer: int


class LinkTarget(NamedTuple):
    """The link to a next node, as the target of a copy.

    Attributes:
        link: Its name at this node.
    """

    link: str


Target: TypeAlias = ConsumerTarget | LinkTarget
"""A target of a copy."""


@dataclass(slots=True, eq=False)
class Load:
    """The load of a consumer or a link.

    Attributes:
        window: Messages from which on it is full.
        messages: Messages that are bound to it and not settled.
        average: Average time to settlement, in seconds; 0 before the first.
    """

    window: int
    messages: int = 0
    average: float = 0.0


class Loads:
    """The consumers of a name at one node and the links to next nodes, each with its load.

    Args:
        link_window: Unsettled messages of the name on one link from which on it counts as full.
        by_time: Whether loads are weighed by time to settlement.
    """

    __slots__ = ("_consumers", "_links", "by_time", "link_window")

    def __init__(self, link_window: int = 250, *, by_time: bool = False) -> None:
        self.link_window = link_window
        self.by_time = by_time
        self._consumers: SmallTable[int, Load] = EMPTY
        self._links: dict[str, Load] = _NONE  # made for the first one

    @property
    def consumers(self) -> tuple[int, ...]:
        """The consumers here; the first of them is the next in rotation."""
        return tuple(self._consumers)

    @property
    def loads(self) -> SmallTable[int, Load]:
        """The loads of the consumers here, to be counted in."""
        return self._consumers

    def add_consumer(self, consumer: int, window: int, messages: int = 0) -> None:
        """Add a consumer of this node.

        Args:
            consumer: Its number.
            window: Messages from which on it is full.
            messages: Messages that it has already, from a time when it was here before.
        """
        self._consumers = put(self._consumers, consumer, Load(window, messages))

    def remove_consumer(self, consumer: int) -> None:
        """Remove a consumer of this node; do nothing if it is not there."""
        self._consumers = without(self._consumers, consumer)

    def load(self, target: Target) -> int:
        """Return the number of messages that are bound to a target and not settled."""
        load = self._load(target)
        return load.messages if load is not None else 0

    def bound(self, target: Target) -> None:
        """Count a message as bound to a target."""
        if isinstance(target, LinkTarget):
            self.link_load(target.link).messages += 1
        elif (load := self._load(target)) is not None:
            load.messages += 1

    def link_load(self, link: str) -> Load:
        """Return the load of a link, to be counted in until the ways change."""
        load = self._links.get(link)
        if load is None:
            if self._links is _NONE:
                self._links = {}
            load = self._links[link] = Load(self.link_window)
        return load

    def settled(self, target: Target, seconds: float | None = None) -> None:
        """Count a message of a target as settled; do nothing if the target has gone.

        Args:
            target: The target.
            seconds: The time that it took, which counts for a name that weighs by time only. `None`
                leaves the average as it is, for a message that was not handed over.
        """
        load = self._load(target)
        if load is None or not load.messages:
            return
        load.messages -= 1
        # Messages on the fast path, which a name that weighs by time has not, are not timed.
        if seconds is not None and self.by_time:
            weight = 1.0 if not load.average else 1.0 / _AVERAGED
            load.average += weight * (seconds - load.average)

    def _forget_idle_links(self, links: Container[str]) -> None:
        """Forget the links that have no messages, but for some."""
        for link in [name for name, load in self._links.items() if not load.messages]:
            if link not in links:
                del self._links[link]

    def _load(self, target: Target) -> Load | None:
        if isinstance(target, ConsumerTarget):
            return self._consumers.get(target.consumer)
        return self._links.get(target.link)

    def _rotate(self, consumer: int) -> None:
        if isinstance(self._consumers, dict):
            self._consumers[consumer] = self._consumers.pop(consumer)

    def _weights(self) -> Callable[[Load], float]:
        """Return the function that weighs a load by its time to settlement."""
        if not self.by_time:
            return _alike
        times = [each.average for each in (*self._consumers.values(), *self._links.values())]
        fastest = min(filter(None, times), default=0.0)

        def weight(load: Load) -> float:
            return load.average / fastest if load.average else 1.0

        return weight


def _alike(_load: Load) -> float:
    return 1.0
