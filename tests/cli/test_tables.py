"""Tables: the rows that are asked for, and how they are printed."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from onward.cli._columns import Column, count, number, span, text, when
from onward.cli._status import CommandError, Status
from onward.cli._tables import (
    MAX_ROWS,
    PAGE,
    Look,
    Selection,
    add_selection,
    pages,
    select,
    selection_of,
    show,
)

COLUMNS = (
    text("NAME", "name"),
    number("IN PROGRESS", "in_progress"),
    span("P99", "p99"),
    when("SINCE", "since"),
    count("HELD", "held"),
)
LOOK = Look("things", "", "", COLUMNS, "none")
ROWS: list[dict[str, Any]] = [
    {"name": "b", "in_progress": 3, "p99": 0.0123, "since": 0, "held": None},
    {"name": "a\x1b", "in_progress": None, "p99": None, "since": None, "held": 0},
    {"name": "c", "in_progress": 12, "p99": 2.5},
]


def given(*words: str) -> Selection:
    parser = argparse.ArgumentParser()
    add_selection(parser, COLUMNS)
    return selection_of(parser.parse_args(words), COLUMNS)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ((), ()),
        (("--sort", "name"), (("sort", "name"),)),
        (("--sort", "NAME", "--reverse"), (("sort", "-name"),)),
        (("--sort", "in-progress"), (("sort", "-in_progress"),)),
        (("--sort", "in_progress", "--reverse"), (("sort", "in_progress"),)),
        (("--filter", "tags=a=b", "--sort", "p99"), (("tags", "a=b"), ("sort", "-p99"))),
    ],
)
def test_options_are_fields_of_a_query(
    words: tuple[str, ...], fields: tuple[tuple[str, str], ...]
) -> None:
    assert given(*words) == Selection(fields)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--sort", "nonsense"), "no column 'nonsense': name, in-progress, p99, since, held"),
        (("--filter", "name"), "is not FIELD=VALUE"),
        (("--filter", "limit=3"), "is not FIELD=VALUE"),
        (("--reverse",), "goes with --sort"),
        (("--top", str(MAX_ROWS + 1)), f"at most {MAX_ROWS}"),
    ],
)
def test_wrong_options(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told) as refused:
        given(*words)
    assert refused.value.status is Status.USAGE


def test_a_table_has_what_rows_have() -> None:
    printed = show(LOOK, {"total": 5, "rows": ROWS}).splitlines()
    assert printed[0].split() == ["NAME", "IN", "PROGRESS", "P99", "SINCE", "HELD"]
    assert printed[1].split()[:4] == ["b", "3", "12.3", "ms"]
    assert printed[2].split() == ["a\\x1b", "0", "-", "-", "0"]
    assert printed[3].split() == ["c", "12", "2.5", "s", "-", "-"]
    assert printed[4] == "... and 2 more"
    assert show(LOOK, {"total": 0, "rows": []}) == "none"


def test_what_is_counted_by_reason() -> None:
    answer: dict[str, Any] = {"total": 3, "rows": [], "reasons": {"full": 1, "not\x1bexposed": 2}}
    assert show(LOOK, answer) == "none\n... and 3 more\n\nby reason: 2 not\\x1bexposed, 1 full"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"error": "busy\x1b"}, r"the answer is: busy\\x1b"),
        ({"total": 1}, "has no things"),
        ({"total": 1, "rows": [{"in_progress": "x"}]}, "has no things"),
        ({"total": 1, "rows": [{"since": 1e300}]}, "has no things"),
        ([], "has no things"),
        (None, "has no things"),
    ],
)
def test_an_answer_that_is_none(answer: Any, told: str) -> None:
    with pytest.raises(CommandError, match=told):
        show(LOOK, answer)


async def test_rows_of_an_answer_are_chosen() -> None:
    answer = {"total": 5, "rows": ROWS, "node": "n"}
    assert await select(answer, given()) is answer
    found = await select(answer, given("--sort", "name", "--top", "2"))
    assert [row["name"] for row in found["rows"]] == ["a\x1b", "b"]
    assert (found["total"], found["node"]) == (5, "n")
    found = await select(answer, given("--filter", "in_progress=12"))
    assert [row["name"] for row in found["rows"]] == ["c"]
    with pytest.raises(CommandError, match="unknown field 'x'"):
        await select(answer, given("--filter", "x=1"))
    odds: list[Any] = [{"error": "x"}, [], {"rows": 5}]
    for odd in odds:
        assert await select(odd, given("--top", "1")) is odd


async def test_many_rows_of_an_answer_are_chosen() -> None:
    rows = [{"name": str(at)} for at in range(2 * PAGE)]
    found = await select({"total": len(rows), "rows": rows}, Selection(top=PAGE + 1))
    assert [row["name"] for row in found["rows"]] == [str(at) for at in range(PAGE + 1)]


async def test_a_broker_is_asked_page_by_page() -> None:
    asked: list[str] = []

    async def ask(question: str) -> Any:
        asked.append(question)
        limit, offset = (int(each.partition("=")[2]) for each in question.split("&")[-2:])
        return {"total": 3000, "rows": [{"name": str(offset)}] * min(limit, 3000 - offset)}

    found = await pages(ask, "/things?", Selection((("sort", "name"),)))
    assert (found["total"], len(found["rows"])) == (3000, 3000)
    assert asked[0] == "/things?sort=name&limit=1024&offset=0"
    assert [each.rpartition("=")[2] for each in asked] == ["0", "1024", "2048"]
    assert len((await pages(ask, "?", Selection(top=5)))["rows"]) == 5

    async def refuse(_: str) -> Any:
        return {"error": "no"}

    assert await pages(refuse, "?", Selection()) == {"error": "no"}


def test_a_column_sorts_by_its_field() -> None:
    assert Column("PEER", "peer", str).falls is False
    assert count("HELD", "held").falls
