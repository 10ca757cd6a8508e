"""The `udp` transport: links over datagrams, in Ockam's protocol."""

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
    """A transport over UDP, in Ockam's datagrams.

    Messages may be lost, reordered or duplicated without notice; where that matters, use a pipe.
    There is no connection: `connect` resolves the host and stores its address, without checking
    that a peer is there.

    - `node.listen("udp://127.0.0.1:0", expose=["echo"])` opens a socket. Each peer that sends a
      message gets a link, which sends from this socket.
    - `node.connect("udp://127.0.0.1:4000")`, or an address `2#127.0.0.1:4000` in a route, makes a
      link. These links share one socket for IPv4 and one for IPv6. A second link to one peer has
      its own socket, and so has a link with other `datagrams`, `high_water` or `receive_buffer`
      than in `options`.

    The options of `listen` and `connect` are the attributes of `UdpOptions`; `options=` gives them
    all at once.

    Attributes:
        options: The options of links opened by an address of type 2, and of the shared sockets.
        max_dialled: The maximum number of links to other nodes; more are refused with `LinkDown`.
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
        """Receive messages at `udp://host:port`; port 0 selects a free port.

        Args:
            uri: The URI to listen at.
            expose: The addresses that the peers may send to; see `Gate`.
            options: The options; the defaults if not given.
            **changes: Single options, which replace those in `options`.

        Raises:
            OSError: The URI cannot be listened at.
            NodeStopped: The node stopped meanwhile.
            ValueError: The URI is wrong.
            TypeError: There is no such option.
        """
        host, port = parse_uri(uri, self.scheme)
        _refuse_credentials(changes)
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
        """Make a link to `udp://host:port`, whether or not a peer is there.

        Args:
            uri: The URI to send to.
            expose: The addresses that the peer may send to; see `Gate`.
            options: The options; the defaults if not given.
            **changes: Single options, which replace those in `options`.

        Returns:
            The address of the link.

        Raises:
            LinkDown: There is no such host, or there are too many links.
            ValueError: The URI is wrong.
            TypeError: There is no such option.
        """
        host, port = parse_uri(uri, self.scheme)
        _refuse_credentials(changes)
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
        """Replace an address of type 2 by that of the link to the peer, opened if necessary.

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
                # Another thread may have opened it.
                link = self._dialled.by_peer.get(peer)
                link = link or self._open(host, port, frozenset(), self.options)
        return message.redirect(link.address)

    def statistics(self) -> tuple[LinkStatistics, ...]:
        """Return the statistics of the links to other nodes, oldest first."""
        return tuple(link.statistics() for link in self._dialled)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Datagrams and messages that reached no link, by reason."""
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
        """Return a socket for a link to a peer, opened if necessary.

        Links with the same socket options share one, except a second link to one peer: a datagram
        from a peer must belong to one link.
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
        host = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - for replies only
        await self.node.loop.create_datagram_endpoint(lambda: made, local_addr=(host, 0))
        return made


def _of_socket(options: UdpOptions) -> tuple[object, ...]:
    """Return the options that apply to the socket."""
    return options.datagrams, options.high_water, options.receive_buffer


def _nobody(udp_socket: UdpSocket, _: Peer) -> None:
    """Count and drop a message from a peer without a link."""
    udp_socket.dropped["no link"] += 1


def _refuse_credentials(changes: dict[str, Any]) -> None:
    """Refuse what other transports take: a datagram has no connection that could be accepted.

    Raises:
        ValueError: There are credentials, or an authentication.
    """
    for name in ("credentials", "authentication"):
        if changes.pop(name, None) is not None:
            raise ValueError(f"udp takes no {name}: no datagram belongs to an accepted connection")
