"""Write into the pages of the documentation what they show of the code: `python -m tools.pages`.

The pages are tracked as they are read, in an editor or on a forge too. What comes from elsewhere
stands behind a mark, and is written anew from it:

- `<!-- from: examples/tutorial/broker.py:main -->` above a block of code: that section of the
  file, between the comments `--8<-- [start:main]` and `--8<-- [end:main]`; without a section all
  of it;
- `<!-- limits -->`, `<!-- metrics -->`, `<!-- errors: NAME -->`, `<!-- drawn: NAME -->`,
  `<!-- configuration: COMMAND -->` or `<!-- help: COMMAND -->`, up to the next `<!-- end -->`: what
  `docs_limits`, `docs_metrics`, `docs_errors`, `docs_states`, `docs_config` or `docs_cli` makes.

A test holds the pages against it. With `--check` nothing is written, and the exit status says
whether something would be.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from . import docs_cli, docs_config, docs_errors, docs_limits, docs_logs, docs_metrics, docs_states

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ROOT / "docs"

_FROM: Final = re.compile(
    r"^<!-- from: (?P<file>[^:\s]+)(?::(?P<section>[\w-]+))? -->\n(?P<open>```.*\n)(?:.*\n)*?```$",
    re.MULTILINE,
)
_GENERATED: Final = re.compile(
    r"^(?P<mark><!-- (?:limits|log-events|metrics"
    r"|(?:configuration|drawn|errors|help): *[\w -]*?) *-->)\n"
    r"(?:\n?(?:(?!<!-- ).*\n)*?<!-- end -->\n)?",
    re.MULTILINE,
)
_SECTION: Final = re.compile(r"^\s*(?:#|//) --8<-- \[(?P<edge>start|end):(?P<name>[\w-]+)\]$")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages that are not as they should be, and print their names."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    check = "--check" in given
    changed = 0
    for page, text in written():
        if text != page.read_text():
            changed += 1
            print(page.relative_to(ROOT))
            if not check:
                page.write_text(text)
    return 1 if check and changed else 0


def written() -> Iterator[tuple[Path, str]]:
    """Yield each page that has marks, with the text it should have."""
    for page in marked():
        yield page, made(page)


def marked() -> Iterator[Path]:
    """Yield each page that has marks."""
    for page in sorted(PAGES.rglob("*.md")):
        text = page.read_text()
        if _FROM.search(text) or _GENERATED.search(text):
            yield page


def made(page: Path) -> str:
    """Return the text that a page should have."""
    return generated(included(page.read_text()))


def included(text: str) -> str:
    """Return a page with its code as the files have it.

    Raises:
        LookupError: A file has no such section.
    """
    return _FROM.sub(_block, text)


def _block(mark: re.Match[str]) -> str:
    first = mark[0].partition("\n")[0]
    code = section(ROOT / mark["file"], mark["section"])
    return f"{first}\n{mark['open']}{code}```"


def section(file: Path, name: str | None) -> str:
    """Return a section of a file, or all of it, without the comments that say where sections are.

    Raises:
        LookupError: There is no such section, or it is empty.
    """
    kept: list[str] = []
    inside = name is None
    for line in file.read_text().splitlines():
        edge = _SECTION.match(line)
        if edge is None:
            kept += [line] * inside
        elif edge["name"] == name:
            inside = edge["edge"] == "start"
    code = textwrap.dedent("\n".join(kept)).strip("\n")
    if not code:
        raise LookupError(f"{file} has no section {name}")
    return f"{code}\n"


def generated(text: str) -> str:
    """Return a page with what the tools make of the code at present."""
    return _GENERATED.sub(_made, text) if not _has_errors(text) else _errors(text)


def _made(found: re.Match[str]) -> str:
    mark = found["mark"]
    made = mark
    for tool in (docs_config, docs_limits, docs_logs, docs_metrics, docs_states, docs_cli):
        made = tool.fill(made)
    return _between(mark, made)


def _has_errors(text: str) -> bool:
    return "<!-- errors:" in text


def _errors(text: str) -> str:
    # The tables of a page are made together: all errors have to be somewhere on it.
    marks = [found["mark"] for found in _GENERATED.finditer(text)]
    numbers = count()
    bare = _GENERATED.sub(lambda found: f"\0{next(numbers)}\n{found['mark']}\n\0\n", text)
    page = docs_errors.fill(bare)
    return re.sub(
        "\0([0-9]+)\n(.*?)\n\0\n",
        lambda made: _between(marks[int(made[1])], made[2]),
        page,
        flags=re.DOTALL,
    )


def _between(mark: str, made: str) -> str:
    return f"{mark}\n\n{made}\n\n<!-- end -->\n"


if __name__ == "__main__":
    sys.exit(main())
