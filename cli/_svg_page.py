"""What pictures in SVG have in common: the page they are on, and text that XML can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Final

__all__ = ["escaped", "page"]

# What XML 1.0 has no way to write, not even escaped (section 2.2).
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def page(width: str, height: str, title: str, style: str) -> Iterator[str]:
    """Begin a picture; the sizes are pixels. What follows ends with `</svg>`."""
    shown = escaped(title)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{shown}">'
    )
    yield f"<title>{shown}</title>"
    yield f"<style>{style}</style>"
    yield f'<rect class="page" width="{width}" height="{height}"/>'


def escaped(text: str) -> str:
    """Return a text as XML shows it; what XML cannot hold becomes U+FFFD."""
    return escape(_NOT_XML.sub("\ufffd", text))
