"""What the documentation shows runs, and prints what the documentation says it prints."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def run(*arguments: str) -> str:
    """Run Python and return what it prints, without what differs from run to run."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(r"\b[0-9a-f]{32}\b", "…", done.stdout)
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:…", shown)


def blocks(text: str, language: str) -> Iterator[tuple[str, str]]:
    """Yield title and text of each fenced code block of a language."""
    pattern = rf'^```{language}(?: title="([^"]*)")?\n(.*?)^```$'
    for block in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        yield block[1] or "", block[2]


def shown_outputs() -> Iterator[tuple[str, str, str]]:
    for page in PAGES:
        for title, text in blocks(page.read_text(), "text"):
            if title.endswith(".py"):
                yield page.name, title, text


# The steps of the tutorial, and what else pages show.
SHOWN = sorted(
    {*(ROOT / "examples" / "tutorial").glob("*.py")}
    | {ROOT / title for _, title, _ in shown_outputs()}
)


@pytest.mark.parametrize("file", SHOWN, ids=lambda file: str(file.stem))
def test_an_example_runs_and_prints_what_its_page_says(file: Path) -> None:
    printed = run(str(file))
    name = str(file.relative_to(ROOT))
    for page, title, text in shown_outputs():
        if title == name:
            assert text in printed, f"{page} shows something else"


def test_every_shown_output_belongs_to_a_file() -> None:
    shown = {title for _, title, _ in shown_outputs()}
    assert shown
    for title in shown:
        assert (ROOT / title).is_file(), title


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
