"""A request on its way from one connection to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...actors.broker import Exchange
from ...protocol import LOCAL, Address, DeliveryError, InDoubt, NoRoute, NotDelivered, Route
from ...protocol.rsocket import (
    COMPLETE,
    FOLLOWS,
    ErrorCode,
    Frame,
    FrameType,
    RequestGatherer,
    Stream,
)

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["DestinationSlow", "StreamExchange", "code_of", "more_follow", "text_of"]

_SINGLE: Final = frozenset(
    {
        int(FrameType.REQUEST_RESPONSE),
        int(FrameType.REQUEST_FNF),
        int(FrameType.METADATA_PUSH),
    }
)


class DestinationSlow(NotDelivered):
    """The destination's socket is above `high_water`; it is given nothing new until it reads."""

    reason = "does not keep up"


def text_of(error: Exception) -> str:
    """Return what a requester is told: its tags or the field at fault, never our internals."""
    if isinstance(error, NotDelivered) and type(error) not in (NotDelivered, NoRoute):
        return str(NotDelivered("the destination", error.reason))
    return str(error)


def more_follow(frame: Frame) -> bool:
    """Say whether a frame is a fragment that others follow."""
    if frame.type == FrameType.METADATA_PUSH:
        return False  # the flag means nothing there
    if frame.type == FrameType.PAYLOAD and frame.word & COMPLETE:
        return False  # "implicitly ignores the F flag"
    return bool(frame.word & FOLLOWS)


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


class StreamExchange(Exchange):
    """A request read from a connection, and what joins its two streams.

    It is the `user` of the requester's stream from the start, and the `peer` of both
    streams from the moment a destination takes the request until it is over. One object
    does for both directions: a relayed request makes as few objects as it can.

    Attributes:
        link: The requester's connection.
        stream: The request's stream there; `None` for a metadata push.
        kind: The frame type of the request.
        frames: The frames of the request that came in before it was handed over.
        gatherer: Collects a request in fragments until its metadata is whole.
        resume: Called when the last fragment has come, if somebody waits for that.
        taker: The destination's connection, once it has taken the request.
        taken: The request's stream there.
        held: Credit the requester gave that has not been passed on yet, in elements.
        token: The last step of a worker's way back; empty if no worker has been given one.
    """

    __slots__ = (
        "frames",
        "gatherer",
        "held",
        "kind",
        "link",
        "resume",
        "stream",
        "taken",
        "taker",
        "token",
    )

    def __init__(self, link: Link, stream: Stream | None, kind: int, frame: Frame) -> None:
        self.size = frame.end - frame.start
        self.ended = False
        self.route = None
        self.withdraw = None
        self.handed = None
        self.link = link
        self.stream = stream
        self.kind = kind
        self.frames: list[Frame] = [frame]
        self.gatherer: RequestGatherer | None = None
        self.resume: Callable[[], object] | None = None
        self.taker: Link | None = None
        self.taken: Stream | None = None
        self.held = 0
        self.token = b""

    def far_end(self, stream: Stream) -> tuple[Link, Stream] | None:
        """Return the connection and stream at the other end of one of the two streams."""
        if stream.requester:
            return (self.link, self.stream) if self.stream is not None else None
        if self.taker is None or self.taken is None:
            raise AssertionError("joined streams have two ends")
        return self.taker, self.taken

    def unlink(self) -> None:
        """Let go of both streams, once the request is over.

        They refer to each other through this; left as they are they would wait for the
        cycle collector, which costs more than a request does.
        """
        if self.stream is not None:
            self.stream.peer = self.stream.user = None
        if self.taken is not None:
            self.taken.peer = None
        if self.token:
            self.link.worker.local.forget(self.token)
            self.token = b""

    @property
    def kept(self) -> bool:
        """Whether frames of the request are kept: it has not ended or been handed over."""
        return not self.ended and self.taker is None

    def wait(self) -> None:
        """Let go of the chunks of input that the frames came in."""
        self.frames = [frame.detached() for frame in self.frames]

    def fail(self, error: DeliveryError) -> None:
        """Tell the requester; a request without an answer is only counted."""
        if not self.ended:
            self.link.refuse(self, code_of(error), text_of(error))

    def data(self) -> bytes:
        """Return the payload data, joined if it came in fragments."""
        return b"".join(bytes(frame.data or b"") for frame in self.frames)

    def return_route(self) -> Route:
        """Return the way back for a worker's answer: the connection, then this request.

        The second step cannot be guessed: who has answered one request of a connection, and
        so knows its address, cannot answer another.
        """
        if self.stream is None or self.kind == FrameType.REQUEST_FNF:
            return ()
        if not self.token:
            self.token = self.link.worker.local.expect(self)
        return (*self.link.return_route, Address(LOCAL, self.token))

    def answered_once(self) -> bool:
        """Say whether the request takes one answer at most."""
        return self.kind in _SINGLE

    def whole(self, then: Callable[[], object]) -> bool:
        """Say whether all fragments are here; if not, call `then` when they are."""
        if not more_follow(self.frames[-1]):
            return True
        self.resume = then
        return False
