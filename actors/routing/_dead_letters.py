"""Dead letters: undeliverable messages, counted by reason and kept for a while."""

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
"""Bytes of the payload that a kept dead letter has."""

OTHER: Final = "other"
"""The reason counted for further reasons once the limit of distinct reasons is reached."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be delivered.

    Attributes:
        message: The message as it was when it failed. In a kept dead letter it has only the
            first `KEPT_PAYLOAD` bytes of its payload and no context, so that the kept dead
            letters are bounded in bytes and not only in number.
        size: Bytes of the whole payload; 0 if it is not `bytes`.
        reason: The reason in a few words; the same words for the same cause.
        at: The time of the failure, in seconds of the node's clock.
    """

    message: Message
    reason: str
    at: float
    size: int

    def kept(self) -> DeadLetter:
        """Return the dead letter with a short payload and no context."""
        onward, back, payload, source, _ = self.message
        short = Message(onward, back, _bytes_of(payload)[:KEPT_PAYLOAD], source)
        return DeadLetter(short, self.reason, self.at, self.size)


class DeadLetters:
    """The dead letters of a node. Safe to use from any thread.

    Args:
        keep: Number of dead letters kept; older ones are counted only.
        reasons: Number of distinct reasons counted; further ones count as `other`.
        clock: The function that returns the time, in seconds.

    Attributes:
        clock: As given.
        abandoned: Workers that did not stop in time, or could not.
        denied: Messages that access controls denied, and messages from outside for addresses
            that are neither exposed nor allowed.
        routes_cut: Messages that were answered by a worker that was not the last of their route,
            so that the rest of the route was not visited.
    """

    def __init__(self, *, keep: int, reasons: int, clock: Callable[[], float]) -> None:
        # Counted here because a further attribute of the node would slow all of them down.
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
        """The number of dead letters so far."""
        return sum(self.by_reason.values())

    @property
    def by_reason(self) -> Mapping[str, int]:
        """A snapshot of the number of dead letters by reason."""
        with self._lock:
            return MappingProxyType(dict(self._counts))

    @property
    def recent(self) -> tuple[DeadLetter, ...]:
        """The kept dead letters, oldest first."""
        with self._lock:
            return tuple(self._recent)

    def add(self, message: Message, reason: str) -> None:
        """Count and keep a message, and pass it to the subscribers."""
        with self._lock:
            # Counted before any code that may raise: the clock is the user's, and the message
            # may be malformed.
            counts = self._counts
            counted = reason if reason in counts or len(counts) < self._reasons else OTHER
            counts[counted] = counts.get(counted, 0) + 1
        size = len(_bytes_of(message.payload))
        letter = DeadLetter(message, reason, self.clock(), size)
        kept = letter.kept()
        with self._lock:
            self._recent.append(kept)
        _logger.debug(
            "dead letter: %s: %s", letter.reason, message, extra={"event": "message.dead_letter"}
        )
        for subscriber in self._subscribers:
            try:
                subscriber(letter)
            except Exception:
                _logger.exception(
                    "a subscriber to dead letters failed",
                    extra={"event": "message.subscriber_failed"},
                )

    def forked(self) -> None:
        """Replace the lock in the child of a fork, as another thread may have held it."""
        self._lock = threading.Lock()

    def subscribe(self, subscriber: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Call a function with every dead letter from now on.

        It is called on the thread on which the message failed and must not block. Its exceptions
        are logged.

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
