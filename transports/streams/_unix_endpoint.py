"""Endpoints that are Unix sockets."""

from __future__ import annotations

import asyncio
import os
from typing import Final
from urllib.parse import quote_from_bytes

from ...protocol._principal import PeerIdentity
from ._endpoint import Endpoint, ProtocolFactory
from ._pending import PendingConnection
from ._unix_file import bind, check_path, peer_of, unbind

__all__ = ["UnixEndpoint"]

_PLAIN: Final = "/:@!$&'()*+,;="
"""The characters of a URI path that need no escape, besides letters and digits (RFC 3986 3.3)."""


class UnixEndpoint(Endpoint):
    """The path of a socket file.

    Args:
        path: The path; one without a leading slash is relative to the working folder.
        mode: The permissions of a listener's file.

    Raises:
        ValueError: The path is too long for a socket.
    """

    def __init__(self, path: str, mode: int = 0o600) -> None:
        self.peer = path
        self._path = check_path(path)
        self._mode = mode
        self._file: tuple[int, int] | None = None

    async def open(self, loop: asyncio.AbstractEventLoop) -> PendingConnection:
        """Open a connection."""
        return (await loop.create_unix_connection(PendingConnection, self.peer))[1]

    async def listen(
        self, loop: asyncio.AbstractEventLoop, protocol_factory: ProtocolFactory
    ) -> asyncio.Server:
        """Open a listening socket, unless one was passed.

        A file left by a process that has ended is replaced.
        """
        if self.passed is not None:
            return await loop.create_unix_server(
                protocol_factory, sock=self.passed, start_serving=False
            )
        made, self._file = await bind(self._path, self._mode)
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
        """Remove the file, unless another process has replaced it, or owns the socket."""
        if self.passed is not None:
            return
        file, self._file = self._file, None
        unbind(self._path, file)

    def identify(self, transport: asyncio.BaseTransport) -> PeerIdentity:
        """Return the peer's process and user, where the system reports them."""
        return peer_of(transport.get_extra_info("socket"))
