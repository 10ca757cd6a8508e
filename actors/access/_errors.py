"""The error of access control."""

from __future__ import annotations

from ...protocol import NotDelivered

__all__ = ["AccessDenied"]


class AccessDenied(NotDelivered):
    """An access control did not let the message in, or its sender send it."""

    reason = "denied"
