"""The choice of targets: the figures of the routers, rotation, full windows, valid origins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    MAX_PATH,
    Chooser,
    ConsumerTarget,
    LinkTarget,
    Paths,
    Target,
    is_too_far,
    join_links,
    node_digest,
)

HERE = "here"


class Remote(NamedTuple):
    """A node with consumers, as it is seen from here."""

    node: str
    cost: int
    link: str
    origins: str


class Ways(Paths):
    """Paths that are written down, where a link has the name of the next node."""

    def __init__(self, remotes: Iterable[Remote]) -> None:
        self.remotes = {each.node: each for each in remotes}

    def next_hop(self, node: str) -> str | None:
        return self.remotes[node].link if node in self.remotes else None

    def cost(self, node: str) -> int | None:
        return self.remotes[node].cost if node in self.remotes else None

    def passes(self, ingress: str, node: str) -> bool:
        return ingress in self.remotes[node].origins.split()


def remote(node: str, cost: int = 1, *, link: str = "", origins: str = HERE) -> Remote:
    return Remote(node, cost, link or node, origins)


def join(chooser: Chooser, remotes: Iterable[Remote]) -> None:
    remotes = list(remotes)
    chooser.set_remotes(each.node for each in remotes)
    chooser.set_paths(Ways(remotes), lambda node: node)


def links_of(costs: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return link states of links such as `ab`."""
    states: dict[str, dict[str, int]] = {}
    for pair, cost in costs.items():
        one, other = pair[0], pair[1]
        states.setdefault(one, {})[other] = cost
        states.setdefault(other, {})[one] = cost
    return states


# --- balanced -------------------------------------------------------------------------------


class Network:
    """Nodes in which each chooses for itself, by the paths that it has computed.

    Args:
        consumers: The nodes that have a consumer.
        costs: The costs of links, such as `{"ab": 10}`.
    """

    def __init__(self, consumers: str, costs: Mapping[str, int]) -> None:
        states = links_of(costs)
        self.choosers = {node: Chooser(link_window=250) for node in states}
        self.taken = Counter[str]()
        for node, chooser in self.choosers.items():
            chooser.set_paths(Paths(join_links(states), node), lambda hop: hop)
            chooser.set_remotes(set(consumers) - {node})
            if node in consumers:
                chooser.add_consumer(1, 250)

    def send(self, node: str, ingress: str, passed: tuple[bytes, ...] = ()) -> str:
        """Send a message that is never settled; return the node that it comes to."""
        target = self.choosers[node].balanced(ingress, passed)
        assert target is not None
        self.choosers[node].bound(target)
        if isinstance(target, LinkTarget):
            return self.send(target.link, ingress, (*passed, node_digest(node)))
        self.taken[node] += 1
        return node


LINEAR = {"ab": 10, "bc": 20}
MESH = {**LINEAR, "ad": 50, "bd": 100}
"""To d the way from b is by a."""


@pytest.mark.parametrize(
    ("consumers", "figures"),
    [("abc", (55, 33, 12)), ("ac", (65, 0, 35)), ("abd", (54, 43, 3))],
    ids=["linear", "no middle", "mesh"],
)
def test_a_hundred_unsettled_messages_are_balanced_as_routers_do(
    consumers: str, figures: tuple[int, int, int]
) -> None:
    network = Network(consumers, MESH if "d" in consumers else LINEAR)
    for _ in range(100):
        network.send("a", "a")
    nodes = "abd" if "d" in consumers else "abc"
    for node, figure in zip(nodes, figures, strict=True):
        assert network.taken[node] == figure, network.taken
    assert network.taken.total() == 100


def test_nine_sequential_messages_go_to_three_consumers_in_turn() -> None:
    chooser = Chooser()
    for consumer in (1, 2, 3):
        chooser.add_consumer(consumer, 250)
    taken = Counter[Target]()
    for _ in range(9):
        target = chooser.balanced(HERE)
        assert target is not None
        chooser.bound(target)
        taken[target] += 1
        chooser.settled(target, 0.1)
    assert sorted(taken.values()) == [3, 3, 3]


