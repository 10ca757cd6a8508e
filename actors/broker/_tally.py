"""The counts of requests by interaction or by service, by outcome, and their durations.

The hot path adds to them for each request of a connection. So the usual ends of short requests are
plain counters, which cost as much as nothing, and one duration in `SAMPLED` is taken.
"""

from __future__ import annotations

from typing import Final

from ...protocol._closed import close_class
from ...protocol.eventlog import Outcome
from ...protocol.metrics import DurationHistogram, Durations
from ...protocol.rsocket import FrameType

__all__ = ["NUMBERS", "OUTCOMES", "SAMPLED", "SLOW", "RequestTally", "ServiceTally"]

SAMPLED: Final = 16
"""Answered requests of an interaction for each one with a duration; a power of two."""

NUMBERS: Final = 16
"""More than the number of any interaction, which is that of its frame type, or of any outcome."""

SLOW: Final = 2**14 / 1_000_000
"""Seconds from which on each answer of a service is measured: the bound of a bucket."""

OUTCOMES: Final = {
    Outcome.DELIVER: "answered",
    Outcome.UNROUTABLE: "no_destination",
    Outcome.REJECTED: "rejected",
    Outcome.INVALID: "invalid",
    Outcome.DROP: "canceled",
    Outcome.FAILED: "error",
    Outcome.CANCELED: "cancelled_by_requester",
}
"""The outcomes of requests, by the names that operators see."""

_DELIVER: Final = int(Outcome.DELIVER)
_FNF: Final = int(FrameType.REQUEST_FNF)
_RESPONSE: Final = int(FrameType.REQUEST_RESPONSE)


class RequestTally:
    """The counts of the requests of the connections of a broker that have ended.

    Attributes:
        answered: Requests for one response that a connection has answered.
        sent: Fire-and-forget that a connection has taken.
        named: Requests that name a route instead of tags, by the number of their interaction.
    """

    __slots__ = ("_durations", "_ended", "answered", "named", "sent")

    def __init__(self) -> None:
        self.answered: int = 0
        self.sent: int = 0
        self.named: list[int] = [0] * NUMBERS
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


class ServiceTally:
    """The counts of the requests to a service that have ended.

    Args:
        name: The name of the service.

    Attributes:
        name: As given.
        answered: Requests for one response that a destination has answered.
        destinations: Destinations of the service in the table, at this broker.
        elsewhere: Those at peer brokers.
        left: Requests sent to destinations that have left the table.
        durations: How long answers took. Those within `SLOW` count as `SAMPLED`, as one in so many
            is taken.
        forwarded: The same counts of requests to destinations at peer brokers, which count them as
            well; `None` if there was none.
        counts: Requests that are not in `answered`, by the number of their outcome.
    """

    __slots__ = (
        "answered",
        "counts",
        "destinations",
        "durations",
        "elsewhere",
        "forwarded",
        "left",
        "name",
    )

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.answered: int = 0
        self.destinations: int = 0
        self.elsewhere: int = 0
        self.left: int = 0
        self.durations: DurationHistogram = DurationHistogram()
        self.forwarded: ServiceTally | None = None
        self.counts: list[int] = [0] * NUMBERS

    def at_peers(self) -> ServiceTally:
        """Return the counts for destinations at peer brokers."""
        found = self.forwarded
        if found is None:
            found = self.forwarded = ServiceTally(self.name)
        return found

    def count(self, outcome: int) -> None:
        """Count a request that is not in `answered`, by its outcome."""
        self.counts[outcome & (NUMBERS - 1)] += 1

    def took(self, seconds: float) -> None:
        """Count the duration of an answer: a sample, or one above `SLOW`."""
        self.durations.add(seconds, 1 if seconds > SLOW else SAMPLED)

    def ended(self) -> dict[Outcome, int]:
        """Return the requests that have ended, by outcome."""
        found = {outcome: self.counts[outcome] for outcome in OUTCOMES}
        found[Outcome.DELIVER] += self.answered
        return found

    @property
    def used(self) -> bool:
        """Whether there was a request."""
        there = self.forwarded
        own = self.answered or self.left or any(self.counts)
        return bool(own or (there is not None and there.used))

    def merge(self, other: ServiceTally) -> None:
        """Add the counts of another service."""
        self.answered += other.answered
        self.left += other.left
        self.durations.merge(other.durations)
        for number, count in enumerate(other.counts):
            self.counts[number] += count
        if other.forwarded is not None:
            self.at_peers().merge(other.forwarded)


close_class(RequestTally)
close_class(ServiceTally)
