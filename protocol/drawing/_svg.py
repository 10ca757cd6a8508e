"""A picture as SVG: boxes with rows of text, and arrows with names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ._picture import HEAD, MARGIN, PADDING, ROW, Box, Picture, points, shortened
from ._svg_page import escaped, page

__all__ = ["draw"]

_STYLE: Final = """\
text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2933}
.title{font-size:15px;font-weight:600}.name{font-weight:600;fill:#fff}.kind,.uri{fill:#64748b}
.page{fill:#f8fafc}.box{fill:#fff;stroke:#94a3b8}.head{fill:#33658a}.out{font-weight:600}
.outside{fill:none;stroke:#94a3b8;stroke-dasharray:5 4}.rule{stroke:#e2e8f0}
.link{fill:none;stroke:#33658a;stroke-width:1.5}.tip{fill:#33658a}
@media (prefers-color-scheme:dark){
text{fill:#e2e8f0}.kind,.uri{fill:#94a3b8}.page{fill:#0f172a}.box{fill:#1e293b;stroke:#475569}
.head{fill:#2f6690}.outside{stroke:#64748b}.rule{stroke:#334155}.link{stroke:#7fb7d9}
.tip{fill:#7fb7d9}}"""


def draw(picture: Picture) -> str:
    """Return a picture as SVG. The same picture gives the same text."""
    return "\n".join(_svg(picture)) + "\n"


def _svg(picture: Picture) -> Iterator[str]:
    width, height = points(picture.width), points(picture.height)
    yield from page(width, height, picture.title, _STYLE)
    yield _text(MARGIN, MARGIN + 12, picture.title, "title")
    for curve in picture.curves:
        yield f'<path class="link" d="{curve}"/>'
    for x, y, from_left in picture.tips:
        back = -9 if from_left else 9
        yield (f'<path class="tip" d="M{points(x, y)}l{back} -4.5v9z"/>')
    for label in picture.labels:
        yield _text(label.x, label.y, label.text)
    for box in picture.boxes:
        yield from _svg_box(box)
    yield "</svg>"


def _svg_box(box: Box) -> Iterator[str]:
    place = f'x="{points(box.x)}" y="{points(box.y)}" width="{points(box.width)}"'
    left, right = box.x + PADDING, box.x + box.width - PADDING
    if box.outside:
        yield f'<rect class="outside" {place} height="{points(box.height)}" rx="6"/>'
        yield _text(left, box.y + HEAD / 2 + 4, shortened(box.name), "uri")
        return
    yield f'<rect class="box" {place} height="{points(box.height)}" rx="6"/>'
    yield f'<path class="head" d="{_head(box)}"/>'
    yield _text(left, box.y + 18, shortened(box.name), "name")
    y = box.y + HEAD + PADDING / 2
    for row in box.rows:
        yield _text(left, y + 14, row.left, "out" if row.exposed else "")
        yield _text(right, y + 14, row.right, "kind", end=True)
        y += ROW
    if box.uris:
        end = points(box.x + box.width - 1)
        yield f'<path class="rule" d="M{points(box.x + 1, y + 2)}H{end}"/>'
    for row in box.uris:
        yield _text(left, y + 16, row.left)
        yield _text(right, y + 16, row.right, "uri", end=True)
        y += ROW


def _head(box: Box) -> str:
    """Return a rectangle that is round at its upper corners only."""
    x, y, right = box.x, box.y, box.x + box.width
    bottom = points(y + HEAD)
    return f"M{points(x)} {bottom}V{points(y + 6)}q0 -6 6 -6H{points(right - 6)}q6 0 6 6V{bottom}z"


def _text(x: float, y: float, text: str, style: str = "", *, end: bool = False) -> str:
    kind = f' class="{style}"' if style else ""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{points(x)}" y="{points(y)}"{kind}{anchor}>{escaped(text)}</text>'
