"""Layers for a drawing of boxes and arrows: the place of each box, and the direction of arrows.

It is Sugiyama's method. Arrows that would close a circle are reversed. Each box is put into a layer
behind those that lead to it. Arrows that pass a layer get a place in it. The order within layers is
chosen by barycentres, so that few arrows cross. It is a page or two of code and needs no library:
graphviz would be a program to install, and the libraries for Python need it or numpy. Everything is
in the order of the input, so the same input gives the same drawing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

__all__ = ["GridCell", "Layers", "arrange", "crossings"]

SWEEPS: Final = 12
"""Times that the order of the layers is improved, from the left and from the right in turn."""

MOVES: Final = 500_000
"""Most cells moved, sweep by sweep, in a picture too large for all sweeps; two are always made."""

Edge: TypeAlias = tuple[str, str]


# Each is made once, and there may be a quarter of a million: comparing identity is enough.
@dataclass(frozen=True, slots=True, eq=False)
class GridCell:
    """A place in a layer: a box, or the crossing of an arrow.

    Attributes:
        box: The box's name; empty for an arrow.
        edge: The number of the arrow; -1 for a box.
        layer: The number of the layer, from 0.
    """

    box: str
    edge: int
    layer: int


@dataclass(slots=True)
class Layers:
    """The result of `arrange`.

    Attributes:
        layers: The cells of each layer, from top to bottom.
        paths: For each arrow its cells, from left to right.
        turned: For each arrow whether it goes from right to left.
    """

    layers: list[list[GridCell]] = field(default_factory=list[list[GridCell]])
    paths: list[list[GridCell]] = field(default_factory=list[list[GridCell]])
    turned: list[bool] = field(default_factory=list[bool])

    def sweeps(self, most: int) -> int:
        """Return the number of sweeps: fewer for a huge picture, which would take minutes."""
        cells = sum(map(len, self.layers))
        return max(2, min(most, MOVES // max(cells, 1)))


def arrange(boxes: Sequence[str], edges: Sequence[Edge]) -> Layers:
    """Put boxes into layers.

    Args:
        boxes: Their names.
        edges: The arrows, from box to box; not from a box to itself.
    """
    turned = _turned(boxes, edges)
    forward = [(b, a) if back else (a, b) for (a, b), back in zip(edges, turned, strict=True)]
    depth = _depths(boxes, forward)
    made = Layers(turned=turned)
    made.layers = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    cells = {box: GridCell(box, -1, depth[box]) for box in boxes}
    for box in boxes:
        made.layers[depth[box]].append(cells[box])
    for number, (start, end) in enumerate(forward):
        between = [GridCell("", number, layer) for layer in range(depth[start] + 1, depth[end])]
        for cell in between:
            made.layers[cell.layer].append(cell)
        made.paths.append([cells[start], *between, cells[end]])
    _order(made)
    return made


def _turned(boxes: Sequence[str], edges: Sequence[Edge]) -> list[bool]:
    """Return which arrows to reverse so that there is no cycle: those to a box not left yet."""
    out: dict[str, list[int]] = {box: [] for box in boxes}
    for number, (start, _) in enumerate(edges):
        out[start].append(number)
    turned = [False] * len(edges)
    entered: set[str] = set()
    left: set[str] = set()
    for first in boxes:
        # Depth first with an explicit stack, as a chain may be long.
        stack = [(first, iter(out[first]))] if first not in entered else []
        entered.add(first)
        while stack:
            box, rest = stack[-1]
            arrow = next(rest, None)
            if arrow is None:
                left.add(box)
                stack.pop()
                continue
            end = edges[arrow][1]
            if end not in entered:
                entered.add(end)
                stack.append((end, iter(out[end])))
            elif end not in left:
                turned[arrow] = True
    return turned


def _depths(boxes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the layer of each box: behind all that lead to it.

    A box without an incoming arrow is just before the first it leads to, so its arrows are short.
    """
    depth = dict.fromkeys(boxes, 0)
    for _ in boxes:
        changed = False
        for start, end in edges:
            if depth[end] <= depth[start]:
                depth[end] = depth[start] + 1
                changed = True
        if not changed:
            break
    fed = {end for _, end in edges}
    for box in boxes:
        ends = [depth[end] for start, end in edges if start == box]
        if box not in fed and ends:
            depth[box] = min(ends) - 1
    return depth


def _order(made: Layers) -> None:
    """Choose the order within the layers, keeping the best one found."""
    best, fewest = [list(layer) for layer in made.layers], crossings(made)
    before, after = _neighbours(made)
    place = {cell: index for layer in made.layers for index, cell in enumerate(layer)}
    for sweep in range(made.sweeps(SWEEPS)):
        if fewest == 0:
            break
        forth = sweep % 2 == 0
        for layer in made.layers if forth else reversed(made.layers):
            _sort(layer, place, before if forth else after)
        count = crossings(made)
        if count < fewest:
            best, fewest = [list(layer) for layer in made.layers], count
    made.layers = best


def _neighbours(
    made: Layers,
) -> tuple[dict[GridCell, list[GridCell]], dict[GridCell, list[GridCell]]]:
    before: dict[GridCell, list[GridCell]] = {}
    after: dict[GridCell, list[GridCell]] = {}
    for path in made.paths:
        for left, right in pairwise(path):
            after.setdefault(left, []).append(right)
            before.setdefault(right, []).append(left)
    return before, after


def _sort(
    layer: list[GridCell], place: dict[GridCell, int], beside: Mapping[GridCell, Sequence[GridCell]]
) -> None:
    """Sort a layer by the mean place of its neighbours; a cell without any stays in place."""

    def mean(cell: GridCell) -> float:
        places = [place[other] for other in beside.get(cell, ())]
        return sum(places) / len(places) if places else float(place[cell])

    layer.sort(key=mean)
    place.update({cell: index for index, cell in enumerate(layer)})


def crossings(made: Layers) -> int:
    """Count the pairs of arrows that cross between layers."""
    place = {cell: index for layer in made.layers for index, cell in enumerate(layer)}
    gaps: dict[int, list[tuple[int, int]]] = {}
    for path in made.paths:
        for left, right in pairwise(path):
            gaps.setdefault(left.layer, []).append((place[left], place[right]))
    return sum(map(_inversions, gaps.values()))


def _inversions(lines: list[tuple[int, int]]) -> int:
    """Count the pairs of lines of which one begins above the other and ends below it."""
    lines.sort()
    ends: list[int] = []
    count = 0
    for _, end in lines:
        # Of the lines before this one in the order, those that end below it cross it.
        at = bisect_right(ends, end)
        count += len(ends) - at
        ends.insert(at, end)
    return count
