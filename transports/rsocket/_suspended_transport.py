"""The transport of a connection that is suspended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._resumable_link import ResumableLink

__all__ = ["SuspendedTransport"]


class SuspendedTransport(asyncio.Transport):
    """A transport that only counts what is written: the state machine keeps the frames.

    To the flow control it is a socket that is full above a mark.

    Args:
        link: The connection.
        mark: The bytes above which it is full.
        full: Whether the socket before it was full.
    """

    def __init__(self, link: ResumableLink, mark: int, *, full: bool) -> None:
        super().__init__()
        self._link = link
        self._mark = mark
        self._step = max(1, mark // 4)
        self._written = 0
        self._closing = False
        link.write_paused = full

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Count bytes, and have the senders stop above the mark."""
        self._written += len(data)
        if self._written > self._mark and not self._closing:
            self._mark = self._written + self._step
            self._link.fill_up()

    def get_write_buffer_size(self) -> int:
        """Return the bytes written."""
        return self._written

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the default: there is no socket."""
        return default

    def pause_reading(self) -> None:
        """Ignore it: nothing is read."""

    def resume_reading(self) -> None:
        """Ignore it: nothing is read."""

    def is_closing(self) -> bool:
        """Whether it is closed or closing."""
        return self._closing

    def close(self) -> None:
        """Call `connection_lost` of the connection soon, as a socket would."""
        if not self._closing:
            self._closing = True
            self._link.node.loop.call_soon(self._link.connection_lost, None)

    def abort(self) -> None:
        """Close it."""
        self.close()
