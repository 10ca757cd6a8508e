"""The `udp` transport: nodes joined by datagrams, on the wire of Ockam."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ...protocol import (
    UDP,
    Address,
    AddressError,
    Message,
    PayloadTooBig,
)
from ...protocol.options import check_value
from .._base import Transport
from ..streams._listening import Listeners
from ..streams._options import parse_endpoint, parse_uri
from ._dialled import DialledLinks
from ._link_statistics import LinkStatistics
from ._udp_link import DialledUdpLink
from ._udp_listener import UdpListener, UdpListenerWorker
from ._udp_options import UdpOptions
from ._udp_socket import Peer, UdpSocket

if TYPE_CHECKING:
    from ...actors import Node

__all__ = ["UdpTransport"]


class UdpTransport(Transport):
    """Joins nodes by UDP, in Ockam's datagrams.

    Messages get lost, overtake one another and come twice, and nobody says so: put a pipe over it
    where that matters. There is no connection: `connect` looks up the host and
    remembers it, and does not know whether anybody is there.

    - `node.listen("udp://127.0.0.1:0", expose=["echo"])` opens a socket. Each peer from which a
      message comes gets a link, whose messages go out by this socket.
    - `node.connect("udp://127.0.0.1:4000")`, or an address `2#127.0.0.1:4000` in a route, makes a
      link. They share one socket (one for IPv4, one for IPv6). A second link to one peer has one of
      its own, and so has a link whose `datagrams`, `high_water` or `receive_buffer` are not those
      of `options`.

    The options of `listen` and `connect` are the attributes of `UdpOptions`; `options=` gives them
    all at once.

    Attributes:
        options: What links opened by an address of type 2 use, and the sockets that links share.
        max_dialled: Links to other nodes at a time; more are refused with `LinkDown`.
    """

    scheme: ClassVar[str] = "udp"
    address_type: ClassVar[int | None] = UDP
    options_class: ClassVar[type[UdpOptions]] = UdpOptions

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.options = UdpOptions(heartbeat=None)
        self.max_dialled = 1000
        self._listeners = Listeners(node, UdpListener)
        self._dialled = DialledLinks[DialledUdpLink](node)
        self._sockets: dict[int, UdpSocket] = {}  # by family
        self._opening = asyncio.Lock()
        self._dropped: Counter[str] = Counter()

    async def listen(
        self,
        uri: str,
        *,
        expose: frozenset[Address] = frozenset(),
        options: UdpOptions | None = None,
        **changes: Any,
    ) -> UdpListener:
        """Take messages at `udp://host:port`; port 0 is any free one.

        Args:
            uri: Where.
            expose: What the peers may send to; see `Gate`.
            options: The options; the defaults if not given.
            **changes: Attributes of `UdpOptions` that differ from them.

        Raises:
            OSError: It cannot be listened there.
            NodeStopped: The node was stopped meanwhile.
            ValueError: The URI is wrong.
            TypeError: There is no such option.
        """
        host, port = parse_uri(uri, self.scheme)
        check_value("options", options, UdpOptions | None)
        chosen = replace(options or UdpOptions(), **changes)
        worker = UdpListenerWorker(host, port, expose, chosen, self._listeners.forget)
        return await self._listeners.start(worker)

    async def connect(
        self,
        uri: str,
        *,
        expose: frozenset[Address] = frozenset(),
        options: UdpOptions | None = None,
        **changes: Any,
    ) -> Address:
        """Make a link to `udp://host:port`, whether or not anybody is there.

        Args:
            uri: Where to.
            expose: What the peer may send to; see `Gate`.
            options: The options; the defaults if not given.
            **changes: Attributes of `UdpOptions` that differ from them.

        Returns:
            The address of the link's worker.

        Raises:
            LinkDown: There is no such host, or there are too many links.
            ValueError: The URI is wrong.
            TypeError: There is no such option.
        """
        host, port = parse_uri(uri, self.scheme)
        check_value("options", options, UdpOptions | None)
        link = self._open(host, port, expose, replace(options or UdpOptions(), **changes))
        try:
            await link.found()
        except BaseException:
            if self.node.has(link.address):
                await self.node.stop_worker(link.address)
            raise
        return link.address

    def resolve(self, message: Message) -> Message:
        """Replace an address of type 2 by that of the link to the peer.

        Raises:
            AddressError: It is not `host:port`.
            PayloadTooBig: The payload alone is larger than a message may be.
            LinkDown: There are too many links.
        """
        limit = self.options.datagrams.max_message
        if len(message[2]) > limit:
            raise PayloadTooBig(len(message[2]), limit)
        try:
            peer = message[0][0].value.decode("ascii")
        except UnicodeDecodeError:
            raise AddressError(message[0][0], "not host:port") from None
        link = self._dialled.by_peer.get(peer)
        if link is None:
            host, port = parse_endpoint(peer)
            with self._dialled.lock:
                # Another thread may have been first.
                link = self._dialled.by_peer.get(peer)
                link = link or self._open(host, port, frozenset(), self.options)
        return message.redirect(link.address)

    def statistics(self) -> tuple[LinkStatistics, ...]:
        """Return what the links to other nodes have counted, oldest first."""
        return tuple(link.statistics() for link in self._dialled)

    @property
    def dropped(self) -> Mapping[str, int]:
        """What came to the sockets of these links and was not given to one, by reason."""
        return dict(self._dropped)

    async def stop(self) -> None:
        """Close every listener, link and socket."""
        await self._listeners.close()
        for link in self._dialled:
            if self.node.has(link.address):
                await self.node.stop_worker(link.address)
            await link.ended()
        for udp_socket in self._sockets.values():
            udp_socket.close()
            await udp_socket.closed()
        self._sockets.clear()

    def _open(
        self, host: str, port: int, expose: frozenset[Address], options: UdpOptions
    ) -> DialledUdpLink:
        link = DialledUdpLink(host, port, expose, options, self._socket_of, self._dialled.forget)
        self._dialled.open(link, self.max_dialled, options.mailbox)
        return link

    async def _socket_of(self, family: int, where: Peer, options: UdpOptions) -> UdpSocket:
        """Return the socket for a peer; it is opened if need be.

        Links share one if they want the same of it, but for a second link to one peer: what comes
        from there must be for one link.
        """
        wanted = _of_socket(options)
        async with self._opening:
            shared = self._sockets.get(family)
            if shared is None and wanted == _of_socket(self.options):
                shared = self._sockets[family] = await self._open_socket(family, options)
            fits = shared is not None and wanted == _of_socket(shared.options)
            if shared is not None and fits and where not in shared.links:
                return shared
        own = await self._open_socket(family, options)
        own.shared = False
        return own

    async def _open_socket(self, family: int, options: UdpOptions) -> UdpSocket:
        made = UdpSocket(options, self.node.loop, _nobody, self._dropped)
        host = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - answers only
        await self.node.loop.create_datagram_endpoint(lambda: made, local_addr=(host, 0))
        return made


def _of_socket(options: UdpOptions) -> tuple[object, ...]:
    """Return those of the options that are a socket's."""
    return options.datagrams, options.high_water, options.receive_buffer


def _nobody(udp_socket: UdpSocket, _: Peer) -> None:
    """Take no message of a peer that we have no link to."""
    udp_socket.dropped["no link"] += 1
