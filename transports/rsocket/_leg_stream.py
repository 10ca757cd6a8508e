"""The destination's end of a leg to a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.rsocket import (
    CLOSED,
    MAX_REQUEST_N,
    ErrorCode,
    Frame,
    LocalProtocolError,
    Stream,
)

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["LegStream"]


class LegStream:
    """A leg's stream to a destination, as `Served` is a leg's handler.

    Attributes:
        ahead: Elements that the destination may still send; below 0 if it has exceeded its
            credit. The stream's own count is ahead of this by the elements in the rest of the
            chunk that is being read.
        asked: Elements requested of it so far.
    """

    __slots__ = ("ahead", "asked", "link", "stream")

    def __init__(self, link: Link, stream: Stream) -> None:
        self.link = link
        self.stream = stream
        self.ahead = self.asked = 0

    def begin(self, n: int = 1) -> None:
        """Set the credit of the request's first frame: one element for each destination.

        The connection does not enforce the destination's credit: the requester's credit is the
        limit.
        """
        self.ahead = self.asked = n
        self.stream.reserve = MAX_REQUEST_N

    @property
    def credit(self) -> int:
        """Elements that the destination has requested and not received."""
        return self.stream.send_credit

    def want(self, n: int) -> None:
        """Grant the destination credit for `n` more elements."""
        if self.stream.state != CLOSED:
            self.ahead += n
            self.asked += n
            self.link.core.send_request_n(self.stream, n)
            self.link.flush_soon()

    def relay(self, frame: Frame) -> None:
        """Pass on a frame of the requester."""
        try:
            self.link.core.relay(self.stream, frame)
        except LocalProtocolError:
            return  # the destination ended the stream in the chunk that is being read
        self.link.flush_soon()

    def cancel(self) -> None:
        """Cancel the stream, unless it has ended."""
        self.stream.peer = None
        self.link.core.terminate(self.stream, ErrorCode.CANCELED, "")
        self.link.flush_soon()