def test_a_full_consumer_is_left_out_until_all_are_full() -> None:
    chooser = Chooser(link_window=3)
    chooser.add_consumer(1, 1)
    chooser.add_consumer(2, 5)
    join(chooser, [remote("x", 100)])
    chosen = [_bind(chooser) for _ in range(11)]
    counts = Counter(chosen)
    # Six of local windows and three of the link; then the least full one, by its load.
    assert counts == {ConsumerTarget(1): 3, ConsumerTarget(2): 5, LinkTarget("x"): 3}
    assert chosen[-2:] == [ConsumerTarget(1)] * 2


def _bind(chooser: Chooser) -> Target | None:
    target = chooser.balanced(HERE)
    if target is not None:
        chooser.bound(target)
    return target


def test_an_idle_consumer_here_is_chosen_without_a_look_at_links() -> None:
    chooser = Chooser()
    chooser.add_consumer(1, 250)
    join(chooser, [remote("x", 0)])
    assert _bind(chooser) == ConsumerTarget(1)
    assert _bind(chooser) == LinkTarget("x")


def test_tried_targets_and_passed_nodes_are_left_out() -> None:
    chooser = Chooser()
    chooser.add_consumer(1, 250)
    chooser.add_consumer(2, 250)
    join(chooser, [remote("x"), remote("y", 2)])
    tried: set[Target] = set()
    for choose in (chooser.balanced, chooser.closest, chooser.direct):
        tried.clear()
        while (target := choose(HERE, (node_digest("x"),), tried)) is not None:
            assert target not in tried
            tried.add(target)
        assert tried == {ConsumerTarget(1), ConsumerTarget(2), LinkTarget("y")}
    for number in (1, 2):
        chooser.bound(ConsumerTarget(number))
    assert chooser.balanced(HERE, (), {ConsumerTarget(1)}) in {ConsumerTarget(2), LinkTarget("x")}
    assert chooser.balanced(
        HERE, (node_digest("x"), node_digest("y")), {ConsumerTarget(1)}
    ) == ConsumerTarget(2)


def test_a_message_is_sent_on_only_for_a_valid_origin() -> None:
    chooser = Chooser()
    join(chooser, [remote("x", origins="a")])
    for choose in (chooser.balanced, chooser.closest, chooser.direct):
        assert choose("b") is None
        assert choose("a") == LinkTarget("x")
    assert chooser.multicast("b") == ()
    assert chooser.multicast("a") == (LinkTarget("x"),)


def test_a_consumer_that_is_twice_as_slow_counts_twice() -> None:
    chooser = Chooser(by_time=True)
    chooser.add_consumer(1, 250)
    chooser.add_consumer(2, 250)
    join(chooser, [remote("x", 1000)])
    for number, seconds in ((1, 0.1), (2, 0.2)):
        chooser.bound(ConsumerTarget(number))
        chooser.settled(ConsumerTarget(number), seconds)
    counts = Counter(_bind(chooser) for _ in range(90))
    assert abs(counts[ConsumerTarget(1)] - 60) <= 1
    assert counts[LinkTarget("x")] == 0


def test_times_count_while_the_name_weighs_by_time() -> None:
    chooser = Chooser()
    for number, seconds in ((1, 0.1), (2, 0.4)):
        chooser.add_consumer(number, 250)
        chooser.bound(ConsumerTarget(number))
        chooser.settled(ConsumerTarget(number), seconds)
    chooser.by_time = True
    counts = Counter(_bind(chooser) for _ in range(20))
    assert counts == {ConsumerTarget(1): 10, ConsumerTarget(2): 10}


# --- closest, direct ------------------------------------------------------------------------


def test_closest_is_here_then_the_cheapest_nodes_in_turn() -> None:
    chooser = Chooser()
    join(chooser, [remote("z", 5), remote("x"), remote("y")])
    turns = [chooser.closest(HERE) for _ in range(6)]
    assert Counter(turns) == {LinkTarget("x"): 3, LinkTarget("y"): 3}
    assert all(first != second for first, second in pairwise(turns))
    chooser.add_consumer(1, 1)
    chooser.add_consumer(2, 1)
    here = [chooser.closest(HERE) for _ in range(4)]
    assert here == [ConsumerTarget(1), ConsumerTarget(2)] * 2
    chooser.remove_consumer(1)
    chooser.remove_consumer(2)
    assert chooser.closest(HERE, (), {LinkTarget("x"), LinkTarget("y")}) == LinkTarget("z")


