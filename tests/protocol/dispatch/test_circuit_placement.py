"""Where circuits go: the distributions that routers with link routing have."""

from __future__ import annotations

from collections import Counter

import pytest

from onward.protocol.dispatch import CircuitPlace, place_circuit

LINEAR = {"a": {"b": 1, "c": 2}, "b": {"a": 1, "c": 1}, "c": {"a": 2, "b": 1}}
TRIANGLE = {node: dict.fromkeys({"a", "b", "c"} - {node}, 1) for node in "abc"}


def attach(
    costs: dict[str, dict[str, int]], containers: dict[str, list[str]], times: int
) -> dict[str, int]:
    """Attach circuits at the node `a`, and count the containers in which they end."""
    turns = Counter[str]()
    ends = Counter[str]()
    for _ in range(times):
        node = "a"
        while True:
            there = {other: cost for other, cost in costs[node].items() if containers[other]}
            place = place_circuit(containers[node], there, turns[node])
            turns[node] += 1
            assert place is not None
            if place.local:
                break
            # The next node is the container's: all others are further, or one of these.
            node = place.name
        ends[place.name] += 1
    return ends


def by_node(ends: dict[str, int]) -> tuple[int, ...]:
    return tuple(sum(ends.get(f"{node}{n}", 0) for n in (1, 2)) for node in "abc")


def two_each(*nodes: str) -> dict[str, list[str]]:
    return {node: [f"{node}1", f"{node}2"] if node in nodes else [] for node in "abc"}


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
    costs: dict[str, dict[str, int]], nodes: str, expected: tuple[int, ...]
) -> None:
    ends = attach(costs, two_each(*nodes), 4)
    assert by_node(ends) == expected
    # Both containers of a node have the same number of them.
    assert set(ends.values()) <= {1, 2}
    assert sum(ends.values()) == 4


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        (LINEAR, [(4, 0, 0), (4, 4, 0), (4, 4, 4)]),
        (TRIANGLE, [(4, 0, 0), (4, 2, 2), (4, 2, 6)]),
    ],
)
def test_circuits_go_further_as_containers_go(
    costs: dict[str, dict[str, int]], expected: list[tuple[int, ...]]
) -> None:
    placed = Counter[str]()
    for nodes, counts in zip(("abc", "bc", "c"), expected, strict=True):
        placed.update(attach(costs, two_each(*nodes), 4))
        assert by_node(placed) == counts


def test_no_container_is_no_place() -> None:
    assert place_circuit((), {}, 3) is None
    assert place_circuit(("x",), {"b": 1}, 3) == CircuitPlace(local=True, name="x")
    assert place_circuit((), {"b": 3, "d": 2, "c": 2}, 1) == CircuitPlace(local=False, name="d")
