"""The data source under the name that Spark looks up."""

from __future__ import annotations

from importlib import import_module
from typing import Final

__all__ = ["DefaultSource"]

# This package is beside `onward` when installed, and inside it in the sources: only the absolute
# name works in both.
DefaultSource: Final = import_module("onward.pipeline.source").EventLogSource
"""The class that reads event logs and sends messages: see `onward.pipeline.source`."""
