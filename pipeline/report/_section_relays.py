"""The HTML of the section on relays of identities."""

from __future__ import annotations

from typing import Final

from ._page_relays import RelayLoad, RelayRow
from ._parts import more, none, note, table
from ._text import amount, html, short

__all__ = ["relays_body"]

_RELAYS: Final = ("Relay", "Passed on", "Bytes", "Busiest hour", "Refused")
_ROWS: Final = ("Relay", "From", "To", "Passed on", "Bytes", "Refused")
_NODE: Final = 24
"""Characters of an identity that are shown: enough to tell it from others."""


def relays_body(load: RelayLoad) -> str:
    """Return the body of the section."""
    body = note(
        "Messages and answers that relays of identities passed on between the nodes next to them, "
        "which may be relays too, and what they refused, by the status. Payloads are not recorded. "
        "A relay in the anonymous profile does not record what comes from where."
    )
    if not load.relays:
        return body + none("No relay passed anything on, or refused it, on this day.")
    relays = [
        (
            html(row.relay),
            amount(row.relayed),
            amount(row.bytes),
            amount(row.busiest),
            _refused(row.refused),
        )
        for row in load.relays
    ]
    body += table(_RELAYS, relays, range(1, 5)) + more(load.more_relays, "relay", "relays")
    rows = [
        (
            html(row.relay),
            f"<code>{html(short(row.origin, _NODE))}</code>" if row.origin else "\u2013",
            _to(row),
            amount(row.relayed) if row.relayed else "\u2013",
            amount(row.bytes) if row.relayed else "\u2013",
            _refused(row.refused),
        )
        for row in load.rows
    ]
    body += "<h3>Between which nodes</h3>" + table(_ROWS, rows, range(3, 6))
    return body + more(load.more, "row", "rows")


def _to(row: RelayRow) -> str:
    if row.refused and not row.relayed:
        return f"refused: {html(row.to.replace('_', ' '))}"
    return f"<code>{html(short(row.to, _NODE))}</code>"


def _refused(count: int) -> str:
    return f"<span class=isbad>{amount(count)}</span>" if count else "\u2013"
