"""A request on its way from one connection to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...actors.broker import Exchange
from ...protocol import (
    LOCAL,
    Address,
    DeliveryError,
    InDoubt,
    NoRoute,
    NotDelivered,
    PayloadTooBig,
    Route,
    UnknownAddress,
)
from ...protocol.rsocket import (
    CLOSED,
    COMPLETE,
    FOLLOWS,
    MAX_REQUEST_N,
    ErrorCode,
    Frame,
    FrameType,
    LocalProtocolError,
    RequestGatherer,
    Stream,
)

if TYPE_CHECKING:
    from ._link import Link
    from ._metadata import Form

__all__ = [
    "DestinationSlow",
    "FrameExchange",
    "StreamExchange",
    "code_of",
    "more_follow",
    "text_of",
]

_ERROR: Final = int(FrameType.ERROR)
_FNF: Final = int(FrameType.REQUEST_FNF)
_PUSH: Final = int(FrameType.METADATA_PUSH)
_REQUEST_N: Final = int(FrameType.REQUEST_N)
_RESPONSE: Final = int(FrameType.REQUEST_RESPONSE)
_WITH_CREDIT: Final = frozenset({int(FrameType.REQUEST_STREAM), int(FrameType.REQUEST_CHANNEL)})

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


class FrameExchange(Exchange):
    """A request that connections can take: what its frames are handed over by."""

    __slots__ = ()

    def hand_to(self, link: Link) -> None:
        """Open a stream to a connection's peer for the request, and join the two ends.

        Raises:
            NotDelivered: The peer does not keep up, the connection takes no more streams,
                or it has gone.
        """
        raise NotImplementedError

    def answer(self, payload: bytes) -> None:
        """Take the answer of a worker of this node.

        Raises:
            NotDelivered: The request is over, or has been answered already.
        """
        raise NotImplementedError


class StreamExchange(FrameExchange):
    """A request read from a connection, and what joins its two streams.

    It is the `peer` of the requester's stream from the start, and of the destination's from
    the moment one takes the request, until it is over. One object does for both directions: a
    relayed request makes as few objects as it can.

    Attributes:
        link: The requester's connection.
        stream: The request's stream there; `None` for a metadata push.
        kind: The frame type of the request.
        frames: The frames of the request that came in before it was handed over.
        form: How its ADDRESS is wrapped, once that has been read.
        gatherer: Collects a request in fragments until its metadata is whole.
        resume: Called when the last fragment has come, if somebody waits for that.
        taker: The destination's connection, once it has taken the request.
        taken: The request's stream there.
        held: Credit the requester gave that has not been passed on yet, in elements.
        token: The last step of a worker's way back; empty if no worker has been given one.
    """

    __slots__ = (
        "form",
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
        self.began = link.now
        self.route = None
        self.withdraw = None
        self.handed = None
        self.link = link
        self.stream = stream
        self.kind = kind
        self.frames: list[Frame] = [frame]
        self.form: Form | None = None
        self.gatherer: RequestGatherer | None = None
        self.resume: Callable[[], object] | None = None
        self.taker: Link | None = None
        self.taken: Stream | None = None
        self.held = 0
        self.token = b""

    # --- joined streams -----------------------------------------------------------------------

    def hand_to(self, link: Link) -> None:
        """Open a stream to a connection's peer for the request, and join the two ends."""
        kind = self.kind
        if kind == _PUSH:
            self._push(link)
            return
        stream = link.open(kind)
        origin = self.stream
        if origin is None:
            raise AssertionError("a request has a stream")
        self.taker, self.taken = link, stream
        stream.peer = self
        frames = self.frames
        core = link.core
        if kind in _WITH_CREDIT:
            credit = origin.send_credit
            initial = min(credit, link.options.credit_window)
            self.held = credit - initial
            core.relay_request(stream, frames[0], initial)
        else:
            core.relay(stream, frames[0])
        for frame in frames[1:]:
            core.relay(stream, frame)
        frames.clear()
        if not link.flushing:
            link.flush_soon()
        if stream.state == CLOSED:
            self.end()
            self.unlink()

    def _push(self, link: Link) -> None:
        metadata = self.frames[0].metadata
        link.push(bytes(metadata or b""))
        self.end()

    def on_answer(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Pass a frame of the destination on to the requester."""
        near, target = self.link, self.stream
        if target is None:
            raise AssertionError("joined streams have two ends")
        try:
            near.core.relay(target, frame)
        except LocalProtocolError:
            self._break_off(near, target)
            return
        if not near.flushing:
            near.flush_soon()
        # Not the state of the near stream: that is ahead, by the rest of the chunk.
        if target.state == CLOSED:
            answered = self.kind == _RESPONSE and frame.type != _ERROR
            self.end(link.now if answered else 0.0)
            self.unlink()
        elif self.held:
            self.refill()

    def on_request(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Pass a frame of the requester on to the destination, or keep it until there is one."""
        far, target = self.taker, self.taken
        if far is None or target is None:
            link.session.on_early(self, frame)
            return
        if frame.type == _REQUEST_N:
            self.held = min(self.held + frame.request_n, MAX_REQUEST_N)
            self.refill()
            return
        try:
            far.core.relay(target, frame)
        except LocalProtocolError:
            self._break_off(far, target)
            return
        far.flush_soon()
        if far.write_paused and far is not link and link.only_requests():
            link.block(far)
        if target.state == CLOSED:
            self.end()
            self.unlink()

    def _break_off(self, link: Link, target: Stream) -> None:
        """End the far side of a stream whose near side sent what cannot be passed on."""
        self.end()
        link.core.terminate(target, ErrorCode.CANCELED, "the stream was broken off")
        link.flush_soon()

    def refill(self) -> None:
        """Pass credit on to a destination that has used half its window."""
        taker, taken = self.taker, self.taken
        if taker is None or taken is None or taken.state == CLOSED:
            return
        window = self.link.options.credit_window
        ahead = taken.receive_credit
        if ahead > window // 2 or not self.held:
            return
        if self.link.write_paused:
            self.link.starved.add(self)
            return
        elements = min(self.held, window - ahead)
        self.held -= elements
        taker.core.send_request_n(taken, elements)
        taker.flush_soon()

    # --- how it ends --------------------------------------------------------------------------

    def on_gone(self, stream: Stream, text: str) -> None:
        """End the far side of a stream whose near side is gone."""
        self.end()
        link, target = self.link, self.stream
        if stream is target:
            link, target = self.taker or link, self.taken
        if target is not None:
            link.core.terminate(target, ErrorCode.CANCELED, text)
            link.flush_soon()
        self.unlink()

    def unlink(self) -> None:
        """Let go of both streams, once the request is over.

        They refer to each other through this; left as they are they would wait for the
        cycle collector, which costs more than a request does.
        """
        if self.stream is not None:
            self.stream.peer = None
        if self.taken is not None:
            self.taken.peer = None
        if self.token:
            self.link.worker.local.forget(self.token)
            self.token = b""

    def refuse(self, code: int, text: str) -> None:
        """Answer with an error, if the request is of a kind that has answers, and end."""
        self.end()
        stream = self.stream
        if stream is not None and not stream.closed and stream.kind != _FNF:
            self.link.core.send_error(stream, code, text)
            self.link.flush_soon()
        self.unlink()

    def fail(self, error: DeliveryError) -> None:
        """Tell the requester; a request without an answer is only counted."""
        if not self.ended:
            self.refuse(code_of(error), text_of(error))

    # --- what those on the way ask for --------------------------------------------------------

    @property
    def kept(self) -> bool:
        """Whether frames of the request are kept: it has not ended or been handed over."""
        return not self.ended and self.taker is None

    def wait(self) -> None:
        """Let go of the chunks of input that the frames came in."""
        self.frames = [frame.detached() for frame in self.frames]

    def data(self) -> bytes:
        """Return the payload data, joined if it came in fragments."""
        return b"".join(bytes(frame.data or b"") for frame in self.frames)

    def return_route(self) -> Route:
        """Return the way back for a worker's answer: the connection, then this request.

        The second step cannot be guessed: who has answered one request of a connection, and
        so knows its address, cannot answer another.
        """
        if self.stream is None or self.kind == _FNF:
            return ()
        if not self.token:
            self.token = self.link.worker.local.expect(self)
        return (*self.link.return_route, Address(LOCAL, self.token))

    def answer(self, payload: bytes) -> None:
        """Send a worker's answer to the requester."""
        link, stream = self.link, self.stream
        if stream is None or not self.kept:
            raise UnknownAddress(Address(LOCAL, self.token), "nobody waits for this answer")
        try:
            link.core.send_payload(stream, payload, complete=True)
        except PayloadTooBig:
            self.refuse(ErrorCode.APPLICATION_ERROR, "the answer is too big")
            return
        except LocalProtocolError as error:
            raise NotDelivered(Address(LOCAL, self.token), str(error)) from None
        self.end(link.time())
        self.unlink()
        link.flush_soon()

    def answered_once(self) -> bool:
        """Say whether the request takes one answer at most."""
        return self.kind in _SINGLE

    def whole(self, then: Callable[[], object]) -> bool:
        """Say whether all fragments are here; if not, call `then` when they are."""
        if not more_follow(self.frames[-1]):
            return True
        self.resume = then
        return False
