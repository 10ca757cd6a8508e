"""The tokens of names and of patterns.

`.` and `/` separate tokens and are the same. Separators at the beginning are skipped. One at the
end makes an empty token, and so do two in a row: `ab.cd.` has three tokens.
"""

from __future__ import annotations

__all__ = ["canonical"]


def canonical(text: str) -> str:
    """Return a text with `.` between its tokens; it is empty if the text is only separators."""
    return text.replace("/", ".").lstrip(".")
