"""Look-ups under way, and the messages that wait for their answers.

A message to an identity that is not known is parked, and the first one starts a look-up. Those that
follow wait for the same answer, so a storm of messages costs one look-up and what the limits allow.
They leave in the order in which they came, or are dropped with a reason: when their own time is up,
or that of the look-up.

Times are Unix milliseconds, as they are compared with the expiry of messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Annotated, Generic, NamedTuple, TypeAlias, TypeVar

from ..options import Count, Range, Size, check_options
from ._identities import Identity

__all__ = [
    "DroppedMessage",
    "LookupLimits",
    "LookupStatistics",
    "LookupTable",
    "ParkOutcome",
    "ParkedDropReason",
]

M = TypeVar("M")

Milliseconds: TypeAlias = Annotated[int, Range(least=1, unit="milliseconds")]
"""A time in milliseconds."""

_SLACK = 64
"""Times of messages that have left which are kept before they are swept, besides as many as those
of messages that are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupLimits:
    """Limits of messages that wait for look-ups.

    Attributes:
        max_messages: Messages that wait for one identity. Beyond: a further one is refused.
        max_size: Bytes of the messages that wait for one identity. Beyond: as for `max_messages`.
        max_lookups: Look-ups under way. Beyond: a message that needs another one is refused.
        max_total_size: Bytes of all messages that wait. Beyond: a further one is refused.
        timeout: Time for which an answer is waited for, in milliseconds. Beyond: the messages are
            dropped, and the next one starts a look-up anew.

    Raises:
        ValueError: A value is out of its range.
    """

    max_messages: Count = 64
    max_size: Size = 1024 * 1024
    max_lookups: Count = 1024
    max_total_size: Size = 16 * 1024 * 1024
    timeout: Milliseconds = 5_000

    def __post_init__(self) -> None:
        check_options(self)


class ParkOutcome(StrEnum):
    """The outcome of a message that is to be parked. As a value, the text for people.

    With `STARTED` and `PARKED` the message waits, and for `STARTED` the caller has to look up. With
    any other it is refused.
    """

    STARTED = "it waits for a look-up that begins"
    PARKED = "it waits for a look-up that is under way"
    EXPIRED = "it has expired"
    MESSAGES = "as many messages as may wait for its destination"
    SIZE = "as many bytes as may wait for its destination"
    LOOKUPS = "as many look-ups as may be under way"
    TOTAL_SIZE = "as many bytes as may wait in all"


class ParkedDropReason(StrEnum):
    """The reason for which a parked message is dropped. As a value, the text for people."""

    EXPIRED = "it expired while its destination was looked up"
    TIMEOUT = "the look-up of its destination was not answered in time"


class DroppedMessage(NamedTuple, Generic[M]):
    """A parked message that is dropped.

    Attributes:
        destination: The identity that it waited for.
        message: The message.
        reason: Why.
    """

    destination: Identity
    message: M
    reason: ParkedDropReason


@dataclass(frozen=True, slots=True)
class LookupStatistics:
    """The look-ups under way at one moment.

    Attributes:
        lookups: Look-ups under way.
        messages: Messages that wait.
        size: Bytes of these.
        started: Look-ups since the start.
        outcomes: The number of messages with each outcome.
        dropped: The number of messages that were dropped for each reason.
    """

    lookups: int
    messages: int
    size: int
    started: int
    outcomes: tuple[tuple[ParkOutcome, int], ...]
    dropped: tuple[tuple[ParkedDropReason, int], ...]


class _Parked(NamedTuple, Generic[M]):
    """A message that waits: its bytes, its expiry in Unix milliseconds, and itself."""

    size: int
    expiry: int | None
    message: M


class _Lookup(Generic[M]):
    """A look-up under way.

    Attributes:
        deadline: When it is given up, in Unix milliseconds.
        size: Bytes of its messages.
        messages: The messages, by a number that grows.
    """

    __slots__ = ("deadline", "messages", "size")

    def __init__(self, deadline: int) -> None:
        self.deadline = deadline
        self.size = 0
        self.messages: dict[int, _Parked[M]] = {}


