"""What is raised when a topology cannot be run."""

from __future__ import annotations

from ...protocol import OnwardError
from ...protocol.topology import Place

__all__ = ["TopologyFailed"]


class TopologyFailed(OnwardError):
    """A part of a topology could not be started; what had been started was stopped again.

    The `__cause__` is what its start raised.

    Attributes:
        place: Which part, and where in the file it is.
        reason: Why.
    """

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"
