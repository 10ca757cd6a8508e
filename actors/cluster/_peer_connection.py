"""The seam between a cluster and the transports that connect its brokers.

A transport makes the *peer links*, and the cluster uses them:

1. The broker that dials (`ConnectPeer`) sends SETUP, with credentials and `PeerHandlers.info`. The
   broker that accepts reads it, asks the rules for `peer`, and calls `greet`.
2. The dialler sends a request `cluster.broker-info` with `info`. The other answers with its own
   `info`, and calls `on_connected`.
3. The dialler reads the answer, calls `on_connected`, and returns the connection.

Before that neither side reads or sends anything else. `on_connected` is called in the turn that has
the last BROKER_INFO, before any later frame is read, so that no request of the peer broker comes
too early. From then on each side sends requests, which the `Handlers` of the other side serve.

All calls are made on the node's loop and do not block.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from ...protocol import Address, OnwardError
from ...protocol.broker import BrokerInfo
from ...protocol.cluster import LinkRole
from ..broker import Handlers

__all__ = [
    "ConnectPeer",
    "ElementReceiver",
    "ElementStream",
    "PeerConnection",
    "PeerHandlers",
    "PeerRefused",
    "ResolveSeed",
]


class PeerRefused(OnwardError):
    """A broker that this one does not take for a peer broker.

    Attributes:
        reason: The reason, in a few fixed words, by which refusals are counted. The text for the
            peer is the same.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class ElementReceiver(Protocol):
    """The receiver of a stream that this broker has requested of a peer broker."""

    def element(self, data: bytes) -> None:
        """Receive an element, for which there was credit."""

    def ended(self, text: str) -> None:
        """Receive the end of the stream; not called after `cancel`.

        Args:
            text: The peer broker's error; empty if it has completed the stream. If the connection
                is lost, that is the text.
        """

    def broken(self) -> None:
        """Receive the end of a stream on which more elements came than were requested."""


class ElementStream(Protocol):
    """A stream that this broker has requested of a peer broker."""

    def request_n(self, n: int) -> None:
        """Request more elements. It does nothing once the stream is over."""

    def cancel(self) -> None:
        """Cancel the stream. It does nothing once the stream is over."""


class PeerConnection(Protocol):
    """A peer link: the connection to another broker, once each side has the other's BROKER_INFO."""

    role: LinkRole
    """What the link is for. The cluster sets it in `on_connected`; until then it is `MESH`."""

    @property
    def info(self) -> BrokerInfo:
        """The other broker's BROKER_INFO, as it was received last in the handshake."""
        ...

    @property
    def java(self) -> bool:
        """Whether the other is a Java broker, which has requests of its own for routes."""
        ...

    @property
    def dialled(self) -> bool:
        """Whether this broker has dialled, and not the other."""
        ...

    @property
    def address(self) -> Address:
        """The address of the connection's worker, by which requests are forwarded."""
        ...

    @property
    def peer(self) -> str:
        """The network address of the other end, as text."""
        ...

    @property
    def round_trip(self) -> float:
        """The time from a KEEPALIVE to its answer, in seconds, lately; 0 if it is not known."""
        ...

    @property
    def busy(self) -> bool:
        """Whether other destinations are to be preferred now."""
        ...

    @property
    def in_flight(self) -> int:
        """The requests that were forwarded over the link, either way, and have not ended."""
        ...

    def request(self, route: str, data: bytes) -> Awaitable[bytes]:
        """Send a request/response, and return the data of the answer.

        Args:
            route: The route, in `message/x.rsocket.routing.v0`.
            data: The data.

        Raises:
            OnwardError: (When awaited.) The peer broker answered with an error, or the link was
                lost.
        """
        ...

    def subscribe(
        self, route: str, data: bytes, credit: int, receiver: ElementReceiver
    ) -> ElementStream:
        """Send a request/stream.

        Args:
            route: The route, in `message/x.rsocket.routing.v0`.
            data: The data.
            credit: The elements requested at first.
            receiver: The receiver of the elements; never called before this returns.

        Raises:
            OnwardError: The link is closed.
        """
        ...

    def close(self, reason: str, text: str) -> None:
        """Close the link with ERROR[CONNECTION_ERROR]; idempotent.

        Args:
            reason: The reason, in a few fixed words, as it is counted.
            text: The text for the peer broker.
        """


class PeerHandlers(Protocol):
    """The cluster, as a transport of peer links knows it."""

    @property
    def info(self) -> BrokerInfo:
        """The BROKER_INFO of this broker, as of now."""
        ...

    def greet(self, info: BrokerInfo) -> None:
        """Decide on a broker that has dialled, by the BROKER_INFO in its SETUP.

        Raises:
            PeerRefused: It is no peer broker; its SETUP is rejected with the reason.
        """

    def on_connected(self, connection: PeerConnection) -> Handlers:
        """Add a peer link, and return the handlers of the peer broker's requests.

        They serve request/response, by their routes, and request/stream. A request of the peer
        broker with an ADDRESS is forwarded by the transport: to own routes only, by a link
        `FROM_ZONE` also to those of the other brokers of the zone, by one `TO_ZONE` to none.

        Raises:
            PeerRefused: It is no peer broker; the connection is closed with the reason, and
                `on_lost` is not called.
        """
        ...

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        """Remove a peer link that has ended; called once for each, also after `close`.

        Args:
            connection: The peer link.
            reason: The reason in a few words, as it is counted.
        """


ConnectPeer: TypeAlias = Callable[[str, PeerHandlers], Awaitable[PeerConnection]]
"""Dials a broker by its URI and shakes hands. Cancelled, it closes what it has opened.

It raises `PeerRefused` if either side refuses the other, and any other `OnwardError`, `OSError` or
`ValueError` if there is no connection."""

ResolveSeed: TypeAlias = Callable[[str], Awaitable[tuple[str, ...]]]
"""Returns the URIs of the addresses that the name in the URI of a seed has now; `OSError` if there
are none, and `ValueError` if it can be no name."""
