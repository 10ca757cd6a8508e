"""Service level objectives, and the rate at which their error budgets are used up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as sf

from ...protocol.eventlog import Kind, Outcome, name_id
from ._columns import is_asked, is_leg, is_name, is_outcome, is_relay, total_where, with_columns_of
from ._histogram import MAX_LATENCY_US, share_below
from ._latency import latency_histogram

__all__ = ["MAX_OBJECTIVES", "Objective", "slo_burn"]

MAX_OBJECTIVES: Final = 64
"""Most objectives of one call."""

_STEP: Final = 300
_WINDOWS: Final = (("burn_5m", 1), ("burn_1h", 12), ("burn_6h", 72))
_SERVICE: Final = "service"

_BAD: Final = (Outcome.UNROUTABLE, Outcome.REJECTED, Outcome.DROP, Outcome.FAILED)
"""Outcomes that are failures of a service. `INVALID` and `CANCELED` are the requester's."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A share of requests that has to succeed.

    Attributes:
        name: The name in the report.
        service: The service of the requests; `None` for all requests to brokers.
        latency_us: The longest latency of a success, in microseconds; `None` for no limit.
        target: The share, more than 0 and less than 1: 0.999.

    Raises:
        ValueError: The name or the service is empty, or a number is out of range.
    """

    name: str
    service: str | None = None
    latency_us: int | None = None
    target: float = 0.999

    def __post_init__(self) -> None:
        if not self.name or self.service == "":
            raise ValueError(f"{self} has an empty name: leave the service out to mean all")
        if not 0 < self.target < 1:
            raise ValueError(f"the target {self.target} has to be more than 0 and less than 1")
        if self.latency_us is not None and not 0 < self.latency_us <= MAX_LATENCY_US:
            raise ValueError(f"{self.latency_us} us has to be from 1 to {MAX_LATENCY_US}")


def slo_burn(
    flows: DataFrame,
    latencies: DataFrame,
    objectives: Sequence[Objective],
    tagsets: DataFrame | None = None,
) -> DataFrame:
    """Return for each five minutes how many requests succeeded, and the burn rates.

    A burn of 1 uses up the error budget exactly; one of 14 over an hour is an outage. Alert on a
    high burn over an hour *and* over five minutes: the first avoids false alarms, the second ends
    the alarm in time.

    The number of successes is counted; the share of them in time is estimated from the sample of
    the same five minutes. Without a sample all successes count as in time. The error of the share
    is a part of the bucket that the limit is in. The sample of all services lacks requests with a
    tag set that exceeded the log's limit: their share in time is taken to be that of the others.

    Args:
        flows: The table `flows`, from six hours before the first window of interest.
        latencies: The report `latency_hist`, or the table `hops`.
        objectives: At most `MAX_OBJECTIVES`, with different names.
        tagsets: The table `dim_tagset`. Without it a request without a destination counts for no
            service, and an outage of all its destinations does not show.

    Returns:
        The report `slo_burn`: a row for each objective and five minutes with requests.

    Raises:
        ValueError: There are no objectives, too many, or two with one name.
    """
    _check(objectives)
    histogram = latencies if "bucket" in latencies.columns else latency_histogram(latencies)
    counts = _counts(flows, objectives, tagsets).unionByName(
        _times(histogram, objectives, tagsets), allowMissingColumns=True
    )
    summed = counts.groupBy("window_start", "which").agg(
        *(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name) for name in _COUNTED)
    )
    delivered = sf.col("delivered")
    in_time = sf.when(sf.col("timed") > 0, sf.col("fast") / sf.col("timed")).otherwise(1.0)
    goods = summed.filter(sf.col("total") > 0).select(
        "window_start",
        "which",
        "total",
        sf.floor(delivered * in_time + 0.5).cast("bigint").alias("good"),
        sf.unix_seconds("window_start").alias("second"),
    )
    names = sf.array(*(sf.lit(objective.name) for objective in objectives))
    allowed = sf.array(*(sf.lit(1 - objective.target) for objective in objectives))
    told = goods.select(
        "window_start",
        sf.get(names, sf.col("which")).alias("objective"),
        "good",
        "total",
        *(_burn(steps, sf.get(allowed, sf.col("which"))).alias(name) for name, steps in _WINDOWS),
    )
    return with_columns_of(told, "slo_burn")


_COUNTED: Final = ("delivered", "total", "fast", "timed")


def _check(objectives: Sequence[Objective]) -> None:
    if not 1 <= len(objectives) <= MAX_OBJECTIVES:
        raise ValueError(f"{len(objectives)} objectives: there can be 1 to {MAX_OBJECTIVES}")
    names = [objective.name for objective in objectives]
    if len(set(names)) != len(names):
        raise ValueError(f"two objectives have one name: {', '.join(sorted(names))}")


def _burn(steps: int, allowed: Column) -> Column:
    since = -(steps - 1) * _STEP
    until_now = Window.partitionBy("which").orderBy("second").rangeBetween(since, 0)
    good, total = sf.sum("good").over(until_now), sf.sum("total").over(until_now)
    return (1 - good / total) / allowed


def _counts(
    flows: DataFrame, objectives: Sequence[Objective], tagsets: DataFrame | None
) -> DataFrame:
    """Return for each five minutes and objective the numbers of ended and successful requests."""
    ended = flows.filter(
        (sf.col("kind") != int(Kind.LINK))
        & ~is_name()
        & ~is_relay()
        & ~is_leg()
        & is_outcome(Outcome.DELIVER, *_BAD)
    ).withColumn("anybody", is_asked())
    return (
        _assigned(ended, objectives, tagsets)
        .groupBy(_five_minutes("window_start"), "which")
        .agg(
            total_where(is_outcome(Outcome.DELIVER), "frames").alias("delivered"),
            sf.sum("frames").alias("total"),
        )
    )


def _times(
    histogram: DataFrame, objectives: Sequence[Objective], tagsets: DataFrame | None
) -> DataFrame:
    """Return for each five minutes and objective with a limit the sample, and its part in time."""
    # Without messages to workers, which have no tag set and are no requests.
    requests = histogram.withColumn("anybody", sf.col("tagset_id") != 0)
    limits = sf.array(*(sf.lit(each.latency_us).cast("bigint") for each in objectives))
    limit = sf.get(limits, sf.col("which"))
    return (
        _assigned(requests, objectives, tagsets)
        .filter(limit.isNotNull())
        .groupBy(_five_minutes("minute"), "which")
        .agg(
            sf.sum(sf.col("n") * share_below(sf.col("bucket"), limit)).alias("fast"),
            sf.sum("n").alias("timed"),
        )
    )


def _five_minutes(column: str) -> Column:
    second = sf.unix_seconds(sf.col(column))
    return sf.timestamp_seconds(second - sf.pmod(second, sf.lit(_STEP))).alias("window_start")


def _assigned(
    frame: DataFrame, objectives: Sequence[Objective], tagsets: DataFrame | None
) -> DataFrame:
    """Repeat each row for each objective that it counts for, with its number in `which`."""
    services = sorted({each.service for each in objectives if each.service is not None})
    if tagsets is None or not services:
        asking = frame.withColumn("asked", sf.lit(None).cast("string"))
    else:
        named = tagsets.select("tagset_id", sf.col("tags")[_SERVICE].alias("asked"))
        few = named.filter(sf.col("asked").isin(*services))
        asking = frame.join(sf.broadcast(few), "tagset_id", "left")
    numbers = sf.array(
        *(sf.when(_counts_for(each), sf.lit(number)) for number, each in enumerate(objectives))
    )
    return asking.withColumn("which", sf.explode(sf.array_compact(numbers)))


def _counts_for(objective: Objective) -> Column:
    if objective.service is None:
        return sf.col("anybody")
    nobody_chosen = (sf.col("dest_node") == 0) & (sf.col("asked") == objective.service)
    return (sf.col("dest_node") == name_id(objective.service)) | nobody_chosen