def test_closest_ignores_load_unless_asked() -> None:
    for by_load, figures in ((False, {"x": 10, "y": 10}), (True, {"x": 4, "y": 16})):
        chooser = Chooser(by_load=by_load)
        join(chooser, [remote("x"), remote("y")])
        for _ in range(12):
            chooser.bound(LinkTarget("x"))
        taken = Counter[str]()
        for _ in range(20):
            target = chooser.closest(HERE)
            assert isinstance(target, LinkTarget)
            chooser.bound(target)
            taken[target.link] += 1
        assert taken == figures


def test_direct_is_the_consumer_here_or_the_cheapest_way() -> None:
    chooser = Chooser()
    join(chooser, [remote("y", 2), remote("x", 1)])
    assert chooser.direct(HERE) == LinkTarget("x")
    chooser.add_consumer(7, 1)
    assert chooser.direct(HERE) == ConsumerTarget(7)


# --- multicast ------------------------------------------------------------------------------


def test_multicast_is_one_copy_for_each_consumer_and_each_next_node() -> None:
    chooser = Chooser()
    chooser.add_consumer(1, 1)
    chooser.add_consumer(2, 1)
    join(
        chooser,
        [remote("x"), remote("y", 2, link="x"), remote("z"), remote("w", link="w", origins="a")],
    )
    assert set(chooser.multicast(HERE)) == {
        ConsumerTarget(1),
        ConsumerTarget(2),
        LinkTarget("x"),
        LinkTarget("z"),
    }
    assert len(chooser.multicast(HERE)) == 4
    assert chooser.multicast(HERE, (node_digest("x"),), {ConsumerTarget(1)}) == (
        ConsumerTarget(2),
        LinkTarget("z"),
    )


def test_each_node_of_a_triangle_gets_a_multicast_once() -> None:
    # Each pair is joined at the same cost: no message is to be sent on by a third node.
    network = Network("abc", {"ab": 1, "bc": 1, "ac": 1})
    for chooser in network.choosers.values():
        chooser.add_consumer(2, 250)
    copies = Counter[tuple[str, Target]]()

    def send(node: str, ingress: str, passed: tuple[bytes, ...]) -> None:
        for target in network.choosers[node].multicast(ingress, passed):
            if isinstance(target, LinkTarget):
                send(target.link, ingress, (*passed, node_digest(node)))
            else:
                copies[node, target] += 1

    for ingress in "abc":
        for _ in range(6):
            send(ingress, ingress, ())
    assert set(copies.values()) == {18}
    assert len(copies) == 6


def test_a_message_may_pass_one_node_more_than_the_radius() -> None:
    assert [is_too_far(passed, 2) for passed in (0, 2, 3, 4)] == [False, False, False, True]
    assert [is_too_far(passed, 1000) for passed in (MAX_PATH - 1, MAX_PATH)] == [False, True]


# --- loads ----------------------------------------------------------------------------------


def test_loads_are_kept_while_links_are_in_use() -> None:
    chooser = Chooser()
    join(chooser, [remote("x"), remote("y")])
    assert chooser.load(LinkTarget("x")) == 0
    chooser.bound(LinkTarget("x"))
    chooser.bound(LinkTarget("y"))
    chooser.settled(LinkTarget("y"))
    join(chooser, [])
    assert chooser.load(LinkTarget("x")) == 1
    chooser.link_lost("x")
    assert chooser.load(LinkTarget("x")) == 0
    chooser.settled(LinkTarget("x"))
    chooser.bound(ConsumerTarget(5))  # it has gone
    assert chooser.load(ConsumerTarget(5)) == 0
    assert chooser.paths == 0
    chooser.add_consumer(1, 1)
    join(chooser, [remote("y")])
    assert chooser.paths == 2
    assert chooser.consumers == (1,)
    chooser.bound(LinkTarget("y"))
    chooser.settled(LinkTarget("y"))
    join(chooser, [remote("y")])
    assert chooser.load(LinkTarget("y")) == 0


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60),
    windows=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_no_full_target_is_chosen_while_another_has_room(
    steps: list[tuple[int, bool]], windows: list[int]
) -> None:
    chooser = Chooser(link_window=2)
    for number, window in enumerate(windows):
        chooser.add_consumer(number, window)
    join(chooser, [remote("x", 3)])
    room: dict[Target, int] = {ConsumerTarget(n): each for n, each in enumerate(windows)}
    room[LinkTarget("x")] = 2
    unsettled: list[Target] = []
    for index, settle in steps:
        if settle and unsettled:
            target = unsettled.pop(index % len(unsettled))
            chooser.settled(target, 0.5)
            room[target] += 1
            continue
        chosen = _bind(chooser)
        assert chosen is not None
        assert room[chosen] > 0 or max(room.values()) <= 0
        room[chosen] -= 1
        unsettled.append(chosen)
    assert sum(chooser.load(target) for target in room) == len(unsettled)


