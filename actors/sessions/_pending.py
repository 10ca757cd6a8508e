"""Messages that wait until a session is up."""

from __future__ import annotations

from collections import deque

from ...protocol import Message

__all__ = ["PendingMessages"]


class PendingMessages:
    """A queue bounded in number, bytes and time.

    Args:
        limit: Messages it takes.
        max_bytes: Bytes of their payloads together.
        keep_for: How long each is kept, in seconds.
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
        """When the oldest has been kept for as long as it may, or `None`."""
        return self._waiting[0][0] if self._waiting else None

    def put(self, message: Message, now: float) -> bool:
        """Keep a message; false if there is no room."""
        size = self._bytes + len(message.payload)
        if len(self._waiting) >= self._limit or size > self._max_bytes:
            return False
        self._bytes = size
        self._waiting.append((now + self._keep_for, message))
        return True

    def take(self) -> Message:
        """Take the oldest."""
        _, message = self._waiting.popleft()
        self._bytes -= len(message.payload)
        return message

    def put_back(self, message: Message, until: float) -> None:
        """Put one that was taken back to the front; it is kept until then."""
        self._bytes += len(message.payload)
        self._waiting.appendleft((until, message))
