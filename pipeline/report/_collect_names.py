"""The collection of the section on messages to names."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from pyspark.sql import DataFrame, Window, functions as sf

from ._names import Names
from ._page_names import NameOutcomes, NameRow

__all__ = ["MAX_NAME_ROWS", "outcomes_of"]

MAX_NAME_ROWS: Final = 40
"""Rows of names and of their consumers in the page."""

_COUNTS: Final = tuple(each.name for each in fields(NameRow))[2:]


def outcomes_of(report: DataFrame, names: Names) -> NameOutcomes:
    """Return the outcomes of the day by name and consumer."""
    total = report.groupBy("name_node", "dest_node").agg(
        *(sf.sum(column).alias(column) for column in _COUNTS)
    )
    of_name = Window.partitionBy("name_node")
    ordered = total.withColumn("all", sf.max("received").over(of_name)).orderBy(
        sf.desc("all"), "name_node", sf.col("dest_node") != 0, sf.desc("accepted"), "dest_node"
    )
    rows = ordered.limit(MAX_NAME_ROWS).collect()
    more = total.count() - len(rows) if len(rows) == MAX_NAME_ROWS else 0
    known = names.nodes({each for row in rows for each in (row.name_node, row.dest_node)}, none="")
    return NameOutcomes(
        tuple(
            NameRow(
                known[row.name_node], known[row.dest_node], *(row[column] for column in _COUNTS)
            )
            for row in rows
        ),
        more,
    )
