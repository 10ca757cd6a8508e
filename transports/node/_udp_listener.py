"""UDP listeners, and the worker that owns the socket of one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ...protocol import Address, NodeStopped, OnwardError, counted
from .._log import SeldomLogger
from ..streams._listening import ListeningWorker, WorkerListener
from ..streams._options import format_endpoint
from ._link_statistics import LinkStatistics
from ._stream_link import logger
from ._udp_link import UdpLink
from ._udp_options import UdpOptions
from ._udp_socket import Peer, UdpSocket

__all__ = ["UdpListener", "UdpListenerStatistics", "UdpListenerWorker"]


@dataclass(frozen=True, slots=True)
class UdpListenerStatistics:
    """The state of one UDP listener at one moment."""

    uri: str
    """The URI of the listener."""

    links: tuple[LinkStatistics, ...]
    """The open links, oldest first."""

    accepted: int
    """Peers that got a link."""

    evicted: int
    """Links closed to make room for another peer."""

    turned_away: int
    """Messages of peers that got no link, because `max_peers` proven peers had one."""

    closed: Mapping[str, int]
    """Ended links, by reason."""

    dropped: Mapping[str, int]
    """Datagrams and messages that reached no link, by reason; see `Assembler.dropped`."""

    unfinished: int
    """Incomplete messages."""


class UdpListenerWorker(ListeningWorker):
    """The worker that owns the socket; its children are the links of its peers."""

    def __init__(
        self,
        host: str,
        port: int,
        expose: frozenset[Address],
        options: UdpOptions,
        on_closed: Callable[[Address], object],
    ) -> None:
        super().__init__(on_closed)
        self._where = (host, port)
        self._expose = expose
        self._options = options
        self._socket: UdpSocket | None = None
        self._over = False
        self._links: dict[UdpLink, None] = {}
        self._unproven: dict[UdpLink, None] = {}  # the link that was silent for longest first
        self._seldom = SeldomLogger(logger)
        self._accepted = 0
        self._evicted = 0
        self._turned_away = 0
        self._closed: Counter[str] = Counter()

    async def listen(self) -> None:
        """Bind the socket.

        Raises:
            OSError: The address cannot be listened at.
            NodeStopped: The worker was stopped meanwhile.
        """
        made = UdpSocket(self._options, self.node.loop, self._meet)
        await self.node.loop.create_datagram_endpoint(lambda: made, local_addr=self._where)
        if self._over:
            made.close()
            await made.closed()
            raise NodeStopped(self.node.name)
        self._socket = made
        self.uri = f"udp://{format_endpoint(self._where[0], made.where[1])}"

    def on_stop(self) -> Awaitable[None] | None:
        """Close the socket; the links have been stopped before."""
        self._over = True
        self._on_closed(self.address)
        if self._socket is None:
            return None
        self._socket.close()
        return self._socket.closed()

    def statistics(self) -> UdpListenerStatistics:
        """Return the current statistics."""
        udp_socket = self._socket
        return UdpListenerStatistics(
            uri=self.uri,
            links=tuple(link.statistics() for link in self._links),
            accepted=self._accepted,
            evicted=self._evicted,
            turned_away=self._turned_away,
            closed=dict(self._closed),
            dropped={} if udp_socket is None else dict(udp_socket.dropped),
            unfinished=0 if udp_socket is None else udp_socket.unfinished,
        )

    def _meet(self, udp_socket: UdpSocket, where: Peer) -> UdpLink | None:
        """Return a new link for the sender of a complete message, or `None` if there is no room."""
        if self._over or not self._make_room():
            return None
        link = AcceptedUdpLink(self._expose, self._options, self._link_closed, self._heard)
        try:
            self.spawn(lambda: link, mailbox=self._options.mailbox)
        except OnwardError as error:
            # The node is stopping or full.
            self._turn_away(str(error))
            return None
        link.meet(udp_socket, where)
        self._links[link] = None
        self._unproven[link] = None
        self._accepted += 1
        return link

    def _make_room(self) -> bool:
        """Make room for one more peer, and return whether there is room.

        A datagram's source can be forged, so forged ones may fill the table. A peer that answers a
        message of ours is proven. Proven peers stay, and of the others the most recently active.
        """
        if len(self._links) < self._options.max_peers:
            return True
        if not self._unproven:
            self._turn_away(f"{counted(len(self._links), 'peer')} already")
            return False
        self._evicted += 1
        next(iter(self._unproven)).retire("another peer needed the place")
        return True

    def _turn_away(self, why: str) -> None:
        self._turned_away += 1
        text = "%s: a peer was turned away: %s"
        self._seldom.log(
            logging.WARNING,
            "turned away",
            text,
            self.uri,
            why,
            extra={"event": "listener.turned_away", "listener": self.uri, "reason": why},
        )

    def _heard(self, link: UdpLink) -> None:
        if self._unproven.pop(link, link) is None and not link.proven:
            self._unproven[link] = None

    def _link_closed(self, link: UdpLink) -> None:
        self._links.pop(link, None)
        self._unproven.pop(link, None)
        self._closed[link.reason] += 1


class AcceptedUdpLink(UdpLink):
    """The link to a peer of a listener.

    Args:
        expose: The addresses that the peer may send to.
        options: The limits.
        on_closed: Called once with the link when it has ended.
        heard: Called with the link when a message has come.
    """

    def __init__(
        self,
        expose: frozenset[Address],
        options: UdpOptions,
        on_closed: Callable[[UdpLink], object],
        heard: Callable[[UdpLink], object],
    ) -> None:
        super().__init__(expose, options, on_closed)
        self._heard = heard

    def receive(self, body: bytes) -> None:
        """Handle a complete message."""
        super().receive(body)
        self._heard(self)


class UdpListener(WorkerListener[UdpListenerWorker]):
    """A UDP socket that receives from any peer: a `Listener` with statistics."""

    def statistics(self) -> UdpListenerStatistics:
        """Return the current statistics."""
        return self._worker.statistics()
