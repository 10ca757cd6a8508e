"""Listeners for RSocket over Unix sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from ...actors import Node
from ...actors.broker import Broker
from ..streams._unix_file import bind, check_path, peer_name, unbind, user_of
from ._link import Link
from ._listener import RSocketListener
from ._options import LinkOptions, UnixOptions
from ._transport import RSocketTransport

__all__ = ["RSocketUnixTransport"]


class UnixListener(RSocketListener):
    """A listening Unix socket.

    The file of a broker that has ended is replaced. The file of a running broker is not, nor is
    a file that is no socket.

    Args:
        node: The node of its workers.
        broker: The broker of the connections.
        options: The limits.
        unix: The permissions of the socket's file.
        path: The path of the socket's file.
    """

    def __init__(
        self, node: Node, broker: Broker, options: LinkOptions, unix: UnixOptions, path: Path
    ) -> None:
        super().__init__(node, broker, options)
        self._unix = unix
        self._path = path
        self._file: tuple[int, int] | None = None

    async def _bind(self) -> asyncio.Server:
        made, self._file = await bind(self._path, self._unix.mode)
        try:
            return await self._node.loop.create_unix_server(
                self._enter, sock=made, start_serving=False
            )
        except BaseException:
            made.close()
            self._unbound()
            raise

    def _shown(self, server: asyncio.Server) -> str:
        return f"{RSocketUnixTransport.scheme}://{quote(str(self._path))}"

    def _unbound(self) -> None:
        """Remove the socket's file, unless another broker has replaced it."""
        file, self._file = self._file, None
        unbind(self._path, file)

    def _source(self, transport: asyncio.BaseTransport) -> str:
        """Return the peer's user, if the system provides it."""
        return user_of(transport.get_extra_info("socket"))

    def _first(self, source: str) -> asyncio.BaseProtocol | None:
        link = super()._first(source)
        return _Named(link, self._named) if isinstance(link, Link) else link

    @staticmethod
    def _named(transport: asyncio.BaseTransport) -> str:
        return peer_name(transport.get_extra_info("socket"))


class _Named(asyncio.Protocol):
    """The first protocol of a connection, which sets the connection's socket and peer name."""

    def __init__(self, link: Link, named: Callable[[asyncio.BaseTransport], str]) -> None:
        self._link = link
        self._named = named

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the socket over to the connection."""
        link = self._link
        transport.set_protocol(link)
        link.connection_made(transport)
        link.peer_name = self._named(transport)


class RSocketUnixTransport(RSocketTransport):
    """Listeners for RSocket over Unix sockets: `rsocket+unix:///path`.

    Besides `broker` and `options`, `listen` takes `unix`, a `UnixOptions`. Abstract names are not
    supported: they have no permissions.
    """

    scheme: ClassVar[str] = "rsocket+unix"
    own_options: ClassVar[dict[str, type[Any]]] = {"unix": UnixOptions}

    def _listener(
        self, uri: str, broker: Broker, options: LinkOptions, own: dict[str, Any]
    ) -> UnixListener:
        path = parse_unix_uri(uri, self.scheme)
        return UnixListener(self.node, broker, options, own.get("unix") or UnixOptions(), path)


def parse_unix_uri(uri: str, scheme: str) -> Path:
    """Return the path of `scheme:///path`; `%` and two digits stand for a byte.

    Raises:
        ValueError: It is no such URI, or the path is too long for a socket.
    """
    parts = urlsplit(uri)
    path = unquote(parts.path)
    wrong = parts.query or parts.fragment or not path.strip("/") or "\0" in path
    if wrong or not uri.startswith(f"{scheme}:///"):
        raise ValueError(f"{uri!r} is not {scheme}:///path")
    return check_path(path)
