"""The coming and going of destinations."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window, functions as sf

from ...protocol.eventlog import EventName
from ._columns import hour_of, with_columns_of

__all__ = ["FLAP_SECONDS", "event_text", "route_churn"]

FLAP_SECONDS: Final = 60
"""A destination that comes back within this many seconds has flapped."""


def event_text(name: EventName) -> str:
    """Return an event's text in the column `event`."""
    return name.name.lower()


def route_churn(events: DataFrame, flap_seconds: float = FLAP_SECONDS) -> DataFrame:
    """Count for each destination and hour how often it came and went.

    A *flap* is a return within `flap_seconds` of the departure; it counts in the hour of the
    return. A life counts in the hour of its end. A broker that crashed could not write all events:
    a destination that comes twice in a row has no life in between.

    Args:
        events: The table `route_events`. Lives that began before it are not counted.
        flap_seconds: The longest absence of a flap.

    Returns:
        The report `route_churn`; `median_life_s` is null where no life has ended.
    """
    up, down = event_text(EventName.UP), event_text(EventName.DOWN)
    # The clock may be set; a broker's numbers keep their order.
    before = Window.partitionBy("broker", "route_id").orderBy("epoch", "seq")
    changes = (
        events.filter(sf.col("event").isin(up, down) & sf.col("route_id").isNotNull())
        .select("broker", "epoch", "seq", "ts", "event", "route_id", "node")
        .withColumn("event_before", sf.lag("event").over(before))
        .withColumn("ts_before", sf.lag("ts").over(before))
    )
    seconds = (sf.unix_micros("ts") - sf.unix_micros("ts_before")) / 1e6
    came, went = sf.col("event") == up, sf.col("event") == down
    flapped = (
        came
        & (sf.col("event_before") == down)
        & seconds.between(sf.lit(0.0), sf.lit(float(flap_seconds)))
    )
    lived = sf.when(went & (sf.col("event_before") == up) & (seconds >= 0), seconds)
    counted = changes.groupBy(hour_of("ts").alias("hour"), "node", "route_id").agg(
        sf.count_if(came).alias("ups"),
        sf.count_if(went).alias("downs"),
        sf.count_if(flapped).alias("flaps"),
        sf.median(lived).alias("median_life_s"),
    )
    return with_columns_of(counted, "route_churn")
