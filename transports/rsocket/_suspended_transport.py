"""The transport of a connection that is suspended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..streams._lost_transport import LostTransport

if TYPE_CHECKING:
    from ._resumable_link import ResumableLink

__all__ = ["SuspendedTransport"]


class SuspendedTransport(LostTransport):
    """A transport that only counts what is written: the state machine keeps the frames.

    To the flow control it is a socket that is full above a mark.

    Args:
        link: The connection.
        mark: The bytes above which it is full.
        full: Whether the socket before it was full.
    """

    def __init__(self, link: ResumableLink, mark: int, *, full: bool) -> None:
        super().__init__(link, link.node.loop)
        self._link = link
        self._mark = mark
        self._step = max(1, mark // 4)
        self._written = 0
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
