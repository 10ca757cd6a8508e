"""The `tcp` and `tls` transports: links over TCP, in Ockam's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

from ...protocol import TCP
from ..streams._endpoint import TcpEndpoint
from ..streams._options import StreamOptions, parse_endpoint, parse_uri
from ._stream import StreamTransport
from ._stream_listener import StreamListener

__all__ = ["TcpListener", "TcpOptions", "TcpTransport"]

TcpListener: TypeAlias = StreamListener
"""A listening TCP socket."""

TcpOptions: TypeAlias = StreamOptions
"""The options of `tcp` and `tls`."""


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

    def endpoint(self, uri: str, scheme: str, options: Any) -> TcpEndpoint:
        """Return the endpoint of `tcp://host:port`."""
        return TcpEndpoint(*parse_uri(uri, scheme))

    def endpoint_of(self, value: str, options: Any) -> TcpEndpoint:
        """Return the endpoint of `host:port`."""
        return TcpEndpoint(*parse_endpoint(value))
