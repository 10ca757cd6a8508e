"""Layers for a drawing: which box comes where, which arrows are turned round, and what crosses."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.drawing._layers import GridCell, Layers, arrange, crossings


def boxes_of(made: Layers) -> list[str]:
    return [" ".join(cell.box or "-" for cell in layer) for layer in made.layers]


def arranged(edges: str, boxes: str = "abcdef") -> Layers:
    return arrange(list(boxes), [(edge[0], edge[1]) for edge in edges.split()])


@pytest.mark.parametrize(
    ("boxes", "edges", "layers"),
    [
        ("", "", []),
        ("ab", "", ["a b"]),
        ("abc", "ab bc", ["a", "b", "c"]),
        ("abc", "ab bc ac", ["a", "b -", "c"]),
        ("abcd", "ab bc dc", ["a", "b d", "c"]),
        ("abc", "ab ba bc", ["a", "b", "c"]),
        ("abcd", "ac bd", ["a b", "c d"]),
        ("abcd", "ad bc", ["a b", "d c"]),
        ("abcd", "ac ad bc bd", ["a b", "c d"]),
    ],
)
def test_boxes_come_into_layers(boxes: str, edges: str, layers: list[str]) -> None:
    assert boxes_of(arranged(edges, boxes)) == layers


def test_an_arrow_that_would_close_a_circle_is_turned() -> None:
    made = arranged("ab bc ca", "abc")
    assert made.turned == [False, False, True]
    # Its path goes from left to right all the same.
    assert [cell.box for cell in made.paths[2]] == ["a", "", "c"]


def test_crossings_are_counted() -> None:
    made = arranged("ac ad bc bd", "abcd")
    assert crossings(made) == 1
    made = arranged("ad bc", "abcd")
    assert crossings(made) == 0


def test_huge_pictures_are_swept_less_often() -> None:
    def layers(cells: int) -> Layers:
        return Layers([[GridCell("", 0, 0)] * cells])

    assert [layers(cells).sweeps(12) for cells in (0, 1000, 100_000, 10**7)] == [12, 12, 5, 2]


LINES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


@given(LINES)
def test_crossings_are_counted_as_one_would_by_hand(lines: list[tuple[int, int]]) -> None:
    one = [GridCell(str(index), -1, 0) for index in range(7)]
    other = [GridCell(str(index), -1, 1) for index in range(7)]
    made = Layers([one, other], [[one[start], other[end]] for start, end in lines])
    pairs = combinations(lines, 2)
    assert crossings(made) == sum((a - c) * (b - d) < 0 for (a, b), (c, d) in pairs)


EDGES = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")).filter(
        lambda edge: edge[0] != edge[1]
    ),
    max_size=16,
)


@given(EDGES)
def test_any_arrows_lead_to_the_right(edges: list[tuple[str, str]]) -> None:
    made = arrange(list("abcdefgh"), edges)
    assert sorted(cell.box for layer in made.layers for cell in layer if cell.box) == list(
        "abcdefgh"
    )
    for (start, end), path, turned in zip(edges, made.paths, made.turned, strict=True):
        first, last = (end, start) if turned else (start, end)
        assert (path[0].box, path[-1].box) == (first, last)
        assert [cell.layer for cell in path] == list(range(path[0].layer, path[-1].layer + 1))
        assert path[0].layer < path[-1].layer
        for cell in path:
            assert made.layers[cell.layer].count(cell) == 1
