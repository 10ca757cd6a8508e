"""What is logged of peers: bounded in size and number, whatever they send."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

__all__ = ["Warnings", "shown"]

_logger = logging.getLogger("onward.transports.rsocket")

MAX_SHOWN: Final = 200
"""Characters of a peer's text that are logged."""
QUIET: Final = 60.0
"""Seconds after a warning in which others like it are only counted."""


def shown(text: object) -> str:
    """Return text of a peer as one line that is not long."""
    return repr(str(text)[:MAX_SHOWN])[:MAX_SHOWN]


class Warnings:
    """Log the first warning of a kind; in the next 60 seconds count those like it.

    Args:
        now: Tells the time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # For each kind, when one was logged last and how many were not since. The kinds are
        # the texts of this program: there is a handful.
        self._kinds: dict[str, tuple[float, int]] = {}

    def __call__(self, kind: str, *args: object) -> None:
        """Warn.

        Args:
            kind: What is the same for all warnings of a kind: the format.
            args: What is put into it.
        """
        now = self._now()
        last, left_out = self._kinds.get(kind, (now - QUIET, 0))
        if now - last < QUIET:
            self._kinds[kind] = last, left_out + 1
            return
        self._kinds[kind] = now, 0
        if left_out:
            _logger.warning(kind + " (and %d like it before)", *args, left_out)
        else:
            _logger.warning(kind, *args)
