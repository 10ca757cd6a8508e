"""What the parts of a program tell the broker about themselves, such as its listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from .._errors import LimitReached

__all__ = ["Figures", "Reports"]

_logger = logging.getLogger("onward.actors.broker")

Figures = Callable[[], Mapping[str, Any]]
"""Returns figures at this moment, by name, as JSON can say them."""


class Reports:
    """Who tells about themselves, in the order they began to.

    Args:
        limit: Most of them; one more is refused.
    """

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._figures: dict[int, tuple[str, Figures]] = {}
        self._last = 0

    def add(self, name: str, figures: Figures) -> Callable[[], None]:
        """Ask for these figures from now on; what is returned ends that.

        Raises:
            LimitReached: There are too many.
        """
        if len(self._figures) >= self._limit:
            raise LimitReached("reports to the broker", self._limit)
        self._last = number = self._last + 1
        self._figures[number] = name, figures

        def withdraw() -> None:
            self._figures.pop(number, None)

        return withdraw

    def read(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Return the name and the figures of each. What fails is logged, and has none."""
        return tuple((name, _read(name, figures)) for name, figures in self._figures.values())


def _read(name: str, figures: Figures) -> dict[str, Any]:
    try:
        return dict(figures())
    except Exception:
        _logger.exception("%s cannot tell its figures", name)
        return {}
