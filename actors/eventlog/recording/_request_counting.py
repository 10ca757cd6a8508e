"""The interface by which a broker's connections count their requests in the event log."""

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
    """The account of one request.

    Attributes:
        done: Cells for requests that a connection took and delivered, by route entry. A cell
            with counts in this window may be used directly; otherwise call `end`.
    """

    __slots__ = ("done",)

    done: Mapping[BrokerRoute | None, Cell]

    @abstractmethod
    def forward(self, exchange: Exchange) -> None:
        """Count that the request was forwarded to its destination."""

    @abstractmethod
    def copy(self, exchange: Exchange, route: BrokerRoute | None) -> None:
        """Count that a copy of the request was forwarded."""

    @abstractmethod
    def end(self, exchange: Exchange, route: BrokerRoute | None, outcome: int) -> None:
        """Count how the request ended. Called once for each request."""

    def mark(self, trace: str | None) -> str | None:
        """Return the tracing text for a worker that gets the request, given the current one.

        It has a mark if hops of the request are recorded. Requests over RSocket connections are
        not marked: nothing can be added to their frames.
        """
        return trace
