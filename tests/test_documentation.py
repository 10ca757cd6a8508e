"""What the documentation shows runs, and prints what the documentation says it prints."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, blocks, run_example, shown_outputs

# The steps of the tutorial; what else pages show is run in tests/examples/test_examples.py.
STEPS = sorted((ROOT / "examples" / "tutorial").glob("*.py"))


@pytest.mark.parametrize("file", STEPS, ids=lambda file: str(file.stem))
def test_a_step_of_the_tutorial_runs_and_prints_what_its_page_says(file: Path) -> None:
    run_example(file)


def test_every_shown_output_belongs_to_a_file_that_is_run() -> None:
    shown = {file for _, file, _ in shown_outputs()}
    assert shown
    assert shown <= {*STEPS, *(ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_code_in_a_page_is_python(page: Path) -> None:
    for _, text in blocks(page.read_text(), "python"):
        try:
            ast.parse(text)
        except SyntaxError:
            # A fragment may await and return: it is a part of some function.
            ast.parse("async def fragment():\n" + textwrap.indent(text, "    "))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "changelog.d/README.md"])
def test_links_of_the_pages_outside_the_site_lead_somewhere(page: str) -> None:
    file = ROOT / page
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text()):
        assert (file.parent / target).exists(), target
