"""The conformance page names tests and decisions that there are, and its counts add up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.pages import ROOT, cells, missing, section, wrong_counts, wrong_state

PAGE = ROOT / "docs" / "reference" / "conformance.md"
DECISIONS = "Decisions on the gaps of the specification"
WORDS = {
    *("MUST", "MUST not", "SHOULD", "MAY", "RECOMMENDED"),
    *("must", "should", "may", "recommended", "encouraged", "will", "would need"),
    *("can", "can only", "could", "optional", "not optional", "reserved", "says", "silent"),
}


class Row(NamedTuple):
    """A row of the requirements."""

    number: str
    section: str
    text: str
    word: str
    requirement: str
    state: str
    what: str
    tests: str


class Problem(NamedTuple):
    """A row of the places where the texts contradict themselves."""

    number: str
    text: str
    says: str
    reading: str
    tests: str


def rows(page: str) -> list[Row]:
    return [Row(*each) for each in cells(section(page, "What the texts ask for"))]


def problems(page: str) -> list[Problem]:
    title = "Where the texts contradict themselves, or say nothing"
    return [Problem(*each) for each in cells(section(page, title))]


def wrong(page: str, root: Path = ROOT) -> list[str]:
    """Return what is wrong with a page, in words; nothing if it is right."""
    found: list[str] = []
    requirements, contradictions = rows(page), problems(page)
    decisions = set(re.findall(r"^(\d+)\. ", section(page, DECISIONS), re.MULTILINE))
    numbers = [row.number for row in requirements]
    if numbers != [str(number + 1) for number in range(len(numbers))]:
        found.append("the rows are not numbered from 1 on")
    for row in requirements:
        found += [f"row {row.number}: {each}" for each in wrong_row(row)]
    for problem in contradictions:
        if not problem.reading:
            found.append(f"{problem.number}: no reading")
    for number, text, tests in [
        *((f"row {row.number}", row.what, row.tests) for row in requirements),
        *((each.number, each.reading, each.tests) for each in contradictions),
    ]:
        found += [f"{number}: {each}" for each in missing(tests, root)]
        found += [
            f"{number}: there is no decision {each}"
            for each in re.findall(r"\[Decision (\d+)\]", text)
            if each not in decisions
        ]
    found += wrong_counts(page, [row.state for row in requirements])
    return found


def wrong_row(row: Row) -> Iterator[str]:
    reason = re.sub(r"\[Decision.*?\)\.?", "", row.what).strip()
    yield from wrong_state(row.state, reason, row.tests)
    if row.word not in WORDS:
        yield f"no such word: {row.word}"
    if row.text not in {"both", "A", "B"}:
        yield f"no such text: {row.text}"
    if not row.section or not row.requirement:
        yield "it says nothing"
    if row.word == "silent" and row.state == "done" and "[Decision" not in row.what:
        yield "the texts are silent, and no decision is named"


def test_the_page_is_right() -> None:
    assert wrong(PAGE.read_text()) == []


def test_each_requirement_of_the_specification_has_a_row() -> None:
    """As many of each word as the texts have; an example that says it again does not count."""
    counted = Counter(row.word for row in rows(PAGE.read_text()))
    assert counted["MUST"] == 12
    assert counted["MUST not"] == 2
    assert counted["SHOULD"] == 4
    assert counted["MAY"] == 3
    assert counted["RECOMMENDED"] == 1


def test_links_to_decisions_lead_to_the_section() -> None:
    anchor = DECISIONS.lower().replace(" ", "-")
    targets = set(re.findall(r"\[Decision \d+\]\(([^)]*)\)", PAGE.read_text()))
    assert targets == {f"#{anchor}"}


PAGE_OF_TWO = """
## What the texts ask for

| no. | section | text | word | requirement | state | what Onward does | shown by |
| --- | --- | --- | --- | --- | --- | --- | --- |
| 1 | A | both | MUST | something | done | [Decision 1](../x). | `tests/test_a.py::test_it` |
| 2 | A | B | can | something | not done | It is not needed. |  |

## Where the texts contradict themselves, or say nothing

| no. | text | what it says | how Onward reads it | shown by |
| --- | --- | --- | --- | --- |
| P1 | both | this and that | That. [Decision 2](../x). | `tests/test_a.py::TestIt::test_it` |

## How many

| state | rows |
| --- | --- |
| done | 1 |
| not done | 1 |
| does not apply | 0 |
| all | 2 |
"""
TWO_DECISIONS = f"\n## {DECISIONS}\n\n1. One.\n2. Two.\n"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "", ""),
        ("::test_it` |\n| 2", "::test_that` |\n| 2", "row 1: no such test"),
        ("::TestIt::test_it", "::TestIt::test_that", "P1: no such test"),
        ("tests/test_a.py::test_it", "tests/test_b.py::test_it", "row 1: no such file"),
        ("tests/test_a.py::test_it", "../test_a.py::test_it", "row 1: no such file"),
        ("`tests/test_a.py::test_it`", "tests/test_a.py::test_it", "row 1: tests stand"),
        ("`tests/test_a.py::test_it`", "", "row 1: done, and no test"),
        ("It is not needed.", "", "row 2: not done, and no reason"),
        ("It is not needed.", "[Decision 2](../x).", "row 2: not done, and no reason"),
        ("[Decision 1]", "[Decision 3]", "row 1: there is no decision 3"),
        ("[Decision 2]", "[Decision 0]", "P1: there is no decision 0"),
        ("| done | 1 |", "| done | 2 |", "the counts are"),
        ("| all | 2 |", "| all | 3 |", "the counts are"),
        ("| not done | It", "| nearly | It", "row 2: no such state"),
        ("| can |", "| ought |", "row 2: no such word"),
        ("| B | can", "| C | can", "row 2: no such text"),
        ("| 2 | A", "| 3 | A", "not numbered"),
        ("That. [Decision 2](../x).", "", "P1: no reading"),
        ("MUST | something", "MUST | ", "row 1: it says nothing"),
        ("MUST", "silent", ""),
        ("MUST | something | done | [Decision 1](../x).", "silent | x | done | ", "silent, and no"),
    ],
)
def test_a_wrong_page_is_found_out(tmp_path: Path, before: str, after: str, said: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(
        "def test_it(): ...\nclass TestIt:\n    def test_it(self): ...\n"
    )
    assert before in PAGE_OF_TWO
    found = wrong(PAGE_OF_TWO.replace(before, after, 1) + TWO_DECISIONS, tmp_path)
    assert any(said in each for each in found) if said else found == []


def test_the_page_about_stop_drain_and_reload_names_tests_that_there_are() -> None:
    page = (PAGE.parent / "stop-drain-reload.md").read_text()
    for title in ("Drain", "Signals", "Reload", "systemd"):
        rows = list(cells(section(page, title)))
        assert len(rows) >= 5
        for text, tests in rows:
            assert text.endswith(".")
            assert "`" in tests
            assert list(missing(tests.rstrip(" |"), ROOT)) == []


def test_the_decisions_on_security_name_tests_that_there_are() -> None:
    page = (ROOT / "docs" / "reference" / "protocol-security.md").read_text()
    decisions = list(cells(section(page, "Decisions, and the tests that hold them")))
    assert len(decisions) > 30
    for situation, answer, tests in decisions:
        assert situation
        assert answer
        assert "`" in tests, situation
        assert list(missing(tests, ROOT)) == []
