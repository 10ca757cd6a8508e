"""Logging what peers can cause; the runtime logs in the same way."""

from __future__ import annotations

from ..actors._log import LONGEST, SeldomLogger, shown

__all__ = ["LONGEST", "SeldomLogger", "shown"]
