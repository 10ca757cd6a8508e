"""The limits of authentication for one source: attempts in progress, and recent failures.

```
                     begins: undecided + 1
   admitted ────────────────────────────────▶ deciding ──┬─ accepted: undecided - 1
      ▲                                                  └─ refused:  undecided - 1, failures + 1
      │ the oldest of `max_failures` failures is older than `window`
   banned ◀──────── `max_failures` failures within `window`
```

A RESUME that names no session is a part of a failure: `PARTS` of them are one. A token that nothing
else protects has 128 bits or more, so such a RESUME is hardly a guess, but what a client sends once
if its session was forgotten. After a restart of the broker, many clients of one source may do so at
the same time. They begin anew, so an accepted attempt takes back one part.

Time is an argument. A source is a text, as the acceptor of connections makes it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["PARTS", "Attempts"]

PARTS: Final = 10
"""The number of RESUMEs without a session that are one failure."""


class _Failures:
    """The failures of one source.

    Attributes:
        times: The times of the last ones, oldest first.
        parts: The parts of one more.
        last: The time of the last failure or part.
    """

    __slots__ = ("last", "parts", "times")

    def __init__(self, limit: int) -> None:
        self.times: deque[float] = deque(maxlen=limit)
        self.parts = 0
        self.last = 0.0


class Attempts:
    """The attempts of all sources.

    Args:
        max_undecided: Attempts of one source in progress at a time.
        max_failures: Failures of one source within the window; then it is banned.
        window: The window, in seconds.
        max_sources: Sources with failures that are remembered. When there are more, the one with
            the oldest last failure is forgotten, and starts anew.

    Attributes:
        forgotten: Sources that were forgotten within their window.
    """

    def __init__(
        self, max_undecided: int, max_failures: int, window: float, max_sources: int
    ) -> None:
        self._max_undecided: Final = max_undecided
        self._max_failures: Final = max_failures
        self._window: Final = window
        self._max_sources: Final = max_sources
        # Bounded by the attempts in progress.
        self._undecided: dict[str, int] = {}
        # The source with the oldest last failure is the first.
        self._failures: dict[str, _Failures] = {}
        self.forgotten = 0

    @property
    def sources(self) -> int:
        """Sources with failures that are remembered."""
        return len(self._failures)

    def admits(self, source: str, now: float) -> bool:
        """Whether a source may make an attempt."""
        if self._undecided.get(source, 0) >= self._max_undecided:
            return False
        failures = self._failures.get(source)
        return (
            failures is None
            or len(failures.times) < self._max_failures
            or failures.times[0] <= now - self._window
        )

    def begin(self, source: str, now: float) -> bool:
        """Begin an attempt, unless the source may make none; return whether it has begun."""
        if not self.admits(source, now):
            return False
        self._undecided[source] = self._undecided.get(source, 0) + 1
        return True

    def end(self, source: str, now: float, *, failed: bool) -> None:
        """End an attempt that has begun."""
        left = self._undecided[source] - 1
        if left:
            self._undecided[source] = left
        else:
            del self._undecided[source]
        if failed:
            self._fail(source, now, PARTS)
            return
        failures = self._failures.get(source)
        if failures is not None and failures.parts:
            failures.parts -= 1

    def fail_in_part(self, source: str, now: float) -> None:
        """Count a RESUME that names no session."""
        self._fail(source, now, 1)

    def _fail(self, source: str, now: float, parts: int) -> None:
        failures = self._failures.pop(source, None)
        if failures is None:
            failures = _Failures(self._max_failures)
        elif failures.last <= now - self._window:
            failures.parts = 0
        failures.parts += parts
        if failures.parts >= PARTS:
            failures.parts -= PARTS
            failures.times.append(now)
        failures.last = now
        self._failures[source] = failures
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Forget the sources without recent failures, and one more if there are too many.

        The last of them has just failed, so one at least stays.
        """
        while True:
            source, failures = next(iter(self._failures.items()))
            is_over = failures.last <= now - self._window
            if not is_over and len(self._failures) <= self._max_sources:
                return
            del self._failures[source]
            self.forgotten += not is_over
