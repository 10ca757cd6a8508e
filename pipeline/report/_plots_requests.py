"""The plots of requests: traffic, latency, unroutable requests and burn rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any, Final

from ._page_requests import Burn, Demand, Latency, LatencyLine, Matrix
from ._plots import (
    LEGEND,
    Figure,
    axis_of_amounts,
    axis_of_bars,
    axis_of_times,
    figure_of,
    height_of_bars,
    time_text,
)
from ._text import amount, compact, duration, plain, share, short, size

__all__ = [
    "MAX_BURNS",
    "burn_figure",
    "demand_figure",
    "lines_figure",
    "matrix_figure",
    "ranges_figure",
]

MAX_BURNS: Final = 5
"""Objectives in a plot, one for each colour."""

_QUANTILES: Final = (("p50", "$soft"), ("p95", "$accent"), ("p99", "$bad"))


def matrix_figure(matrix: Matrix) -> Figure:
    """Return a heat map: a row for each sender, a column for each destination."""
    texts: list[list[str]] = []
    hovers: list[list[str]] = []
    for y, origin in enumerate(matrix.origins):
        texts.append([])
        hovers.append([])
        for x, dest in enumerate(matrix.dests):
            frames = matrix.frames[y][x]
            failed = matrix.failed[y][x]
            texts[-1].append(_cell(frames, failed))
            hovers[-1].append(
                f"{plain(origin)} → {plain(dest)}<br>"
                + (
                    "nothing"
                    if frames is None
                    else f"<b>{amount(frames)}</b> frames, {size(matrix.bytes[y][x])}<br>"
                    f"{amount(failed)} failed ({share(failed, frames)})"
                )
            )
    many = len(matrix.dests) > 12
    return figure_of(
        [
            {
                "type": "heatmap",
                "x": list(range(len(matrix.dests))),
                "y": list(range(len(matrix.origins))),
                # A logarithmic colour scale keeps small flows visible next to a large one.
                "z": [
                    [None if frames is None else round(log10(frames + 1), 3) for frames in row]
                    for row in matrix.frames
                ],
                "text": texts,
                "texttemplate": "" if many else "%{text}",
                "customdata": hovers,
                "hovertemplate": "%{customdata}<extra></extra>",
                "colorscale": "$scale",
                "zmin": 0,
                "showscale": False,
                "xgap": 3,
                "ygap": 3,
                "hoverongaps": False,
            }
        ],
        74 + 34 * max(len(matrix.origins), 3),
        margin={"l": 50, "r": 12, "t": 16, "b": 8},
        xaxis={
            "tickmode": "array",
            "tickvals": list(range(len(matrix.dests))),
            "ticktext": [plain(short(each)) for each in matrix.dests],
            "side": "top",
            "tickangle": 0 if _fits(matrix.dests) else -35,
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
        },
        yaxis={**axis_of_bars(matrix.origins), "zeroline": False},
    )


def _cell(frames: int | None, failed: int) -> str:
    """Return the text of a cell: its frames, or, if there are none, its failures."""
    if frames is None:
        return ""
    return compact(frames or failed) + (" ▲" if failed else "")


def _fits(labels: Sequence[str]) -> bool:
    """Return whether labels fit beside each other on a screen that is not small."""
    return len(labels) * max(map(len, labels), default=0) <= 110


def lines_figure(latency: Latency) -> Figure:
    """Return lines of the quantiles over the day; `meta` is the number of the destination."""
    data: list[Mapping[str, Any]] = []
    for number, line in enumerate(latency.lines):
        for name, colour in _QUANTILES:
            values: tuple[float, ...] = getattr(line, name)
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers" if len(values) < 60 else "lines",
                    "name": name,
                    "meta": number,
                    "visible": number == 0,
                    "x": [time_text(each) for each in line.times],
                    "y": [value / 1000 for value in values],
                    "line": {"color": colour, "width": 2},
                    "marker": {"size": 6},
                    "customdata": [
                        [duration(value), amount(n)]
                        for value, n in zip(values, line.n, strict=True)
                    ],
                    "hovertemplate": f"{name} <b>%{{customdata[0]}}</b>"
                    " of %{customdata[1]} requests<extra></extra>",
                }
            )
    return figure_of(
        data,
        320,
        hovermode="x unified",
        showlegend=True,
        legend=LEGEND,
        xaxis=axis_of_times([each for line in latency.lines for each in line.times]),
        yaxis={"title": {"text": "ms"}, "rangemode": "tozero"},
    )


def ranges_figure(latency: Latency) -> Figure:
    """Return one row for each destination: from the median to the 99th percentile of the day."""
    lines = latency.lines
    data: list[Mapping[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [value for line in lines for value in (_ms(line.day[1]), _ms(line.day[3]), None)],
            "y": [place for place in range(len(lines)) for _ in range(3)],
            "line": {"color": "$grid", "width": 6},
            "hoverinfo": "skip",
            "showlegend": False,
        }
    ]
    for index, (name, colour) in enumerate(_QUANTILES, start=1):
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [_ms(line.day[index]) for line in lines],
                "y": list(range(len(lines))),
                "marker": {"color": colour, "size": 11},
                "customdata": [_range_hover(line, index, name) for line in lines],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    return figure_of(
        data,
        height_of_bars(len(lines)) + 30,
        showlegend=True,
        legend=LEGEND,
        xaxis={"type": "log", "title": {"text": "ms"}, "dtick": 1},
        yaxis=axis_of_bars([line.dest for line in lines]),
    )


def _ms(microseconds: float) -> float:
    """Return milliseconds for a logarithmic axis, which has no place for 0."""
    return max(microseconds, 1.0) / 1000


def _range_hover(line: LatencyLine, index: int, name: str) -> str:
    return (
        f"{plain(line.dest)}<br>{name} <b>{duration(line.day[index])}</b> "
        f"of {amount(line.day[0])} requests"
    )


def demand_figure(demand: Demand) -> Figure:
    """Return a bar for each tag set without a destination."""
    rows = demand.rows
    return figure_of(
        [
            {
                "type": "bar",
                "orientation": "h",
                "x": [row.frames for row in rows],
                "y": list(range(len(rows))),
                "marker": {"color": "$bad"},
                "text": [f" {compact(row.frames)}" for row in rows],
                "textposition": "auto",
                "customdata": [
                    f"{plain(row.tagset)}<br><b>{amount(row.frames)}</b> requests" for row in rows
                ],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        ],
        height_of_bars(len(rows)),
        bargap=0.35,
        xaxis=axis_of_amounts("requests"),
        yaxis=axis_of_bars([row.tagset for row in rows]),
    )


def burn_figure(burns: Sequence[Burn]) -> Figure:
    """Return lines of the burn rate within an hour; at 1 the error budget lasts exactly."""
    colours = ("$accent", "$bad", "$soft", "$warm", "$ink")
    data: list[Mapping[str, Any]] = []
    for number, burn in enumerate(burns):
        for name, values, dash in (("1 h", burn.burn_1h, "solid"), ("5 min", burn.burn_5m, "dot")):
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers" if len(values) < 60 else "lines",
                    "name": f"{plain(short(burn.objective))}, {name}",
                    "x": [time_text(each) for each in burn.times],
                    "y": list(values),
                    "line": {"color": colours[number % len(colours)], "dash": dash, "width": 2},
                    "hovertemplate": "<b>%{y:.2f}</b> \u00d7 the budget"
                    "<extra>%{fullData.name}</extra>",
                }
            )
    return figure_of(
        data,
        300,
        showlegend=True,
        legend=LEGEND,
        hovermode="x unified",
        xaxis=axis_of_times([each for burn in burns for each in burn.times]),
        yaxis={"title": {"text": "\u00d7 budget"}, "rangemode": "tozero"},
        shapes=[
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": 1,
                "y1": 1,
                "line": {"color": "$bad", "width": 1, "dash": "dash"},
            }
        ],
    )
