"""Pages of the documentation: tables that name tests, and outputs of examples."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

__all__ = [
    "PAGES",
    "ROOT",
    "STATES",
    "as_shown",
    "blocks",
    "cells",
    "missing",
    "run_example",
    "section",
    "shown_outputs",
    "wrong_counts",
    "wrong_state",
]

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
STATES = ("done", "not done", "does not apply")


def section(page: str, title: str) -> str:
    """Return what stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def cells(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row of a table, without its head."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for line in rows[2:]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def wrong_counts(page: str, states: Iterable[str], known: Sequence[str] = STATES) -> Iterator[str]:
    """Yield what is wrong with the table that says how many rows have which state."""
    counted = Counter(states)
    said = {state: int(count) for state, count in cells(section(page, "How many"))}
    if said != {**{state: counted[state] for state in known}, "all": counted.total()}:
        yield f"the counts are {dict(counted)}"


def wrong_state(state: str, what: str, tests: str, known: Sequence[str] = STATES) -> Iterator[str]:
    """Yield what is wrong with the state of a row, by its tests, and its reason if it has none."""
    if state not in known:
        yield f"no such state: {state}"
    if state in {"done", "in part"} and not tests:
        yield f"{state}, and no test shows it"
    if state != "done" and not what:
        yield f"{state}, and no reason"


def missing(tests: str, root: Path) -> Iterator[str]:
    """Yield what is wrong with the tests that a row names."""
    names = re.findall(r"`([^`]*)`", tests)
    if re.sub(r"`[^`]*`", "", tests).strip():
        yield f"tests stand between backticks: {tests}"
    for name in names:
        path, mark, test = name.partition("::")
        file = root / path
        if not mark or not path.startswith("tests/") or not file.is_file():
            yield f"no such file: {name}"
        elif test not in _defined(file):
            yield f"no such test: {name}"


@cache
def _defined(file: Path) -> frozenset[str]:
    """Return the names of the tests in a file: functions, and methods as `Class::method`.

    A class that a test run collects by another name (`TestModel = Model.TestCase`) counts
    by that name.
    """
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {
                f"{node.name}::{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in names if name.lower().startswith("test"))


def blocks(text: str, language: str) -> Iterator[tuple[str, str]]:
    """Yield title and text of each fenced code block of a language."""
    pattern = rf'^```{language}(?: title="([^"]*)")?\n(.*?)^```$'
    for block in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        yield block[1] or "", block[2]


def shown_outputs() -> Iterator[tuple[str, Path, str]]:
    """Yield page, file and text of each output that a page shows."""
    for page in PAGES:
        for title, text in blocks(page.read_text(), "text"):
            if title.endswith(".py"):
                yield page.name, ROOT / title, text


def run_example(file: Path) -> str:
    """Run an example, check that pages show its output, and return that without random ids."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        cwd=ROOT,
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return as_shown(file, done.stdout)


def as_shown(file: Path, output: str) -> str:
    """Check that pages show the output of an example, and return it without random ids."""
    printed = re.sub(r"\b[0-9a-f]{32}\b", "…", output)
    without_ports = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:…", printed)
    for page, shown, text in shown_outputs():
        if shown == file:
            assert text in without_ports, f"{page} shows something else"
    return printed
