"""Onward's own entries of composite metadata, by their MIME types."""

from __future__ import annotations

from typing import Final

__all__ = ["MIME_HOP_REPORT", "MIME_TRACING"]

MIME_TRACING: Final = "message/x.onward.tracing.v0"
"""A request's tracing text, as in a message between nodes: a JSON object in UTF-8."""

MIME_HOP_REPORT: Final = "message/x.onward.hop-report.v0"
"""A report of one hop of a traced request, in a METADATA_PUSH of the broker."""
