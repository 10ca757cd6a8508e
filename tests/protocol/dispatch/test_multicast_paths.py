"""Multicasts between nodes that learn one after another of a shorter path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import combinations, count
from random import Random

import pytest

from onward.protocol.dispatch import (
    Delivery,
    DeliveryLimits,
    Dropped,
    DropReason,
    Hand,
    NameState,
    NodeTotals,
    Paths,
    RoutingPattern,
    Semantics,
    SendOn,
    is_too_far,
    join_links,
    node_digest,
)
from onward.protocol.dispatch._graph import Graph
from tests.support.counts import times

State = NameState[int]
Links = Mapping[str, int]
"""The costs of links, by the two letters of their nodes."""
OVERLAP = 9.0
"""Longer than nodes learn of a path, and than a message is under way, in seconds."""


def graph(links: Links) -> Graph:
    states: dict[str, dict[str, int]] = {}
    for pair, cost in links.items():
        one, other = pair[0], pair[1]
        states.setdefault(one, {})[other] = states.setdefault(other, {})[one] = cost
    return join_links(states)


class Net:
    """Nodes with a consumer of a multicast each, and a clock.

    Args:
        links: The links.
        after: The links once a node knows of the shorter path.
        delay: Gives the time that a message takes from a node to the next one, in seconds.
        variant: The class under test.
    """

    def __init__(
        self,
        links: Links,
        after: Links,
        delay: Callable[[str, str], float],
        variant: type[State] = NameState,
    ) -> None:
        self.states: dict[str, State] = {}
        self.handed: dict[int, list[str]] = {}
        self.dropped = Counter[DropReason]()
        self._after = graph(after)
        self._delay = delay
        self._number = count(1)
        self._waiting: list[tuple[float, int, Callable[[float], None]]] = []
        before = graph(links)
        for node in before.names:
            totals = NodeTotals(DeliveryLimits(path_overlap=OVERLAP))
            semantics = Semantics(pattern=RoutingPattern.MULTICAST)
            state = self.states[node] = variant(node, semantics, bytes, totals)
            state.set_paths(Paths(before, node), str, -100.0)
            state.set_nodes({peer: 0 for peer in before.names if peer != node}, -100.0)
            state.add_consumer(1, 1_000, -100.0)
            state.events()

    def learn(self, node: str, at: float) -> None:
        """Let a node know of the shorter path at a time."""
        paths = Paths(self._after, node)
        self._at(at, lambda now: self.states[node].set_paths(paths, str, now))

    def send(self, node: str, at: float) -> None:
        """Send a multicast at a time."""
        number = next(self._number)
        made = Delivery(number, 1, "plain", (node, b"instance", number.to_bytes(8)), settled=True)
        self._at(at, lambda now: self._bind(node, made, now))

    def run(self) -> None:
        """Do all of it, and look at the consumers: each has each multicast, once."""
        while self._waiting:
            now, _, action = heappop(self._waiting)
            action(now)
        assert self.handed
        for number, nodes in self.handed.items():
            assert sorted(nodes) == sorted(self.states), f"{number} came to {nodes}"
        assert not self.dropped.keys() - {DropReason.DUPLICATE}

    def _at(self, at: float, action: Callable[[float], None]) -> None:
        heappush(self._waiting, (at, next(self._number), action))

    def _bind(self, node: str, delivery: Delivery[int], now: float) -> None:
        state = self.states[node]
        state.events()
        state.bind(delivery, now)
        for event in state.events():
            if isinstance(event, SendOn):
                path = (*delivery.path, node_digest(node))
                copy = Delivery(
                    delivery.message, 1, node, delivery.identity, settled=True, path=path
                )
                self._carry(event.link, copy, now + self._delay(node, event.link))
            elif isinstance(event, Hand):
                self.handed.setdefault(delivery.message, []).append(node)
            elif isinstance(event, Dropped):
                self.dropped[event.reason] += 1

    def _carry(self, node: str, copy: Delivery[int], at: float) -> None:
        self._at(at, lambda now: self._bind(node, copy, now))


def run_random(seed: int, variant: type[State] = NameState) -> None:
    """Let a link come up between nodes that are joined at random."""
    draw = Random(seed)
    nodes = "abcdefgh"[: draw.randint(3, 8)]
    costs = 1, 1, 2, draw.choice((2, 9))
    links = {draw.choice(nodes[:place]) + nodes[place]: 1 for place in range(1, len(nodes))}
    pairs = ["".join(pair) for pair in combinations(nodes, 2)]
    for pair in draw.sample(pairs, draw.randint(0, 3)):
        links[pair] = 1
    links = {pair: draw.choice(costs) for pair in links}
    free = [pair for pair in pairs if pair not in links] or pairs
    after = {**links, draw.choice(free): 1}
    longest = draw.choice((0.05, 0.2, 1.0))
    net = Net(links, after, lambda _, __: draw.uniform(0.001, longest), variant)
    for node in nodes:
        net.learn(node, 1.0 + draw.random() / 2)
    for _ in range(20):
        net.send(draw.choice(nodes), 2 * draw.random())
    net.run()


def run_many(seeds: int, variant: type[State] = NameState) -> None:
    for seed in range(seeds):
        run_random(seed, variant)


def test_each_node_has_each_multicast_once_while_a_link_comes_up() -> None:
    run_many(times(150, 3_000))


def test_a_cheaper_path_of_more_nodes_is_not_too_far_for_a_node_that_does_not_know_it() -> None:
    costs = {"an": 5, "np": 5, "pq": 5, "am": 20, "mn": 20, "mp": 20, "mz": 1}
    net = Net(costs, {**costs, "mq": 1}, lambda node, to: 3.0 if node + to == "am" else 0.1)
    for node in "anpqm":
        net.learn(node, 0.0)
    net.send("a", 1.0)
    net.run()
    assert net.dropped[DropReason.DUPLICATE]


class CountsTheRadius(State):
    """Takes a message on the longer path for one that is too far."""

    def bind(self, delivery: Delivery[int], now: float) -> None:
        if not is_too_far(len(delivery.path), self._totals.paths.radius):
            super().bind(delivery, now)


class ForgetsPaths(State):
    """Sends along the paths that it knows of alone."""

    def set_paths(self, paths: Paths, link_to: Callable[[str], str | None], now: float) -> None:
        super().set_paths(paths, link_to, now)
        self._chooser._before = ()


@pytest.mark.no_cover
@pytest.mark.parametrize("variant", [CountsTheRadius, ForgetsPaths])
def test_a_broken_variant_is_caught(variant: type[State]) -> None:
    with pytest.raises(AssertionError):
        run_many(200, variant)
