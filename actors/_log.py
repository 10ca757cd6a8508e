"""Rate-limited logging of events that peers and users can cause repeatedly."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Final

from ..protocol import counted

__all__ = ["LIKE_IT", "LONGEST", "Repeats", "SeldomLogger", "shown", "waiting_text"]

INTERVAL: Final = 60.0
"""Seconds between two log lines of one kind."""

MAX_KINDS: Final = 256
"""Most kinds of line; further ones share one kind until an older kind is dropped."""

OTHER: Final = "other"
"""The shared kind of lines beyond `MAX_KINDS`."""

PRUNE_INTERVAL: Final = 1.0
"""Seconds between two searches for kinds to drop, while there are `MAX_KINDS`."""

LIKE_IT: Final = "and %d like it since the last such line"
"""The text about the lines held back."""

LONGEST: Final = 200
"""Most characters of a text that a peer has influenced."""


class Repeats:
    """A table of the kinds of line that were written lately, each with those held back since.

    Args:
        clock: The function that returns the time, in seconds.
    """

    __slots__ = ("_clock", "_kinds", "_prune_at")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}  # next line due; lines held back
        self._prune_at = -math.inf

    def take(self, kind: str) -> int | None:
        """Return how many lines of a kind were held back; `None`: hold this one back, too."""
        now = self._clock()
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            self._prune(now)
            if len(self._kinds) >= MAX_KINDS:
                kind = OTHER
        due, kept_back = self._kinds.get(kind, (now, 0))
        if now < due:
            self._kinds[kind] = (due, kept_back + 1)
            return None
        self._kinds[kind] = (now + INTERVAL, 0)
        return kept_back

    def _prune(self, now: float) -> None:
        """Drop the kinds of which the next line is due."""
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_INTERVAL
            self._kinds = {each: kept for each, kept in self._kinds.items() if now < kept[0]}


class SeldomLogger:
    """A logger of the first line of each kind, and then of one line a minute with a count.

    Args:
        logger: The logger.
        clock: The function that returns the time, in seconds.
    """

    __slots__ = ("_logger", "_repeats")

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._repeats = Repeats(clock)

    def log(
        self,
        level: int,
        kind: str,
        text: str,
        *arguments: object,
        error: BaseException | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Log a line, or count it.

        Args:
            level: As in `logging`.
            kind: The kind; lines of one kind are counted together.
            text: The line, in the format of `logging`.
            *arguments: The arguments of the format.
            error: An exception to log with its traceback.
            extra: Attributes of the record, such as its `event`; see `docs/reference/log.md`.
        """
        kept_back = self._repeats.take(kind)
        if kept_back is None:
            return
        if kept_back:
            text += f" ({LIKE_IT})"
            arguments = (*arguments, kept_back)
        more = {**(extra or {}), "limited": True}  # no need to limit it again
        self._logger.log(level, text, *arguments, exc_info=error, extra=more)


def shown(text: str) -> str:
    """Return one short, printable line for a text that a peer has influenced."""
    text = text[: LONGEST + 1]  # first, as the text may be megabytes long
    line = text if text.isprintable() else repr(text)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def waiting_text(number: int, noun: str) -> str:
    """Return a text such as `1 message waits` or `2 messages wait`."""
    return f"{counted(number, noun)} {'waits' if number == 1 else 'wait'}"
