"""The counts of requests by interaction and outcome, and their durations.

The hot path adds to them for each request of a connection. So the usual ends of short requests are
plain counters, which cost as much as nothing, and one duration in `SAMPLED` is taken.
"""

from __future__ import annotations

from typing import Final

from ...protocol._closed import close_class
from ...protocol.eventlog import Outcome
from ...protocol.metrics import DurationHistogram, Durations
from ...protocol.rsocket import FrameType

__all__ = ["SAMPLED", "RequestTally"]

SAMPLED: Final = 16
"""Answered requests of an interaction for each one with a duration; a power of two."""

NUMBERS: Final = 16
"""More than the number of any interaction, which is that of its frame type, or of any outcome."""

_DELIVER: Final = int(Outcome.DELIVER)
_FNF: Final = int(FrameType.REQUEST_FNF)
_RESPONSE: Final = int(FrameType.REQUEST_RESPONSE)


class RequestTally:
    """The counts of the requests of the connections of a broker that have ended.

    Attributes:
        answered: Requests for one response that a connection has answered.
        sent: Fire-and-forget that a connection has taken.
    """

    __slots__ = ("_durations", "_ended", "answered", "sent")

    def __init__(self) -> None:
        self.answered: int = 0
        self.sent: int = 0
        self._ended: list[int] = [0] * (NUMBERS * NUMBERS)
        self._durations: list[DurationHistogram] = [DurationHistogram() for _ in range(NUMBERS)]

    def end(self, kind: int, outcome: int) -> bool:
        """Count a request that is in neither of the counters; return whether it is a sample.

        Args:
            kind: Its interaction.
            outcome: Its outcome, as in the event log.
        """
        outcome &= NUMBERS - 1
        at = kind * NUMBERS + outcome
        count = self._ended[at] + 1
        self._ended[at] = count
        return outcome == _DELIVER and kind != _FNF and not count & (SAMPLED - 1)

    def took(self, kind: int, seconds: float) -> None:
        """Count the duration of a sample, from its first frame to the last of the answer."""
        self._durations[kind].add(seconds)

    def ended(self, kind: int) -> dict[Outcome, int]:
        """Return the requests of an interaction that have ended, by outcome."""
        at = kind * NUMBERS
        found = {outcome: self._ended[at + outcome] for outcome in Outcome}
        if kind == _RESPONSE:
            found[Outcome.DELIVER] += self.answered
        elif kind == _FNF:
            found[Outcome.DELIVER] += self.sent
        return found

    def durations(self, kind: int) -> Durations:
        """Return the durations of the samples of an interaction."""
        return self._durations[kind].read()


close_class(RequestTally)
