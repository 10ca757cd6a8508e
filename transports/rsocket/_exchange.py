"""A request between two connections, and the two ends of its stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...actors.broker import Exchange
from ...protocol import Context, DeliveryError, InDoubt, NotDelivered
from ...protocol.rsocket import ErrorCode, Frame, FrameType, RequestGatherer, Stream

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["Half", "StreamExchange", "code_of"]

_new: Final = tuple.__new__
_FOLLOWS: Final = 0x80
_SINGLE: Final = frozenset(
    {
        int(FrameType.REQUEST_RESPONSE),
        int(FrameType.REQUEST_FNF),
        int(FrameType.METADATA_PUSH),
    }
)


def code_of(error: Exception) -> int:
    """Return the RSocket error code that tells a requester whether to try again.

    REJECTED: nothing was handed over. CANCELED: it was, and the outcome is unknown.
    INVALID: the request itself is wrong.
    """
    if isinstance(error, NotDelivered):
        return ErrorCode.REJECTED
    if isinstance(error, InDoubt):
        return ErrorCode.CANCELED
    return ErrorCode.INVALID


class Half:
    """What one connection knows of a stream's other end; it is the stream's `peer`.

    Attributes:
        link: The other connection.
        stream: The stream there.
        exchange: The request both ends belong to.
        to_requester: True if frames sent to this end go to the requester.
        held: Credit the requester gave that has not been passed on yet, in elements. Kept
            on the end that leads to the requester.
    """

    __slots__ = ("exchange", "held", "link", "stream", "to_requester")

    def __init__(
        self, link: Link, stream: Stream, exchange: StreamExchange, to_requester: bool
    ) -> None:
        self.link = link
        self.stream = stream
        self.exchange = exchange
        self.to_requester = to_requester
        self.held = 0


class StreamExchange(Exchange):
    """A request read from a connection.

    Attributes:
        link: The requester's connection.
        stream: The request's stream there; `None` for a metadata push.
        kind: The frame type of the request.
        frames: The frames of the request that came in before it was handed over.
        gatherer: Collects a request in fragments until its metadata is whole.
        resume: Called when the last fragment has come, if somebody waits for that.
        context: The message context that carries this exchange.
    """

    __slots__ = ("context", "frames", "gatherer", "kind", "link", "resume", "stream")

    def __init__(self, link: Link, stream: Stream | None, kind: int, frames: list[Frame]) -> None:
        frame = frames[0]
        super().__init__(frame.end - frame.start)
        self.link = link
        self.stream = stream
        self.kind = kind
        self.frames = frames
        self.gatherer: RequestGatherer | None = None
        self.resume: Callable[[], object] | None = None
        self.context = _new(Context, (None, None, self))

    def fail(self, error: DeliveryError) -> None:
        """Tell the requester; a request without an answer is only counted."""
        if not self.ended:
            self.link.refuse(self, code_of(error), str(error))

    def data(self) -> bytes:
        """Return the payload data, joined if it came in fragments."""
        return b"".join(bytes(frame.data or b"") for frame in self.frames)

    def answered_once(self) -> bool:
        """Say whether the request takes one answer at most."""
        return self.kind in _SINGLE

    def whole(self, then: Callable[[], object]) -> bool:
        """Say whether all fragments are here; if not, call `then` when they are."""
        if not self.frames[-1].word & _FOLLOWS:
            return True
        self.resume = then
        return False
