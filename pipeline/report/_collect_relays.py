"""The collection of the section on relays of identities."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, functions as sf

from ._names import Names
from ._page_relays import RelayLoad, RelayRow, RelayTotal

__all__ = ["MAX_RELAYS", "MAX_RELAY_ROWS", "load_of"]

MAX_RELAYS: Final = 20
"""Relays in the page."""

MAX_RELAY_ROWS: Final = 40
"""Rows of the nodes next to relays, and of what was refused, in the page."""

_COUNTS: Final = ("relayed", "bytes", "refused")


def load_of(report: DataFrame, names: Names) -> RelayLoad:
    """Return the load of the relays of the day, and between which nodes it was."""
    sums = [sf.sum(column).alias(column) for column in _COUNTS]
    hours = report.groupBy("relay", "hour").agg(*sums)
    busiest = sf.max("relayed").alias("busiest")
    relays = hours.groupBy("relay").agg(*sums, busiest)
    first = (sf.desc("relayed"), sf.desc("refused"), "relay")
    shown = relays.orderBy(*first).limit(MAX_RELAYS).collect()
    total = report.groupBy("relay", "origin_node", "dest_node").agg(*sums)
    rows = total.orderBy(*first, "origin_node", "dest_node").limit(MAX_RELAY_ROWS).collect()
    known = names.nodes(
        {each for row in rows for each in (row.origin_node, row.dest_node)}, none=""
    )
    return RelayLoad(
        tuple(
            RelayTotal(row.relay, row.relayed, row.bytes, row.refused, row.busiest) for row in shown
        ),
        tuple(
            RelayRow(
                row.relay,
                known[row.origin_node],
                known[row.dest_node],
                row.relayed,
                row.bytes,
                row.refused,
            )
            for row in rows
        ),
        relays.count() - len(shown) if len(shown) == MAX_RELAYS else 0,
        total.count() - len(rows) if len(rows) == MAX_RELAY_ROWS else 0,
    )
