"""Check the language of docstrings, comments, texts and pages: `python tools/check_language.py`.

- The docstring of a class is a noun phrase; it does not begin with `What`, `Who`, `Those` or
  another such word.
- The docstring of a function is an imperative in the words of the field; it does not begin with
  `Say`, `Tell`, `Note`, `Have`, `Do`, `Let` or `Take`. A function called `take` takes.
- Docstrings, comments, string literals that are texts, and pages name their subjects: the words in
  `BANNED` are not used. Code in backticks and in fenced blocks is not looked at.

Files that predate the check are in `tools/language_debt.txt`. A file in that list that is clean,
or gone, has to be taken off the list, so the list only becomes shorter; `--prune` does that. With
paths as arguments, the violations in these files are printed, whether or not they are in the list.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DEBT: Final = "tools/language_debt.txt"

CODE: Final = (
    "actors",
    "benchmarks",
    "cli",
    "examples",
    "fuzz",
    "pipeline",
    "protocol",
    "tools",
    "transports",
)
"""Folders with Python code that is checked."""

PAGES: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs")
"""Pages, and folders of pages, that are checked."""

BANNED: Final = frozenset(
    {
        "who",
        "whoever",
        "whom",
        "whose",
        "nobody",
        "somebody",
        "anybody",
        "everybody",
        "someone",
        "anyone",
    }
)
"""Words that stand for a subject instead of naming it."""

PRONOUNS: Final = frozenset(
    {"what", "whatever", "who", "whoever", "whom", "whose", "which", "those", "that"}
)
"""First words that no docstring of a class or function has."""

CLASS_OPENINGS: Final = PRONOUNS | frozenset({"how", "when", "where", "whether", "why"})
"""First words that no docstring of a class has."""

FUNCTION_OPENINGS: Final = PRONOUNS | frozenset(
    {"say", "tell", "note", "have", "do", "let", "take"}
)
"""First words that no docstring of a function has."""

NAMED_SO: Final = frozenset({"take"})
"""First words for functions with a name that begins with the same word."""

_WORD: Final = re.compile(r"[a-z]+")
_BANNED: Final = re.compile(rf"\b(?:{'|'.join(sorted(BANNED))})\b", re.IGNORECASE)
_FENCED: Final = re.compile(r"^([ ]*)(```+|~~~+).*?^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)|<!--.*?-->|\]\([^)]*\)", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """A word at a line of a file, and the rule that it breaks."""

    path: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}"


def check_file(root: Path, path: str) -> list[Violation]:
    """Return the violations in a file, in the order of its lines."""
    text = (root / path).read_text(encoding="utf-8")
    found = check_code(text) if path.endswith(".py") else check_page(text)
    return sorted({Violation(path, line, rule) for line, rule in found})


def check_code(program: str) -> Iterator[tuple[int, str]]:
    """Yield line and rule of each violation in a Python file."""
    tree = ast.parse(program)
    documented: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            documented.add(node.value)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _opening(node)
    for node in ast.walk(tree):
        # A literal without a space is a name or a datum, unless it is a docstring.
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (node in documented or " " in node.value)
        ):
            yield from _banned(node.value, node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(program).readline):
        if token.type == tokenize.COMMENT:
            yield from _banned(token.string, token.start[0])


def check_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and rule of each violation in a Markdown page."""
    return _banned(_FENCED.sub(_blank, text), 1)


def _opening(
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[tuple[int, str]]:
    docstring = ast.get_docstring(node, clean=True)
    found = _WORD.match(docstring.lower()) if docstring else None
    if found is None:
        return
    word = found[0]
    line = node.body[0].lineno
    if isinstance(node, ast.ClassDef):
        if word in CLASS_OPENINGS:
            yield line, f"the docstring of class {node.name} begins with {word.title()!r}"
    elif word in FUNCTION_OPENINGS and not _is_named(node.name, word):
        yield line, f"the docstring of function {node.name} begins with {word.title()!r}"


def _is_named(name: str, word: str) -> bool:
    return word in NAMED_SO and name.strip("_").split("_")[0] == word


def _banned(text: str, first_line: int) -> Iterator[tuple[int, str]]:
    text = _INLINE.sub(_blank, text)
    for found in _BANNED.finditer(text):
        line = first_line + text.count("\n", 0, found.start())
        yield line, f"{found[0].lower()!r} does not name its subject"


def _blank(found: re.Match[str]) -> str:
    # The lines stay, so that those that follow keep their numbers.
    return "\n" * found[0].count("\n")


def files(root: Path) -> Iterator[str]:
    """Yield the path of each file that is checked, relative to the root."""
    for folder in CODE:
        yield from _below(root, folder, "*.py")
    for page in PAGES:
        if page.endswith(".md"):
            yield page
        else:
            yield from _below(root, page, "*.md")


def _below(root: Path, folder: str, pattern: str) -> Iterator[str]:
    for path in sorted((root / folder).rglob(pattern)):
        yield path.relative_to(root).as_posix()


def read_debt(root: Path) -> list[str]:
    """Return the paths of the files that are not yet clean."""
    lines = (root / DEBT).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def prune(root: Path, paid: Iterable[str]) -> None:
    """Remove paths from the list of files that are not yet clean."""
    gone = set(paid)
    lines = (root / DEBT).read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.rstrip("\n") not in gone]
    (root / DEBT).write_text("".join(kept), encoding="utf-8")


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Print the violations, and return 1 if there are any."""
    named = [each for each in arguments if not each.startswith("--")]
    if named:
        found = [each for path in named for each in check_file(root, path)]
        print(*found, sep="\n", end="\n" if found else "")
        return 1 if found else 0
    debt = read_debt(root)
    by_file = {path: check_file(root, path) for path in files(root)}
    new = [each for path, found in by_file.items() if path not in debt for each in found]
    paid = [path for path in debt if not by_file.get(path)]
    if "--prune" in arguments:
        prune(root, paid)
        paid = []
    for violation in new:
        print(violation)
    for path in paid:
        print(f"{path}: is clean or gone, take it off {DEBT} (--prune)")
    if debt != sorted(set(debt)):
        print(f"{DEBT}: the paths are not sorted, or one is there twice")
    return 1 if new or paid or debt != sorted(set(debt)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
