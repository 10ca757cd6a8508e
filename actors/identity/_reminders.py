"""What is tried again and again, with a time between that doubles."""

from __future__ import annotations

from itertools import islice
from typing import Final

from ...protocol.identity import Identity

__all__ = ["Reminders"]


class Reminders:
    """The identities for which something is tried again, until one is removed.

    Times are seconds of a clock that does not go back.

    Args:
        first: Time until the second try, in seconds. It doubles each time.
        longest: The longest such time, in seconds.
    """

    __slots__ = ("_first", "_longest", "_of")

    def __init__(self, first: float, longest: float) -> None:
        self._first: Final = first
        self._longest: Final = longest
        # When each is tried next, and the time until the try after that; the one that was tried
        # longest ago is the first.
        self._of: Final[dict[Identity, tuple[float, float]]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, identity: object) -> bool:
        return identity in self._of

    def add(self, identity: Identity, now: float) -> float | None:
        """Begin with an identity; return when it is tried next, or `None` if it was there."""
        if identity in self._of:
            return None
        due = now + self._first
        self._of[identity] = due, self._after(self._first)
        return due

    def remove(self, identity: Identity) -> None:
        """End what is tried for an identity."""
        self._of.pop(identity, None)

    def get_timer(self) -> float | None:
        """Return when the next try is due, in seconds; `None` for never."""
        return min((due for due, _ in self._of.values()), default=None)

    def take_due(self, now: float, most: int | None = None) -> list[Identity]:
        """Return the identities of which a try is due; each is due again later.

        Args:
            now: The time, in seconds.
            most: Most identities, those first that were tried longest ago; the others stay due.
                `None` for all.
        """
        due = (identity for identity, (at, _) in self._of.items() if at <= now)
        found = list(islice(due, most))
        for identity in found:
            _, wait = self._of.pop(identity)
            self._of[identity] = now + wait, self._after(wait)
        return found

    def _after(self, wait: float) -> float:
        return min(2 * wait, self._longest)
