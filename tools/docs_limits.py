"""Write the documentation's table of limits from the code.

`tools.pages` calls `fill` for each page; the line `<!-- limits -->` becomes one table for each
public class of limits or options, and one for the public `MAX_*` constants. Names and defaults
are those of the running code and the texts those of its docstrings, so none can be missing or
wrong; a field that does not say what it limits is an error.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARK = "<!-- limits -->"
KIBI, MEBI = 1024, 1024 * 1024


def fill(markdown: str) -> str:
    """Replace the mark of a page."""
    return markdown.replace(MARK, "\n\n".join(sections())) if MARK in markdown else markdown


def sections() -> Iterator[str]:
    """Write a section for each package that has public limits."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    seen = set[object]()
    for package in map(importlib.import_module, listed):
        constants = list(_constants(package))
        if constants:
            yield f"## {package.__name__}"
            yield _table("constant", constants)
        for name in getattr(package, "__all__", ()):
            thing = getattr(package, name)
            if is_limits(thing) and thing not in seen:
                seen.add(thing)
                yield f"## {package.__name__}.{name}"
                yield f"[`{name}`][{package.__name__}.{name}] · {summary(thing)}"
                yield _table("field", list(_fields(thing)))


def is_limits(thing: object) -> bool:
    """Whether a public name is a dataclass that holds limits."""
    return (
        inspect.isclass(thing)
        and dataclasses.is_dataclass(thing)
        and (
            thing.__name__.endswith(("Limits", "Options", "Config"))
            or thing.__name__ in {"Backoff", "MailboxOptions", "Supervision"}
        )
    )


def summary(thing: type) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def attributes(thing: type) -> dict[str, str]:
    """Read the `Attributes:` sections of a class and of those it is derived from: name to text."""
    found: dict[str, str] = {}
    for base in reversed(thing.__mro__[:-1]):
        found.update(_attributes(base))
    return found


def _attributes(thing: type) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    section = (inspect.getdoc(thing) or "").partition("\nAttributes:\n")[2]
    name = ""
    for line in section.splitlines():
        if line and not line.startswith("    "):
            break
        if start := re.match(r"    (\w+): (.*)", line):
            name = start[1]
            found[name] = [start[2]]
        elif line.strip():
            found[name].append(line.strip())
    return {name: " ".join(lines) for name, lines in found.items()}


def default_text(value: Any) -> str:
    """Write a default for people: `1,000,000`, `64 Mi`, `2.5`, `None`."""
    if dataclasses.is_dataclass(value):
        return f"`{type(value).__name__}()`"
    if isinstance(value, float):
        return f"{value:,g}"
    if callable(value):
        # The repr of a bound method, as `random.random` is one, has an address in it.
        module = value.__module__ or type(getattr(value, "__self__", None)).__module__
        return f"`{module}.{value.__name__}`"
    if isinstance(value, bool) or not isinstance(value, int):
        return f"`{value}`"
    if value >= MEBI and value % MEBI == 0:
        return f"{value // MEBI} Mi"
    if value >= 8 * KIBI and value % KIBI == 0:
        return f"{value // KIBI} Ki"
    return f"{value:,}"


def _fields(thing: Any) -> Iterator[tuple[str, str, str]]:
    texts = attributes(thing)
    for field in dataclasses.fields(thing):
        if field.default_factory is not dataclasses.MISSING:
            yield field.name, default_text(field.default_factory()), texts[field.name]
        elif field.default is dataclasses.MISSING:
            yield field.name, "required", texts[field.name]
        else:
            value = getattr(field.default, "name", field.default)
            yield field.name, default_text(value), texts[field.name]


def _constants(package: ModuleType) -> Iterator[tuple[str, str, str]]:
    documented: dict[str, str] = {}
    folder = Path(str(package.__file__)).parent
    for file in sorted((*folder.glob("_[a-z]*.py"), *folder.glob("[a-z]*/_[a-z]*.py"))):
        documented.update(_documented(file))
    for name in getattr(package, "__all__", ()):
        value = getattr(package, name)
        is_limit = name.startswith(("MAX_", "DEFAULT_")) or name.endswith("_LIFETIME")
        if is_limit and name in documented and isinstance(value, int | float):
            yield name, default_text(value), documented[name]


def _documented(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the names a module assigns, each with the string that stands below it."""
    body = ast.parse(file.read_text()).body
    for statement, below in pairwise(body):
        if not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, " ".join(str(below.value.value).split())


def _table(head: str, rows: list[tuple[str, str, str]]) -> str:
    lines = [(head, "default", ""), ("---", "---", "---")]
    lines += [(f"`{name}`", default, text) for name, default, text in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
