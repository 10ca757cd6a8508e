"""The format of numbers, times and user data in the page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

__all__ = [
    "amount",
    "as_json",
    "clock",
    "compact",
    "duration",
    "html",
    "plain",
    "share",
    "short",
    "size",
    "utc",
]

LABEL: Final = 26
"""Characters of a label in a plot; the tooltip shows all of it."""

_UNITS: Final = ("", " k", " M", " G", " T")


def html(text: object) -> str:
    """Return a text escaped for HTML. Tag values come from clients."""
    return escape(str(text), quote=True)


def plain(text: str) -> str:
    """Return a text escaped for a plot: Plotly interprets some tags of HTML."""
    return escape(text, quote=False)


def as_json(value: Any) -> str:
    """Return JSON for the inside of a script element; it cannot end the element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def short(text: str, most: int = LABEL) -> str:
    """Return a text of at most `most` characters, with its middle left out."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def amount(number: float) -> str:
    """Return a whole number with thin spaces between its thousands."""
    return f"{round(number):,}".replace(",", "\u202f")


def compact(number: float) -> str:
    """Return a number in at most three digits and a unit: `1.25 M`."""
    return _scaled(float(number), 1000.0)


def size(octets: float) -> str:
    """Return a number of bytes with a unit: `3.4 MB`."""
    text = _scaled(float(octets), 1000.0)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def _scaled(number: float, step: float) -> str:
    for unit in _UNITS:
        if abs(number) < step * 0.9995 or unit == _UNITS[-1]:
            return f"{_three(number)}{unit}"
        number /= step
    raise AssertionError("the last unit takes all")


def _three(number: float) -> str:
    if number == round(number) and abs(number) < 1000:
        return str(round(number))
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"


def duration(microseconds: float) -> str:
    """Return a duration with a suitable unit: `1.25 ms`, or `4 h`."""
    if microseconds < 1000:
        return f"{_three(float(microseconds))} µs"
    if microseconds < 1_000_000:
        return f"{_three(microseconds / 1000)} ms"
    seconds = microseconds / 1_000_000
    if seconds < 120:
        return f"{_three(seconds)} s"
    if seconds < 7200:
        return f"{_three(seconds / 60)} min"
    return f"{_three(seconds / 3600)} h"


def share(part: float, whole: float) -> str:
    """Return a part in per cent; a small part other than 0 is not shown as 0."""
    if not whole:
        return "\u2013"
    percent = 100 * part / whole
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    return f"{percent:.2f}".rstrip("0").rstrip(".") + " %"


def clock(moment: datetime | None) -> str:
    """Return the time of day, UTC."""
    return "\u2013" if moment is None else f"{moment:%H:%M:%S}"


def utc(moment: datetime) -> datetime:
    """Return a time collected by Spark, which is local and without a zone, as UTC."""
    return moment.astimezone(UTC)
