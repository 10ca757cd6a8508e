"""The collection of sections about routes: shards, churn, demand, objectives, paths, rehearsals."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame, functions as sf

from ._names import Names
from ._page_requests import Burn, Demand, DemandRow
from ._page_routes import (
    Anomalies,
    AnomalyRow,
    Churn,
    ChurnRow,
    HotKey,
    PathRow,
    Replay,
    ReplayRoute,
    ReplayRow,
    Shard,
    Shards,
)
from ._text import utc

__all__ = [
    "MAX_BARS",
    "MAX_OBJECTIVES",
    "MAX_ROWS",
    "anomalies_of",
    "burns_of",
    "churn_of",
    "demand_of",
    "replay_of",
    "shards_of",
]

MAX_ROWS: Final = 12
"""Rows of a table in the page."""

MAX_BARS: Final = 16
"""Bars of a plot in the page."""

MAX_OBJECTIVES: Final = 20
"""Objectives in the page."""


def shards_of(load: DataFrame, keys: DataFrame, names: Names) -> Shards:
    """Return the shards of the day, for tag sets with shard routing."""
    by_route = (
        load.join(sf.broadcast(names.of_routing("shard")), "tagset_id")
        .groupBy("tagset_id", "route_id")
        .agg(sf.sum("frames").alias("frames"))
    )
    sizes = by_route.groupBy("tagset_id").agg(
        sf.sum("frames").alias("total"),
        sf.max("frames").alias("most"),
        sf.avg("frames").alias("mean"),
        sf.count("*").alias("routes"),
    )
    largest = sizes.orderBy(sf.desc("total"), "tagset_id").limit(MAX_BARS).collect()
    of_tagset = {row.tagset_id: row for row in largest}
    wanted = by_route.filter(sf.col("tagset_id").isin(list(of_tagset)))
    rows = wanted.orderBy(sf.desc("frames"), "route_id").limit(MAX_BARS).collect()
    rows.sort(key=lambda row: (-of_tagset[row.tagset_id].total, row.tagset_id, -row.frames))
    more = by_route.count() - len(rows) if len(rows) == MAX_BARS else 0
    hot = (
        keys.groupBy("tagset_id", "shard_hash")
        .agg(sf.sum("frames").alias("frames"), sf.max("share").alias("share"))
        .orderBy(sf.desc("frames"), "shard_hash")
        .limit(MAX_ROWS)
        .collect()
    )
    asked = names.tagsets({row.tagset_id for row in (*rows, *hot)})
    route = names.routes({row.route_id for row in rows})
    return Shards(
        tuple(
            Shard(
                asked[row.tagset_id],
                route[row.route_id],
                row.frames,
                row.frames / of_tagset[row.tagset_id].total,
                of_tagset[row.tagset_id].most / of_tagset[row.tagset_id].mean,
                1 / of_tagset[row.tagset_id].routes,
            )
            for row in rows
        ),
        tuple(
            HotKey(asked[row.tagset_id], _hexadecimal(row.shard_hash), row.frames, row.share)
            for row in hot
        ),
        more,
    )


def churn_of(churn: DataFrame, names: Names) -> Churn:
    """Return the destinations that came and went."""
    sums = [sf.sum(name).cast("bigint").alias(name) for name in ("ups", "downs", "flaps")]
    hours = churn.groupBy("hour").agg(*sums).orderBy("hour").collect()
    life = sf.max("median_life_s").alias("life")
    by_route = churn.groupBy("node", "route_id").agg(*sums, life)
    ranked = by_route.orderBy(sf.desc("flaps"), sf.desc("downs"), sf.desc("ups"), "route_id")
    rows = ranked.limit(MAX_ROWS).collect()
    more = by_route.count() - len(rows) if len(rows) == MAX_ROWS else 0
    service = names.nodes({row.node for row in rows}, none="")
    route = names.routes({row.route_id for row in rows})
    return Churn(
        tuple(utc(row.hour) for row in hours),
        tuple(row.ups for row in hours),
        tuple(row.downs for row in hours),
        tuple(row.flaps for row in hours),
        tuple(
            ChurnRow(
                service[row.node], route[row.route_id], row.ups, row.downs, row.flaps, row.life
            )
            for row in rows
        ),
        more,
    )


def demand_of(unroutable: DataFrame, names: Names) -> Demand:
    """Return the tag sets of unroutable requests."""
    by_tagset = unroutable.groupBy("tagset_id").agg(
        sf.sum("frames").alias("frames"),
        sf.min("first_ts").alias("first"),
        sf.max("last_ts").alias("last"),
        sf.max_by("nearest", sf.coalesce(sf.size("nearest"), sf.lit(-1))).alias("nearest"),
    )
    rows = by_tagset.orderBy(sf.desc("frames"), "tagset_id").limit(MAX_ROWS).collect()
    more, more_frames = 0, 0
    if len(rows) == MAX_ROWS:
        all_of = by_tagset.agg(sf.count("*").alias("n"), sf.sum("frames").alias("frames")).collect()
        more = all_of[0].n - len(rows)
        more_frames = all_of[0].frames - sum(row.frames for row in rows)
    asked = names.tagsets({row.tagset_id for row in rows})
    return Demand(
        tuple(
            DemandRow(
                asked[row.tagset_id],
                row.frames,
                utc(row.first),
                utc(row.last),
                _tags_text(row.nearest),
            )
            for row in rows
        ),
        more,
        more_frames,
    )


def burns_of(burn: DataFrame, points: int) -> tuple[Burn, ...]:
    """Return the objectives; merged windows have the worst burn rate of their parts."""
    sums = (
        burn.groupBy("objective")
        .agg(sf.sum("good").alias("good"), sf.sum("total").alias("total"))
        .orderBy("objective")
        .limit(MAX_OBJECTIVES)
        .collect()
    )
    if not sums:
        return ()
    wanted = burn.filter(sf.col("objective").isin([row.objective for row in sums]))
    ends = wanted.agg(
        sf.min(sf.unix_seconds("window_start")).alias("first"),
        sf.max(sf.unix_seconds("window_start")).alias("last"),
    ).collect()[0]
    step = max(60, -(-(ends.last - ends.first) // points))
    start = sf.timestamp_seconds(sf.floor(sf.unix_seconds("window_start") / step) * step)
    rates = ("burn_5m", "burn_1h", "burn_6h")
    rows = (
        wanted.groupBy("objective", start.alias("start"))
        .agg(*(sf.max(name).alias(name) for name in rates))
        .orderBy("start")
        .collect()
    )
    return tuple(
        _burn(row, [each for each in rows if each.objective == row.objective]) for row in sums
    )


def _burn(sums: Any, rows: list[Any]) -> Burn:
    times: tuple[datetime, ...] = tuple(utc(row.start) for row in rows)
    return Burn(
        sums.objective,
        sums.good or 0,
        sums.total or 0,
        times,
        tuple(row.burn_5m for row in rows),
        tuple(row.burn_1h for row in rows),
        tuple(row.burn_6h for row in rows),
    )


def anomalies_of(paths: DataFrame, anomalies: DataFrame, names: Names) -> Anomalies:
    """Return the anomalies, grouped by kind and path, and the most frequent paths."""
    alike = anomalies.groupBy("kind", "path").agg(
        sf.count("*").alias("traces"), sf.min("trace_id").alias("example")
    )
    # An asymmetric return route is seldom an error: loops and losses come first.
    urgency = sf.when(sf.col("kind") == "return_asymmetry", 1).otherwise(0)
    wrong = alike.orderBy(urgency, sf.desc("traces"), "kind", "path").limit(MAX_ROWS).collect()
    taken = paths.orderBy(sf.desc("traces"), "path").limit(MAX_ROWS).collect()
    more = alike.count() - len(wrong) if len(wrong) == MAX_ROWS else 0
    more_paths = paths.count() - len(taken) if len(taken) == MAX_ROWS else 0
    name = names.nodes({step for row in (*wrong, *taken) for step in row.path or ()})
    return Anomalies(
        tuple(
            AnomalyRow(row.kind, _named(row.path, name), row.traces, _hexadecimal(row.example))
            for row in wrong
        ),
        tuple(PathRow(_named(row.path, name), row.traces, row.p95_us) for row in taken),
        more,
        more_paths,
    )


def replay_of(summary: DataFrame, routes: DataFrame, names: Names) -> Replay:
    """Return the effect of a change."""
    sums = summary.agg(
        sf.count("*").alias("n"),
        *(sf.sum(name).alias(name) for name in ("frames", "moved", "lost", "gained")),
    ).collect()[0]
    worst = summary.orderBy(sf.desc("lost"), sf.desc("moved"), sf.desc("gained"), "tagset_id")
    rows = worst.limit(MAX_ROWS).collect()
    change = sf.abs(sf.col("frames_new") - sf.col("frames_old"))
    most = routes.orderBy(sf.desc(change), sf.desc("frames_old"), "route_id").limit(MAX_BARS)
    bars = most.collect()
    more_routes = routes.count() - len(bars) if len(bars) == MAX_BARS else 0
    asked = names.tagsets({row.tagset_id for row in rows})
    route = names.routes({row.route_id for row in bars})
    return Replay(
        tuple(
            ReplayRow(
                asked[row.tagset_id],
                row.frames,
                row.moved,
                row.lost,
                row.gained,
                row.skew_old or 0.0,
                row.skew_new or 0.0,
            )
            for row in rows
        ),
        tuple(ReplayRoute(route[row.route_id], row.frames_old, row.frames_new) for row in bars),
        sums.frames or 0,
        sums.moved or 0,
        sums.lost or 0,
        sums.gained or 0,
        sums.n - len(rows),
        more_routes,
    )


def _named(path: list[int] | None, name: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(name[step] for step in path or ())


def _tags_text(tags: Mapping[str, str] | None) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted((tags or {}).items()))


def _hexadecimal(number: int) -> str:
    return f"{number & 0xFFFF_FFFF_FFFF_FFFF:016x}"
