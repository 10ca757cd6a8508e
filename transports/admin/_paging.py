"""Pages of rows: filtered, sorted and cut as the query of a request says.

Rows are made and looked at in slices, and one table at a time, so that neither a large table nor
many requests hold the loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar, cast

from ._messages import HttpError, HttpRequest, HttpResponse, json_response

__all__ = [
    "DEFAULT",
    "MAX_OFFSET",
    "MAX_PAGE",
    "MAX_SORTED",
    "first",
    "number_of",
    "page",
]

MAX_PAGE: Final = 1024
"""The maximum number of rows in an answer."""

MAX_OFFSET: Final = 1_000_000
"""The maximum number of rows that are passed over."""

MAX_SORTED: Final = 4096
"""The maximum number of rows up to the end of a page that is sorted."""

DEFAULT: Final = 100
"""The rows in an answer to a request without `limit`."""

SLICE: Final = 256
"""Rows that are looked at before the loop does other things."""

T = TypeVar("T")
Row: TypeAlias = Mapping[str, Any]


async def page(
    request: HttpRequest,
    entries: Iterable[T],
    make: Callable[[T], Row],
    columns: tuple[str, ...],
    *,
    turn: asyncio.Lock,
    more: Mapping[str, Any] | None = None,
) -> HttpResponse:
    """Return a page of rows as JSON: their `total` and the `rows`.

    Args:
        request: The request. Its query has `limit`, `offset`, `sort` with a column (`-` before it
            for the reverse order), and columns with the value that a row must have. Of a column
            with tags it is one of them, as `tags=region=eu`.
        entries: What rows are made of.
        make: Makes a row, with exactly these columns.
        columns: The columns.
        turn: Held while a table is looked through; the others wait for it in order.
        more: Further fields of the answer.

    Raises:
        HttpError: The query has an unknown field, or a wrong value.
    """
    limit, offset, sort = DEFAULT, 0, ""
    filters: list[tuple[str, str]] = []
    for name, value in request.fields():
        if name == "limit":
            limit = number_of(name, value, MAX_PAGE)
        elif name == "offset":
            offset = number_of(name, value, MAX_OFFSET)
        elif name == "sort":
            sort = value
        elif name in columns:
            filters.append((name, value))
        else:
            known = ", ".join(("limit", "offset", "sort", *columns))
            raise HttpError(HTTPStatus.BAD_REQUEST, f"unknown field {name!r}; known are {known}")
    if sort.removeprefix("-") not in {"", *columns}:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"sort must be one of {', '.join(columns)}")
    if sort and offset + limit > MAX_SORTED:
        text = f"with sort, offset and limit together are at most {MAX_SORTED}; filter the rows"
        raise HttpError(HTTPStatus.BAD_REQUEST, text)
    if isinstance(entries, Sequence) and not filters and not sort:
        total = len(entries)
        rows = [make(each) for each in entries[offset : offset + limit]]
    else:
        async with turn:
            total, rows = await _selected(map(make, entries), filters, sort, offset + limit)
        rows = rows[offset:]
    return json_response({"total": total, "offset": offset, "rows": rows, **(more or {})})


async def _selected(
    rows: Iterable[Row], filters: list[tuple[str, str]], sort: str, most: int
) -> tuple[int, list[Row]]:
    """Return the number of rows that match, and the first of them in order."""
    found: list[Row] = []
    fresh: list[Row] = []  # not merged yet: that takes as long as for all that is kept
    total, left = 0, iter(rows)
    while part := list(islice(left, SLICE)):
        matching = [row for row in part if all(_has(row[name], value) for name, value in filters)]
        total += len(matching)
        if sort:
            fresh += matching
        else:
            found += matching[: max(0, most - len(found))]
        if len(fresh) >= most:
            found, fresh = first(found + fresh, sort, most), []
        await asyncio.sleep(0)
    return total, first(found + fresh, sort, most) if sort else found


def first(rows: list[Row], sort: str, most: int) -> list[Row]:
    """Return the first rows by a column; equal ones stay in their order, and nothing comes last."""
    column = sort.removeprefix("-")
    given = [row for row in rows if row[column] is not None]
    given.sort(key=lambda row: _key(row[column]), reverse=sort.startswith("-"))
    return [*given, *(row for row in rows if row[column] is None)][:most]


def number_of(name: str, text: str, most: int) -> int:
    """Return a number of a query.

    Raises:
        HttpError: It is none from 0 to `most`.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) <= most):
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{name} must be a number from 0 to {most}")
    return int(text)


def _has(value: Any, wanted: str) -> bool:
    """Whether a value of a row is the one in a query."""
    if isinstance(value, Mapping):
        key, _, of_key = wanted.partition("=")
        tags = cast("Mapping[str, object]", value)
        return key in tags and str(tags[key]) == of_key
    return (value if isinstance(value, str) else json.dumps(value)) == wanted


def _key(value: Any) -> tuple[int, Any]:
    """Return a value by which values of several types can be ordered."""
    return (0, value) if isinstance(value, bool | int | float) else (1, str(value))
