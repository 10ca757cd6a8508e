"""The page as one HTML file with style, script, plots and their data.

A Content-Security-Policy in the page forbids requests, so that neither a bug nor a tag value from
a client can cause one.
"""

from __future__ import annotations

from typing import Final

from ._page import Page
from ._page_audit import Audit
from ._parts import tile
from ._script import SCRIPT
from ._sections import sections_of
from ._style import STYLE
from ._text import amount, as_json, compact, duration, html, share, size

__all__ = ["render"]

_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def render(page: Page) -> str:
    """Return the page as HTML, about 5 MB, most of it the library for plots.

    It needs no network, is the same for the same content, and shows user data as text.
    """
    sections = sections_of(page)
    figures = {name: figure for section in sections for name, figure in section.figures.items()}
    links = "".join(f'<a href="#{each.name}">{html(_LINKS[each.name])}</a>' for each in sections)
    cards = "".join(
        f'<section class=card id="{each.name}"><h2>{html(each.title)}</h2>{each.body}</section>'
        for each in sections
    )
    title = f"Routing on {page.day.isoformat()}"
    return (
        '<!doctype html><html lang=en><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html(_POLICY)}">'
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{html(title)}</title><style>{STYLE}</style></head><body>"
        f"<div class=wrap>{_header(page)}</div>"
        f"<nav><div class=wrap>{links}</div></nav>"
        f"<main class=wrap>{cards}</main>"
        "<footer class=wrap>All times are UTC. Made by <code>onward pipeline report</code>; "
        "figures from samples are estimates, counts of requests are exact.</footer>"
        f'<script type="application/json" id=figures>{as_json(figures)}</script>'
        f"<script>{_plotly()}</script><script>{SCRIPT}</script></body></html>\n"
    )


_LINKS: Final = {
    "traffic": "Traffic",
    "latency": "Latency",
    "slo": "Objectives",
    "unroutable": "Unroutable",
    "shards": "Shards",
    "churn": "Churn",
    "paths": "Paths",
    "names": "Names",
    "relays": "Relays",
    "replay": "Rehearsal",
    "audit": "Audit",
    "logs": "Logs",
}


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text


def _header(page: Page) -> str:
    names = [broker.name for broker in page.brokers]
    logs = ", ".join(names[:4]) + (
        f" and {len(names) - 4 + page.more_brokers} more" * (len(names) + page.more_brokers > 4)
    )
    state = "complete" if page.closed else "incomplete; the lake has a part of the day"
    about = f"{html(logs)}: {state}" if names else "no log of this day"
    return (
        "<header><div class=top><div><div class=kind>Routing report</div>"
        f"<h1>{page.day:%A}, {page.day.day} {page.day:%B %Y}</h1></div>"
        "<button id=scheme type=button>Light / dark</button></div>"
        f"<p>{_verdict(page.audit)}<span class=logs>{about}</span></p>{_tiles(page)}</header>"
    )


def _verdict(audit: Audit | None) -> str:
    if audit is None:
        return ""
    if audit.empty:
        return '<span class="verdict note">Audit: nothing was recorded</span>'
    if audit.balanced and audit.whole:
        return "<span class=verdict>Audit: balanced</span>"
    wrong = _said(
        (audit.unrecorded, "not recorded"),
        (audit.absent, "missing from the lake"),
        (audit.untold, "ended without a recorded request"),
        (audit.missing - audit.open, "missing"),
        (audit.duplicated - audit.before, "duplicated"),
    )
    in_hand = _said(
        (audit.open, "in progress or lost"),
        (audit.before, "in progress before the audit or duplicated"),
    )
    kind, said = "bad" if wrong else "note", [*wrong, *in_hand]
    text = (" and " if len(said) == 2 else "; ").join(said)
    return f'<span class="verdict {kind}">Audit: {text}</span>'


def _said(*figures: tuple[int, str]) -> list[str]:
    return [f"{amount(number)} {what}" for number, what in figures if number]


def _tiles(page: Page) -> str:
    totals = page.totals
    wrong = totals.failed + totals.rejected
    tiles = [
        tile("requests", compact(totals.requests)),
        tile("delivered", share(totals.delivered, totals.requests)),
        tile("unroutable", compact(totals.unroutable), bad=totals.unroutable > 0),
        tile("failed or rejected", compact(wrong), bad=wrong > 0),
        tile("payload", size(totals.bytes)),
    ]
    if page.latency is not None and page.latency.lines:
        first = max(page.latency.lines, key=lambda line: line.day[0])
        tiles.append(tile(f"p95 of {first.dest}", duration(first.day[2])))
    return f"<div class=tiles>{''.join(tiles)}</div>"
