"""The pages hold what they show: the code of the files, and what tools make of the code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.compiled import documented
from tests.support.fixtures import Capsys, Patch
from tools import pages

HELP_OF = (3, 11), (3, 12)
"""Pythons whose argparse lays out help as the pages have it."""

HELP_AS_SHOWN = pytest.mark.skipif(
    sys.version_info[:2] not in HELP_OF,
    reason="this Python lays out the help of commands in another way",
)
MARKED = list(pages.marked())
SAME = [
    # The table of errors is made of their docstrings.
    pytest.param(page, marks=documented if page.name == "errors.md" else ())
    for page in MARKED
]


@HELP_AS_SHOWN
@pytest.mark.parametrize("page", SAME, ids=lambda page: str(page.relative_to(pages.PAGES)))
def test_a_page_holds_what_it_shows(page: Path) -> None:
    assert page.read_text() == pages.made(page), "run: make pages"


def test_no_page_has_a_line_that_only_a_build_fills_in() -> None:
    for page in pages.PAGES.rglob("*.md"):
        assert "--8<--" not in page.read_text(), page
    limits = (pages.PAGES / "reference" / "limits.md").read_text()
    assert limits.count("\n| `") > 200
    assert "\n| `max_wait` | 300 |" in limits


def test_the_help_of_a_command_is_on_its_page_once() -> None:
    text = (pages.PAGES / "reference" / "cli.md").read_text()
    commands = re.findall(r"^usage: (onward[a-z -]*)", text, re.MULTILINE)
    assert len(commands) > 40
    assert sorted(commands) == sorted(set(commands))


def test_no_heading_of_the_page_of_commands_is_within_code() -> None:
    code, headings = False, 0
    for line in (pages.PAGES / "reference" / "cli.md").read_text().splitlines():
        code ^= line.startswith("```")
        headings += line.startswith("## onward ")
        assert not (code and line.startswith("## ")), line
    assert headings > 30
    assert not code


def test_each_mark_of_code_has_a_block_of_code() -> None:
    for page in MARKED:
        text = page.read_text()
        shown = re.findall(r"^<!-- from: .* -->\n```", text, re.MULTILINE)
        assert len(shown) == len(re.findall("^<!-- from: ", text, re.MULTILINE)), page


def test_a_section_is_taken_without_its_marks(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(
        "import a\n\n# --8<-- [start:one]\n    b = 1\n    # --8<-- [start:two]\n    c = 2\n"
        "    # --8<-- [end:two]\n# --8<-- [end:one]\n"
    )
    assert pages.section(file, "one") == "b = 1\nc = 2\n"
    assert pages.section(file, "two") == "c = 2\n"
    assert pages.section(file, None) == "import a\n\n    b = 1\n    c = 2\n"
    with pytest.raises(LookupError, match="has no section three"):
        pages.section(file, "three")
    file.write_text("// --8<-- [start:one]\nreturn 1;\n// --8<-- [end:one]\n")
    assert pages.section(file, "one") == "return 1;\n"


def test_code_that_was_changed_by_hand_is_written_anew() -> None:
    name = "examples/tutorial/broker.py:worker"
    page = f"Before\n\n<!-- from: {name} -->\n```python\nold = 1\n```\n\nBehind\n"
    made = pages.included(page)
    assert re.search(r"-->\n```python\nclass Shop\(Worker\):\n(?s:.*)\n```\n\nBehind\n$", made)
    assert "old" not in made
    assert pages.included(made) == made


@pytest.mark.parametrize("body", ["", "\n\n| stale |\n\n<!-- end -->"])
def test_what_is_generated_is_written_anew(body: str) -> None:
    page = f"A\n\n<!-- drawn: session -->{body}\n\nB\n\n<!-- drawn: session-inputs -->{body}\n\nC\n"
    made = pages.generated(page)
    assert made.count("<!-- end -->") == 2
    assert "stale" not in made
    assert made.index("A\n") < made.index("stateDiagram-v2") < made.index("B\n") < made.index("C\n")
    assert pages.generated(made) == made


@HELP_AS_SHOWN
def test_the_check_says_which_pages_differ(monkeypatch: Patch, capsys: Capsys) -> None:
    page = MARKED[0]
    text = pages.made(page)
    monkeypatch.setattr(pages, "written", lambda: iter([(page, text)]))
    assert pages.main(["--check"]) == 0
    monkeypatch.setattr(pages, "written", lambda: iter([(page, f"{text}\n")]))
    assert pages.main(["--check"]) == 1
    assert capsys.readouterr().out == f"{page.relative_to(pages.ROOT)}\n"
    assert page.read_text() == text
