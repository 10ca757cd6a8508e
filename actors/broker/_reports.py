"""The broker's figures, and what listeners and other parts tell it about themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .._errors import LimitReached

__all__ = ["BrokerStatistics", "Figures", "Reports"]

_logger = logging.getLogger("onward.actors.broker")

Figures = Callable[[], Mapping[str, Any]]
"""Returns figures at this moment, by name, as JSON can say them."""


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """A broker at one moment.

    Attributes:
        routes: Destinations in the table.
        waiting: Requests that wait for a destination.
        waiting_bytes: The bytes those hold together.
        oldest_wait: How long the oldest of them has waited, in seconds; 0 if none waits.
        waited: Requests that have waited since the start.
        rejected: Requests that nobody could take, since the start.
        lost: Requests that were on their way to a destination, or with a worker of this
            node, when it left or failed; since the start.
        unknown_methods: Requests for a method nobody knows, which got the default; since the
            start.
        failed_methods: Requests on which a method failed, and any destination was taken;
            since the start.
        sticky_forgotten: Sticky keys whose destination a limit made forget, since the start.
        multicast_skipped: Destinations that were to have a multicast and could not take it,
            since the start.
        multicast_left: Destinations that were gone before they had answered a multicast in
            full, since the start.
        multicast_overflowed: Multicasts that were ended because too much would have been held
            for them, since the start.
        watchers: Subscriptions to the events.
        expected: Destinations that were there before and have not come yet.
        expected_joined: Those that have come, since the start.
        expected_forgotten: Those that did not come in time, or made room for others, since the
            start.
    """

    routes: int
    waiting: int
    waiting_bytes: int
    oldest_wait: float
    waited: int
    rejected: int
    lost: int
    unknown_methods: int
    failed_methods: int
    sticky_forgotten: int
    multicast_skipped: int
    multicast_left: int
    multicast_overflowed: int
    watchers: int
    expected: int = 0
    expected_joined: int = 0
    expected_forgotten: int = 0


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
