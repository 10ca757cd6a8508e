"""What relays of identities pass on, and what they refuse."""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as sf

from ...protocol.eventlog import Outcome
from ._columns import hour_of, is_outcome, is_relay, total_where, with_columns_of

__all__ = ["relay_load"]


def relay_load(flows: DataFrame) -> DataFrame:
    """Count the messages and bytes that each relay passed on, and those that it refused.

    A row has what went from one node to another, for each hour. A row without an origin has what
    the relay refused with one status, which stands in place of the receiver; or, of a relay in the
    anonymous profile, what went to one node.

    Args:
        flows: The table `flows`. A window counts in the hour it began in.

    Returns:
        The report `relay_load`.
    """
    counted = (
        flows.filter(is_relay() & is_outcome(Outcome.FORWARD, Outcome.REJECTED))
        .groupBy(
            hour_of("window_start").alias("hour"),
            sf.col("broker").alias("relay"),
            "origin_node",
            "dest_node",
        )
        .agg(
            total_where(is_outcome(Outcome.FORWARD), "frames").alias("relayed"),
            total_where(is_outcome(Outcome.FORWARD), "bytes").alias("bytes"),
            total_where(is_outcome(Outcome.REJECTED), "frames").alias("refused"),
        )
    )
    return with_columns_of(counted, "relay_load")
