"""Shortest paths in a network of dispatching nodes, such that all nodes choose the same ones.

Each node computes paths by itself, from the same link states. So that a message is forwarded along
one path, the nodes have to agree on it, also where several paths cost the same. The path from one
node to another is the cheapest one, and of several cheapest ones that with the smallest sequence of
node names. Every part of such a path is the path between its ends:

- the paths from one node to all others are a tree, and so are the paths from all nodes to one;
- a node needs its own next hops only: each node behind goes on along the same path;
- a copy of a message from an ingress to a node is forwarded by the nodes on that path and by no
  other. This is why a multicast reaches each node once, and why no message goes in a circle.

A link counts if both of its ends have told of it, at the higher of the two costs: a node that tells
a cost that is too low does not attract the messages of others, and one that tells of neighbours
that do not tell of it makes none of them reachable. Routers of this kind make up a link back from a
node with link states that are not known yet, as they ask that node itself for them. Here the
neighbour is asked that has advertised them, so no message needs a path that may not be there.

The tree from the own node is computed at once. The tree from another node is computed when the
first message that entered there is forwarded, and kept. It takes a search over all links by
Dijkstra's algorithm and a walk in the order of names, both linear but for the heap.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final, TypeAlias

__all__ = ["Graph", "LinkStates", "Paths", "join_links"]

LinkStates: TypeAlias = Mapping[str, Mapping[str, int]]
"""The link states of nodes: of each its neighbours with the costs of the links to them."""

_UNREACHED: Final = -1


class Graph:
    """The links that count, with nodes in the order of their names.

    Args:
        names: The names of the nodes, in order.
        links: Of each node the numbers of its neighbours, in order, with the costs.

    Attributes:
        names: The names of the nodes. The place of a name is the number of the node.
        numbers: The number of each node.
        links: The links of each node.
    """

    __slots__ = ("links", "names", "numbers")

    def __init__(self, names: list[str], links: list[list[tuple[int, int]]]) -> None:
        self.names = names
        self.numbers = {name: number for number, name in enumerate(names)}
        self.links = links


def join_links(states: LinkStates) -> Graph:
    """Return the graph of the links that count.

    Args:
        states: The link states of all nodes.
    """
    names = sorted(states)
    graph = Graph(names, [])
    numbers = graph.numbers
    for name in names:
        row: list[tuple[int, int]] = []
        for peer, cost in states[name].items():
            back = states.get(peer)
            other = None if back is None else back.get(name)
            if other is not None and peer != name:
                row.append((numbers[peer], max(other, cost)))
        row.sort()
        graph.links.append(row)
    return graph


class Paths:
    """The paths from and through one node: a snapshot of the network that does not change.

    Args:
        graph: The links.
        own: The name of the node that computes them.
        epoch: The number of the snapshot.

    Attributes:
        own: The name of the node.
        epoch: The number of the snapshot.
        graph: The links.
        nodes: The names of the other nodes that can be reached.
        radius: Number of hops of the longest path from here. Of several paths of one cost the one
            with the most hops counts; so no message has passed more nodes before it comes here.
    """

    __slots__ = (
        "_costs",
        "_first",
        "_here",
        "_through",
        "epoch",
        "graph",
        "nodes",
        "own",
        "radius",
    )

    def __init__(self, graph: Graph, own: str, epoch: int = 0) -> None:
        self.own = own
        self.epoch = epoch
        self.graph = graph
        self._here = here = graph.numbers[own]
        self._costs, hops = _search(graph, here)
        self.radius = max(hops)
        self._first = _first_hops(graph, here, self._costs)
        self._through: dict[int, bytes] = {}
        self.nodes = frozenset(
            name for name, cost in zip(graph.names, self._costs, strict=True) if cost > 0
        )

    def next_hop(self, node: str) -> str | None:
        """Return the neighbour on the path to a node; `None` if there is no path."""
        number = self.graph.numbers.get(node)
        if number is None or number == self._here or self._costs[number] == _UNREACHED:
            return None
        return self.graph.names[self._first[number]]

    def cost(self, node: str) -> int | None:
        """Return the cost of the path to a node; `None` if there is no path."""
        number = self.graph.numbers.get(node)
        if number is None or self._costs[number] == _UNREACHED:
            return None
        return self._costs[number]

    def passes(self, ingress: str, node: str) -> bool:
        """Whether the path from an ingress to a node goes through this node, or begins here."""
        origin, end = self.graph.numbers.get(ingress), self.graph.numbers.get(node)
        if origin is None or end is None or end == self._here:
            return False
        if origin == self._here:
            return self._costs[end] != _UNREACHED
        through = self._through.get(origin)
        if through is None:
            through = self._through[origin] = self._nodes_behind(origin)
        return bool(through[end])

    def valid_origins(self, node: str) -> frozenset[str]:
        """Return the other nodes from which the path to a node goes through this node.

        It needs a search of its own each time: it is for pictures and tests. What a message needs
        to know is `passes`.
        """
        end = self.graph.numbers.get(node)
        if end is None or end == self._here:
            return frozenset()
        costs, _ = _search(self.graph, end)
        behind = bytearray(len(costs))
        found: set[str] = set()
        for number in sorted(range(len(costs)), key=costs.__getitem__):
            if costs[number] <= 0:
                continue
            hop = next(
                peer
                for peer, cost in self.graph.links[number]
                if costs[peer] + cost == costs[number]
            )
            if number == self._here:
                behind[number] = 1
            elif behind[hop]:
                behind[number] = 1
                found.add(self.graph.names[number])
        return frozenset(found)

    def _nodes_behind(self, origin: int) -> bytes:
        """Return for each node whether the path from an origin to it goes through this node."""
        behind = bytearray(len(self._costs))
        if self._costs[origin] == _UNREACHED:
            return bytes(behind)
        costs, _ = _search(self.graph, origin)
        for number, parent in _walk(self.graph, origin, costs):
            behind[number] = number == self._here or behind[parent]
        return bytes(behind)


def _search(graph: Graph, root: int) -> tuple[list[int], list[int]]:
    """Return the cost of the cheapest paths from a node to each, and the most hops of these."""
    count, links = len(graph.links), graph.links
    costs, hops = [_UNREACHED] * count, [0] * count
    costs[root] = 0
    # Cost and number are one number in the heap: a comparison of two of them is the cheapest.
    heap = [root]
    while heap:
        reached, node = divmod(heappop(heap), count)
        if reached != costs[node]:
            continue
        steps = hops[node] + 1
        for peer, cost in links[node]:
            total, known = reached + cost, costs[peer]
            if known == _UNREACHED or total < known:
                costs[peer], hops[peer] = total, steps
                heappush(heap, total * count + peer)
            elif total == known and steps > hops[peer]:
                hops[peer] = steps
    return costs, hops


def _walk(graph: Graph, root: int, costs: list[int]) -> list[tuple[int, int]]:
    """Return each node that can be reached, but for the root, with the node before it on its path.

    The walk goes as deep as it can, in the order of names, along links that are on cheapest paths.
    So it comes to each node first by the smallest of its cheapest paths: all that can be reached by
    a smaller name is reached before the next name is tried. A node comes before those behind it.
    """
    links, seen = graph.links, bytearray(len(costs))
    seen[root] = 1
    found: list[tuple[int, int]] = []
    waiting = [(peer, root) for peer, cost in reversed(links[root]) if costs[peer] == cost]
    while waiting:
        node, parent = waiting.pop()
        if seen[node]:
            continue
        seen[node] = 1
        found.append((node, parent))
        reached = costs[node]
        waiting += [
            (peer, node)
            for peer, cost in reversed(links[node])
            if costs[peer] == reached + cost and not seen[peer]
        ]
    return found


def _first_hops(graph: Graph, root: int, costs: list[int]) -> list[int]:
    first = list(range(len(costs)))
    for node, parent in _walk(graph, root, costs):
        first[node] = node if parent == root else first[parent]
    return first
