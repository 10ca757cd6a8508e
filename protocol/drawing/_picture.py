"""The layout of a picture: boxes, arrows, and their names.

Boxes stand in layers from left to right, each behind those that lead to it. An arrow leaves a box
on a straight piece as long as the longest name in its gap, and bends after it. So no arrow goes
through a name, and names do not overlap, as arrows leave boxes in their own lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ._layers import GridCell, Layers, arrange

__all__ = [
    "HEAD",
    "MARGIN",
    "PADDING",
    "ROW",
    "Arrow",
    "Box",
    "Label",
    "Picture",
    "Row",
    "lay_out",
    "points",
    "shortened",
]

# All in pixels. Text is monospaced, so that its width is known without measuring it.
CHARACTER: Final = 7.25
"""Width of a character of 12 pixels; fonts differ by a little, and this is the widest of them."""
ROW: Final = 20.0
HEAD: Final = 28.0
"""The height of a box above its rows, in pixels, as is all here."""
PADDING: Final = 12.0
PORT: Final = 24.0
"""Least distance of two arrows that leave a box, and so of their names."""
GAP: Final = 28.0
"""Between boxes of a layer."""
BEND: Final = 48.0
"""Between layers, beside the longest name of a link: where arrows bend."""
MARGIN: Final = 24.0
TITLE: Final = 40.0
SWEEPS: Final = 8
"""Times that boxes are moved towards their neighbours."""
LONGEST: Final = 36
"""Most characters of a name or a URI that are shown; the middle of a longer one is left out."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a box.

    Attributes:
        left: The text at its left end.
        right: The text at its right end.
        exposed: Whether it can be reached from other nodes, and is written bold.
    """

    left: str
    right: str
    exposed: bool = False


@dataclass(slots=True)
class Box:
    """A box: a node, or something outside that an arrow leads to.

    Attributes:
        name: Its name, by which arrows refer to it.
        rows: Its lines, such as workers and their kinds.
        uris: Its lines below a rule, such as listeners and their URIs.
        outside: Whether it is drawn as an outline without rows.
        x: Left edge. This and the rest is in pixels.
        y: Upper edge.
        width: From left to right.
        height: From top to bottom.
    """

    name: str
    rows: list[Row] = field(default_factory=list["Row"])
    uris: list[Row] = field(default_factory=list["Row"])
    outside: bool = False
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow between two boxes.

    Attributes:
        start: The name of the box that it leaves.
        end: The name of the box that it leads to, another one.
        text: Its name.
    """

    start: str
    end: str
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """The name of an arrow, on it.

    Attributes:
        text: The name.
        x: Its left end.
        y: Its base line, just above the arrow.
        width: Its width.
    """

    text: str
    x: float
    y: float
    width: float


@dataclass(slots=True)
class Picture:
    """The places of all parts of a picture.

    Attributes:
        title: The title above the picture.
        boxes: The boxes.
        labels: The names of the arrows.
        curves: The arrows, as paths of SVG.
        tips: The ends of the arrows, and whether they come from the left.
        width: The width of the picture.
        height: The height of the picture.
    """

    title: str
    boxes: list[Box] = field(default_factory=list[Box])
    labels: list[Label] = field(default_factory=list[Label])
    curves: list[str] = field(default_factory=list[str])
    tips: list[tuple[float, float, bool]] = field(default_factory=list[tuple[float, float, bool]])
    width: float = 0.0
    height: float = 0.0


def lay_out(title: str, boxes: Iterable[Box], arrows: Iterable[Arrow]) -> Picture:
    """Return the layout of a picture. The same boxes and arrows give the same one.

    Args:
        title: The title above it.
        boxes: The boxes, each with a name of its own, which is not empty. Their sizes and places
            are set.
        arrows: The arrows.
    """
    return _LayOut(title, boxes, arrows).picture


