"""The `tcp` and `tls` transports: links over TCP, in Ockam's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

from ...protocol import TCP
from ..streams._endpoint import Endpoint, ProtocolFactory
from ..streams._options import StreamOptions, format_endpoint, parse_endpoint, parse_uri
from ..streams._pending import PendingConnection
from ._stream import StreamTransport
from ._stream_listener import StreamListener

__all__ = ["TcpEndpoint", "TcpListener", "TcpOptions", "TcpTransport"]

BACKLOG = 1024
"""The maximum number of connections that wait to be accepted."""

TcpListener: TypeAlias = StreamListener
"""A listening TCP socket."""

TcpOptions: TypeAlias = StreamOptions
"""The options of `tcp` and `tls`."""


class TcpEndpoint(Endpoint):
    """A host and a port.

    Args:
        host: The name or the IP address.
        port: The port; when listening, 0 selects a free port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self._where = (host, port)
        self.peer = format_endpoint(host, port)

    async def open(self, loop: asyncio.AbstractEventLoop) -> PendingConnection:
        """Open a connection."""
        return (await loop.create_connection(PendingConnection, *self._where))[1]

    async def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        options: StreamOptions,
        protocol_factory: ProtocolFactory,
    ) -> asyncio.Server:
        """Open a listening socket."""
        return await loop.create_server(
            protocol_factory, *self._where, backlog=BACKLOG, start_serving=False
        )

    def where(self, server: asyncio.Server) -> str:
        """Return host and port, with the actual port in place of 0."""
        return format_endpoint(self._where[0], server.sockets[0].getsockname()[1])


class TcpTransport(StreamTransport):
    """A transport over TCP, with TLS if the scheme is `tls` or the option `tls` is given.

    - `node.listen("tcp://127.0.0.1:0", expose=["echo"])` accepts connections.
    - `node.connect("tcp://127.0.0.1:4000")` opens one and keeps it open: a lost connection is
      opened again after a wait, under the same link address.
    - An address `1#127.0.0.1:4000` in a route uses the link to that peer, with TLS or without,
      or opens a link that is closed when idle.

    The options of `listen` and `connect` are the attributes of `TcpOptions`; `options=` gives
    them all at once.

    Attributes:
        options: The options of links that are opened by an address of type 1.
        max_dialled: The maximum number of links to other nodes; more are refused with `LinkDown`.
    """

    scheme: ClassVar[str] = "tcp"
    schemes: ClassVar[Mapping[str, bool]] = {"tcp": False, "tls": True}
    address_type: ClassVar[int | None] = TCP

    def endpoint(self, uri: str, scheme: str, options: Any) -> Endpoint:
        """Return the endpoint of `tcp://host:port`."""
        return TcpEndpoint(*parse_uri(uri, scheme))

    def endpoint_of(self, value: str, options: Any) -> Endpoint:
        """Return the endpoint of `host:port`."""
        return TcpEndpoint(*parse_endpoint(value))
