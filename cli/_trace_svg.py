"""A trace as an SVG picture: a line down for each node, and time from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..protocol.drawing import escaped, page
from ._trace_picture import Step, TracePicture

__all__ = ["draw"]

# All in pixels. Text is monospaced, so that its width is known without measuring it.
CHARACTER: Final = 7.25
MARGIN: Final = 24
TITLE: Final = 40
HEAD: Final = 28
ROW: Final = 34
TIME: Final = 80
"""Width of the column of times."""
LEAST: Final = 190
"""Least distance of two nodes."""

_STYLE: Final = """\
text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2933}
.title{font-size:15px;font-weight:600}.name{font-weight:600;fill:#fff;text-anchor:middle}
.time{fill:#64748b;text-anchor:end}.page{fill:#f8fafc}.head{fill:#33658a}
.silent{fill:none;stroke:#94a3b8;stroke-dasharray:5 4}.unheard{text-anchor:middle}
.life{stroke:#cbd5e1}.life.dashed{stroke-dasharray:3 5}
.hop{fill:#33658a}.miss{fill:none;stroke:#c2410c;stroke-width:1.5}.bad{fill:#c2410c}
.way{fill:none;stroke:#33658a;stroke-width:1.5}.way.dashed{stroke:#c2410c;stroke-dasharray:5 4}
.tip{fill:#33658a}.tip.dashed{fill:#c2410c}
@media (prefers-color-scheme:dark){
text{fill:#e2e8f0}.time{fill:#94a3b8}.page{fill:#0f172a}.head{fill:#2f6690}.life{stroke:#334155}
.hop,.tip{fill:#7fb7d9}.way{stroke:#7fb7d9}.way.dashed,.miss{stroke:#fb923c}
.tip.dashed,.bad{fill:#fb923c}}"""


def draw(picture: TracePicture) -> str:
    """Draw a picture. The same picture gives the same text."""
    return "\n".join(_svg(picture)) + "\n"


def _svg(picture: TracePicture) -> Iterator[str]:
    across = _across(picture)
    last = max((len(step.label) + len(step.note) + 3 for step in picture.steps), default=0)
    width = max(
        round(across[-1] + max(LEAST / 2, CHARACTER * last)) + MARGIN,
        round(CHARACTER * 1.25 * len(picture.title)) + 2 * MARGIN,
    )
    top = MARGIN + TITLE + HEAD
    height = top + ROW * len(picture.steps) + MARGIN
    yield from page(str(width), str(height), picture.title, _STYLE)
    yield f'<text class="title" x="{MARGIN}" y="{MARGIN + 12}">{escaped(picture.title)}</text>'
    for column, name in enumerate(picture.columns):
        yield from _node(name, across[column], height - MARGIN, column == picture.silent)
    for number, step in enumerate(picture.steps):
        yield from _step(step, picture, across, top + ROW * number + ROW // 2)
    yield "</svg>"


def _across(picture: TracePicture) -> list[int]:
    """Return the places of the nodes' lines, far enough apart for the texts beside them."""
    across = [MARGIN + TIME + LEAST // 2]
    for index in range(len(picture.columns) - 1):
        longest = max(
            (len(step.label) + len(step.note) for step in picture.steps if step.column == index),
            default=0,
        )
        across.append(across[-1] + max(LEAST, round(CHARACTER * (longest + 5))))
    return across


def _node(name: str, x: int, bottom: int, silent: bool) -> Iterator[str]:
    top = MARGIN + TITLE
    half = LEAST // 2 - 10
    dashed = " dashed" if silent else ""
    yield f'<path class="life{dashed}" d="M{x} {top + HEAD}V{bottom}"/>'
    yield (
        f'<rect class="{"silent" if silent else "head"}" x="{x - half}" y="{top}" '
        f'width="{2 * half}" height="{HEAD}" rx="6"/>'
    )
    style = "unheard" if silent else "name"
    most = round(2 * half / CHARACTER) - 1
    shown = name if len(name) <= most else f"{name[: most - 1]}…"
    yield f'<text class="{style}" x="{x}" y="{top + 18}">{escaped(shown)}</text>'


def _step(step: Step, picture: TracePicture, across: list[int], y: int) -> Iterator[str]:
    x = across[step.column]
    silent = step.column == picture.silent
    if step.source is not None:
        start = across[step.source]
        dashed = " dashed" if silent or step.source == picture.silent else ""
        back = -9 if start < x else 9
        end = x + (-6 if start < x else 6)
        yield f'<path class="way{dashed}" d="M{start} {y}H{end + back}"/>'
        yield f'<path class="tip{dashed}" d="M{end} {y}l{back} -4.5v9z"/>'
    yield f'<circle class="{"miss" if silent else "hop"}" cx="{x}" cy="{y}" r="5"/>'
    # Below an arrow from the right, which would go through it.
    below = 14 if step.source is not None and across[step.source] > x else 4
    note = f' <tspan class="bad">{escaped(step.note)}</tspan>' if step.note else ""
    yield f'<text x="{x + 12}" y="{y + below}">{escaped(step.label)}{note}</text>'
    if step.time is not None:
        time = f"{step.time * 1e3:.3f} ms"
        yield f'<text class="time" x="{MARGIN + TIME}" y="{y + 4}">{time}</text>'
