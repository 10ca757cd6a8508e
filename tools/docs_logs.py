"""Write the documentation's table of log events from the code.

`tools.pages` calls `fill`; the line `<!-- log-events -->` becomes a table of all ids that stand in
the code as `extra={"event": "connection.closed", ...}`, with the level, the text and the fields of
each. A call of a logger without an event is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["MARK", "Logged", "fill", "logged", "table"]

MARK: Final = "<!-- log-events -->"

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("actors", "transports", "cli")

_LEVELS: Final = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
    "critical": "critical",
}


@dataclass(frozen=True, slots=True, order=True)
class Logged:
    """A line that the code logs.

    Attributes:
        event: The id of its event; empty if it has none.
        level: Its level; empty if it varies.
        text: Its text with the marks of its arguments; empty if it is made elsewhere.
        fields: The names of its fields.
        place: The file and the line of the code.
    """

    event: str
    level: str
    text: str
    fields: tuple[str, ...]
    place: str


def fill(markdown: str) -> str:
    """Replace the mark of a page."""
    return markdown.replace(MARK, "\n".join(table())) if MARK in markdown else markdown


def table() -> list[str]:
    """Return the lines of the table.

    Raises:
        ValueError: A line of the log has no event.
    """
    rows: dict[str, tuple[set[str], list[str], set[str]]] = {}
    for each in sorted(logged()):
        if not each.event:
            raise ValueError(f"{each.place}: a line of the log has no event")
        levels, texts, fields = rows.setdefault(each.event, (set(), [], set()))
        levels.add(each.level)
        if each.text and each.text not in texts:
            texts.append(each.text)
        fields.update(each.fields)
    lines = ["| event | level | text | fields |", "| --- | --- | --- | --- |"]
    for event, (levels, texts, fields) in sorted(rows.items()):
        shown = " · ".join(f"`{text}`" for text in texts).replace("|", "\\|")
        names = ", ".join(f"`{name}`" for name in sorted(fields))
        lines.append(f"| `{event}` | {', '.join(sorted(levels - {''}))} | {shown} | {names} |")
    return lines


def logged() -> Iterator[Logged]:
    """Yield all lines that the code logs."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from _logged_by(path)


def _logged_by(path: Path) -> Iterator[Logged]:
    tree = ast.parse(path.read_text())
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if not _is_log(call.func):
            continue
        extra = next((each.value for each in call.keywords if each.arg == "extra"), None)
        if isinstance(extra, ast.Name) and extra.id == "more":
            continue  # the logger of seldom lines, which passes on what it is given
        at = call.lineno
        around = [each for each in functions if each.lineno <= at <= (each.end_lineno or 0)]
        within: ast.AST = tree if not around else around[-1]
        names = _names(extra)
        event = names.pop("event", None)
        shown = str(event.value) if isinstance(event, ast.Constant) else ""
        level, text = _level_and_text(call, call.func.attr, within)
        yield Logged(shown, level, text, tuple(names), f"{path.relative_to(ROOT)}:{at}")


def _is_log(method: ast.Attribute) -> bool:
    base = ast.unparse(method.value).lower()
    is_logger = "logger" in base or "seldom" in base or base.endswith("self._log")
    return is_logger and method.attr in {*_LEVELS, "log"}


def _names(extra: ast.expr | None) -> dict[str, ast.expr]:
    if not isinstance(extra, ast.Dict):
        return {}
    pairs = zip(extra.keys, extra.values, strict=True)
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _level_and_text(call: ast.Call, method: str, within: ast.AST) -> tuple[str, str]:
    level, at = _LEVELS.get(method, ""), 0
    if not level:  # log(level, text, ...), or log(level, kind, text, ...) of seldom lines
        first = ast.unparse(call.args[0])
        level = first.removeprefix("logging.").lower() if first.startswith("logging.") else ""
        at = 2 if len(call.args) > 2 else 1
    return level, _text(call.args[at], within)


def _text(value: ast.expr, within: ast.AST) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    name = value.id if isinstance(value, ast.Name) else ""
    for node in ast.walk(within):
        if isinstance(node, ast.Assign):
            # `text = ...`, or `text, detail = ..., ...`
            target, made = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(made, ast.Tuple):
                target, made = target.elts[0], made.elts[0]
            is_it = isinstance(target, ast.Name) and target.id == name
            if is_it and isinstance(made, ast.Constant):
                return str(made.value)
    return ""
