"""The `uds` transport: links over Unix domain sockets, between nodes of one machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ...protocol import UDS, AddressError
from ..streams._endpoint import Endpoint, ProtocolFactory
from ..streams._options import StreamOptions
from ..streams._pending import PendingConnection
from ..streams._unix_file import FileMode, bind, check_path, peer_name, unbind, user_of
from ._stream import StreamTransport

__all__ = ["UdsOptions", "UdsTransport"]

_PLAIN: Final = "/:@!$&'()*+,;="
"""The characters of a URI path that need no escape, besides letters and digits (RFC 3986 3.3)."""


@dataclass(frozen=True, slots=True)
class UdsOptions(StreamOptions):
    """The options of `uds`: those of all streams, and the permission to connect.

    Attributes:
        mode: The permissions of a listener's file. A client needs the permission to write to it.
            Default 600 octal: the user of the node's process, and root.

    Raises:
        ValueError: The mode is not between 0 and 777 octal, or another option is wrong.
    """

    mode: FileMode = 0o600


class UnixEndpoint(Endpoint):
    """The path of a socket file.

    Args:
        path: The path; one without a leading slash is relative to the working folder.
        options: The options.
    """

    def __init__(self, path: str, options: UdsOptions) -> None:
        self.peer = path
        self._path = check_path(path)
        self._options = options
        self._file: tuple[int, int] | None = None

    async def open(self, loop: asyncio.AbstractEventLoop) -> PendingConnection:
        """Open a connection."""
        return (await loop.create_unix_connection(PendingConnection, self.peer))[1]

    async def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        options: StreamOptions,
        protocol_factory: ProtocolFactory,
    ) -> asyncio.Server:
        """Open a listening socket. A file left by a process that has ended is replaced."""
        made, self._file = await bind(self._path, self._options.mode)
        try:
            return await loop.create_unix_server(protocol_factory, sock=made, start_serving=False)
        except BaseException:
            made.close()
            self.left()
            raise

    def where(self, server: asyncio.Server) -> str:
        """Return the path, escaped for a URI."""
        return quote_from_bytes(os.fsencode(self.peer), _PLAIN)

    def left(self) -> None:
        """Remove the file, unless another process has replaced it."""
        file, self._file = self._file, None
        unbind(self._path, file)

    def name(self, transport: asyncio.BaseTransport) -> str:
        """Return the name of the peer's process and user."""
        return peer_name(transport.get_extra_info("socket"))

    def source(self, transport: asyncio.BaseTransport) -> str:
        """Return the name of the peer's user, where the system reports it."""
        return user_of(transport.get_extra_info("socket"))


class UdsTransport(StreamTransport):
    """A transport over Unix domain sockets of one machine: `uds:///run/node.sock`.

    The protocol is that of `tcp`. `uds://node.sock` is a path relative to the working folder; `%`
    and two digits stand for a byte. An address `5#/run/node.sock` in a route uses the link to that
    peer, or opens one. Abstract names are not supported: they have no permissions.

    With the option `tls`, the connecting side needs `TlsOptions.server_name`.

    The options of `listen` and `connect` are the attributes of `UdsOptions`.
    """

    scheme: ClassVar[str] = "uds"
    schemes: ClassVar[Mapping[str, bool]] = {"uds": False}
    address_type: ClassVar[int | None] = UDS
    options_class: ClassVar[type[StreamOptions]] = UdsOptions

    def endpoint(self, uri: str, scheme: str, options: Any) -> UnixEndpoint:
        """Return the endpoint of `uds:///path`."""
        path = os.fsdecode(unquote_to_bytes(uri.partition("://")[2]))
        if not path.strip("/.") or any(each in uri for each in "?#") or "\0" in path:
            raise ValueError(f"{uri!r} is not uds:///path")
        return UnixEndpoint(path, options)

    def endpoint_of(self, value: str, options: Any) -> UnixEndpoint:
        """Return the endpoint of a path."""
        if not value.strip("/.") or "\0" in value:
            raise AddressError(value, "not a path")
        try:
            return UnixEndpoint(value, options)
        except ValueError as error:
            raise AddressError(value, str(error)) from None
