"""Messages on hold: those that no consumer took, until one does or their time is over.

A message is tried in *rounds*. In a round each target is asked at most once; when none is left, the
message waits for its next round, at first for a short time and then for twice as long each time. A
consumer that comes meanwhile is asked at once, as a part of the same round. A message goes to the
next step of what is provisioned for undeliverable messages when its rounds or its time are over, or
if there is no room for it. While a target has the message, it is not on hold: it is put back if the
target releases it, with the same rounds and time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

from ._choice import Target

__all__ = ["Held", "HoldQueue", "HoldStatistics"]

Kept = TypeVar("Kept")

_SPARE: Final = 64
"""Times of messages that have gone which may lie in the heap beyond as many as are held."""


@dataclass(slots=True, eq=False)
class Held(Generic[Kept]):
    """A message on hold.

    Attributes:
        message: The message.
        size: Its bytes.
        until: When its time is over, in seconds.
        at: When its next round begins, in seconds.
        rounds: Rounds that have begun.
        tried: The targets that were asked in this round.
    """

    message: Kept
    size: int
    until: float
    at: float
    rounds: int = 0
    tried: set[Target] = field(default_factory=set[Target])


@dataclass(frozen=True, slots=True)
class HoldStatistics:
    """The messages on hold at one moment.

    Attributes:
        held: Number of messages.
        size: Their bytes.
        delivered: Number of messages that were handed on since the start.
        expired: Number of those with their time or rounds over.
        refused: Number of messages for which there was no room.
    """

    held: int
    size: int
    delivered: int
    expired: int
    refused: int


class HoldQueue(Generic[Kept]):
    """The messages of a name that are on hold.

    Args:
        messages: Messages that are held. Beyond: a further one is refused and counted.
        size: Bytes that they have together. Beyond: the same.
        age: Time for which a message is held, in seconds.
        rounds: Rounds in which a message is tried; 0 for as many as its time allows.
        first: Time before its first round, in seconds; it doubles with each round.
        longest: Longest such time, in seconds.
    """

    def __init__(
        self,
        *,
        messages: int,
        size: int,
        age: float,
        rounds: int = 0,
        first: float = 1.0,
        longest: float = 60.0,
    ) -> None:
        self._most = messages
        self._most_bytes = size
        self._age = age
        self._rounds = rounds
        self._first = first
        self._longest = longest
        # In the order in which they came: that in which they are tried.
        self._held: dict[Held[Kept], None] = {}
        self._times: list[tuple[float, int, Held[Kept]]] = []
        self._numbers = count()
        self._size = 0
        self._delivered = self._expired = self._refused = 0

    def put(
        self, message: Kept, size: int, now: float, until: float | None = None
    ) -> Held[Kept] | None:
        """Hold a message; `None` if there is no room, and its next step is due.

        Args:
            message: The message.
            size: Its bytes.
            now: The time, in seconds.
            until: When it is not worth handling any more, in seconds, if that is sooner.
        """
        end = now + self._age if until is None else min(until, now + self._age)
        if len(self._held) >= self._most or self._size + size > self._most_bytes or end <= now:
            self._refused += 1
            return None
        held = Held(message, size, end, min(end, now + self._wait(0)))
        self._held[held] = None
        self._size += size
        self._schedule(held)
        return held

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds; `None` if nothing is held."""
        while self._times and self._is_stale(self._times[0]):
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def due(self, now: float) -> tuple[list[Held[Kept]], list[Held[Kept]]]:
        """Return the messages of which a round begins, and those that have expired.

        A message of the first list is tried, with its `tried` set: each target that is asked goes
        into it by `asked`. When one takes it, `taken` is called. The others have left the queue.

        Args:
            now: The time, in seconds.
        """
        begun: list[Held[Kept]] = []
        expired: list[Held[Kept]] = []
        while (timer := self.get_timer()) is not None and timer <= now:
            held = heappop(self._times)[2]
            if held.until <= now or (self._rounds and held.rounds >= self._rounds):
                self._remove(held)
                self._expired += 1
                expired.append(held)
                continue
            held.rounds += 1
            held.tried.clear()
            held.at = min(held.until, now + self._wait(held.rounds))
            self._schedule(held)
            begun.append(held)
        return begun, expired

    def target_joined(self, target: Target) -> list[Held[Kept]]:
        """Return the messages that a new target can be asked for at once, in order."""
        return [held for held in self._held if target not in held.tried]

    def asked(self, held: Held[Kept], target: Target) -> bool:
        """Mark a target as asked; return whether it may be asked in this round."""
        if held not in self._held or target in held.tried:
            return False
        held.tried.add(target)
        return True

    def taken(self, held: Held[Kept]) -> None:
        """Remove a message that a target has taken; do nothing if it has gone."""
        if held in self._held:
            self._remove(held)
            self._delivered += 1

    def put_back(self, held: Held[Kept], now: float) -> bool:
        """Hold a message again that its target has released; return whether there is room and time.

        Args:
            held: The message, after `taken`.
            now: The time, in seconds.
        """
        self._delivered -= 1
        if held.until <= now:
            self._expired += 1
            return False
        if len(self._held) >= self._most or self._size + held.size > self._most_bytes:
            self._refused += 1
            return False
        held.at = min(held.until, now + self._wait(held.rounds))
        self._held[held] = None
        self._size += held.size
        self._schedule(held)
        return True

    def clear(self) -> list[Held[Kept]]:
        """Remove and return all messages, as when the name is provisioned without a hold."""
        gone = list(self._held)
        self._held.clear()
        self._times.clear()
        self._size = 0
        self._expired += len(gone)
        return gone

    def statistics(self) -> HoldStatistics:
        """Return the figures of the queue at this moment."""
        return HoldStatistics(
            held=len(self._held),
            size=self._size,
            delivered=self._delivered,
            expired=self._expired,
            refused=self._refused,
        )

    def _wait(self, rounds: int) -> float:
        """Return the time before a round, in seconds."""
        # Beyond 64 doublings no time is left that is not the longest.
        return min(self._longest, self._first * float(2 ** min(rounds, 64)))

    def _schedule(self, held: Held[Kept]) -> None:
        if len(self._times) > 2 * len(self._held) + _SPARE:
            self._times = [each for each in self._times if not self._is_stale(each)]
            heapify(self._times)
        heappush(self._times, (held.at, next(self._numbers), held))

    def _is_stale(self, entry: tuple[float, int, Held[Kept]]) -> bool:
        return entry[2] not in self._held or entry[0] != entry[2].at

    def _remove(self, held: Held[Kept]) -> None:
        del self._held[held]
        self._size -= held.size
