"""Messages that are bound to a consumer and wait for its credit."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ._delivery_limits import NodeTotals, Share
from ._name_events import DropReason

__all__ = ["ConsumerQueue", "Waiting"]


class Measured(Protocol):
    """A message of a source, with its bytes."""

    @property
    def size(self) -> int:
        """Its bytes."""
        ...

    @property
    def share(self) -> Share | None:
        """The share of its source in the limits of this node."""
        ...


Kept = TypeVar("Kept", bound=Measured)

_SPARE: Final = 64
"""Times of messages that have gone which may lie in the heap beyond as many as wait."""


_NONE: Final[dict[Any, Any]] = {}
_NO_TIMES: Final[list[tuple[float, int]]] = []
_NO_NUMBERS: Final = count()


class Waiting(NamedTuple, Generic[Kept]):
    """A message that waits for the credit of its consumer.

    Attributes:
        message: The message.
        token: The token of the delivery; `None` for a pre-settled one.
        until: When it is not worth handling any more, in seconds; `None` always is.
        since: When it began to wait, in seconds.
    """

    message: Kept
    token: bytes | None
    until: float | None
    since: float = 0.0


class ConsumerQueue(Generic[Kept]):
    """The queue of one consumer, in order, and its credit.

    Unsettled messages are bounded by the table of deliveries; only pre-settled ones are dropped
    here: for each that is too many, and for bytes that are too many at the node.

    Args:
        window: Pre-settled messages that wait. Beyond: one is dropped and counted.
        totals: What all names of the node have together.
        newest: Whether the newest is dropped instead of the oldest.

    Attributes:
        waiting: The messages that wait, by their place: to be read.
    """

    __slots__ = (
        "_numbers",
        "_of_token",
        "_settled",
        "_times",
        "_totals",
        "credit",
        "dropped",
        "expired",
        "newest",
        "waiting",
        "window",
    )

    def __init__(
        self, window: int, totals: NodeTotals | None = None, *, newest: bool = False
    ) -> None:
        self.window = window
        self._totals = totals or NodeTotals()
        self.newest = newest
        self._numbers = _NO_NUMBERS
        # Most queues never have a message that waits: these are made for the first one.
        self.waiting: dict[int, Waiting[Kept]] = _NONE
        self._of_token: dict[bytes, int] = _NONE
        self._settled: dict[int, None] = _NONE
        self._times: list[tuple[float, int]] = _NO_TIMES
        self.credit = 0
        """Messages that the consumer takes."""
        self.dropped = 0
        """Number of pre-settled messages that were dropped, because of `window` or of bytes."""
        self.expired = 0
        """Number of messages that were too late."""

    def __len__(self) -> int:
        """Return the number of messages that wait."""
        return len(self.waiting)

    def is_blocked(self, before: float) -> bool:
        """Whether it has no credit, and a message has waited since a time before this one."""
        if self.credit or not self.waiting:
            return False
        return next(iter(self.waiting.values())).since < before

    def pass_by(self) -> bool:
        """Use credit for a message that needs not wait; return whether there is credit for it."""
        if self.waiting or not self.credit:
            return False
        self.credit -= 1
        return True

    def put(
        self,
        message: Kept,
        token: bytes | None = None,
        until: float | None = None,
        now: float = 0.0,
    ) -> list[tuple[Kept, DropReason]]:
        """Add a message; return the pre-settled ones that are dropped for it, with the reason.

        Args:
            message: The message.
            token: The token of the delivery; `None` for a pre-settled one.
            until: When it is not worth handling any more, in seconds.
            now: The time, in seconds.
        """
        dropped, refused = self._make_room(message) if token is None else ([], None)
        if refused is not None:
            return [*dropped, (message, refused)]
        if self.waiting is _NONE:
            self._numbers = count()
            self.waiting, self._of_token, self._settled, self._times = {}, {}, {}, []
        number = next(self._numbers)
        self.waiting[number] = Waiting(message, token, until, now)
        if token is None:
            self._settle(number, message)
        else:
            self._of_token[token] = number
        if until is not None:
            if len(self._times) > 2 * len(self.waiting) + _SPARE:
                self._times = [each for each in self._times if each[1] in self.waiting]
                heapify(self._times)
            heappush(self._times, (until, number))
        return dropped

    def _make_room(self, message: Kept) -> tuple[list[tuple[Kept, DropReason]], DropReason | None]:
        """Drop pre-settled messages for another one; return them, and why it has no room itself."""
        dropped: list[tuple[Kept, DropReason]] = []
        while (reason := self._is_full(message)) is not None:
            self.dropped += 1
            # What one source has too many is not at the cost of the messages of another one.
            if self.newest or not self._settled or reason is DropReason.SHARE:
                return dropped, reason
            dropped.append((self._remove(next(iter(self._settled))).message, reason))
        return dropped, None

    def withdraw(self, token: bytes) -> None:
        """Remove an unsettled message; do nothing if it does not wait."""
        number = self._of_token.get(token)
        if number is not None:
            self._remove(number)

    def settle(self, token: bytes) -> list[tuple[Kept, DropReason]]:
        """Make an unsettled message a pre-settled one in its place, since its producer settled.

        Returns:
            The pre-settled messages that are dropped, as of `put`: perhaps this one.
        """
        number = self._of_token.get(token)
        if number is None:
            return []
        message = self.waiting[number].message
        dropped, refused = self._make_room(message)
        if refused is not None:
            self._remove(number)
            return [*dropped, (message, refused)]
        del self._of_token[token]
        self.waiting[number] = self.waiting[number]._replace(token=None)
        self._settle(number, message)
        return dropped

    def drain(self) -> int:
        """Remove the credit that is left once `take` has returned all; return it."""
        left, self.credit = self.credit, 0
        return left

    def take(self) -> Iterator[Waiting[Kept]]:
        """Remove and yield the messages that the credit allows, in order."""
        while self.waiting and self.credit:
            self.credit -= 1
            yield self._remove(next(iter(self.waiting)))

    def get_timer(self) -> float | None:
        """Return when a message of the queue is too late, in seconds; `None` if none ever is."""
        while self._times and self._times[0][1] not in self.waiting:
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def expire(self, now: float) -> list[Waiting[Kept]]:
        """Remove and return the messages that are too late, wherever they are in the queue."""
        late: list[Waiting[Kept]] = []
        while (timer := self.get_timer()) is not None and timer <= now:
            late.append(self._remove(heappop(self._times)[1]))
        self.expired += len(late)
        return late

    def clear(self) -> list[Kept]:
        """Remove all messages, as when the consumer has gone; return the pre-settled ones.

        The others are in the table of deliveries, which releases them.
        """
        settled = [self.waiting[number].message for number in self._settled]
        for number in list(self.waiting):
            self._remove(number)
        return settled

    def _remove(self, number: int) -> Waiting[Kept]:
        waiting = self.waiting.pop(number)
        if waiting.token is None:
            del self._settled[number]
            self._totals.count_settled(waiting.message.size, waiting.message.share, -1)
        else:
            del self._of_token[waiting.token]
        return waiting

    def _settle(self, number: int, message: Kept) -> None:
        self._settled[number] = None
        self._totals.count_settled(message.size, message.share, 1)

    def _is_full(self, message: Kept) -> DropReason | None:
        """Return the reason why a pre-settled message has no room."""
        totals, size = self._totals, message.size
        if not totals.may_have_settled(size, message.share):
            return DropReason.SHARE
        if len(self._settled) >= self.window:
            return DropReason.OVERFLOW
        return None if totals.has_settled_room(size) else DropReason.SETTLED_SIZE
