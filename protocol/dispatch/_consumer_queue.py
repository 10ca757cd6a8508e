"""Messages that are bound to a consumer and wait for its credit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Generic, NamedTuple, TypeVar

__all__ = ["ConsumerQueue", "Waiting"]

Kept = TypeVar("Kept")


class Waiting(NamedTuple, Generic[Kept]):
    """A message that waits for the credit of its consumer.

    Attributes:
        message: The message.
        token: The token of the delivery; `None` for a pre-settled one.
        until: When it is not worth handling any more, in seconds; `None` always is.
    """

    message: Kept
    token: bytes | None
    until: float | None


class ConsumerQueue(Generic[Kept]):
    """The queue of one consumer, in order, and its credit.

    Unsettled messages are bounded by the table of deliveries; only pre-settled ones are dropped
    here, one for each that is too many.

    Args:
        window: Pre-settled messages that wait. Beyond: one is dropped and counted.
        newest: Whether the newest is dropped instead of the oldest.
    """

    def __init__(self, window: int, *, newest: bool = False) -> None:
        self._window = window
        self._newest = newest
        self._numbers = count()
        self._waiting: dict[int, Waiting[Kept]] = {}
        self._of_token: dict[bytes, int] = {}
        self._settled: dict[int, None] = {}
        self.credit = 0
        """Messages that the consumer takes."""
        self.dropped = 0
        """Number of pre-settled messages that were dropped, because of `window`."""
        self.expired = 0
        """Number of messages that were too late."""

    def __len__(self) -> int:
        """Return the number of messages that wait."""
        return len(self._waiting)

    def put(self, message: Kept, token: bytes | None = None, until: float | None = None) -> None:
        """Add a message.

        Args:
            message: The message.
            token: The token of the delivery; `None` for a pre-settled one.
            until: When it is not worth handling any more, in seconds.
        """
        if token is None and len(self._settled) >= self._window:
            self.dropped += 1
            if self._newest:
                return
            self._remove(next(iter(self._settled)))
        number = next(self._numbers)
        self._waiting[number] = Waiting(message, token, until)
        if token is None:
            self._settled[number] = None
        else:
            self._of_token[token] = number

    def withdraw(self, token: bytes) -> None:
        """Remove an unsettled message; do nothing if it does not wait."""
        number = self._of_token.get(token)
        if number is not None:
            self._remove(number)

    def settle(self, token: bytes) -> None:
        """Make an unsettled message a pre-settled one in its place, since its producer settled."""
        number = self._of_token.pop(token, None)
        if number is not None:
            self._waiting[number] = self._waiting[number]._replace(token=None)
            self._settled[number] = None

    def drain(self) -> int:
        """Remove the credit that is left once `take` has returned all; return it."""
        left, self.credit = self.credit, 0
        return left

    def take(self, now: float) -> Iterator[Waiting[Kept]]:
        """Remove and yield the messages that the credit allows, in order.

        A message that is too late needs no credit. A pre-settled one is dropped; an unsettled one
        is yielded, to be released: see `is_late`.

        Args:
            now: The time, in seconds.
        """
        while self._waiting:
            number, first = next(iter(self._waiting.items()))
            late = is_late(first, now)
            if not late and not self.credit:
                return
            self._remove(number)
            if not late:
                self.credit -= 1
            else:
                self.expired += 1
            if not late or first.token is not None:
                yield first

    def _remove(self, number: int) -> None:
        token = self._waiting.pop(number).token
        if token is None:
            del self._settled[number]
        else:
            del self._of_token[token]


def is_late(waiting: Waiting[Kept], now: float) -> bool:
    """Whether a message is not worth handling any more."""
    return waiting.until is not None and waiting.until <= now
