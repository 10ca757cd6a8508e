"""Arrow columns from Python and numpy values: types, constants, times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = [
    "FIRST_TIME",
    "LAST_TIME",
    "Column",
    "arrow_schema",
    "constant",
    "integers",
    "maps",
    "times",
]

FIRST_TIME: Final = 0
"""The first valid time of an event, in microseconds: 1970."""

LAST_TIME: Final = 7_258_118_400_000_000
"""The first invalid time after it: 2200. A time out of range is damage, not a wrong clock."""

Column = Any
"""A `pyarrow.Array`, which has no annotations."""

_TYPES: Final[Mapping[str, Any]] = {
    "string": pa.string(),
    "double": pa.float64(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def arrow_schema(columns: Mapping[str, str]) -> Any:
    """Return the `pyarrow.Schema` of columns with the given Spark types."""
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in columns.items()])


def constant(value: object, kind: str, rows: int) -> Column:
    """Return a column that has one value in all rows."""
    return pa.repeat(pa.scalar(value, type=_TYPES[kind]), rows)


def integers(values: Any, kind: str) -> Column:
    """Return numpy integers as a column; unsigned ones of 64 bits keep their bits."""
    if values.dtype == np.uint64:
        values = values.view(np.int64)
    return pa.array(np.ascontiguousarray(values.astype(_TYPES[kind].to_pandas_dtype(), copy=False)))


def times(microseconds: Any) -> Column:
    """Return microseconds since the Unix epoch as a column."""
    return pa.array(np.ascontiguousarray(microseconds)).view(_TYPES["timestamp"])


def maps(entries: Sequence[Mapping[str, str]]) -> Column:
    """Return a column of maps from string to string."""
    return pa.array([list(entry.items()) for entry in entries], type=_TYPES["map<string,string>"])