class _LayOut:
    def __init__(self, title: str, boxes: Iterable[Box], arrows: Iterable[Arrow]) -> None:
        self.picture = Picture(title)
        self._boxes = {box.name: _sized(box) for box in boxes}
        drawn = tuple(arrows)
        self._texts = [arrow.text for arrow in drawn]
        edges = [(arrow.start, arrow.end) for arrow in drawn]
        self._layers: Layers = arrange(list(self._boxes), edges)
        self._ports: dict[tuple[int, GridCell, bool], float] = {}
        self._centres: dict[GridCell, float] = {}
        self._lefts: list[float] = []
        self._rights: list[float] = []
        self._size_boxes()
        self._place_layers()
        self._place_cells()
        self._place_ports()
        self._place_links()
        self._frame()

    def _size_boxes(self) -> None:
        """Make each box high enough for the arrows on its busier side."""
        for left, right in self._sides().values():
            box = self._boxes[left[0][1].box if left else right[0][1].box]
            box.height = max(box.height, max(len(left), len(right)) * PORT + PADDING)

    def _sides(
        self,
    ) -> dict[GridCell, tuple[list[tuple[int, GridCell]], list[tuple[int, GridCell]]]]:
        """Return, for each box, the arrows at its left and at its right side."""
        sides: dict[GridCell, tuple[list[tuple[int, GridCell]], list[tuple[int, GridCell]]]] = {}
        for number, path in enumerate(self._layers.paths):
            sides.setdefault(path[0], ([], []))[1].append((number, path[0]))
            sides.setdefault(path[-1], ([], []))[0].append((number, path[-1]))
        return sides

    # --- from left to right -----------------------------------------------------------------

    def _place_layers(self) -> None:
        x = MARGIN
        names = [0.0] * len(self._layers.layers)
        for number, path in enumerate(self._layers.paths):
            gap = path[0].layer
            names[gap] = max(names[gap], _width(self._texts[number]) + PADDING)
        for index, layer in enumerate(self._layers.layers):
            width = max(self._boxes[cell.box].width if cell.box else 0.0 for cell in layer)
            self._lefts.append(x)
            self._rights.append(x + width)
            for cell in layer:
                if cell.box:
                    # Boxes of a layer are equally wide, so that names of links begin in one line.
                    self._boxes[cell.box].x = x
                    self._boxes[cell.box].width = width
            x += width + names[index] + BEND
        self._stubs = [right + name for right, name in zip(self._rights, names, strict=True)]

    # --- from top to bottom -----------------------------------------------------------------

    def _place_cells(self) -> None:
        """Move each cell towards its neighbours, as far as the order of its layer permits."""
        layers = self._layers.layers
        for layer in layers:
            self._stack(layer, dict.fromkeys(layer, 0.0))
        before: dict[GridCell, list[GridCell]] = {}
        after: dict[GridCell, list[GridCell]] = {}
        for path in self._layers.paths:
            for one, other in pairwise(path):
                after.setdefault(one, []).append(other)
                before.setdefault(other, []).append(one)
        for sweep in range(self._layers.sweeps(SWEEPS)):
            forth = sweep % 2 == 0
            for layer in layers if forth else reversed(layers):
                wish: dict[GridCell, float] = {}
                for cell in layer:
                    beside = (before if forth else after).get(cell) or [cell]
                    wish[cell] = sum(self._centres[each] for each in beside) / len(beside)
                self._stack(layer, wish)
        top = min(
            (self._centres[cell] - self._height(cell) / 2 for layer in layers for cell in layer),
            default=0.0,
        )
        for cell in self._centres:
            self._centres[cell] += MARGIN + TITLE - top
            if cell.box:
                box = self._boxes[cell.box]
                box.y = self._centres[cell] - box.height / 2

    def _height(self, cell: GridCell) -> float:
        return self._boxes[cell.box].height if cell.box else PORT

    def _stack(self, layer: list[GridCell], wish: dict[GridCell, float]) -> None:
        """Place the cells of a layer as near to their wishes as possible.

        Cells that would overlap are moved together, as a block around the mean of their wishes.
        """
        blocks: list[tuple[float, list[tuple[GridCell, float]]]] = []
        offset = 0.0
        last: GridCell | None = None
        for cell in layer:
            if last is not None:
                both = self._height(last) + self._height(cell)
                offset += both / 2 + (GAP if last.box and cell.box else GAP / 2)
            last = cell
            blocks.append((wish[cell] - offset, [(cell, offset)]))
            while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
                at, cells = blocks.pop()
                other, others = blocks.pop()
                mean = (at * len(cells) + other * len(others)) / (len(cells) + len(others))
                others.extend(cells)
                blocks.append((mean, others))
        for at, cells in blocks:
            for cell, own in cells:
                self._centres[cell] = at + own

    # --- arrows -----------------------------------------------------------------------------

    def _place_ports(self) -> None:
        """Order the arrows at each box by the places of their other ends."""
        for cell, (left, right) in self._sides().items():
            for ends, step in ((left, -2), (right, 1)):
                ends.sort(key=lambda end: self._centres[self._layers.paths[end[0]][step]])
                for place, (number, _) in enumerate(ends):
                    y = self._centres[cell] + (place - (len(ends) - 1) / 2) * PORT
                    self._ports[number, cell, step > 0] = y

    def _place_links(self) -> None:
        picture = self.picture
        for number, path in enumerate(self._layers.paths):
            start, end = path[0], path[-1]
            x, y = self._rights[start.layer], self._ports[number, start, True]
            first, text = (x, y), self._texts[number]
            picture.labels.append(Label(text, x + PADDING / 2, y - 5, _width(text)))
            curve = [f"M{points(x, y)}"]
            for one, other in pairwise(path):
                x = self._stubs[one.layer]
                to_x = self._lefts[other.layer]
                to_y = self._ports[number, other, False] if other is end else self._centres[other]
                middle = (x + to_x) / 2
                curve.append(f"H{points(x)}C{points(middle, y, middle, to_y, to_x, to_y)}")
                x, y = to_x, to_y
            picture.curves.append("".join(curve))
            turned = self._layers.turned[number]
            picture.tips.append((*first, False) if turned else (x, y, True))

    def _frame(self) -> None:
        picture = self.picture
        picture.boxes = list(self._boxes.values())
        right = max((box.x + box.width for box in picture.boxes), default=0.0)
        ends = [self._stubs[path[0].layer] for path in self._layers.paths]
        picture.width = max(right, _width(picture.title) * 1.25 + MARGIN, *ends, 0.0) + MARGIN
        bottom = max((box.y + box.height for box in picture.boxes), default=0.0)
        passing = [centre + PORT / 2 for centre in self._centres.values()]
        picture.height = max(bottom, *passing, 0.0) + MARGIN


def _sized(box: Box) -> Box:
    lines = [_width(f"{row.left}   {row.right}") for row in (*box.rows, *box.uris)]
    box.width = max(*lines, _width(shortened(box.name)), 96.0) + 2 * PADDING
    box.height = HEAD + ROW * (len(box.rows) + len(box.uris)) + (0 if box.outside else PADDING)
    return box


def shortened(text: str) -> str:
    """Return a text without its middle, if it is longer than a box should be wide."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[: half - 1]}…{text[-half:]}"


def _width(text: str) -> float:
    return len(text) * CHARACTER


def points(*values: float) -> str:
    """Format numbers with at most one decimal: short, and the same on every machine."""
    return " ".join(f"{value:.1f}".removesuffix(".0") for value in values)
