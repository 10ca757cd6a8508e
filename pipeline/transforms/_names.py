"""Messages to names: what came of them by name, and what consumers did with their copies."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, functions as sf

from ...protocol.eventlog import Kind, Outcome
from ._columns import hour_of, is_name, is_outcome, total_where, with_columns_of

__all__ = ["name_outcomes"]

_COLUMNS: Final = {
    "received": Outcome.RECEIVED,
    "accepted": Outcome.DELIVER,
    "settled": Outcome.SETTLED,
    "rejected": Outcome.FAILED,
    "released": Outcome.RELEASED,
    "modified": Outcome.MODIFIED,
    "dropped": Outcome.DROP,
    "canceled": Outcome.CANCELED,
    "held": Outcome.HOLD,
    "redirected": Outcome.REDIRECT,
}


def name_outcomes(flows: DataFrame) -> DataFrame:
    """Count messages to names by their outcomes, for each hour.

    A row without a receiver has the messages that entered the network under the name, each once
    with its one outcome; `held` and `redirected` are in between, and say how often. What comes out
    of a file of messages on hold entered before, and is not counted again: one that was accepted at
    once is `accepted`, and another one `canceled`, whatever comes of it later. A row with a
    consumer has the copies that it was handed, which have no `received`. A row with the route of a
    redirect has nothing but the number of messages that went there.

    Args:
        flows: The table `flows`. A window counts in the hour it began in.

    Returns:
        The report `name_outcomes`.
    """
    counted = (
        flows.filter(is_name(Kind.NAME, Kind.NAME_COPY))
        .groupBy(
            hour_of("window_start").alias("hour"),
            sf.col("origin_node").alias("name_node"),
            "dest_node",
        )
        .agg(
            *(
                total_where(is_outcome(outcome), "frames").alias(column)
                for column, outcome in _COLUMNS.items()
            )
        )
    )
    return with_columns_of(counted, "name_outcomes")
