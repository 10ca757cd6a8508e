"""Paths: by hand in small networks, and against a slow computation in random ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from onward.protocol.dispatch import Paths, join_links

Links = dict[tuple[str, str], int]


def paths(own: str, links: Links) -> Paths:
    states: dict[str, dict[str, int]] = {own: {}}
    for (left, right), cost in links.items():
        states.setdefault(left, {})[right] = cost
        states.setdefault(right, {})[left] = cost
    return Paths(join_links(states), own)


TRIANGLE: Links = {("E", "F"): 1, ("E", "G"): 1, ("F", "G"): 1}
LINE: Links = {("A", "B"): 10, ("B", "C"): 20, ("A", "D"): 50, ("B", "D"): 100}
SQUARE: Links = {("A", "B"): 1, ("A", "C"): 1, ("B", "D"): 1, ("C", "D"): 1}


def test_in_a_triangle_no_node_forwards_for_another() -> None:
    for own in "EFG":
        found = paths(own, TRIANGLE)
        assert {node: found.valid_origins(node) for node in "EFG"} == dict.fromkeys(
            "EFG", frozenset[str]()
        )
        assert [found.next_hop(node) for node in "EFG" if node != own] == sorted(found.nodes)
        assert found.radius == 1
    assert not paths("F", TRIANGLE).passes("E", "G")
    assert paths("F", TRIANGLE).passes("F", "G")


def test_costs_decide_before_hops() -> None:
    found = paths("A", LINE)
    assert [found.cost(node) for node in "ABCD"] == [0, 10, 30, 50]
    assert [found.next_hop(node) for node in "ABCD"] == [None, "B", "B", "D"]
    assert found.nodes == {"B", "C", "D"}
    # The path from B to D costs 60 over A, and 100 directly.
    assert found.valid_origins("D") == {"B", "C"}
    assert found.valid_origins("B") == found.valid_origins("C") == {"D"}
    assert paths("B", LINE).valid_origins("D") == {"C"}
    assert found.radius == 2
    assert paths("C", LINE).radius == 3


def test_of_paths_of_one_cost_the_smaller_names_win() -> None:
    found = paths("A", SQUARE)
    assert found.next_hop("D") == "B"
    assert paths("B", SQUARE).valid_origins("D") == {"A"}
    assert paths("C", SQUARE).valid_origins("D") == frozenset()
    # From D to A it is B as well, and from B to C it is A.
    assert paths("B", SQUARE).valid_origins("A") == {"D"}
    assert found.valid_origins("C") == {"B"}
    assert found.valid_origins("B") == {"C"}
    assert paths("D", SQUARE).valid_origins("C") == frozenset()


def test_a_ring_is_cut_at_the_same_place_by_all() -> None:
    ring = dict.fromkeys(pairwise("ABCDEFA"), 1)
    for own in "ABCDEF":
        found = paths(own, ring)
        assert found.radius == 3
        assert len(found.nodes) == 5
    assert paths("A", ring).next_hop("D") == "B"
    assert paths("D", ring).next_hop("A") == "C"
    assert paths("C", ring).valid_origins("A") == {"D"}
    assert paths("E", ring).valid_origins("A") == frozenset()


def test_a_node_without_links_reaches_none() -> None:
    found = paths("A", {("B", "C"): 1})
    assert found.nodes == frozenset()
    assert found.radius == 0
    assert (found.next_hop("B"), found.cost("B"), found.cost("X")) == (None, None, None)
    assert found.next_hop("X") is None
    assert not found.passes("A", "B")
    assert not found.passes("B", "C")
    assert not found.passes("X", "B")
    assert not found.passes("B", "X")
    assert not found.passes("B", "A")
    assert found.valid_origins("X") == found.valid_origins("C") == frozenset()


def test_a_node_that_is_only_known_as_a_peer_cannot_be_reached() -> None:
    graph = join_links({"A": {"B": 3}, "B": {"A": 3, "C": 4}})
    assert graph.names == ["A", "B"]
    assert Paths(graph, "A").nodes == {"B"}
    # Nor is what two nodes tell of it a way between them.
    assert Paths(join_links({"A": {"C": 1}, "B": {"C": 1}}), "A").nodes == frozenset()


def test_a_link_that_one_end_does_not_have_does_not_count() -> None:
    found = Paths(join_links({"A": {"B": 1}, "B": {"A": 1, "C": 1}, "C": {}}), "A")
    assert found.nodes == {"B"}
    assert found.cost("C") is None


def test_the_higher_of_two_costs_counts() -> None:
    states = {"A": {"B": 2, "C": 1}, "B": {"A": 9, "C": 1}, "C": {"A": 1, "B": 1}}
    for own in "AB":
        found = Paths(join_links(states), own)
        assert found.next_hop("B" if own == "A" else "A") == "C"
    # A node that claims a link to itself does not change anything.
    assert Paths(join_links({"A": {"A": 1}}), "A").nodes == frozenset()


# --- against a slow computation ---------------------------------------------------------------

NAMES = "ABCDEF"


@st.composite
def networks(draw: st.DrawFn) -> Links:
    pairs = [(left, right) for left in NAMES for right in NAMES if left < right]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=10))
    return {pair: draw(st.integers(1, 3)) for pair in chosen}


def all_paths(links: Links, origin: str, end: str) -> list[tuple[int, list[str]]]:
    """Return each way without a circle, with its cost."""
    costs = links | {(right, left): cost for (left, right), cost in links.items()}
    found: list[tuple[int, list[str]]] = []
    waiting: list[tuple[int, list[str]]] = [(0, [origin])]
    while waiting:
        cost, nodes = waiting.pop()
        if nodes[-1] == end:
            found.append((cost, nodes))
            continue
        for (left, right), more in costs.items():
            if left == nodes[-1] and right not in nodes:
                waiting.append((cost + more, [*nodes, right]))
    return found


@given(networks())
def test_paths_are_those_of_a_slow_computation(links: Links) -> None:
    nodes = sorted({name for pair in links for name in pair} | {"A"})
    every = {(o, e): all_paths(links, o, e) for o in nodes for e in nodes}
    best = {pair: min(found) for pair, found in every.items() if found}
    for own in nodes:
        found = paths(own, links)
        assert found.nodes == {end for o, end in best if o == own and end != own}
        for end in nodes:
            cost, way = best.get((own, end), (-1, [""]))
            assert found.cost(end) == (None if cost < 0 else cost)
            assert found.next_hop(end) == (way[1] if len(way) > 1 else None)
            through = {
                origin
                for origin in nodes
                if own not in (origin, end) and own in best.get((origin, end), (0, []))[1]
            }
            assert found.valid_origins(end) == through
            passing = {origin for origin in nodes if found.passes(origin, end)}
            assert passing - {own} == through
            assert (own in passing) == (end in found.nodes)
        longest = [
            len(way) - 1
            for (o, end), (cost, _) in best.items()
            if o == own
            for total, way in every[own, end]
            if total == cost
        ]
        assert found.radius == max(longest)


@given(networks())
def test_a_flood_reaches_each_node_once_from_each_ingress(links: Links) -> None:
    nodes = sorted({name for pair in links for name in pair} | {"A"})
    of = {own: paths(own, links) for own in nodes}
    for ingress in nodes:
        copies = dict.fromkeys(nodes, 0)
        waiting = [ingress]
        while waiting:
            here = waiting.pop()
            copies[here] += 1
            assert copies[here] == 1
            hops = {of[here].next_hop(node) for node in nodes if of[here].passes(ingress, node)}
            waiting += [hop for hop in hops if hop is not None]
        assert {node for node in nodes if copies[node]} == of[ingress].nodes | {ingress}


@pytest.mark.parametrize("own", ["n000", "n050", "n099"])
def test_a_large_ring_has_its_whole_length(own: str) -> None:
    names = [f"n{number:03}" for number in range(100)]
    ring = dict.fromkeys(pairwise([*names, names[0]]), 1)
    found = paths(own, ring)
    assert (found.radius, len(found.nodes)) == (50, 99)


def test_a_graph_has_its_nodes_in_order() -> None:
    graph = join_links({"b": {"a": 2}, "a": {"b": 2}})
    assert graph.numbers == {"a": 0, "b": 1}
    assert (graph.names, graph.links) == (["a", "b"], [[(1, 2)], [(0, 2)]])
