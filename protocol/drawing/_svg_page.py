"""The common part of SVG pictures: the page, and text that XML can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Final

__all__ = ["escaped", "page"]

# Characters that XML 1.0 does not permit, not even escaped (section 2.2).
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def page(width: str, height: str, title: str, style: str) -> Iterator[str]:
    """Yield the start of a picture; the sizes are pixels. The caller adds `</svg>` at the end."""
    shown = escaped(title)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{shown}">'
    )
    yield f"<title>{shown}</title>"
    yield f"<style>{style}</style>"
    yield f'<rect class="page" width="{width}" height="{height}"/>'


def escaped(text: str) -> str:
    """Escape a text for XML; characters that XML cannot hold become U+FFFD."""
    return escape(_NOT_XML.sub("\ufffd", text))
