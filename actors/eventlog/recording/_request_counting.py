"""What who routes a request tells the event log of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...broker._exchange import Exchange
    from ...broker.table._route import BrokerRoute
    from ._flows import Cell

__all__ = ["RequestCounting"]


class RequestCounting(ABC):
    """What one request is counted on.

    Attributes:
        done: Cells for requests that a connection took and delivered, by its route. One that has
            counted in this window may be counted on; for all else there is `end`.
    """

    __slots__ = ("done",)

    done: Mapping[BrokerRoute | None, Cell]

    @abstractmethod
    def forward(self, exchange: Exchange) -> None:
        """Count that the request was handed over to the route that it has."""

    @abstractmethod
    def copy(self, exchange: Exchange, route: BrokerRoute | None) -> None:
        """Count that a copy of it was handed over."""

    @abstractmethod
    def end(self, exchange: Exchange, route: BrokerRoute | None, outcome: int) -> None:
        """Count how it ended. Called once for each request."""

    def mark(self, trace: str | None) -> str | None:
        """Return the tracing text for a worker that is handed the request, given the present one.

        Marked if hops of the request are recorded. What goes by connections of RSocket is not:
        nothing can be added to their frames.
        """
        return trace
