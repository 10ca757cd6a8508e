"""Deliveries that were seen, by their identity, so that a duplicate is known as one.

While the nodes of a network do not agree about its links yet, a message can come twice. The second
one is not bound. It has the outcome of the first, and is in doubt while that has none: so released
is never told of a message that another copy has handed over. A delivery that was released is
forgotten, since it may be sent again.
"""

from __future__ import annotations

from typing import NamedTuple

from ._outcomes import MODIFIED, Outcome, Released
from ._transit import Identity

__all__ = ["DuplicateWindow"]


class _Seen(NamedTuple):
    until: float
    outcome: Outcome


class DuplicateWindow:
    """The window of deliveries of a name that are remembered.

    Args:
        seconds: Time for which one is remembered, in seconds.
        ids: Deliveries that are remembered. Beyond: the oldest are forgotten and counted.
    """

    def __init__(self, seconds: float, ids: int) -> None:
        self._seconds = seconds
        self._most = ids
        self._seen: dict[Identity, _Seen] = {}
        self.duplicates = 0
        """Number of duplicates since the start."""
        self.forgotten = 0
        """Number of deliveries that were forgotten before their time."""

    def __len__(self) -> int:
        """Return the number of deliveries that are remembered."""
        return len(self._seen)

    def arrived(self, identity: Identity, now: float) -> Outcome | None:
        """Remember a delivery; return the outcome of a duplicate, `None` for the first one.

        Args:
            identity: Its identity.
            now: The time, in seconds.
        """
        self.expire(now)
        known = self._seen.get(identity)
        if known is not None:
            self.duplicates += 1
            return known.outcome
        if len(self._seen) >= self._most:
            del self._seen[next(iter(self._seen))]
            self.forgotten += 1
        self._seen[identity] = _Seen(now + self._seconds, MODIFIED)
        return None

    def get_timer(self) -> float | None:
        """Return when a delivery is forgotten, in seconds; `None` if none is remembered."""
        return next(iter(self._seen.values())).until if self._seen else None

    def expire(self, now: float) -> None:
        """Forget the deliveries of which the time is over."""
        while self._seen and next(iter(self._seen.values())).until <= now:
            del self._seen[next(iter(self._seen))]

    def decided(self, identity: Identity, outcome: Outcome) -> None:
        """Receive the outcome of a delivery; one that was released is forgotten."""
        known = self._seen.get(identity)
        if known is None:
            return
        if isinstance(outcome, Released):
            del self._seen[identity]
        else:
            self._seen[identity] = known._replace(outcome=outcome)
