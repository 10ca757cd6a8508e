"""The destination's end of a branch whose destination is a connection."""

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
    """A stream to a destination: what `Served` is for a handler.

    Attributes:
        ahead: Elements the destination may still send; below 0 if it has sent more than it was
            asked for. The stream's own count is ahead of this, by the elements in the rest of
            the chunk that is just being read.
        asked: Elements it has been asked for.
    """

    __slots__ = ("ahead", "asked", "link", "stream")

    def __init__(self, link: Link, stream: Stream) -> None:
        self.link = link
        self.stream = stream
        self.ahead = self.asked = 0

    def begin(self) -> None:
        """Note that the destination is asked for one element at first.

        What it may send is for the requester to say, so the connection does not count it.
        """
        self.ahead = self.asked = 1
        self.stream.reserve = MAX_REQUEST_N

    @property
    def credit(self) -> int:
        """Elements the destination still wants."""
        return self.stream.send_credit

    def want(self, n: int) -> None:
        """Let the destination send that many more elements."""
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
            return  # it has ended the stream, in the chunk that is just being read
        self.link.flush_soon()

    def cancel(self) -> None:
        """End the stream, if it is not over."""
        self.stream.peer = None
        self.link.core.terminate(self.stream, ErrorCode.CANCELED, "")
        self.link.flush_soon()
