"""Write the documentation's tables of errors from the classes.

`tools.pages` calls `fill` for each page; a line `<!-- errors: NotDelivered -->` becomes a
table of the public errors below that class, nested as they are derived, each with the first
sentence of its docstring. What has a table of its own is left out of that of its root. A
public error that no table has is an error.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from onward.protocol import OnwardError

ROOT = Path(__file__).resolve().parent.parent
_MARK = re.compile(r"^<!-- errors: (?P<name>\w+) -->$", re.MULTILINE)


def fill(markdown: str) -> str:
    """Replace the marks of a page.

    Raises:
        KeyError: There is no such public error.
        LookupError: The page has tables, but a public error is in none of them.
    """
    names = [mark["name"] for mark in _MARK.finditer(markdown)]
    if not names:
        return markdown
    errors = public_errors()
    by_name = {error.__name__: error for error in errors}
    roots = [by_name[name] for name in names]

    def table(mark: re.Match[str]) -> str:
        root = by_name[mark["name"]]
        others = [each for each in roots if each is not root]
        return _table(_below(root, errors, others), errors)

    page = _MARK.sub(table, markdown)
    if missing := [path for path in errors.values() if f"][{path}]" not in page]:
        raise LookupError(f"errors in no table: {', '.join(missing)}")
    return page


def public_errors() -> dict[type[OnwardError], str]:
    """Find the errors of all packages, each with the shortest path to import it from."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found: dict[type[OnwardError], str] = {}
    for package in map(importlib.import_module, sorted(listed, key=len)):
        for name in getattr(package, "__all__", ()):
            thing = getattr(package, name)
            if inspect.isclass(thing) and issubclass(thing, OnwardError):
                found.setdefault(thing, f"{package.__name__}.{name}")
    return found


def _below(
    root: type[OnwardError],
    errors: dict[type[OnwardError], str],
    others: list[type[OnwardError]],
    depth: int = 0,
) -> Iterator[tuple[type[OnwardError], int]]:
    """Yield the errors below one, in the order of `errors`, and how deep each is."""
    # Not in the order of `__subclasses__`, which is that in which modules were imported.
    for error in errors:
        if root in error.__bases__ and not any(issubclass(other, error) for other in others):
            yield error, depth
            yield from _below(error, errors, others, depth + 1)


def _table(
    rows: Iterator[tuple[type[OnwardError], int]], errors: dict[type[OnwardError], str]
) -> str:
    lines = [
        f"| {'· ' * depth}[`{error.__name__}`][{errors[error]}] "
        f"| `{errors[error].rpartition('.')[0]}` | {_summary(error)} |"
        for error, depth in rows
    ]
    return "\n".join(["| error | of | when |", "| --- | --- | --- |", *lines])


def _summary(error: type[OnwardError]) -> str:
    return " ".join((inspect.getdoc(error) or "").split("\n\n")[0].split())
