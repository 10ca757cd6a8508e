"""The plots of routes: their loads, their churn, and the effect of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ._page_routes import Churn, Replay, Shards
from ._plots import (
    LEGEND,
    ROW,
    Figure,
    axis_of_amounts,
    axis_of_bars,
    figure_of,
    height_of_bars,
    time_text,
)
from ._text import amount, compact, plain, share

__all__ = ["churn_figure", "replay_figure", "shards_figure"]


def shards_figure(shards: Shards) -> Figure:
    """Return the load of each route, with a line at the load of each if all were equal."""
    rows = shards.shards
    return figure_of(
        [
            {
                "type": "bar",
                "orientation": "h",
                "x": [100 * row.share for row in rows],
                "y": list(range(len(rows))),
                "marker": {
                    "color": ["$bad" if row.share > 1.5 * row.even else "$accent" for row in rows]
                },
                "customdata": [
                    f"{plain(row.tagset)}<br>{plain(row.route)}<br><b>{amount(row.frames)}</b> "
                    f"frames, {share(row.share, 1)} of them; an equal share is {share(row.even, 1)}"
                    for row in rows
                ],
                "text": [f" {compact(row.frames)}" for row in rows],
                "textposition": "auto",
                "hovertemplate": "%{customdata}<extra></extra>",
            },
            {
                "type": "scatter",
                "mode": "markers",
                "x": [100 * row.even for row in rows],
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
        height_of_bars(len(rows)),
        bargap=0.35,
        xaxis=axis_of_amounts("% of its tag set"),
        yaxis=axis_of_bars([row.route for row in rows]),
    )


def churn_figure(churn: Churn) -> Figure:
    """Return bars for each hour: up for destinations that came, down for those that went."""
    hours = [time_text(each) for each in churn.hours]

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

    return figure_of(
        [
            bars("registered", churn.ups, "$accent", 1),
            bars("left", churn.downs, "$soft", -1),
            {
                "type": "scatter",
                "mode": "markers",
                "name": "flaps",
                "x": [hour for hour, flaps in zip(hours, churn.flaps, strict=True) if flaps],
                "y": [flaps for flaps in churn.flaps if flaps],
                "marker": {"color": "$bad", "size": 10, "symbol": "diamond"},
                "hovertemplate": "<b>%{y}</b> flaps<extra></extra>",
            },
        ],
        260,
        barmode="relative",
        hovermode="x unified",
        showlegend=True,
        legend=LEGEND,
        xaxis={"type": "date", "showgrid": False, "range": _whole_day(churn.hours)},
        yaxis={"title": {"text": "destinations"}},
    )


def _whole_day(moments: Sequence[datetime]) -> list[str]:
    if not moments:
        return []
    # The bar of an hour is centred on its beginning.
    first = moments[0].replace(hour=0, minute=0, second=0) - timedelta(minutes=30)
    return [time_text(first), time_text(first + timedelta(days=1))]


def replay_figure(replay: Replay) -> Figure:
    """Return two bars for each route: its current load, and its load after the change."""
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

    return figure_of(
        [
            bars("now", [row.frames_old for row in rows], "$soft"),
            bars("after the change", [row.frames_new for row in rows], "$accent"),
        ],
        height_of_bars(len(rows)) + ROW * len(rows) // 2 + 20,
        barmode="group",
        bargap=0.3,
        showlegend=True,
        legend=LEGEND,
        xaxis=axis_of_amounts("frames"),
        yaxis=axis_of_bars(labels),
    )
