"""The log of events that peers cause, with the limits of the runtime's log."""

from __future__ import annotations

from ..actors._log import LONGEST, SeldomLogger, shown

__all__ = ["LONGEST", "SeldomLogger", "shown"]
