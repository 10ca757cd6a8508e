"""A pause between uses that grows while they follow each other closely."""

from __future__ import annotations

from typing import Final

__all__ = ["Throttle"]


FREE: Final = 10
"""Uses that may follow each other closely: as many as one change in a network needs."""


class Throttle:
    """A pause that doubles when many uses have followed closely, and is short again after a rest.

    What comes first in a while is done at once, a change in a network is over before the pause
    grows, and a flood is gathered for longer and longer.

    Args:
        first: The shortest pause, in seconds.
        longest: The longest pause, in seconds.
    """

    __slots__ = ("_close", "_first", "_longest", "_pause", "_ready")

    def __init__(self, first: float, longest: float) -> None:
        self._first: Final = first
        self._longest: Final = max(first, longest)
        self._pause = first
        self._close = 0
        self._ready = float("-inf")

    def next(self, now: float) -> float:
        """Return the time of the next use."""
        return max(now, self._ready)

    def used(self, now: float) -> None:
        """Begin the pause after a use."""
        self._close = self._close + 1 if now < self._ready + self._pause else 0
        longer = self._close > FREE
        self._pause = min(2.0 * self._pause, self._longest) if longer else self._first
        self._ready = now + self._pause
