"""The broker's statistics, and the reports of listeners and other parts of the node."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from .._errors import LimitReached
from ..runtime._slices import Slices

__all__ = ["BrokerStatistics", "Figures", "LimitUse", "ReportedListener", "Reports"]

_logger = logging.getLogger("onward.actors.broker")

Figures: TypeAlias = Callable[[], Mapping[str, Any] | Slices[Mapping[str, Any]]]
"""A function that returns current figures by name, as values that JSON can represent."""


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """The figures of a broker at one moment.

    Attributes:
        routes: Destinations in the table, at this broker.
        waiting: Requests that wait for a destination.
        waiting_bytes: The bytes that these requests hold together.
        oldest_wait: How long the oldest of them has waited, in seconds; 0 if none waits.
        waited: Requests that have waited since the start.
        rejected: Requests that no destination could take, since the start.
        lost: Requests that were on their way to a destination, or with a worker of this node, when
            it left or failed; since the start.
        unknown_methods: Requests for an unknown method, which got the default; since the start.
        failed_methods: Requests on which a method failed, and an arbitrary destination was chosen;
            since the start.
        sticky_forgotten: Sticky keys forgotten because of a limit, since the start.
        multicast_skipped: Destinations that could not take a multicast they were chosen for, since
            the start.
        multicast_left: Destinations that left before they had answered a multicast in full, since
            the start.
        multicast_overflowed: Multicasts ended because they would have held too much, since the
            start.
        watchers: Subscriptions to the events.
        expected: Expected destinations that have not registered yet.
        expected_joined: Expected destinations that have registered, since the start.
        expected_forgotten: Expected destinations that did not register in time or made room for
            others, since the start.
        draining: Whether the broker drains, or has drained.
        connections_left: Connections that a drain has yet to end; 0 without a drain.
        peer_routes: Destinations in the table, at peer brokers.
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
    draining: bool = field(default=False, kw_only=True)
    connections_left: int = 0
    peer_routes: int = 0


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit, and how much of it is used.

    Attributes:
        name: Its name, as in the options.
        used: What is used of it now.
        limit: The limit.
        reached: How often there was no room for something because of it, since the start: it was
            refused, or something else was given up for it.
    """

    name: str
    used: float
    limit: float
    reached: int


class ReportedListener(ABC):
    """A listener, as an operator sees it: its connections, its limits, and its state.

    The rows of connections are values that JSON can represent.
    """

    @property
    @abstractmethod
    def accepting(self) -> bool:
        """Whether it accepts connections."""

    @abstractmethod
    def connections(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row for each open connection, oldest first, as of the first one."""

    @abstractmethod
    def closed_connections(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row for each of the last connections that have ended, with the `reason`."""

    @abstractmethod
    def requests(self) -> Iterator[tuple[int, float]]:
        """Yield the frame type of each open request of its peers, and its age in seconds."""

    @abstractmethod
    def limits(self) -> Iterator[LimitUse]:
        """Yield the limits that its connections share."""

    @abstractmethod
    def close_connection(self, number: int, text: str) -> bool:
        """Close a connection by its number; return whether there is one.

        Args:
            number: The `id` in its row.
            text: The text of the ERROR for the peer.
        """


class Reports:
    """The functions that report figures to the broker, in the order they were added.

    Args:
        limit: Most reports; one more is refused.
    """

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._figures: dict[int, tuple[str, Figures]] = {}
        self._listeners: dict[int, tuple[str, ReportedListener]] = {}
        self._last = 0

    def add(
        self, name: str, figures: Figures, listener: ReportedListener | None = None
    ) -> Callable[[], None]:
        """Add a report and return the function that removes it.

        Raises:
            LimitReached: There are too many.
        """
        if len(self._figures) >= self._limit:
            raise LimitReached("reports to the broker", self._limit)
        self._last = number = self._last + 1
        self._figures[number] = name, figures
        if listener is not None:
            self._listeners[number] = name, listener

        def withdraw() -> None:
            self._figures.pop(number, None)
            self._listeners.pop(number, None)

        return withdraw

    def read(self) -> Slices[tuple[tuple[str, dict[str, Any]], ...]]:
        """Return the name and figures of each report. A failure is logged and gives no figures."""
        found: list[tuple[str, dict[str, Any]]] = []
        for name, figures in tuple(self._figures.values()):
            if found:
                yield
            found.append((name, (yield from _read(name, figures))))
        return tuple(found)

    def listeners(self) -> tuple[tuple[str, ReportedListener], ...]:
        """Return the name of each listener, and the listener."""
        return tuple(self._listeners.values())


def _read(name: str, figures: Figures) -> Slices[dict[str, Any]]:
    try:
        found = figures()
        return dict((yield from found) if isinstance(found, Generator) else found)
    except Exception:
        _logger.exception("%s cannot report its figures", name, extra={"event": "report.failed"})
        return {}
