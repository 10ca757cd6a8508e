"""The frames that a sender has in flight: those that have arrived, and those that are lost."""

from __future__ import annotations

from typing import Final

from .._message import Message
from ._round_trip import RoundTrip

__all__ = ["Flight", "SentFrame"]

_OVERTAKEN_BY: Final = 3
"""Frames that were sent later and have arrived, after which one that has not is lost."""


class SentFrame:
    """Messages that were sent in one frame, and will be again if it is lost."""

    __slots__ = ("body", "first", "last", "messages", "order", "received", "sends", "sent_at")

    def __init__(self, first: int, messages: tuple[Message, ...], body: bytes) -> None:
        self.first = first
        self.last = first + len(messages) - 1
        self.messages = messages
        self.body = body
        self.order = 0
        self.sent_at = 0.0
        self.sends = 0
        self.received = False


class Flight:
    """Segments that were sent and are not known to have arrived, in the order of sending.

    The window of the sender bounds them.

    Args:
        round_trip: Takes the measurements.

    Attributes:
        lost_at: Time at which the next one counts as overtaken, in seconds, or `None`.
    """

    __slots__ = ("_flying", "_newest", "_order", "_round_trip", "lost_at")

    def __init__(self, round_trip: RoundTrip) -> None:
        self._round_trip = round_trip
        self._flying: dict[int, SentFrame] = {}
        self._order = 0
        self._newest = 0  # the latest order known to have arrived
        self.lost_at: float | None = None

    def __len__(self) -> int:
        return len(self._flying)

    def take_off(self, segment: SentFrame, now: float) -> None:
        """Record that a segment is sent now."""
        self._order += 1
        segment.order = self._order
        segment.sent_at = now
        segment.sends += 1
        self._flying[segment.order] = segment

    def arrived(self, segment: SentFrame, now: float) -> None:
        """Record the arrival of a segment at the receiver."""
        del self._flying[segment.order]
        passed = now - segment.sent_at
        if segment.sends == 1:
            self._round_trip.measured(passed)
        elif passed < self._round_trip.shortest:
            return  # it cannot have been the repetition that arrived
        if segment.order > self._newest:
            self._newest = segment.order

    def take_lost(self, now: float) -> list[SentFrame]:
        """Remove and return the segments that later frames have overtaken."""
        self.lost_at = None
        overtaken = self._round_trip.overtaken()
        lost: list[SentFrame] = []
        for segment in self._flying.values():
            if segment.order >= self._newest:
                break
            if segment.order + _OVERTAKEN_BY <= self._newest or segment.sent_at + overtaken <= now:
                lost.append(segment)
            else:
                self.lost_at = segment.sent_at + overtaken
                break
        for segment in lost:
            del self._flying[segment.order]
        return lost

    def take_oldest(self) -> SentFrame | None:
        """Remove and return the segment sent first, if there is one."""
        segment = next(iter(self._flying.values()), None)
        if segment is not None:
            del self._flying[segment.order]
        return segment
