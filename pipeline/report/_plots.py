"""The common parts of plots: figures, axes and labels.

A figure is plain dictionaries for Plotly. Colours are names such as `$accent`; the page's script
replaces them by those of the reader's scheme, light or dark. Sizes are pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from ._text import plain, short

__all__ = [
    "LEGEND",
    "ROW",
    "Figure",
    "axis_of_amounts",
    "axis_of_bars",
    "axis_of_times",
    "figure_of",
    "height_of_bars",
    "time_text",
]

Figure: TypeAlias = dict[str, Any]
"""`data` and `layout` of Plotly."""

ROW: Final = 30
"""The height of a row of bars."""

LEGEND: Final = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
"""A legend above the plot; on a narrow screen it needs more lines, and the plot makes room."""

_SHORTEST: Final = timedelta(minutes=10)


def figure_of(data: list[Mapping[str, Any]], height: int, **layout: Any) -> Figure:
    """Return a figure with data, a height and a layout."""
    return {"data": data, "layout": {"height": height, **layout}}


def time_text(moment: datetime) -> str:
    """Return a time in the format of Plotly."""
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def axis_of_times(moments: Sequence[datetime]) -> dict[str, Any]:
    """Return an axis of times, at least ten minutes long, so that bars and lines are visible."""
    axis: dict[str, Any] = {"type": "date", "showgrid": False, "tickformat": "%H:%M"}
    if moments:
        first, last = min(moments), max(moments)
        if last - first < _SHORTEST:
            missing = (_SHORTEST - (last - first)) / 2
            axis["range"] = [time_text(first - missing), time_text(last + missing)]
    return axis


def axis_of_amounts(what: str) -> dict[str, Any]:
    """Return an axis that starts at 0, with few and short numbers, so that they fit."""
    few = {"nticks": 6, "tickangle": 0, "tickformat": "~s"}
    return {"title": {"text": what}, "rangemode": "tozero", **few}


def axis_of_bars(labels: Sequence[str]) -> dict[str, Any]:
    """Return the axis of horizontal bars, the first on top. Shortened labels may be equal."""
    places = list(range(len(labels)))
    return {
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [plain(short(label)) for label in labels],
        "autorange": "reversed",
        "showgrid": False,
        "automargin": True,
    }


def height_of_bars(rows: int) -> int:
    """Return the height of a plot with `rows` horizontal bars."""
    return 70 + ROW * max(rows, 2)