class LookupTable(Generic[M]):
    """The look-ups under way, by identity, with the messages that wait for each.

    Args:
        limits: The limits.
    """

    __slots__ = (
        "_count",
        "_dropped",
        "_limits",
        "_lookups",
        "_messages",
        "_outcomes",
        "_size",
        "_times",
    )

    def __init__(self, limits: LookupLimits | None = None) -> None:
        self._limits = LookupLimits() if limits is None else limits
        self._lookups: dict[Identity, _Lookup[M]] = {}
        # (time, number of the message, identity); 0 is the look-up itself. Times of what has left
        # stay until they come, or there are too many such.
        self._times: list[tuple[int, int, Identity]] = []
        self._count = 0
        self._messages = 0
        self._size = 0
        self._outcomes: Counter[ParkOutcome] = Counter()
        self._dropped: Counter[ParkedDropReason] = Counter()

    def park(
        self, destination: Identity, message: M, size: int, expiry: int | None, now: int
    ) -> ParkOutcome:
        """Park a message until its destination is known.

        Args:
            destination: The identity to look up.
            message: The message.
            size: Its bytes.
            expiry: When it is of no use any more, in Unix milliseconds; `None` for never.
            now: The time, in Unix milliseconds.
        """
        outcome = self._refusal(destination, size, expiry, now)
        if outcome is None:
            outcome = self._park(destination, _Parked(size, expiry, message), now)
        self._outcomes[outcome] += 1
        return outcome

    def release(self, destination: Identity) -> list[M]:
        """End a look-up, as it is answered, and return its messages in the order they came in.

        It ends whether the identity is known or not. There are no messages without a look-up, as
        with an answer that is late.
        """
        lookup = self._lookups.pop(destination, None)
        if lookup is None:
            return []
        self._messages -= len(lookup.messages)
        self._size -= lookup.size
        self._sweep()
        return [parked.message for parked in lookup.messages.values()]

    def get_timer(self) -> int | None:
        """Return when `handle_timer` is to be called, in Unix milliseconds; `None` for never.

        It may be earlier than there is something to do.
        """
        return self._times[0][0] if self._times else None

    def handle_timer(self, now: int) -> list[DroppedMessage[M]]:
        """Drop messages of which the time, or that of the look-up, is up.

        Args:
            now: The time, in Unix milliseconds.
        """
        dropped: list[DroppedMessage[M]] = []
        while self._times and self._times[0][0] <= now:
            time, number, destination = heappop(self._times)
            lookup = self._lookups.get(destination)
            if lookup is None:
                continue
            if number:
                parked = lookup.messages.pop(number, None)
                if parked is not None:
                    lookup.size -= parked.size
                    self._drop(dropped, destination, [parked], ParkedDropReason.EXPIRED)
            elif lookup.deadline == time:
                del self._lookups[destination]
                self._drop(dropped, destination, lookup.messages.values(), ParkedDropReason.TIMEOUT)
        return dropped

    def statistics(self) -> LookupStatistics:
        """Return the look-ups under way at this moment."""
        return LookupStatistics(
            lookups=len(self._lookups),
            messages=self._messages,
            size=self._size,
            started=self._outcomes[ParkOutcome.STARTED],
            outcomes=tuple((each, self._outcomes[each]) for each in ParkOutcome),
            dropped=tuple((each, self._dropped[each]) for each in ParkedDropReason),
        )

    def _refusal(
        self, destination: Identity, size: int, expiry: int | None, now: int
    ) -> ParkOutcome | None:
        """Return why a message may not be parked; `None` if it may."""
        limits = self._limits
        if expiry is not None and expiry <= now:
            return ParkOutcome.EXPIRED
        lookup = self._lookups.get(destination)
        if lookup is None and len(self._lookups) >= limits.max_lookups:
            return ParkOutcome.LOOKUPS
        if lookup is not None and len(lookup.messages) >= limits.max_messages:
            return ParkOutcome.MESSAGES
        if size + (0 if lookup is None else lookup.size) > limits.max_size:
            return ParkOutcome.SIZE
        return ParkOutcome.TOTAL_SIZE if self._size + size > limits.max_total_size else None

    def _park(self, destination: Identity, parked: _Parked[M], now: int) -> ParkOutcome:
        lookup = self._lookups.get(destination)
        outcome = ParkOutcome.PARKED
        if lookup is None:
            outcome = ParkOutcome.STARTED
            lookup = self._lookups[destination] = _Lookup(now + self._limits.timeout)
            heappush(self._times, (lookup.deadline, 0, destination))
        self._count += 1
        lookup.messages[self._count] = parked
        lookup.size += parked.size
        self._messages += 1
        self._size += parked.size
        if parked.expiry is not None and parked.expiry < lookup.deadline:
            heappush(self._times, (parked.expiry, self._count, destination))
        return outcome

    def _drop(
        self,
        dropped: list[DroppedMessage[M]],
        destination: Identity,
        messages: Iterable[_Parked[M]],
        reason: ParkedDropReason,
    ) -> None:
        for parked in messages:
            self._messages -= 1
            self._size -= parked.size
            self._dropped[reason] += 1
            dropped.append(DroppedMessage(destination, parked.message, reason))

    def _sweep(self) -> None:
        """Remove the times of what has left, if they are most of all."""
        if len(self._times) <= 2 * (self._messages + len(self._lookups)) + _SLACK:
            return
        self._times = [each for each in self._times if self._is_awaited(*each)]
        heapify(self._times)

    def _is_awaited(self, time: int, number: int, destination: Identity) -> bool:
        """Whether a time is of a message or a look-up that is there."""
        lookup = self._lookups.get(destination)
        if lookup is None:
            return False
        return number in lookup.messages if number else time == lookup.deadline
