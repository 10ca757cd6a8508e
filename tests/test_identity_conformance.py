"""The page of identities: each row has tests or a reason, and each gap and difference a reading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.pages import (
    ROOT,
    STATES,
    cells,
    missing,
    section,
    wrong_counts,
    wrong_state,
)

PAGE: Final = ROOT / "docs" / "reference" / "identity-conformance.md"
SAYS: Final = "What the specification says"
GAPS: Final = "What it leaves open"
DIFFERENCES: Final = "Differences, on purpose"
THREATS: Final = "The threats"
TABLES: Final = (SAYS, GAPS, DIFFERENCES, THREATS)
IDENTITY_STATES: Final = ("done", "in part", *STATES[1:])


class Row(NamedTuple):
    """A row of any table: with a state, or with a reading or a reason instead."""

    table: str
    number: str
    part: str
    says: str
    state: str
    what: str
    tests: str


def rows(page: str) -> list[Row]:
    found: list[Row] = []
    for table in (SAYS, THREATS):
        found += [Row(table, *each) for each in cells(section(page, table))]
    for table in (GAPS, DIFFERENCES):
        for number, part, says, what, tests in cells(section(page, table)):
            found.append(Row(table, number, part, says, "", what, tests))
    return found


def wrong(page: str, root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with a page, in words."""
    found = rows(page)
    for table in TABLES:
        numbers = [row.number for row in found if row.table == table]
        if numbers != [str(number + 1) for number in range(len(numbers))]:
            yield f"{table}: the rows are not numbered from 1 on"
    for row in found:
        problems = [*missing(row.tests, root)]
        if row.table in {SAYS, THREATS}:
            problems += wrong_state(row.state, row.what, row.tests, IDENTITY_STATES)
        elif not row.what or not row.tests:
            problems.append("no reading, no reason or no test")
        if not row.part or not row.says:
            problems.append("it says nothing")
        yield from (f"{row.table}, {row.number}: {each}" for each in problems)
    yield from wrong_counts(page, [row.state for row in found if row.state], IDENTITY_STATES)


def test_the_page_is_right() -> None:
    assert list(wrong(PAGE.read_text())) == []


def test_there_are_twenty_two_threats_and_no_row_is_there_twice() -> None:
    found = rows(PAGE.read_text())
    assert len([row for row in found if row.table == THREATS]) == 22
    assert len({(row.table, row.part, row.says) for row in found}) == len(found)


def test_each_message_of_the_specification_has_rows() -> None:
    parts = {row.part for row in rows(PAGE.read_text()) if row.table == SAYS}
    messages = ("EngineMessage", "P2PMessage", "RelayMessage")
    requests = (f"Topic{each}Request" for each in ("Create", "Delete", "Sub", "Unsub"))
    assert parts >= {"Purpose", "State", "DestinationIdentity", "Message flow"}
    assert parts >= {*messages, *requests}


def test_each_test_of_a_threat_stands_in_its_row() -> None:
    named = {row.number: row.tests for row in rows(PAGE.read_text()) if row.table == THREATS}
    start = re.compile(r"^(?:async )?def (test_threats?_\w+)", re.MULTILINE)
    for folder in ("protocol", "actors", "transports"):
        for file in (ROOT / "tests" / folder / "identity").glob("test_*.py"):
            for test in start.findall(file.read_text()):
                for number in re.findall(r"(?<=_)\d+(?=_)", test):
                    assert f"::{test}`" in named[number]


PAGE_OF_FOUR: Final = """
## What the specification says

| no. | part | what it says | state | what Onward does | shown by |
| --- | --- | --- | --- | --- | --- |
| 1 | A | “something” | in part | No worker. | `tests/test_a.py::test_it` |

## What it leaves open

| no. | part | error or gap | our reading | shown by |
| --- | --- | --- | --- | --- |
| 1 | B | It is silent. | So. | `tests/test_a.py::test_it` |

## Differences, on purpose

| no. | in the specification | in Onward | reason | shown by |
| --- | --- | --- | --- | --- |
| 1 | This | That | It is better. | `tests/test_a.py::test_it` |

## The threats

| no. | attack | expected | state | what Onward does | shown by |
| --- | --- | --- | --- | --- | --- |
| 1 | A forgery | drop | done |  | `tests/test_a.py::test_it` |

## How many

| state | rows |
| --- | --- |
| done | 1 |
| in part | 1 |
| not done | 0 |
| does not apply | 0 |
| all | 2 |
"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "", ""),
        ("No worker. | `tests/test_a.py::test_it`", "No worker. | ", "in part, and no test"),
        ("No worker.", "", "1: in part, and no reason"),
        ("in part | No", "in parts | No", "no such state: in parts"),
        ("| So. ", "|  ", "What it leaves open, 1: no reading"),
        ("better. | `tests/test_a.py::test_it`", "better. | ", "on purpose, 1: no reading"),
        ("done |  | `tests/test_a.py::test_it`", "done |  | `tests/test_a.py::test_no`", "no such"),
        ("| 1 | A forgery", "| 2 | A forgery", "The threats: the rows are not numbered"),
        ("“something”", "", "it says nothing"),
        ("| all | 2 |", "| all | 3 |", "the counts are"),
    ],
)
def test_a_wrong_page_is_found_out(tmp_path: Path, before: str, after: str, said: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_it(): ...\n")
    assert before in PAGE_OF_FOUR
    found = list(wrong(PAGE_OF_FOUR.replace(before, after, 1), tmp_path))
    assert any(said in each for each in found) if said else found == []
