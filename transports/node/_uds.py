"""The `uds` transport: nodes of one machine joined by Unix domain sockets."""

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
"""What need not be escaped in the path of a URI, besides letters and the like (RFC 3986 3.3)."""


@dataclass(frozen=True, slots=True)
class UdsOptions(StreamOptions):
    """The options of `uds`: those of all streams, and who may connect.

    Attributes:
        mode: The permissions of a listener's file. To connect takes the right to write to it.
            Default 600 octal: the user the node runs as, and root.

    Raises:
        ValueError: The mode is not of 0 to 777 octal, or another option is wrong.
    """

    mode: FileMode = 0o600


class UnixEndpoint(Endpoint):
    """The path of a socket's file.

    Args:
        path: The path; one that does not begin with a slash is of the working folder.
        options: The options.
    """

    def __init__(self, path: str, options: UdsOptions) -> None:
        self.peer = path
        self._path = check_path(path)
        self._options = options
        self._file: tuple[int, int] | None = None

    async def open(self, loop: asyncio.AbstractEventLoop) -> PendingConnection:
        """Connect."""
        return (await loop.create_unix_connection(PendingConnection, self.peer))[1]

    async def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        options: StreamOptions,
        protocol_factory: ProtocolFactory,
    ) -> asyncio.Server:
        """Listen. A file left by a process that is gone is replaced, and nothing else."""
        made, self._file = await bind(self._path, self._options.mode)
        try:
            return await loop.create_unix_server(protocol_factory, sock=made, start_serving=False)
        except BaseException:
            made.close()
            self.left()
            raise

    def where(self, server: asyncio.Server) -> str:
        """Return the path, with what a URI cannot have in it escaped."""
        return quote_from_bytes(os.fsencode(self.peer), _PLAIN)

    def left(self) -> None:
        """Remove the file, if it is still ours."""
        file, self._file = self._file, None
        unbind(self._path, file)

    def name(self, transport: asyncio.BaseTransport) -> str:
        """Return the process at the other end, and its user."""
        return peer_name(transport.get_extra_info("socket"))

    def source(self, transport: asyncio.BaseTransport) -> str:
        """Return the user at the other end, where the system tells."""
        return user_of(transport.get_extra_info("socket"))


class UdsTransport(StreamTransport):
    """Joins nodes of one machine by Unix domain sockets: `uds:///run/node.sock`.

    The wire is that of `tcp`. `uds://node.sock` is a path of the working folder; `%` and two
    digits stand for a byte. An address `5#/run/node.sock` in a route uses the link to that peer, or
    opens one. There are no abstract names: they have no permissions.

    With the option `tls`, a side that connects needs `TlsOptions.server_name`.

    The options of `listen` and `connect` are the attributes of `UdsOptions`.
    """

    scheme: ClassVar[str] = "uds"
    schemes: ClassVar[Mapping[str, bool]] = {"uds": False}
    address_type: ClassVar[int | None] = UDS
    options_class: ClassVar[type[StreamOptions]] = UdsOptions

    def endpoint(self, uri: str, scheme: str, options: Any) -> UnixEndpoint:
        """Read `uds:///path`."""
        path = os.fsdecode(unquote_to_bytes(uri.partition("://")[2]))
        if not path.strip("/.") or any(each in uri for each in "?#") or "\0" in path:
            raise ValueError(f"{uri!r} is not uds:///path")
        return UnixEndpoint(path, options)

    def endpoint_of(self, value: str, options: Any) -> UnixEndpoint:
        """Read a path."""
        if not value.strip("/.") or "\0" in value:
            raise AddressError(value, "not a path")
        try:
            return UnixEndpoint(value, options)
        except ValueError as error:
            raise AddressError(value, str(error)) from None
