"""The interface by which a broker and its connections report requests to an instrument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol.broker import Entry, RoutingType
    from .._node import Node
    from ._exchange import Exchange
    from .table._remote import AnyRoute
    from .table._selector import Ask

__all__ = ["OriginInstrument", "RequestCell", "RequestCounting", "RequestInstrument", "part_of"]


class RequestCell:
    """A counter of requests and their bytes.

    Attributes:
        frames: Requests.
        bytes: Their bytes.
    """

    __slots__ = ("bytes", "frames")

    frames: int
    bytes: int


class RequestCounting:
    """The account of one request.

    Attributes:
        done: Cells for requests that a connection took and delivered, by route entry. A cell
            with counts in this window may be used directly; otherwise call `end`.
    """

    __slots__ = ("done",)

    done: Mapping[AnyRoute | None, RequestCell]

    def forward(self, exchange: Exchange) -> None:
        """Count that the request was forwarded to its destination."""
        raise NotImplementedError

    def copy(self, exchange: Exchange, route: AnyRoute | None) -> None:
        """Count that a copy of the request was forwarded."""
        raise NotImplementedError

    def end(self, exchange: Exchange, route: AnyRoute | None, outcome: int) -> None:
        """Count how the request ended. Called once for each request."""
        raise NotImplementedError

    def mark(self, trace: str | None) -> str | None:
        """Return the tracing text for a worker that gets the request, given the current one.

        It has a mark if hops of the request are recorded. Requests over RSocket connections are
        not marked: nothing can be added to their frames.
        """
        return trace


class OriginInstrument:
    """The part that is told of the requests of one service's connections."""

    __slots__ = ()

    def received(self, exchange: Exchange, kind: int, ask: Ask, trace: int | None) -> None:
        """Count a request and set its account, `exchange.log`.

        Args:
            exchange: The request.
            kind: The frame type.
            ask: Its query.
            trace: The trace id in the request, if it has one.
        """
        raise NotImplementedError

    def relayed(self, exchange: Exchange, kind: int) -> None:
        """Count a request that a peer broker has forwarded, and set its account.

        The first broker counts it with its query. Here it counts without one.
        """
        raise NotImplementedError

    def unread(self, exchange: Exchange, kind: int) -> None:
        """Set the account of a request until its query is known."""
        raise NotImplementedError

    def withdrawn(self, kind: int, size: int) -> None:
        """Count a request that was cancelled before it was parsed."""
        raise NotImplementedError


class RequestInstrument:
    """The part of an instrument that a broker calls: what `Instrument.broker_part` returns.

    One instrument of a node can have one. Its methods must not raise.

    Attributes:
        defaults: The default methods of the broker, by kind of routing.
    """

    __slots__ = ("defaults",)

    defaults: dict[RoutingType, str]

    def origin(self, service: str) -> OriginInstrument:
        """Return the part for the connections of a service; empty for unregistered ones."""
        raise NotImplementedError

    def message(
        self, ask: Ask, source: object, size: int, routes: tuple[AnyRoute, ...], outcome: int
    ) -> None:
        """Count a message of a worker of the node that was forwarded or refused.

        Args:
            ask: Its query.
            source: The worker's address; `None` if no worker sent it.
            size: Bytes of its payload.
            routes: Its destinations.
            outcome: How it ended for the broker: `DELIVER` once it was forwarded.
        """
        raise NotImplementedError

    def joined(self, entry: Entry[AnyRoute], *, replaced: bool) -> None:
        """Record that a destination has joined or replaced another."""
        raise NotImplementedError

    def left(self, entry: Entry[AnyRoute], reason: str = "") -> None:
        """Record that a destination has left."""
        raise NotImplementedError

    def rejected(self, ask: Ask, reason: str) -> None:
        """Record a request that no destination could take."""
        raise NotImplementedError


def part_of(node: Node) -> RequestInstrument | None:
    """Return the part for brokers among the instruments of a node, if there is one."""
    instruments = node.instruments
    part = None if instruments is None else instruments.broker
    return part if isinstance(part, RequestInstrument) else None
