"""The collection of the page from the tables of a day: the top rows of each, the rest counted.

The constants below bound the collected rows, however large the day is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final

from pyspark.sql import DataFrame, functions as sf

from ...protocol.eventlog import Kind, Outcome
from .._schema import FROM_DISPATCHERS, FROM_HOLD, FROM_PEERS
from ._collect_names import outcomes_of
from ._collect_relays import load_of
from ._collect_routes import anomalies_of, burns_of, churn_of, demand_of, replay_of, shards_of
from ._names import Names
from ._page import LogCompleteness, Page, Totals
from ._page_audit import Audit, AuditRow, Hole
from ._page_requests import Latency, LatencyLine, Matrix
from ._page_routes import Replay
from ._text import utc

__all__ = [
    "MAX_DESTINATIONS",
    "MAX_LOGS",
    "MAX_POINTS",
    "MAX_SIDE",
    "Sources",
    "collect_audit",
    "collect_page",
]

MAX_SIDE: Final = 16
"""Rows, and columns, of the traffic matrix."""

MAX_DESTINATIONS: Final = 12
"""Destinations with a latency plot."""

MAX_POINTS: Final = 300
"""Points of a line over the day; minutes are merged until it has no more."""

MAX_LOGS: Final = 20
"""Logs, and rows of the audit, that are listed."""

_INTERVALS: Final = (1, 5, 15, 30, 60)


@dataclass(frozen=True, slots=True)
class Sources:
    """The tables and functions that the page is collected with.

    Attributes:
        day: The day, UTC.
        reports: The tables of reports, by name. Sections without a table are left out.
        flows: The table `flows` of the day.
        completeness: The table `completeness`.
        late: The table `late`.
        closed: Whether all of the day is in the lake.
        names: The names of ids.
        quantiles: `transforms.latency_quantiles`.
        audit_totals: `transforms.audit_totals`.
        holes: `transforms.log_holes` of the day.
        going: The brokers, as `broker`, with runs that continue after the day.
        earlier: The brokers, as `broker`, with runs that began before the audit.
        rehearsed: The description of the rehearsal.
    """

    day: date
    reports: Mapping[str, DataFrame]
    flows: DataFrame
    completeness: DataFrame
    late: DataFrame
    closed: bool
    names: Names
    quantiles: Callable[[DataFrame], DataFrame]
    audit_totals: Callable[[DataFrame], DataFrame]
    holes: DataFrame
    going: DataFrame
    earlier: DataFrame
    rehearsed: str = ""


Part = Callable[[str], AbstractContextManager[Any]]
"""A context manager around the collection of each part, which reports progress."""


def collect_page(sources: Sources, part: Part = nullcontext) -> Page:
    """Return the page of a day.

    Args:
        sources: The tables of the day.
        part: Called with the name of each part; returns the context manager of its collection.
    """
    made, names = sources.reports, sources.names
    with part("logs"):
        brokers, more_brokers = _brokers(sources.completeness)
        late = sources.late.filter(sf.col("day") == sf.lit(sources.day)).count()
    with part("totals"):
        totals = _totals(sources.flows)
    page = Page(
        day=sources.day,
        brokers=brokers,
        more_brokers=more_brokers,
        closed=sources.closed,
        totals=totals,
        late=late,
    )
    parts: dict[str, tuple[str, Callable[[], Any]]] = {
        "audit": ("audit", lambda: _audit(sources)),
        "matrix": ("traffic_matrix", lambda: _matrix(_asked(made["traffic_matrix"]), names)),
        "latency": ("latency_hist", lambda: _latency(sources)),
        "shards": ("shard_load", lambda: shards_of(made["shard_load"], made["hot_keys"], names)),
        "churn": ("route_churn", lambda: churn_of(made["route_churn"], names)),
        "demand": ("unroutable", lambda: demand_of(made["unroutable"], names)),
        "burns": ("slo_burn", lambda: burns_of(made["slo_burn"], MAX_POINTS)),
        "paths": ("paths", lambda: anomalies_of(made["paths"], made["path_anomalies"], names)),
        "names": ("name_outcomes", lambda: outcomes_of(made["name_outcomes"], names)),
        "relays": ("relay_load", lambda: load_of(made["relay_load"], names)),
        "replay": ("replay_summary", lambda: _replay(sources)),
    }
    for field, (report, collect) in parts.items():
        if report in made:
            with part(field):
                page = replace(page, **{field: collect()})
    return page


def _audit(sources: Sources) -> Audit:
    totals = sources.audit_totals(sources.reports["audit"])
    going = sources.going if sources.closed else totals.select(sf.col("src").alias("broker"))
    return collect_audit(totals, sources.holes, going, sources.earlier)


def _replay(sources: Sources) -> Replay:
    made = sources.reports
    collected = replay_of(made["replay_summary"], made["replay_routes"], sources.names)
    return replace(collected, about=sources.rehearsed)


def _asked(report: DataFrame) -> DataFrame:
    """Return the rows of requests at brokers. Messages between workers have no tags.

    Requests without tags in the log are left out too: `Totals.untagged` counts them.
    """
    return report.filter(sf.col("tagset_id") != 0)


def _brokers(table: DataFrame) -> tuple[tuple[LogCompleteness, ...], int]:
    rows = table.orderBy(sf.desc("missing"), "broker").limit(MAX_LOGS).collect()
    count = len(rows) if len(rows) < MAX_LOGS else table.count()
    brokers = tuple(
        LogCompleteness(
            row.broker,
            row.sealed_through and utc(row.sealed_through),
            row.segments or 0,
            row.events or 0,
            row.missing or 0,
        )
        for row in rows
    )
    return brokers, count - len(rows)


def _totals(flows: DataFrame) -> Totals:
    asked = sf.col("kind").between(int(Kind.RESPONSE), int(Kind.PUSH)) | (
        (sf.col("kind") == int(Kind.MESSAGE)) & (sf.col("tagset_id") != 0)
    )
    rows = (
        flows.filter(asked)
        .groupBy("outcome")
        .agg(
            sf.sum("frames").alias("frames"),
            sf.sum("bytes").alias("bytes"),
            sf.sum(sf.when(sf.col("tagset_id") == 0, sf.col("frames"))).alias("untagged"),
        )
        .collect()
    )
    frames = {row.outcome: row.frames for row in rows}
    octets = {row.outcome: row.bytes for row in rows}
    untagged = sum(row.untagged or 0 for row in rows if row.outcome == int(Outcome.RECEIVED))

    def total(*outcomes: Outcome) -> int:
        return sum(frames.get(int(outcome), 0) for outcome in outcomes)

    return Totals(
        requests=total(Outcome.RECEIVED),
        delivered=total(Outcome.DELIVER),
        unroutable=total(Outcome.UNROUTABLE),
        rejected=total(Outcome.REJECTED, Outcome.INVALID),
        failed=total(Outcome.FAILED, Outcome.DROP),
        canceled=total(Outcome.CANCELED),
        bytes=octets.get(int(Outcome.RECEIVED), 0),
        untagged=untagged,
    )


def _matrix(matrix: DataFrame, names: Names) -> Matrix:
    pairs = matrix.groupBy("origin_node", "dest_node").agg(
        sf.sum("frames").alias("frames"),
        sf.sum("bytes").alias("bytes"),
        sf.sum("failed").alias("failed"),
    )
    origins, dests = _largest(pairs, "origin_node"), _largest(pairs, "dest_node")
    shown = sf.col("origin_node").isin(origins) & sf.col("dest_node").isin(dests)
    rows = {(row.origin_node, row.dest_node): row for row in pairs.filter(shown).collect()}
    hidden = pairs.filter(~shown).agg(
        sf.count("*").alias("pairs"), sf.sum("frames").alias("frames")
    )
    others = hidden.collect()[0]
    name = names.nodes({*origins, *dests})

    def cells(value: Callable[[Any], Any], empty: Any) -> tuple[tuple[Any, ...], ...]:
        return tuple(
            tuple(value(rows[origin, dest]) if (origin, dest) in rows else empty for dest in dests)
            for origin in origins
        )

    return Matrix(
        tuple("(unknown)" if each == 0 else name[each] for each in origins),
        tuple(name[each] for each in dests),
        cells(lambda row: row.frames, None),
        cells(lambda row: row.failed, 0),
        cells(lambda row: row.bytes, 0),
        others.pairs,
        others.frames or 0,
    )


def _largest(pairs: DataFrame, column: str) -> list[int]:
    load = sf.sum(sf.col("frames") + sf.col("failed")).alias("load")
    rows = (
        pairs.groupBy(column).agg(load).orderBy(sf.desc("load"), column).limit(MAX_SIDE).collect()
    )
    return [row[0] for row in rows]


def _latency(sources: Sources) -> Latency:
    histogram = _asked(sources.reports["latency_hist"])
    busiest = (
        histogram.groupBy("dest_node")
        .agg(sf.sum("n").alias("n"))
        .orderBy(sf.desc("n"), "dest_node")
        .limit(MAX_DESTINATIONS + 1)
        .collect()
    )
    dests = [row.dest_node for row in busiest[:MAX_DESTINATIONS]]
    if not dests:
        return Latency((), 1)
    more = 0
    if len(busiest) > MAX_DESTINATIONS:
        more = histogram.select("dest_node").distinct().count() - len(dests)
    drawn = histogram.filter(sf.col("dest_node").isin(dests))
    ends = drawn.agg(sf.min("minute").alias("first"), sf.max("minute").alias("last")).collect()[0]
    interval = _interval((ends.last - ends.first).total_seconds() / 60)
    start = sf.timestamp_seconds(
        sf.floor(sf.unix_seconds("minute") / (interval * 60)) * (interval * 60)
    )
    over_time = _quantiles(sources, drawn, start)
    all_day = _quantiles(sources, drawn, sf.lit(ends.first))
    day = {row.dest_node: row for row in all_day}
    name = sources.names.nodes(dests, none="(to several)")
    return Latency(
        tuple(
            _line(name[dest], day[dest], [row for row in over_time if row.dest_node == dest])
            for dest in dests
            if dest in day
        ),
        interval,
        more,
    )


def _interval(minutes: float) -> int:
    return next((each for each in _INTERVALS if minutes / each <= MAX_POINTS), _INTERVALS[-1])


def _quantiles(sources: Sources, histogram: DataFrame, start: Any) -> list[Any]:
    merged = (
        histogram.withColumn("minute", start)
        .groupBy("minute", "dest_node", sf.lit(0).cast("bigint").alias("tagset_id"), "bucket")
        .agg(sf.sum("n").alias("n"))
    )
    return list(sources.quantiles(merged).orderBy("dest_node", "minute").collect())


def _line(dest: str, day: Any, rows: list[Any]) -> LatencyLine:
    return LatencyLine(
        dest,
        tuple(utc(row.minute) for row in rows),
        tuple(row.n for row in rows),
        tuple(row.p50_us for row in rows),
        tuple(row.p95_us for row in rows),
        tuple(row.p99_us for row in rows),
        (day.n, day.p50_us, day.p95_us, day.p99_us),
    )


def collect_audit(
    totals: DataFrame,
    holes: DataFrame | None = None,
    going: DataFrame | None = None,
    earlier: DataFrame | None = None,
) -> Audit:
    """Return the audit; brokers and links out of balance come first.

    Args:
        totals: The result of `transforms.audit_totals`.
        holes: The result of `transforms.log_holes`.
        going: The brokers, as `broker`, with runs that continue: missing requests may be open.
        earlier: The brokers, as `broker`, with runs that began before the audit: duplicated
            requests may have been open at its start.
    """
    marked = _told(_marked(_marked(totals, "going", going), "earlier", earlier))
    sums = marked.agg(
        sf.count("*").alias("rows"),
        sf.sum("missing").alias("missing"),
        sf.sum("duplicated").alias("duplicated"),
        sf.sum(sf.when(sf.col("going"), sf.col("missing")).otherwise(0)).alias("open"),
        sf.sum(sf.when(sf.col("earlier"), sf.col("duplicated")).otherwise(0)).alias("before"),
        sf.sum("untold").alias("untold"),
    ).collect()[0]
    wrong = sf.abs("missing") + sf.abs("duplicated") + sf.col("untold")
    rows = marked.orderBy(sf.desc(wrong), "dst", "src").limit(MAX_LOGS).collect()
    audit = Audit(
        tuple(
            AuditRow(
                row.src,
                row.dst or "",
                row.sent,
                row.received,
                row.delivered or 0,
                row.dropped or 0,
                row.unroutable or 0,
                row.missing or 0,
                row.duplicated or 0,
                row.going,
                row.earlier,
                row.untold > 0,
            )
            for row in rows
        ),
        sums.rows - len(rows),
        sums.missing or 0,
        sums.duplicated or 0,
        sums.open or 0,
        sums.before or 0,
        untold=sums.untold or 0,
    )
    return audit if holes is None else _with_holes(audit, holes)


def _told(totals: DataFrame) -> DataFrame:
    """Add the column `untold`: the requests of brokers with a log of outcomes only.

    Such a log does not show which requests ended twice: all would count as duplicated.
    """
    is_untold = (
        sf.coalesce("dst", sf.lit("")).isin("", FROM_PEERS, FROM_DISPATCHERS, FROM_HOLD)
        & (sf.col("sent") == 0)
        & (sf.col("duplicated") > 0)
        & ~sf.col("earlier")
    )
    return totals.withColumn(
        "untold", sf.when(is_untold, sf.col("duplicated")).otherwise(0)
    ).withColumn("duplicated", sf.when(is_untold, 0).otherwise(sf.col("duplicated")))


def _marked(totals: DataFrame, name: str, brokers: DataFrame | None) -> DataFrame:
    """Add a column that marks the rows of some brokers."""
    if brokers is None:
        return totals.withColumn(name, sf.lit(False))
    known = brokers.select(sf.col("broker").alias("src")).distinct().withColumn(name, sf.lit(True))
    return totals.join(known, "src", "left").withColumn(name, sf.coalesce(name, sf.lit(False)))


def _with_holes(audit: Audit, holes: DataFrame) -> Audit:
    sums = holes.agg(
        sf.count("*").alias("rows"),
        sf.sum("absent").alias("absent"),
        sf.sum("unrecorded").alias("unrecorded"),
    ).collect()[0]
    worst = holes.orderBy(sf.desc(sf.col("absent") + sf.col("unrecorded")), "log").limit(MAX_LOGS)
    rows = worst.collect() if sums.rows else []
    return replace(
        audit,
        holes=tuple(
            Hole(row.log, row.absent, row.unrecorded, tuple(row.reasons or ())) for row in rows
        ),
        more_holes=sums.rows - len(rows),
        absent=sums.absent or 0,
        unrecorded=sums.unrecorded or 0,
    )
