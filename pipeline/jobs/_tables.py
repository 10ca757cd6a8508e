"""The conversion of tables for other file formats and for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, functions as sf
from pyspark.sql.types import ArrayType, LongType, MapType

from ..report import Names, utc

__all__ = ["MAX_SHOWN", "Shown", "flattened", "shown"]

MAX_SHOWN: Final = 20
"""Rows of a report that are printed by default."""

_NODES: Final = frozenset({"node", "origin_node", "dest_node", "name_node"})


@dataclass(frozen=True, slots=True)
class Shown:
    """The first rows of a report, as text, with names in the place of ids.

    Attributes:
        headings: The columns.
        rows: A cell for each column; names from users are not escaped.
        more: The number of further rows.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int


def flattened(frame: DataFrame) -> DataFrame:
    """Return a frame for a CSV file: maps and lists become JSON."""
    return frame.select(
        *(
            sf.to_json(field.name).alias(field.name)
            if isinstance(field.dataType, MapType | ArrayType)
            else sf.col(field.name)
            for field in frame.schema.fields
        )
    )


def shown(frame: DataFrame, names: Names, most: int = MAX_SHOWN) -> Shown:
    """Return the first rows of a report as text, the largest first.

    Args:
        frame: The report.
        names: The names of ids.
        most: The number of rows at most.
    """
    numbers = [field.name for field in frame.schema.fields if isinstance(field.dataType, LongType)]
    order = next(
        (name for name in ("frames", "traces", "n", "missing", "received") if name in numbers), None
    )
    ordered = frame if order is None else frame.orderBy(sf.desc(order))
    rows = ordered.limit(most).collect()
    more = frame.count() - len(rows) if len(rows) == most else 0
    columns = [_column(name, [row[name] for row in rows], names) for name in frame.columns]
    lines = tuple(zip(*columns, strict=True))
    return Shown(lines[0], lines[1:], more)


def _column(name: str, values: Sequence[Any], names: Names) -> list[str]:
    """Return the heading and the cells of a column."""
    if name in _NODES:
        known = names.nodes(set(values))
    elif name == "tagset_id":
        known = names.tagsets(set(values))
    elif name == "route_id":
        known = names.routes(set(values))
    elif name == "path":
        steps = names.nodes({step for path in values for step in path or ()})
        return [name.upper(), *(" > ".join(steps[step] for step in path or ()) for path in values)]
    else:
        return [name.upper(), *(_cell(name, value) for value in values)]
    return [name.removesuffix("_id").upper(), *(known.get(value, "-") for value in values)]


def _cell(name: str, value: Any) -> str:
    match value:
        case None:
            return "-"
        case datetime():
            return f"{utc(value):%Y-%m-%d %H:%M:%S}"
        case date():
            return value.isoformat()
        case float():
            return f"{value:.4g}"
        case int() if name in {"trace_id", "shard_hash"}:
            return f"{value & 0xFFFF_FFFF_FFFF_FFFF:016x}"
        case dict():
            return json.dumps(value, sort_keys=True)
        case _:
            return str(value)
