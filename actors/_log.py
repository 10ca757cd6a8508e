"""Logging what peers and users can cause again and again: seldom, short and as plain text."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from ..protocol import counted

__all__ = ["LONGEST", "SeldomLogger", "shown", "waiting_text"]

INTERVAL: Final = 60.0
"""Seconds between two lines of one kind."""

MAX_KINDS: Final = 64
"""Most kinds of line told apart; further ones are one kind, until one of those is long past."""

OTHER: Final = "other"
"""The kind of those that are not told apart."""

LONGEST: Final = 200
"""Most characters of a text a peer had a part in."""


class SeldomLogger:
    """Logs the first line of each kind, and from then on one a minute that says how many.

    Args:
        logger: Where to.
        clock: What tells the time, in seconds.
    """

    __slots__ = ("_clock", "_kinds", "_logger")

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}  # next line due; kept back since

    def log(
        self,
        level: int,
        kind: str,
        text: str,
        *arguments: object,
        error: BaseException | None = None,
    ) -> None:
        """Log a line, or count it.

        Args:
            level: As in `logging`.
            kind: What lines are counted together.
            text: The line, in the format of `logging`.
            *arguments: What goes into the line.
            error: An exception whose traceback is logged with it.
        """
        now = self._clock()
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            self._forget_old(now)
            if len(self._kinds) >= MAX_KINDS:
                kind = OTHER
        due, kept_back = self._kinds.get(kind, (now, 0))
        if now < due:
            self._kinds[kind] = (due, kept_back + 1)
            return
        self._kinds[kind] = (now + INTERVAL, 0)
        if kept_back:
            text += " (and %d like it since the last such line)"
            arguments = (*arguments, kept_back)
        self._logger.log(level, text, *arguments, exc_info=error)

    def _forget_old(self, now: float) -> None:
        """Drop the kinds of which a line would be logged again."""
        for kind, (due, _) in list(self._kinds.items()):
            if due <= now:
                del self._kinds[kind]


def shown(text: str) -> str:
    """Make one short line of a text that a peer had a part in."""
    text = text[: LONGEST + 1]  # before anything looks at all of what may be megabytes
    line = text if text.isprintable() else repr(text)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def waiting_text(number: int, noun: str) -> str:
    """Return how many of something wait: `1 message waits`, `2 messages wait`."""
    return f"{counted(number, noun)} {'waits' if number == 1 else 'wait'}"