def test_a_link_without_a_neighbour_leads_nowhere_and_a_lost_one_until_there_are_paths() -> None:
    chooser = Chooser()
    chooser.set_remotes(["x", "y"])
    assert chooser.paths == 0
    remotes = [remote("x"), remote("y", link="x"), remote("z")]
    chooser.set_paths(Ways(remotes), lambda node: "link" if node == "x" else None)
    assert chooser.links == {"link": {"x", "y"}}
    chooser.link_lost("link")
    assert chooser.links == {}
    assert chooser.direct(HERE) is None
    chooser.set_remotes(["x", "w"])
    assert chooser.links == {"link": {"x"}}


# --- circuits -------------------------------------------------------------------------------


class Containers:
    """Nodes with containers, to which circuits are attached one after another.

    Args:
        costs: The costs of links.
    """

    def __init__(self, costs: Mapping[str, int]) -> None:
        self.states = links_of(costs)
        self.choosers = {node: Chooser() for node in self.states}
        self.placed = Counter[tuple[str, int]]()

    def consist(self, nodes: str) -> None:
        """Let two containers be at each of these nodes, and at no other."""
        for node, chooser in self.choosers.items():
            chooser.set_paths(Paths(join_links(self.states), node), lambda hop: hop)
            chooser.set_remotes(set(nodes) - {node})
            for container in (1, 2):
                chooser.remove_consumer(container)
                if node in nodes:
                    chooser.add_consumer(container, 1)

    def attach(self, node: str, passed: tuple[bytes, ...] = ()) -> None:
        """Attach a circuit, from node to node."""
        target = self.choosers[node].closest("a", passed)
        assert target is not None
        if isinstance(target, LinkTarget):
            self.attach(target.link, (*passed, node_digest(node)))
        else:
            self.placed[node, target.consumer] += 1

    def by_node(self) -> tuple[int, ...]:
        return tuple(self.placed[node, 1] + self.placed[node, 2] for node in "abc")


TRIANGLE = {"ab": 1, "bc": 1, "ac": 1}


@pytest.mark.parametrize(
    ("costs", "nodes", "expected"),
    [
        (LINEAR, "abc", (4, 0, 0)),
        (TRIANGLE, "abc", (4, 0, 0)),
        (LINEAR, "bc", (0, 4, 0)),
        (TRIANGLE, "bc", (0, 2, 2)),
        (LINEAR, "c", (0, 0, 4)),
        (TRIANGLE, "c", (0, 0, 4)),
    ],
)
def test_four_circuits_are_spread(
    costs: dict[str, int], nodes: str, expected: tuple[int, ...]
) -> None:
    network = Containers(costs)
    network.consist(nodes)
    for _ in range(4):
        network.attach("a")
    assert network.by_node() == expected
    # Both containers of a node have the same number of them.
    assert set(network.placed.values()) <= {1, 2}


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        (LINEAR, [(4, 0, 0), (4, 4, 0), (4, 4, 4)]),
        (TRIANGLE, [(4, 0, 0), (4, 2, 2), (4, 2, 6)]),
    ],
)
def test_circuits_go_further_as_containers_go(
    costs: dict[str, int], expected: list[tuple[int, ...]]
) -> None:
    network = Containers(costs)
    for nodes, counts in zip(("abc", "bc", "c"), expected, strict=True):
        network.consist(nodes)
        for _ in range(4):
            network.attach("a")
        assert network.by_node() == counts
