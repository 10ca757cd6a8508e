"""The choice of consumers and next nodes for a message.

A `Chooser` has what one name knows at one node: its consumers here with their load, and the other
nodes that have consumers, each with its next node and its cost. A message is sent towards a node
only if the shortest path from its ingress to that node passes here. So no message goes in circles,
and a multicast reaches each node once.

The place of a circuit is chosen by `closest` as well, once for its life, with `bound` not called:
so load does not count, and what passes keeps its order.

| routing pattern | choice |
| --- | --- |
| direct | the consumer here; else the next node towards the nearest node with one |
| closest | a consumer here, in rotation; else a node at the lowest cost, in rotation |
| balanced | the lowest *value*: load of a consumer here; load of the link plus cost of a node |
| multicast | each consumer here, and each next node once |

A consumer or link with a full window is chosen only if all are full, and then the least full. A
balanced name can weigh loads by the average time to settlement: see `Loads`.

Targets that were tried, and next nodes that the message has passed, are left out. A message that
`is_too_far` is not sent on at all: it is released.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, NamedTuple

from ._graph import Paths
from ._loads import ConsumerTarget, LinkTarget, Loads, Target
from ._semantics_parts import RoutingPattern
from ._transit import MAX_PATH, node_digest

__all__ = ["Chooser", "is_too_far"]

_MOST_BEFORE: Final = 4
"""Changes of the paths of which the ways before are kept, for multicasts. Beyond: the oldest are
forgotten."""


class _Remote(NamedTuple):
    """Another node that has consumers, and the way there.

    Attributes:
        cost: The cost of the way.
        node: Its name.
        link: The link to the next node.
        neighbour: The digest of that next node, as in the path of a transit.
    """

    cost: int
    node: str
    link: str
    neighbour: bytes


class _Before(NamedTuple):
    """The ways to other nodes before the paths changed.

    Attributes:
        until: When the last node has changed its paths, too, in seconds.
        paths: The paths.
        remotes: The ways.
    """

    until: float
    paths: Paths
    remotes: tuple[_Remote, ...]


class _Best(NamedTuple):
    """The best target so far; one with room beats each without."""

    full: bool
    value: float
    target: Target


class Chooser(Loads):
    """The consumers of a name as one node sees them, to choose from.

    Args:
        link_window: Unsettled messages of the name on one link from which on it counts as full.
        by_load: Whether a lower load decides between nodes at the same cost, for closest.
        by_time: Whether loads are weighed by time to settlement, for balanced.
    """

    __slots__ = ("_before", "_link_to", "_nodes", "_paths", "_remotes", "_turns", "by_load")

    def __init__(
        self, link_window: int = 250, *, by_load: bool = False, by_time: bool = False
    ) -> None:
        super().__init__(link_window, by_time=by_time)
        self.by_load = by_load
        self._nodes: frozenset[str] = frozenset()
        self._paths: Paths | None = None
        self._before: tuple[_Before, ...] = ()
        self._link_to: Callable[[str], str | None] = _no_link
        self._remotes: tuple[_Remote, ...] = ()
        self._turns = 0

    @property
    def paths(self) -> int:
        """The number of consumers here and of nodes with consumers."""
        return len(self._consumers) + len(self._remotes)

    @property
    def has_remotes(self) -> bool:
        """Whether there is a way to another node that has consumers."""
        return bool(self._remotes)

    @property
    def links(self) -> dict[str, frozenset[str]]:
        """The links to next nodes, with the nodes that have consumers behind each."""
        behind: dict[str, set[str]] = {}
        for remote in self._remotes:
            behind.setdefault(remote.link, set()).add(remote.node)
        return {link: frozenset(nodes) for link, nodes in behind.items()}

    def set_remotes(self, nodes: Iterable[str]) -> None:
        """Replace the other nodes that have consumers; the loads of links in use are kept."""
        self._nodes = frozenset(nodes)
        self._find_ways()

    def set_paths(
        self, paths: Paths, link_to: Callable[[str], str | None], until: float | None = None
    ) -> None:
        """Replace the paths of the network.

        Args:
            paths: The paths from and through this node.
            link_to: Gives the link to a neighbour, `None` if there is none.
            until: Until when multicasts also go along the paths before, in seconds;
                `None`: they do not.
        """
        before, ways = self._paths, self._remotes
        if until is None:
            self._before = ()
        elif before is not None and before is not paths and ways:
            self._before = (*self._before, _Before(until, before, ways))[-_MOST_BEFORE:]
        self._paths, self._link_to = paths, link_to
        self._find_ways()

    def _find_ways(self) -> None:
        """Find the ways to the nodes that have consumers: one without a way is left out."""
        if self._paths is None:
            return
        # Sorted, so that rotation begins at the same node everywhere.
        self._remotes = tuple(sorted(self._ways(self._paths)))
        self._forget_idle_links({each.link for each in self._remotes})

    def _ways(self, paths: Paths) -> Iterator[_Remote]:
        """Yield the ways to the nodes that have consumers, by some paths."""
        for node in self._nodes:
            hop, cost = paths.next_hop(node), paths.cost(node)
            link = None if hop is None else self._link_to(hop)
            if hop is not None and cost is not None and link is not None:
                yield _Remote(cost, node, link, node_digest(hop))

    def link_lost(self, link: str) -> None:
        """Forget a link, and the nodes behind it until there are other paths."""
        self._links.pop(link, None)
        self._remotes = tuple(each for each in self._remotes if each.link != link)
        self._before = tuple(
            each._replace(remotes=tuple(way for way in each.remotes if way.link != link))
            for each in self._before
        )

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
        if self.by_load:
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
                    if len(self._consumers) > 1:
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
            full = messages >= self.link_window
            if best is None or (full, value) < best[:2]:
                best = _Best(full, value, LinkTarget(remote.link))
        return None if best is None else best.target

    def on_the_way(
        self, ingress: str, passed: Container[bytes], before: Iterable[Paths]
    ) -> Target | None:
        """Return the next node of a message that is under way on a path before.

        Args:
            ingress: The node where the message entered.
            passed: The digests of the nodes that it has passed.
            before: The paths before, the newest first.
        """
        for paths in before:
            ways = [way for way in self._ways(paths) if way.neighbour not in passed]
            for way in sorted(ways):
                if paths.passes(ingress, way.node):
                    return LinkTarget(way.link)
        return None

    def consumer_here(self, pattern: RoutingPattern) -> int | None:
        """Return the consumer of this node that a message gets which was not tried or sent before.

        Returns:
            `None` if there is none here, or if another node may have a lower value.
        """
        if pattern is not RoutingPattern.BALANCED:
            return next(iter(self._consumers), None)
        best: int | None = None
        least: tuple[bool, int] = True, 0
        for number, load in self._consumers.items():
            messages = load.messages
            if not messages:
                return number
            value = messages >= load.window, messages
            if best is None or value < least:
                best, least = number, value
        return None if self._remotes else best

    def only_link(self, ingress: str, passed: Container[bytes]) -> str | None:
        """Return the one link that each message goes to, as no consumer is here.

        Args:
            ingress: The node where the message entered.
            passed: The digests of the nodes that it has passed.
        """
        links = {remote.link for remote in self._eligible(ingress, passed, ())}
        return links.pop() if len(links) == 1 and not self._consumers else None

    def took(self, number: int, pattern: RoutingPattern) -> None:
        """Go on with the rotation, before the consumer of `consumer_here` counts its message."""
        if len(self._consumers) > 1 and (
            pattern is RoutingPattern.CLOSEST
            or (pattern is RoutingPattern.BALANCED and not self._consumers[number].messages)
        ):
            self._rotate(number)

    def multicast(
        self,
        ingress: str,
        passed: Container[bytes] = (),
        tried: Container[Target] = (),
        now: float = 0.0,
    ) -> tuple[Target, ...]:
        """Return each consumer here, and each next node towards others once.

        "Messages are routed such that each consumer receives a copy of the message."

        Args:
            ingress: The node where the message entered.
            passed: The digests of the nodes that it has passed.
            tried: Targets that are left out.
            now: The time, in seconds. For a while it goes along the paths before as well: the node
                before may have chosen by these, or the next one does.
        """
        made: dict[Target, None] = {}
        for consumer in self._consumers:
            if (target := ConsumerTarget(consumer)) not in tried:
                made[target] = None
        for remote in self._eligible(ingress, passed, tried):
            made[LinkTarget(remote.link)] = None
        if self._before:
            self._before = tuple(each for each in self._before if now < each.until)
            for remote in self._eligible_before(ingress, passed, tried):
                made[LinkTarget(remote.link)] = None
        return tuple(made)

    def _eligible(
        self, ingress: str, passed: Container[bytes], tried: Container[Target]
    ) -> Iterator[_Remote]:
        """Yield the nodes that a message may be sent to, the cheapest first."""
        paths = self._paths
        if paths is None:
            return
        for remote in self._remotes:
            if (
                remote.neighbour not in passed
                and LinkTarget(remote.link) not in tried
                and paths.passes(ingress, remote.node)
            ):
                yield remote

    def _eligible_before(
        self, ingress: str, passed: Container[bytes], tried: Container[Target]
    ) -> Iterator[_Remote]:
        """Yield the nodes that a multicast was sent to before the paths changed."""
        for before in self._before:
            for remote in before.remotes:
                if (
                    remote.node in self._nodes
                    and remote.neighbour not in passed
                    and LinkTarget(remote.link) not in tried
                    and before.paths.passes(ingress, remote.node)
                ):
                    yield remote


def is_too_far(passed: int, radius: int) -> bool:
    """Whether a message has passed more nodes than any shortest path of the network has.

    Args:
        passed: Nodes that it has passed.
        radius: Hops to the node that is furthest from here.
    """
    # One more than the radius, as nodes may not agree about their links yet. Beyond `MAX_PATH` the
    # path cannot be told to a next node.
    return passed > radius + 1 or passed >= MAX_PATH


def _no_link(_node: str) -> None:
    """Return that there is no link."""
