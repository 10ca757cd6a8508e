"""The description of a rehearsal, kept beside its reports for the page that shows them."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from ..ingest import Lake

__all__ = ["keep_rehearsal", "rehearsal_of"]

_FILE: Final = "_rehearsal.json"
"""Spark reads no files with a leading `_`, and removes this one when it rewrites the report."""

_MOST: Final = 1_000
"""Characters that are kept at most."""


def keep_rehearsal(lake: Lake, day: date, out: str | Path | None, about: str) -> None:
    """Write the description of a rehearsal, after its reports were written."""
    text = json.dumps({"about": about[:_MOST]})
    _place(lake, day, out).write_text(text, encoding="utf-8")


def rehearsal_of(lake: Lake, day: date, out: str | Path | None) -> str:
    """Return the description of a rehearsal; empty if there is none."""
    try:
        read: Any = json.loads(_place(lake, day, out).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    if not isinstance(read, dict):
        return ""
    return str(cast("dict[str, Any]", read).get("about", ""))[:_MOST]


def _place(lake: Lake, day: date, out: str | Path | None) -> Path:
    root = lake.path / "reports" if out is None else Path(out)
    return root / "replay_summary" / f"day={day.isoformat()}" / _FILE
