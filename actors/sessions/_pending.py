"""A queue of messages that wait until a session is up."""

from __future__ import annotations

from collections import deque

from ...protocol import Message

__all__ = ["PendingMessages"]


class PendingMessages:
    """A queue of messages bounded in number, bytes and time.

    Args:
        limit: The most messages it holds.
        max_bytes: The most bytes of their payloads together.
        keep_for: The time for which each is kept, in seconds.
    """

    __slots__ = ("_bytes", "_keep_for", "_limit", "_max_bytes", "_waiting")

    def __init__(self, limit: int, max_bytes: int, keep_for: float) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._keep_for = keep_for
        self._bytes = 0
        self._waiting: deque[tuple[float, Message]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def due_at(self) -> float | None:
        """The time at which the oldest message has to be removed, or `None`."""
        return self._waiting[0][0] if self._waiting else None

    def put(self, message: Message, now: float) -> bool:
        """Add a message; return false if there is no room."""
        size = self._bytes + len(message.payload)
        if len(self._waiting) >= self._limit or size > self._max_bytes:
            return False
        self._bytes = size
        self._waiting.append((now + self._keep_for, message))
        return True

    def take(self) -> Message:
        """Remove and return the oldest message."""
        _, message = self._waiting.popleft()
        self._bytes -= len(message.payload)
        return message

    def put_back(self, message: Message, until: float) -> None:
        """Put a message that was removed back to the front; it is kept until the given time."""
        self._bytes += len(message.payload)
        self._waiting.appendleft((until, message))
