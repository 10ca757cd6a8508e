"""The traffic matrix: counts of all messages between services, not of a sample."""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as sf

from ...protocol.eventlog import Kind, Outcome
from ._columns import (
    FAILED,
    is_leg,
    is_name,
    is_outcome,
    is_relay,
    minute_of,
    total_where,
    with_columns_of,
)

__all__ = ["traffic_matrix"]


def traffic_matrix(flows: DataFrame) -> DataFrame:
    """Count the frames from one service to another, for each minute and tag set.

    `frames` and `bytes` count copies sent to destinations of a broker, and messages handled by a
    worker. `failed` counts requests that were unroutable, rejected, invalid, dropped or failed; if
    no destination had been chosen, their `dest_node` is 0. Traffic over links is in the audit, not
    here, and so are requests that another broker has forwarded: here they are counted there.
    Messages to names are in the report `name_outcomes`; their workers are destinations here. What
    relays of identities pass on is in `relay_load`.

    Args:
        flows: The table `flows`. A window counts in the minute it began in.

    Returns:
        The report `traffic_matrix`.
    """
    # Messages to workers have no tag set; a message to a tag query was forwarded before.
    handled = (
        (sf.col("kind") == int(Kind.MESSAGE))
        & (sf.col("tagset_id") == 0)
        & is_outcome(Outcome.DELIVER)
    )
    moved = is_outcome(Outcome.FORWARD) | handled
    failed = is_outcome(*FAILED)
    counted = (
        flows.filter(
            (sf.col("kind") != int(Kind.LINK))
            & ~is_name()
            & ~is_relay()
            & ~is_leg()
            & (moved | failed)
        )
        .groupBy(minute_of("window_start").alias("minute"), "origin_node", "dest_node", "tagset_id")
        .agg(
            total_where(moved, "frames").alias("frames"),
            total_where(moved, "bytes").alias("bytes"),
            total_where(failed, "frames").alias("failed"),
        )
        .filter((sf.col("frames") > 0) | (sf.col("failed") > 0))
    )
    return with_columns_of(counted, "traffic_matrix")
