"""The reports, and the tables of the lake that each is computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession, functions as sf

from ..transforms import (
    LOOK_AROUND,
    Objective,
    audit,
    hot_keys,
    latency_histogram,
    latency_quantiles,
    name_outcomes,
    path_anomalies,
    paths,
    relay_load,
    route_churn,
    shard_load,
    slo_burn,
    traffic_matrix,
    unroutable,
)

if TYPE_CHECKING:
    from ..ingest import Lake

__all__ = ["AUDIT_AHEAD", "AUDIT_DAYS", "EVENT_DAYS", "REPORTS", "Day", "bounds"]

EVENT_DAYS: Final = 30
"""Days before a report's day that are searched for the registration of destinations."""

AUDIT_DAYS: Final = 7
"""Days that the audit starts before its day, so that it knows the requests open at midnight."""

AUDIT_AHEAD: Final = timedelta(days=1)
"""Time after the end of the audit in which the outcomes of requests still open are looked up."""

_BURN: Final = timedelta(hours=6)
"""The longest window of an objective."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

SILENT_AFTER: Final = timedelta(days=1)
"""The lag behind the newest log after which a log has ended, as when days are closed."""

Tables: TypeAlias = dict[str, DataFrame]


def bounds(day: date) -> tuple[datetime, datetime]:
    """Return the beginning and the end of a day, UTC."""
    begin = datetime.combine(day, time(), UTC)
    return begin, begin + timedelta(days=1)


@dataclass(frozen=True)
class Day:
    """The tables of the lake around one day.

    Attributes:
        spark: The session.
        lake: The lake.
        day: The day, UTC.
        objectives: The objectives of the report `slo`.
    """

    spark: SparkSession
    lake: Lake
    day: date
    objectives: Sequence[Objective] = ()

    def table(self, name: str) -> DataFrame:
        """Return a table of the day."""
        return self.lake.table(self.spark, name, day=self.day)

    def before(self, name: str, earlier: timedelta) -> DataFrame:
        """Return a table of the day and of some time before."""
        begin, end = bounds(self.day)
        return self.lake.table(self.spark, name, since=begin - earlier, until=end)

    def around(self, name: str, earlier: timedelta, later: timedelta) -> DataFrame:
        """Return a table of the day and of some time before and after, as far as there is one."""
        begin, end = bounds(self.day)
        return self.lake.table(self.spark, name, since=begin - earlier, until=end + later)

    def known_until(self) -> datetime:
        """Return the time up to which the lake has every log, at most `LOOK_AROUND` after the day.

        A log that ends more than a day before the newest has ended, and is ignored.
        """
        end = bounds(self.day)[1] + LOOK_AROUND
        through = sf.unix_micros("sealed_through")
        logs = self.dimension("completeness").select(through.alias("through"))
        newest = logs.agg(sf.max("through").alias("newest"))
        live = sf.col("through") >= sf.col("newest") - SILENT_AFTER // timedelta(microseconds=1)
        row = logs.crossJoin(newest).filter(live).agg(sf.min("through").alias("through")).collect()
        known = row[0].through
        return end if known is None else min(end, _EPOCH + timedelta(microseconds=known))

    def going(self) -> DataFrame:
        """Return the brokers, as `broker`, with a run that continues after the day."""
        _, end = bounds(self.day)
        flows = self.around("flows", timedelta(0), AUDIT_AHEAD)
        is_after = sf.col("window_start") >= sf.lit(end)
        return (
            flows.groupBy("broker", "epoch")
            .agg(sf.bool_or(is_after).alias("after"), sf.bool_or(~is_after).alias("before"))
            .filter("after and before")
            .select("broker")
            .distinct()
        )

    def earlier(self) -> DataFrame:
        """Return the brokers, as `broker`, that may have had open requests before the audit.

        Their run began before the first flow that the audit of the day counts: it is longer than
        `AUDIT_DAYS`, or its first flows were dropped, or never ingested.
        """
        begin, _ = bounds(self.day)
        since = begin - timedelta(days=AUDIT_DAYS)
        for gone in self.lake.dropped_days():
            if gone < self.day:
                since = max(since, bounds(gone)[1])
        runs = (
            self.dimension("segments")
            .groupBy("broker", "epoch")
            .agg(
                sf.min("started").alias("began"),
                sf.max("ended").alias("ended"),
                sf.min("first_seq").alias("first"),
            )
        )
        was_there = (sf.col("began") < sf.lit(since)) | (sf.col("first") > 1)
        touches = sf.col("ended") >= sf.lit(since)
        return runs.filter(was_there & touches).select("broker").distinct()

    def dimension(self, name: str) -> DataFrame:
        """Return a table without days."""
        return self.lake.table(self.spark, name)

    def within(self, frame: DataFrame, column: str) -> DataFrame:
        """Return the rows of a report within the day."""
        begin, end = bounds(self.day)
        moment = sf.col(column)
        return frame.filter((moment >= sf.lit(begin)) & (moment < sf.lit(end)))


def _traffic(day: Day) -> Tables:
    return {"traffic_matrix": traffic_matrix(day.table("flows"))}


def _latency(day: Day) -> Tables:
    histogram = latency_histogram(day.table("hops"))
    return {"latency_hist": histogram, "latency_quantiles": latency_quantiles(histogram)}


def _shards(day: Day) -> Tables:
    return {"shard_load": shard_load(day.table("flows")), "hot_keys": hot_keys(day.table("hops"))}


def _churn(day: Day) -> Tables:
    events = day.before("route_events", timedelta(days=EVENT_DAYS))
    return {"route_churn": day.within(route_churn(events), "hour")}


def _unroutable(day: Day) -> Tables:
    events = day.before("route_events", timedelta(days=EVENT_DAYS))
    asked = unroutable(day.table("flows"), day.dimension("dim_tagset"), events)
    return {"unroutable": asked}


def _slo(day: Day) -> Tables:
    if not day.objectives:
        return {}
    burn = slo_burn(
        day.before("flows", _BURN),
        day.before("hops", _BURN),
        day.objectives,
        day.dimension("dim_tagset"),
    )
    return {"slo_burn": day.within(burn, "window_start")}


def _paths(day: Day) -> Tables:
    hops = day.around("hops", LOOK_AROUND, LOOK_AROUND)
    nodes, between = day.dimension("dim_node"), bounds(day.day)
    wrong = path_anomalies(hops, nodes=nodes, between=between, known_until=day.known_until())
    return {"paths": paths(hops, nodes=nodes, between=between), "path_anomalies": wrong}


def _names(day: Day) -> Tables:
    return {"name_outcomes": name_outcomes(day.table("flows"))}


def _relays(day: Day) -> Tables:
    return {"relay_load": relay_load(day.table("flows"))}


def _audit(day: Day) -> Tables:
    flows = day.around("flows", timedelta(days=AUDIT_DAYS), AUDIT_AHEAD)
    made = audit(flows, day.dimension("dim_node"), until=bounds(day.day)[1])
    return {"audit": day.within(made, "window_start")}


REPORTS: Final[Mapping[str, Callable[[Day], Tables]]] = MappingProxyType(
    {
        "traffic": _traffic,
        "latency": _latency,
        "shards": _shards,
        "churn": _churn,
        "unroutable": _unroutable,
        "slo": _slo,
        "paths": _paths,
        "names": _names,
        "relays": _relays,
        "audit": _audit,
    }
)
"""The reports by the names that `--only` accepts. Each returns its tables, by their names."""
