"""Errors of writing event logs."""

from __future__ import annotations

from ...protocol import OnwardError

__all__ = ["LogInUse"]


class LogInUse(OnwardError):
    """An error for a log that another process writes.

    Attributes:
        path: The log's folder.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"another process writes the event log {self.path}: stop it, or give this one "
            "another name"
        )
