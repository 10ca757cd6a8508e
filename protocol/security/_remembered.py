"""A bounded memory of decisions, each with an expiry."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

__all__ = ["Remembered"]

T = TypeVar("T")


class Remembered(Generic[T]):
    """Values by digests of credentials, each until its expiry.

    Args:
        most: Values at a time; then the one that was added first is forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._values: dict[bytes, tuple[T, float]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, digest: bytes, now: float) -> T | None:
        """Return a value that has not expired, or `None`."""
        found = self._values.get(digest)
        if found is None:
            return None
        value, expiry = found
        if expiry <= now:
            del self._values[digest]
            return None
        return value

    def put(self, digest: bytes, value: T, expiry: float) -> None:
        """Remember a value until its expiry."""
        self._values.pop(digest, None)
        if len(self._values) >= self._most:
            del self._values[next(iter(self._values))]
        self._values[digest] = value, expiry

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()
