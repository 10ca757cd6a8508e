"""Dead letters: what could not be delivered, counted by reason and kept for a while."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ...protocol import Message

__all__ = ["DeadLetter", "DeadLetters"]

_logger = logging.getLogger("onward.actors")

KEPT_PAYLOAD: Final = 256
"""Bytes of a payload that are kept of a dead letter."""

EXPIRED: Final = "expired"
"""The reason of a message whose deadline passed before a worker took it up."""

OTHER: Final = "other"
"""The reason counted once there are as many distinct reasons as are counted."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that did not get through.

    Attributes:
        message: The message as it was when it failed. One that is kept has only the first
            `KEPT_PAYLOAD` bytes of its payload and no context, so that what is kept of
            dead letters is bounded in bytes and not only in number.
        size: Bytes of the whole payload; 0 if it is not `bytes`.
        reason: Why, in a few words; the same words for the same cause.
        at: When, in seconds of the node's clock.
    """

    message: Message
    reason: str
    at: float
    size: int

    def kept(self) -> DeadLetter:
        """Return the letter as it is kept."""
        onward, back, payload, source, _ = self.message
        short = Message(onward, back, _bytes_of(payload)[:KEPT_PAYLOAD], source)
        return DeadLetter(short, self.reason, self.at, self.size)


class DeadLetters:
    """The dead letters of a node. Safe to use from any thread.

    Args:
        keep: How many are kept; older ones are counted but gone.
        reasons: How many distinct reasons are counted; further ones count as `other`.
        clock: What tells the time, in seconds.

    Attributes:
        clock: As given.
        abandoned: Workers that did not stop in time, or could not.
        denied: Messages that access controls did not let pass, and messages from outside that
            were for what is neither exposed nor allowed.
        routes_cut: Messages that were answered by a worker that was not the last of their route:
            they were delivered, and what was left of the route was not.
    """

    def __init__(self, *, keep: int, reasons: int, clock: Callable[[], float]) -> None:
        # Counted here as the attributes of a node are as many as Python keeps in a fast way.
        self.abandoned = 0
        self.denied = 0
        self.routes_cut = 0
        self.clock: Final = clock
        self._reasons = reasons
        self._counts: dict[str, int] = {}
        self._recent: deque[DeadLetter] = deque(maxlen=keep)
        self._subscribers: tuple[Callable[[DeadLetter], object], ...] = ()
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """How many there have been."""
        return sum(self.by_reason.values())

    @property
    def by_reason(self) -> Mapping[str, int]:
        """How many there have been for each reason: a snapshot."""
        with self._lock:
            return MappingProxyType(dict(self._counts))

    @property
    def recent(self) -> tuple[DeadLetter, ...]:
        """Those kept, oldest first."""
        with self._lock:
            return tuple(self._recent)

    def add(self, message: Message, reason: str) -> None:
        """Count and keep a message, and show it to the subscribers."""
        with self._lock:
            # Counted before anything that may raise: the clock is the user's, and what a
            # message holds may be wrong.
            counts = self._counts
            counted = reason if reason in counts or len(counts) < self._reasons else OTHER
            counts[counted] = counts.get(counted, 0) + 1
        size = len(_bytes_of(message.payload))
        letter = DeadLetter(message, reason, self.clock(), size)
        kept = letter.kept()
        with self._lock:
            self._recent.append(kept)
        _logger.debug("dead letter: %s: %s", letter.reason, message)
        for subscriber in self._subscribers:
            try:
                subscriber(letter)
            except Exception:
                _logger.exception("a subscriber to dead letters failed")

    def forked(self) -> None:
        """Go on in the child of a fork, whatever other threads were doing."""
        self._lock = threading.Lock()

    def subscribe(self, subscriber: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Call a function with every dead letter from now on.

        It is called on whatever thread the message failed on and must not block; what it
        raises is logged.

        Returns:
            A function that ends the subscription.
        """
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(
                    each for each in self._subscribers if each is not subscriber
                )

        return unsubscribe


def _bytes_of(payload: object) -> bytes:
    return payload if isinstance(payload, bytes) else b""
