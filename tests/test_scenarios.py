"""The page of Ockam's test scenarios names tests that there are, and its counts add up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.pages import ROOT, cells, missing, section, wrong_counts, wrong_state

PAGE = ROOT / "docs" / "reference" / "ockam-scenarios.md"
AREAS = (
    "A node and its workers",
    "Addresses, messages, routes",
    "The wire",
    "Transports",
    "Messaging",
    "Sessions",
    "Services",
    "Relays",
    "Access control",
    "Nodes from configuration",
    "Not built",
)


class Row(NamedTuple):
    """A row of the scenarios."""

    number: str
    area: str
    whose: str
    scenario: str
    state: str
    what: str
    tests: str


def rows(page: str) -> list[Row]:
    return [Row(*each) for each in cells(section(page, "The scenarios"))]


def wrong(page: str, root: Path = ROOT) -> list[str]:
    """Return what is wrong with a page, in words; nothing if it is right."""
    found: list[str] = []
    scenarios = rows(page)
    numbers = [row.number for row in scenarios]
    if numbers != [str(number + 1) for number in range(len(numbers))]:
        found.append("the rows are not numbered from 1 on")
    if list(dict.fromkeys(row.area for row in scenarios)) != list(AREAS):
        found.append("the areas are not those that there are, in their order")
    for row in scenarios:
        found += [f"row {row.number}: {each}" for each in wrong_row(row)]
        found += [f"row {row.number}: {each}" for each in missing(row.tests, root)]
    found += wrong_counts(page, [row.state for row in scenarios])
    return found


def wrong_row(row: Row) -> Iterator[str]:
    yield from wrong_state(row.state, row.what, row.tests)
    if row.whose not in {"Elixir", "Rust"}:
        yield f"nobody's: {row.whose}"
    if not row.scenario:
        yield "it says nothing"
    if row.area == "Not built" and row.state == "done":
        yield "what is built belongs to another area"


def test_the_page_is_right() -> None:
    assert wrong(PAGE.read_text()) == []


def test_no_scenario_stands_there_twice() -> None:
    scenarios = [(row.whose, row.scenario) for row in rows(PAGE.read_text())]
    assert len(set(scenarios)) == len(scenarios)


@pytest.mark.parametrize("area", ["Messaging", "Sessions"])
def test_what_pipes_and_sessions_are_asked_for_is_all_there(area: str) -> None:
    states = {row.state for row in rows(PAGE.read_text()) if row.area == area}
    assert states == {"done"}


def test_each_test_of_scenarios_stands_on_the_page() -> None:
    page = PAGE.read_text()
    named = {test.strip("`") for row in rows(page) for test in row.tests.split()}
    for file in sorted((ROOT / "tests" / "scenarios").glob("test_*.py")):
        for line in file.read_text().splitlines():
            name = line.removeprefix("async ").removeprefix("def ").partition("(")[0]
            if name.startswith("test_"):
                assert f"tests/scenarios/{file.name}::{name}" in named


def page_of_all_areas() -> str:
    """A page that is right: a row of each area, the last of them not done."""
    table = "".join(
        f"| {number} | {area} | Elixir | something | done |  | `tests/test_a.py::test_it` |\n"
        for number, area in enumerate(AREAS[:-1], 1)
    )
    return (
        "\n## The scenarios\n\n"
        "| no. | area | from | scenario | state | what Onward does | shown by |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        f"{table}| {len(AREAS)} | Not built | Rust | another | not done | No need. |  |\n"
        "\n## How many\n\n| state | rows |\n| --- | --- |\n"
        f"| done | {len(AREAS) - 1} |\n| not done | 1 |\n| does not apply | 0 |\n"
        f"| all | {len(AREAS)} |\n"
    )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "", ""),
        ("::test_it`", "::test_that`", "row 1: no such test"),
        ("tests/test_a.py", "tests/test_b.py", "row 1: no such file"),
        ("`tests/test_a.py::test_it`", "tests/test_a.py::test_it", "row 1: tests stand"),
        ("`tests/test_a.py::test_it`", "", "row 1: done, and no test"),
        ("No need.", "", "row 11: not done, and no reason"),
        ("| not done | No", "| nearly | No", "row 11: no such state"),
        ("| not done | No need. |  |", "| done |  | `tests/test_a.py::test_it` |", "row 11: what"),
        ("| Rust |", "| Java |", "row 11: nobody's"),
        ("| something |", "|  |", "row 1: it says nothing"),
        ("| 2 | Addresses", "| 3 | Addresses", "not numbered"),
        ("| Messaging |", "| Messages |", "the areas"),
        ("| done | 10 |", "| done | 11 |", "the counts are"),
        ("| all | 11 |", "| all | 12 |", "the counts are"),
    ],
)
def test_a_wrong_page_is_found_out(tmp_path: Path, before: str, after: str, said: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_it(): ...\n")
    page = page_of_all_areas()
    assert before in page
    found = wrong(page.replace(before, after, 1), tmp_path)
    assert any(said in each for each in found) if said else found == []
