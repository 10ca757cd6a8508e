"""Write the documentation's table of metrics from the code.

`tools.pages` calls `fill` for each page; the line `<!-- metrics -->` becomes a table of all
families that a monitor may have, with their kinds, labels and meanings.
"""

from __future__ import annotations

from collections.abc import Iterator

from onward.actors.monitoring import METRIC_FAMILIES

MARK = "<!-- metrics -->"


def fill(markdown: str) -> str:
    """Replace the mark of a page."""
    return markdown.replace(MARK, "\n".join(rows())) if MARK in markdown else markdown


def rows() -> Iterator[str]:
    """Write the rows of the table, in the order of the text of the metrics."""
    yield "| name | kind | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for family in METRIC_FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"
