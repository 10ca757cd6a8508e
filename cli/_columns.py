"""Columns of tables: the field of a row that each shows, and its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

__all__ = ["Column", "columns_of", "count", "duration", "number", "share", "span", "text", "when"]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        heading: Its heading.
        field: The field of a row that it is sorted by.
        cell: The function that makes the cell of a row.
        falls: Whether the largest value comes first when rows are sorted by it.
    """

    heading: str
    field: str
    cell: Callable[[Any], str | int]
    falls: bool = False


def text(heading: str, field: str) -> Column:
    """Return a column of texts; without one there is a dash."""

    def cell(row: Any) -> str:
        value = row.get(field)
        return "-" if value is None or value == "" else str(value)

    return Column(heading, field, cell)


def count(heading: str, field: str) -> Column:
    """Return a column of numbers that not all rows have."""
    return text(heading, field)._replace(falls=True)


def number(heading: str, field: str) -> Column:
    """Return a column of whole numbers."""

    def cell(row: Any) -> int:
        return int(row.get(field) or 0)

    return Column(heading, field, cell, falls=True)


def span(heading: str, field: str) -> Column:
    """Return a column of durations, given in seconds."""

    def cell(row: Any) -> str:
        value = row.get(field)
        return "-" if value is None else duration(float(value))

    return Column(heading, field, cell, falls=True)


def duration(length: float) -> str:
    """Return a duration, given in seconds, as text."""
    return f"{length * 1000:.1f} ms" if 0 < length < 1 else f"{length:.1f} s"


def share(heading: str, field: str) -> Column:
    """Return a column of shares, given from 0 to 1, in per cent."""

    def cell(row: Any) -> str:
        value = row.get(field)
        return "-" if value is None else f"{value * 100:.2f} %"

    return Column(heading, field, cell)


def when(heading: str, field: str) -> Column:
    """Return a column of times, given in seconds since 1970."""

    def cell(row: Any) -> str:
        value = row.get(field)
        if value is None:
            return "-"
        return f"{datetime.fromtimestamp(value).astimezone():%Y-%m-%d %H:%M:%S%z}"

    return Column(heading, field, cell, falls=True)


_PROCESS: Final = text("PROCESS", "process")


def columns_of(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> Sequence[Column]:
    """Return the columns for rows: those of a broker with several processes have one more."""
    return [*columns, _PROCESS] if any("process" in row for row in rows) else columns
