"""The page of dispatch by name: each promise and each scenario has tests, or a reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.pages import ROOT, cells, missing, section, wrong_counts, wrong_state

PAGE: Final = ROOT / "docs" / "reference" / "dispatch-scenarios.md"
PROMISES: Final = "What the text promises"
SCENARIOS: Final = "The scenarios"
TESTS: Final = "tests/actors/dispatch/test_scenarios.py"


class Row(NamedTuple):
    """A promise or a scenario."""

    table: str
    number: str
    says: str
    state: str
    what: str
    tests: str


def rows(page: str) -> list[Row]:
    promises = [
        Row(PROMISES, number, says, *rest)
        for number, _, says, *rest in cells(section(page, PROMISES))
    ]
    return promises + [Row(SCENARIOS, *each) for each in cells(section(page, SCENARIOS))]


def wrong(page: str, root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with a page, in words."""
    found = rows(page)
    for table in (PROMISES, SCENARIOS):
        numbers = [row.number for row in found if row.table == table]
        if numbers != [str(number + 1) for number in range(len(numbers))]:
            yield f"{table}: the rows are not numbered from 1 on"
    for row in found:
        problems = [*wrong_state(row.state, row.what, row.tests), *missing(row.tests, root)]
        if not row.says:
            problems.append("it says nothing")
        yield from (f"{row.table}, {row.number}: {each}" for each in problems)
    yield from wrong_counts(page, [row.state for row in found])


def test_the_page_is_right() -> None:
    assert list(wrong(PAGE.read_text())) == []


def test_there_are_forty_scenarios_and_no_row_is_there_twice() -> None:
    found = rows(PAGE.read_text())
    assert len([row for row in found if row.table == SCENARIOS]) == 40
    assert len({row.says for row in found}) == len(found)


def test_each_test_of_scenarios_stands_on_the_page() -> None:
    named = {test.strip("`") for row in rows(PAGE.read_text()) for test in row.tests.split()}
    for line in (ROOT / TESTS).read_text().splitlines():
        name = line.removeprefix("async def ").partition("(")[0]
        if name.startswith("test_"):
            assert f"{TESTS}::{name}" in named


PAGE_OF_TWO: Final = """
## What the text promises

| no. | part | promise | state | what Onward does | shown by |
| --- | --- | --- | --- | --- | --- |
| 1 | A | “something” | done |  | `tests/test_a.py::test_it` |

## The scenarios

| no. | scenario | state | what Onward does | shown by |
| --- | --- | --- | --- | --- |
| 1 | Another. | not done | No need. |  |

## How many

| state | rows |
| --- | --- |
| done | 1 |
| not done | 1 |
| does not apply | 0 |
| all | 2 |
"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "", ""),
        ("::test_it`", "::test_that`", "What the text promises, 1: no such test"),
        ("`tests/test_a.py::test_it`", "", "1: done, and no test"),
        ("No need.", "", "The scenarios, 1: not done, and no reason"),
        ("| 1 | Another.", "| 2 | Another.", "The scenarios: the rows are not numbered"),
        ("Another.", "", "it says nothing"),
        ("| all | 2 |", "| all | 3 |", "the counts are"),
    ],
)
def test_a_wrong_page_is_found_out(tmp_path: Path, before: str, after: str, said: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_it(): ...\n")
    assert before in PAGE_OF_TWO
    found = list(wrong(PAGE_OF_TWO.replace(before, after, 1), tmp_path))
    assert any(said in each for each in found) if said else found == []
