"""The choice of consumers and next nodes for a message.

A `Chooser` has what one name knows at one node: its consumers here with their load, and the other
nodes that have consumers, each with its next node, its cost and its *valid origins*: the nodes of
which the shortest path to that node passes here. A message is sent towards a node only if its
ingress is one of them. So no message goes in circles, and a multicast reaches each node once.

| routing pattern | choice |
| --- | --- |
| direct | the consumer here; else the next node towards the nearest node with one |
| closest | a consumer here, in rotation; else a node at the lowest cost, in rotation |
| balanced | the lowest *value*: load of a consumer here; load of the link plus cost of a node |
| multicast | each consumer here, and each next node once |

The load of a consumer is the number of messages that wait for it or that it has not settled; that
of a link counts the unsettled messages of this name on it. A consumer or link with a full window is
chosen only if all are full, and then the least full. A balanced name can weigh loads by the average
time to settlement: then a consumer that is twice as slow counts twice.

Targets that were tried, and next nodes that the message has passed, are left out. A message that
`is_too_far` is not sent on at all: it is released.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ._transit import MAX_PATH

__all__ = [
    "Chooser",
    "ConsumerTarget",
    "LinkTarget",
    "RemoteNode",
    "Target",
    "is_too_far",
]

_AVERAGED: Final = 8
"""Settlements over which the average time is formed, by exponential decay."""


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


@dataclass(frozen=True, slots=True)
class RemoteNode:
    """Another node that has consumers of a name.

    Attributes:
        node: Its name.
        link: The link to the next node on the way there.
        neighbour: The digest of that next node, as in the path of a transit.
        cost: The cost of the way.
        origins: The nodes of which messages may be sent to it from here, this node included.
    """

    node: str
    link: str
    neighbour: bytes
    cost: int
    origins: Container[str]


@dataclass(slots=True)
class _Load:
    """The load of a consumer or a link.

    Attributes:
        window: Messages from which on it is full.
        messages: Messages that are bound to it and not settled.
        average: Average time to settlement, in seconds; 0 before the first.
    """

    window: int
    messages: int = 0
    average: float = 0.0


class _Best(NamedTuple):
    """The best target so far; one with room beats each without."""

    full: bool
    value: float
    target: Target


class Chooser:
    """The consumers of a name as one node sees them.

    Args:
        link_window: Unsettled messages of the name on one link from which on it counts as full.
        by_load: Whether a lower load decides between nodes at the same cost, for closest.
        by_time: Whether loads are weighed by time to settlement, for balanced.
    """

    def __init__(
        self, link_window: int = 250, *, by_load: bool = False, by_time: bool = False
    ) -> None:
        self._link_window = link_window
        self._by_load = by_load
        self._by_time = by_time
        self._consumers: dict[int, _Load] = {}
        self._links: dict[str, _Load] = {}
        self._remotes: tuple[RemoteNode, ...] = ()
        self._turns = 0

    @property
    def paths(self) -> int:
        """The number of consumers here and of nodes with consumers."""
        return len(self._consumers) + len(self._remotes)

    @property
    def consumers(self) -> tuple[int, ...]:
        """The consumers here; the first of them is the next in rotation."""
        return tuple(self._consumers)

    def add_consumer(self, consumer: int, window: int) -> None:
        """Add a consumer of this node.

        Args:
            consumer: Its number.
            window: Messages from which on it is full.
        """
        self._consumers[consumer] = _Load(window)

    def remove_consumer(self, consumer: int) -> None:
        """Remove a consumer of this node; do nothing if it is not there."""
        self._consumers.pop(consumer, None)

    def set_remotes(self, remotes: Iterable[RemoteNode]) -> None:
        """Replace the other nodes that have consumers; the loads of links in use are kept."""
        # Sorted, so that rotation begins at the same node everywhere.
        self._remotes = tuple(sorted(remotes, key=lambda each: (each.cost, each.node)))
        links = {each.link for each in self._remotes}
        for link in [name for name, load in self._links.items() if not load.messages]:
            if link not in links:
                del self._links[link]

    # --- loads ------------------------------------------------------------------------------

    def load(self, target: Target) -> int:
        """Return the number of messages that are bound to a target and not settled."""
        load = self._load(target)
        return load.messages if load is not None else 0

    def bound(self, target: Target) -> None:
        """Count a message as bound to a target."""
        if isinstance(target, LinkTarget) and target.link not in self._links:
            self._links[target.link] = _Load(self._link_window)
        load = self._load(target)
        if load is not None:
            load.messages += 1

    def settled(self, target: Target, seconds: float | None = None) -> None:
        """Count a message of a target as settled; do nothing if the target has gone.

        Args:
            target: The target.
            seconds: The time that it took. `None` leaves the average as it is, for a message that
                was not handed over.
        """
        load = self._load(target)
        if load is None or not load.messages:
            return
        load.messages -= 1
        if seconds is not None:
            weight = 1.0 if not load.average else 1.0 / _AVERAGED
            load.average += weight * (seconds - load.average)

    def link_lost(self, link: str) -> None:
        """Forget the load of a link."""
        self._links.pop(link, None)

    def _load(self, target: Target) -> _Load | None:
        if isinstance(target, ConsumerTarget):
            return self._consumers.get(target.consumer)
        return self._links.get(target.link)

    # --- the choice -------------------------------------------------------------------------

    def direct(
        self, ingress: str, passed: Container[bytes] = (), tried: Container[Target] = ()
    ) -> Target | None:
        """Return the one consumer, or the next node on the cheapest way to it.

        Args:
            ingress: The node where the message entered.
            passed: The digests of the nodes that it has passed.
            tried: Targets that are left out.
        """
        # "Messages (or links) follow the lowest cost path across the network from the sender to the
        # one receiver."
        for consumer in self._consumers:
            if (target := ConsumerTarget(consumer)) not in tried:
                return target
        for remote in self._eligible(ingress, passed, tried):
            return LinkTarget(remote.link)
        return None

    def closest(
        self, ingress: str, passed: Container[bytes] = (), tried: Container[Target] = ()
    ) -> Target | None:
        """Return the nearest target: a consumer here, else a node at the lowest cost.

        Args:
            ingress: The node where the message entered.
            passed: The digests of the nodes that it has passed.
            tried: Targets that are left out.
        """
        for consumer in self._consumers:
            if (target := ConsumerTarget(consumer)) not in tried:
                self._rotate(consumer)
                return target
        links = list[str]()
        lowest = 0
        for remote in self._eligible(ingress, passed, tried):
            if links and remote.cost > lowest:
                break
            lowest = remote.cost
            links.append(remote.link)
        if not links:
            return None
        self._turns += 1
        first = self._turns % len(links)
        links = links[first:] + links[:first]
        if self._by_load:
            return LinkTarget(min(links, key=lambda link: self.load(LinkTarget(link))))
        return LinkTarget(links[0])

    def balanced(
        self, ingress: str, passed: Container[bytes] = (), tried: Container[Target] = ()
    ) -> Target | None:
        """Return the target with the lowest value.

        "messages (or links) are routed to exactly one of the consumers, and the network attempts to
        balance the traffic load across the set of consumers using the same address."

        Args:
            ingress: The node where the message entered.
            passed: The digests of the nodes that it has passed.
            tried: Targets that are left out.
        """
        weigh = self._weights()
        best: _Best | None = None
        for consumer, load in self._consumers.items():
            if not load.messages:
                if (target := ConsumerTarget(consumer)) not in tried:
                    self._rotate(consumer)
                    return target
                continue
            full, value = load.messages >= load.window, load.messages * weigh(load)
            if best is None or (full, value) < best[:2]:
                target = ConsumerTarget(consumer)
                if target not in tried:
                    best = _Best(full, value, target)
        for remote in self._eligible(ingress, passed, tried):
            link = self._links.get(remote.link)
            messages = 0 if link is None else link.messages
            value = remote.cost + (0.0 if link is None else messages * weigh(link))
            full = messages >= self._link_window
            if best is None or (full, value) < best[:2]:
                best = _Best(full, value, LinkTarget(remote.link))
        return None if best is None else best.target

    def multicast(
        self, ingress: str, passed: Container[bytes] = (), tried: Container[Target] = ()
    ) -> tuple[Target, ...]:
        """Return each consumer here, and each next node towards others once.

        "Messages are routed such that each consumer receives a copy of the message."

        Args:
            ingress: The node where the message entered.
            passed: The digests of the nodes that it has passed.
            tried: Targets that are left out.
        """
        made: dict[Target, None] = {}
        for consumer in self._consumers:
            if (target := ConsumerTarget(consumer)) not in tried:
                made[target] = None
        for remote in self._eligible(ingress, passed, tried):
            made[LinkTarget(remote.link)] = None
        return tuple(made)

    def _eligible(
        self, ingress: str, passed: Container[bytes], tried: Container[Target]
    ) -> Iterator[RemoteNode]:
        """Yield the nodes that a message may be sent to, the cheapest first."""
        for remote in self._remotes:
            if (
                ingress in remote.origins
                and remote.neighbour not in passed
                and LinkTarget(remote.link) not in tried
            ):
                yield remote

    def _rotate(self, consumer: int) -> None:
        self._consumers[consumer] = self._consumers.pop(consumer)

    def _weights(self) -> Callable[[_Load], float]:
        """Return the function that weighs a load by its time to settlement."""
        if not self._by_time:
            return _alike
        times = [each.average for each in (*self._consumers.values(), *self._links.values())]
        fastest = min(filter(None, times), default=0.0)

        def weight(load: _Load) -> float:
            return load.average / fastest if load.average else 1.0

        return weight


def is_too_far(passed: int, radius: int) -> bool:
    """Whether a message has passed more nodes than any shortest path of the network has.

    Args:
        passed: Nodes that it has passed.
        radius: Hops to the node that is furthest from here.
    """
    # One more than the radius, as nodes may not agree about their links yet. Beyond `MAX_PATH` the
    # path cannot be told to a next node.
    return passed > radius + 1 or passed >= MAX_PATH


def _alike(_load: _Load) -> float:
    return 1.0
