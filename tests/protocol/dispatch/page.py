"""The tables of the reference page, which the tests hold."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/reference/protocol-dispatch.md"


def code(text: str) -> list[str]:
    """Return what is between backticks."""
    return re.findall(r"`([^`]+)`", text)


def rows(header: str) -> list[list[str]]:
    """Return the cells of the table of the page that has this header, without it."""
    found = PAGE.read_text().split(f"\n{header}\n", 1)[1].split("\n")
    table = found[1 : found.index("")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
