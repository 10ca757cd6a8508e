"""Pages of the documentation that name tests: their tables, and whether there are such tests."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "STATES", "cells", "missing", "section", "wrong_counts"]

ROOT = Path(__file__).resolve().parents[2]
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


def wrong_counts(page: str, states: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with the table that says how many rows have which state."""
    counted = Counter(states)
    said = {state: int(count) for state, count in cells(section(page, "How many"))}
    if said != {**{state: counted[state] for state in STATES}, "all": counted.total()}:
        yield f"the counts are {dict(counted)}"


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
