"""The error of a topology that cannot be run."""

from __future__ import annotations

from ...protocol import OnwardError
from ...protocol.topology import Position

__all__ = ["TopologyFailed"]


class TopologyFailed(OnwardError):
    """A part of a topology could not be started. The parts started before have been stopped.

    The `__cause__` is the exception of its start.

    Attributes:
        place: The part, and its place in the file.
        reason: The reason.
    """

    def __init__(self, place: Position, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"
