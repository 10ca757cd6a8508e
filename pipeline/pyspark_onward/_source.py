"""The data source, by the name that Spark asks for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

__all__ = ["DefaultSource"]

# This package stands beside `onward` when it is installed, and inside of it in the sources: only
# by its whole name can the other be found from both.
DefaultSource: Final = import_module("onward.pipeline.source").EventLogSource
"""What reads event logs and sends messages: see `onward.pipeline.source`."""
