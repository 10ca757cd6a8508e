"""The plots of the page, as Plotly takes them: plain dictionaries.

Colours are names such as `$accent`; the page's script puts in those of the scheme that the reader
has chosen, light or dark. Sizes are pixels. What users have named goes through `plain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import log10
from typing import Any, Final, TypeAlias

from ._page import Burn, Churn, Demand, Latency, Line, Matrix, Replay, Shards
from ._text import amount, compact, duration, plain, share, short, size

__all__ = [
    "Figure",
    "burn_figure",
    "churn_figure",
    "demand_figure",
    "lines_figure",
    "matrix_figure",
    "ranges_figure",
    "replay_figure",
    "shards_figure",
]

Figure: TypeAlias = dict[str, Any]
"""`data` and `layout` of Plotly."""

_SHORTEST: Final = timedelta(minutes=10)

ROW: Final = 30
"""The height of a row of bars."""

_QUANTILES: Final = (("p50", "$soft", "half"), ("p95", "$accent", "95 %"), ("p99", "$bad", "99 %"))


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _times(moments: Sequence[datetime]) -> dict[str, Any]:
    """Return an axis of times, of at least ten minutes: in less there is nothing to be seen."""
    axis: dict[str, Any] = {"type": "date", "showgrid": False, "tickformat": "%H:%M"}
    if moments:
        first, last = min(moments), max(moments)
        if last - first < _SHORTEST:
            missing = (_SHORTEST - (last - first)) / 2
            axis["range"] = [_time(first - missing), _time(last + missing)]
    return axis


def _figure(data: list[Mapping[str, Any]], height: int, **layout: Any) -> Figure:
    return {"data": data, "layout": {"height": height, **layout}}


def _bars_height(rows: int) -> int:
    return 70 + ROW * max(rows, 2)


def _bars(labels: Sequence[str]) -> dict[str, Any]:
    """Return the axis of horizontal bars, the first on top. Labels may be alike when cut short."""
    places = list(range(len(labels)))
    return {
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [plain(short(label)) for label in labels],
        "autorange": "reversed",
        "showgrid": False,
        "automargin": True,
    }


def matrix_figure(matrix: Matrix) -> Figure:
    """Return a heat map: a row for each who sent, a column for each who got it."""
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
    return _figure(
        [
            {
                "type": "heatmap",
                "x": list(range(len(matrix.dests))),
                "y": list(range(len(matrix.origins))),
                # Colour by size of the number: next to one big flow the small ones stay visible.
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
        110 + 34 * max(len(matrix.origins), 3),
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
        yaxis={**_bars(matrix.origins), "zeroline": False},
    )


def _cell(frames: int | None, failed: int) -> str:
    """Return what stands in a cell: what flowed, or, if nothing did, what failed."""
    if frames is None:
        return ""
    return compact(frames or failed) + (" ▲" if failed else "")


def _fits(labels: Sequence[str]) -> bool:
    """Return whether labels have room beside each other, on a screen that is not small."""
    return len(labels) * max(map(len, labels), default=0) <= 110


def lines_figure(latency: Latency) -> Figure:
    """Return lines of the quantiles over the day; `meta` is the number of the destination."""
    data: list[Mapping[str, Any]] = []
    for number, line in enumerate(latency.lines):
        for name, colour, words in _QUANTILES:
            values: tuple[float, ...] = getattr(line, name)
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers" if len(values) < 60 else "lines",
                    "name": name,
                    "meta": number,
                    "visible": number == 0,
                    "x": [_time(each) for each in line.times],
                    "y": [value / 1000 for value in values],
                    "line": {"color": colour, "width": 2},
                    "marker": {"size": 6},
                    "customdata": [
                        [duration(value), amount(n)]
                        for value, n in zip(values, line.n, strict=True)
                    ],
                    "hovertemplate": f"{words} within <b>%{{customdata[0]}}</b>"
                    " of %{customdata[1]}<extra></extra>",
                }
            )
    return _figure(
        data,
        320,
        hovermode="x unified",
        showlegend=True,
        legend={"orientation": "h", "y": 1.12, "x": 0},
        xaxis=_times([each for line in latency.lines for each in line.times]),
        yaxis={"title": {"text": "ms"}, "rangemode": "tozero"},
    )


def ranges_figure(latency: Latency) -> Figure:
    """Return one row for each destination: from the median to the 99th percentile of the day."""
    lines = latency.lines
    data: list[Mapping[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [
                value for line in lines for value in (line.day[1] / 1000, line.day[3] / 1000, None)
            ],
            "y": [place for place in range(len(lines)) for _ in range(3)],
            "line": {"color": "$grid", "width": 6},
            "hoverinfo": "skip",
            "showlegend": False,
        }
    ]
    for index, (name, colour, words) in enumerate(_QUANTILES, start=1):
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [line.day[index] / 1000 for line in lines],
                "y": list(range(len(lines))),
                "marker": {"color": colour, "size": 11},
                "customdata": [_range_hover(line, index, words) for line in lines],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    return _figure(
        data,
        _bars_height(len(lines)) + 30,
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis={"type": "log", "title": {"text": "ms"}, "dtick": 1},
        yaxis=_bars([line.dest for line in lines]),
    )


def _range_hover(line: Line, index: int, words: str) -> str:
    return (
        f"{plain(line.dest)}<br>{words} of {amount(line.day[0])} within "
        f"<b>{duration(line.day[index])}</b>"
    )


def shards_figure(shards: Shards) -> Figure:
    """Return the load of each route; one line marks what each would have if all were even."""
    rows = shards.shards
    even = _even(shards)
    return _figure(
        [
            {
                "type": "bar",
                "orientation": "h",
                "x": [100 * row.share for row in rows],
                "y": list(range(len(rows))),
                "marker": {
                    "color": [
                        "$bad" if row.share > 1.5 * fair else "$accent"
                        for row, fair in zip(rows, even, strict=True)
                    ]
                },
                "customdata": [
                    f"{plain(row.tagset)}<br>{plain(row.route)}<br><b>{amount(row.frames)}</b> "
                    f"frames, {share(row.share, 1)} of them; an even part is {share(fair, 1)}"
                    for row, fair in zip(rows, even, strict=True)
                ],
                "text": [f" {compact(row.frames)}" for row in rows],
                "textposition": "auto",
                "hovertemplate": "%{customdata}<extra></extra>",
            },
            {
                "type": "scatter",
                "mode": "markers",
                "x": [100 * fair for fair in even],
                "y": list(range(len(rows))),
                "marker": {
                    "symbol": "line-ns-open",
                    "size": 18,
                    "color": "$ink",
                    "line": {"width": 2},
                },
                "hoverinfo": "skip",
            },
        ],
        _bars_height(len(rows)),
        bargap=0.35,
        xaxis={"title": {"text": "% of its tag set"}, "rangemode": "tozero"},
        yaxis=_bars([row.route for row in rows]),
    )


def _even(shards: Shards) -> list[float]:
    routes: dict[str, int] = {}
    for row in shards.shards:
        routes[row.tagset] = routes.get(row.tagset, 0) + 1
    return [1 / routes[row.tagset] for row in shards.shards]


def churn_figure(churn: Churn) -> Figure:
    """Return bars for each hour: up for who came, down for who went."""
    hours = [_time(each) for each in churn.hours]

    def bars(name: str, values: Sequence[int], colour: str, sign: int) -> Mapping[str, Any]:
        return {
            "type": "bar",
            "name": name,
            "x": hours,
            "y": [sign * value for value in values],
            "width": 3_000_000,  # 50 minutes, in milliseconds
            "marker": {"color": colour},
            "customdata": [amount(value) for value in values],
            "hovertemplate": f"<b>%{{customdata}}</b> {name}<extra></extra>",
        }

    return _figure(
        [
            bars("came", churn.ups, "$accent", 1),
            bars("went", churn.downs, "$soft", -1),
            {
                "type": "scatter",
                "mode": "markers",
                "name": "soon back (flaps)",
                "x": [hour for hour, flaps in zip(hours, churn.flaps, strict=True) if flaps],
                "y": [flaps for flaps in churn.flaps if flaps],
                "marker": {"color": "$bad", "size": 10, "symbol": "diamond"},
                "hovertemplate": "<b>%{y}</b> soon back<extra></extra>",
            },
        ],
        260,
        barmode="relative",
        hovermode="x unified",
        showlegend=True,
        legend={"orientation": "h", "y": 1.15, "x": 0},
        xaxis={"type": "date", "showgrid": False, "range": _whole_day(churn.hours)},
        yaxis={"title": {"text": "destinations"}},
    )


def _whole_day(moments: Sequence[datetime]) -> list[str]:
    if not moments:
        return []
    day = moments[0].strftime("%Y-%m-%d")
    return [f"{day} 00:00:00", f"{day} 23:59:59"]


def demand_figure(demand: Demand) -> Figure:
    """Return a bar for each tag set that nobody had."""
    rows = demand.rows
    return _figure(
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
        _bars_height(len(rows)),
        bargap=0.35,
        xaxis={"title": {"text": "requests"}, "rangemode": "tozero"},
        yaxis=_bars([row.tagset for row in rows]),
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
                    "x": [_time(each) for each in burn.times],
                    "y": list(values),
                    "line": {"color": colours[number % len(colours)], "dash": dash, "width": 2},
                    "hovertemplate": "<b>%{y:.2f}</b> \u00d7 the budget"
                    "<extra>%{fullData.name}</extra>",
                }
            )
    return _figure(
        data,
        300,
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="x unified",
        xaxis=_times([each for burn in burns for each in burn.times]),
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


def replay_figure(replay: Replay) -> Figure:
    """Return two bars for each route: what it has now, and what it would have."""
    rows = replay.routes
    labels = [row.route for row in rows]

    def bars(name: str, values: Sequence[int], colour: str) -> Mapping[str, Any]:
        return {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": list(values),
            "y": list(range(len(rows))),
            "marker": {"color": colour},
            "customdata": [
                f"{plain(label)}<br>{name}: <b>{amount(value)}</b> frames"
                for label, value in zip(labels, values, strict=True)
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        }

    return _figure(
        [
            bars("now", [row.frames_old for row in rows], "$soft"),
            bars("after the change", [row.frames_new for row in rows], "$accent"),
        ],
        _bars_height(len(rows)) + ROW * len(rows) // 2 + 20,
        barmode="group",
        bargap=0.3,
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis={"title": {"text": "frames"}, "rangemode": "tozero"},
        yaxis=_bars(labels),
    )
