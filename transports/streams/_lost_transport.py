"""The transport of a connection that is lost before all that it has sent is handled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

__all__ = ["LostTransport"]


class LostTransport(asyncio.Transport):
    """The stand-in for the transport of a lost connection, until its protocol closes it.

    It reads nothing, and drops what is written. Its protocol is notified of the loss, once and
    soon, after `close` or `abort`, as that of a socket is.

    Args:
        protocol: The protocol of the connection.
        loop: Its event loop.
        error: The error of the loss, or `None`.
        extra: What `get_extra_info` returns, by name.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        loop: asyncio.AbstractEventLoop,
        error: Exception | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(extra)
        self._protocol = protocol
        self._loop = loop
        self._error = error
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drop bytes."""

    def get_write_buffer_size(self) -> int:
        """Return 0: nothing waits to be written."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore it: nothing waits to be written."""

    def pause_reading(self) -> None:
        """Ignore it: nothing is read."""

    def resume_reading(self) -> None:
        """Ignore it: nothing is read."""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol to notify of the loss."""
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol to notify of the loss."""
        return self._protocol

    def is_closing(self) -> bool:
        """Whether it is closed or closing."""
        return self._closing

    def close(self) -> None:
        """Notify the protocol of the loss, soon. Idempotent."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._lose)

    def abort(self) -> None:
        """Close it."""
        self.close()

    def _lose(self) -> None:
        self._protocol.connection_lost(self._error)
