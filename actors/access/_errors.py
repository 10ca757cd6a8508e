"""The error of access control."""

from __future__ import annotations

from ...protocol import NotDelivered

__all__ = ["AccessDenied"]


class AccessDenied(NotDelivered):
    """An access control of the receiver or of the sender denied the message."""

    reason = "denied"
