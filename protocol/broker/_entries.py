"""Onward's own entries of composite metadata, by their MIME types."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_ROUTE_TEXT", "MIME_HOP_REPORT", "MIME_ROUTE", "MIME_TRACING"]

MIME_ROUTE: Final = "message/x.onward.route.v0"
"""The onward route of a request in text form, in UTF-8, in place of an ADDRESS."""

MAX_ROUTE_TEXT: Final = 1024
"""Most bytes of the text of a route in metadata; a longer one is INVALID, and is not read."""

MIME_TRACING: Final = "message/x.onward.tracing.v0"
"""A request's tracing text, as in a message between nodes: a JSON object in UTF-8."""

MIME_HOP_REPORT: Final = "message/x.onward.hop-report.v0"
"""A report of one hop of a traced request, in a METADATA_PUSH of the broker."""
