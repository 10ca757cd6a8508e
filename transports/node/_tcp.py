"""The `tcp` and `tls` transports: nodes joined by TCP, on the wire of Ockam."""

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
"""Connections that may wait to be accepted."""

TcpListener: TypeAlias = StreamListener
"""A listening TCP socket."""

TcpOptions: TypeAlias = StreamOptions
"""The options of `tcp` and `tls`."""


class TcpEndpoint(Endpoint):
    """A host and a port.

    Args:
        host: The name or the IP address.
        port: The port; to listen, 0 is any free one.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self._where = (host, port)
        self.peer = format_endpoint(host, port)

    async def open(self, loop: asyncio.AbstractEventLoop) -> PendingConnection:
        """Connect."""
        return (await loop.create_connection(PendingConnection, *self._where))[1]

    async def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        options: StreamOptions,
        protocol_factory: ProtocolFactory,
    ) -> asyncio.Server:
        """Listen."""
        return await loop.create_server(
            protocol_factory, *self._where, backlog=BACKLOG, start_serving=False
        )

    def where(self, server: asyncio.Server) -> str:
        """Return host and port, which may have been 0."""
        return format_endpoint(self._where[0], server.sockets[0].getsockname()[1])


class TcpTransport(StreamTransport):
    """Joins nodes by TCP, with TLS if the scheme is `tls` or the option `tls` is given.

    - `node.listen("tcp://127.0.0.1:0", expose=["echo"])` accepts connections.
    - `node.connect("tcp://127.0.0.1:4000")` opens one and keeps it open: when it is lost it is
      connected again, after a wait, and the link's address stays the same.
    - An address `1#127.0.0.1:4000` in a route uses the link to that peer, with TLS or without,
      or opens one that is closed when it has been idle.

    The options of `listen` and `connect` are the attributes of `TcpOptions`; `options=` gives
    them all at once.

    Attributes:
        options: What links opened by an address of type 1 use.
        max_dialled: Links to other nodes at a time; more are refused with `LinkDown`.
    """

    scheme: ClassVar[str] = "tcp"
    schemes: ClassVar[Mapping[str, bool]] = {"tcp": False, "tls": True}
    address_type: ClassVar[int | None] = TCP

    def endpoint(self, uri: str, scheme: str, options: Any) -> Endpoint:
        """Read `tcp://host:port`."""
        return TcpEndpoint(*parse_uri(uri, scheme))

    def endpoint_of(self, value: str, options: Any) -> Endpoint:
        """Read `host:port`."""
        return TcpEndpoint(*parse_endpoint(value))
