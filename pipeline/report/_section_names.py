"""The HTML of the section on messages to names."""

from __future__ import annotations

from dataclasses import astuple
from typing import Final

from ._page_names import NameOutcomes
from ._parts import more, none, note, table
from ._text import amount, html

__all__ = ["names_body"]

_HEADINGS: Final = (
    *("Name or consumer", "Received", "Accepted", "Settled", "Rejected", "Released", "In doubt"),
    *("Dropped", "Canceled", "Held", "Redirected"),
)


def names_body(names: NameOutcomes) -> str:
    """Return the body of the section."""
    body = note(
        "Messages to names: each counts once where it entered the network, under the name that it "
        "was sent to, and has one outcome; held and redirected are in between. Below a name are "
        "its consumers with the copies that they were handed, and the routes of redirects."
    )
    if not names.rows:
        return body + none("No messages to names were recorded on this day.")
    rows = [
        (
            f"→ <code>{html(row.consumer)}</code>" if row.consumer else html(row.name),
            *("\u2013" if number == 0 else amount(number) for number in astuple(row)[2:]),
        )
        for row in names.rows
    ]
    body += table(_HEADINGS, rows, range(1, len(_HEADINGS)))
    return body + more(names.more, "row", "rows")
