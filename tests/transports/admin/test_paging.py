"""Pages of rows, as the query of a request says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from onward.transports.admin import HttpError, HttpRequest
from onward.transports.admin._paging import page

COLUMNS = ("name", "size", "tags", "open")
ROWS: list[dict[str, Any]] = [
    {"name": "b", "size": 3, "tags": {"region": "eu", "empty": ""}, "open": True},
    {"name": "a", "size": None, "tags": {}, "open": False},
    {"name": "c", "size": 1.5, "tags": {"region": "us"}, "open": True},
]


def whole(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return row


async def asked(query: str, rows: Iterable[Mapping[str, Any]] = ROWS) -> dict[str, Any]:
    request, turn = HttpRequest("GET", "/x", query), asyncio.Lock()
    response = await page(request, rows, whole, COLUMNS, turn=turn)
    assert isinstance(response.body, bytes)
    found: dict[str, Any] = json.loads(response.body)
    return found


@pytest.mark.parametrize(
    ("query", "total", "names"),
    [
        ("", 3, "bac"),
        ("limit=1", 3, "b"),
        ("limit=1&offset=1", 3, "a"),
        ("offset=9", 3, ""),
        ("limit=0", 3, ""),
        ("sort=name", 3, "abc"),
        ("sort=-name", 3, "cba"),
        ("sort=size", 3, "cba"),
        ("sort=-size", 3, "bca"),
        ("sort=-size&limit=2", 3, "bc"),
        ("sort=open", 3, "abc"),
        ("name=a", 1, "a"),
        ("open=true&sort=name", 2, "bc"),
        ("open=true&limit=1&offset=1", 2, "c"),
        ("size=1.5", 1, "c"),
        ("size=null", 1, "a"),
        ("tags=region%3Deu", 1, "b"),
        ("tags=region=us", 1, "c"),
        ("tags=empty=", 1, "b"),
        ("tags=region", 0, ""),
        ("name=a&name=b", 0, ""),
    ],
)
async def test_rows_are_filtered_sorted_and_cut(query: str, total: int, names: str) -> None:
    for rows in (ROWS, iter(ROWS)):
        found = await asked(query, rows)
        assert found["total"] == total
        assert "".join(row["name"] for row in found["rows"]) == names


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("limit=1025", "limit must be a number from 0 to 1024"),
        ("limit=-1", "limit must be"),
        ("limit=", "limit must be"),
        ("limit=1e3", "limit must be"),
        ("limit=%D9%A1", "limit must be"),
        ("limit=" + "9" * 5000, "limit must be"),
        ("offset=1000001", "offset must be a number from 0 to 1000000"),
        ("sort=colour", "sort must be one of name, size, tags, open"),
        ("sort=name&offset=4000&limit=97", "with sort, offset and limit together are at most 4096"),
        ("sort=--name", "sort must be one of"),
        ("colour=red", "unknown field 'colour'; known are limit, offset, sort, name"),
        ("&".join(["name=a"] * 51), "the query cannot be read"),
        ("name=%ff", "the query cannot be read"),
    ],
)
async def test_a_wrong_query_is_an_error(query: str, text: str) -> None:
    with pytest.raises(HttpError, match=text):
        await asked(query)


@given(
    st.lists(st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from("ab"), max_size=600),
    st.integers(0, 700),
    st.integers(0, 700),
)
async def test_a_page_is_a_part_of_all_rows_in_order(
    values: list[Any], offset: int, limit: int
) -> None:
    rows: list[dict[str, Any]] = [
        {"name": str(at), "size": value, "tags": {}, "open": True}
        for at, value in enumerate(values)
    ]

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        value = row["size"]
        if value is None:
            return (2,)
        return (1, value) if isinstance(value, str) else (0, value)

    found = await asked(f"sort=size&offset={offset}&limit={limit}", rows)
    assert found["rows"] == sorted(rows, key=key)[offset : offset + limit]


async def test_tables_are_looked_through_one_at_a_time() -> None:
    turn = asyncio.Lock()
    seen: list[str] = []

    def rows(name: str) -> Iterator[Mapping[str, Any]]:
        for _ in range(1000):
            seen.append(name)
            yield ROWS[0]

    async def ask(name: str) -> None:
        await page(HttpRequest("GET", "/x", "sort=name"), rows(name), whole, COLUMNS, turn=turn)

    await asyncio.gather(ask("first"), ask("second"))
    assert seen == ["first"] * 1000 + ["second"] * 1000
