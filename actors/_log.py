"""Rate-limited logging of events that peers and users can cause repeatedly."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from ..protocol import counted

__all__ = ["LONGEST", "SeldomLogger", "shown", "waiting_text"]

INTERVAL: Final = 60.0
"""Seconds between two log lines of one kind."""

MAX_KINDS: Final = 64
"""Most kinds of line; further ones share one kind until an older kind is dropped."""

OTHER: Final = "other"
"""The shared kind of lines beyond `MAX_KINDS`."""

LONGEST: Final = 200
"""Most characters of a text that a peer has influenced."""


class SeldomLogger:
    """A logger of the first line of each kind, and then of one line a minute with a count.

    Args:
        logger: The logger.
        clock: The function that returns the time, in seconds.
    """

    __slots__ = ("_clock", "_kinds", "_logger")

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}  # next line due; lines held back

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
        more = {**(extra or {}), "limited": True}  # no need to limit it again
        self._logger.log(level, text, *arguments, exc_info=error, extra=more)

    def _forget_old(self, now: float) -> None:
        """Drop the kinds of which the next line is due."""
        for kind, (due, _) in list(self._kinds.items()):
            if due <= now:
                del self._kinds[kind]


def shown(text: str) -> str:
    """Return one short, printable line for a text that a peer has influenced."""
    text = text[: LONGEST + 1]  # first, as the text may be megabytes long
    line = text if text.isprintable() else repr(text)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def waiting_text(number: int, noun: str) -> str:
    """Return a text such as `1 message waits` or `2 messages wait`."""
    return f"{counted(number, noun)} {'waits' if number == 1 else 'wait'}"
