"""A request on its way from one connection to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...actors.broker import Handlers, MergeRules, Request
from ...actors.broker._exchange import CANCELED, DELIVER, DROP, FAILED, RELAYED, outcome_of
from ...protocol import (
    LOCAL,
    Address,
    NotDelivered,
    OnwardError,
    PayloadTooBig,
    Route,
    UnknownAddress,
)
from ...protocol.rsocket import (
    CLOSED,
    MAX_REQUEST_N,
    ErrorCode,
    Frame,
    FrameType,
    LocalProtocolError,
    RequestGatherer,
    Stream,
)
from ._multicast import MulticastRequest
from ._request import (
    WITH_CREDIT,
    FrameExchange,
    code_of,
    more_follow,
    outcome_of_code,
    request_of,
    text_of,
)
from ._served import ServedStream
from ._translate import translated

if TYPE_CHECKING:
    from ...actors.broker import Handling
    from ._link import Link
    from ._metadata import Form

__all__ = ["StreamExchange"]

_ERROR: Final = int(FrameType.ERROR)
_FNF: Final = int(FrameType.REQUEST_FNF)
_PAYLOAD: Final = int(FrameType.PAYLOAD)
_PUSH: Final = int(FrameType.METADATA_PUSH)
_REQUEST_N: Final = int(FrameType.REQUEST_N)
_RESPONSE: Final = int(FrameType.REQUEST_RESPONSE)
_SINGLE: Final = frozenset({_RESPONSE, _FNF, _PUSH})


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
        window: Elements the destination may be ahead of the requester's socket, as far as is known
            how large they are.
        low: How few of them are left when more credit is passed on.
        token: The last step of a worker's way back; empty if no worker has been given one.
    """

    __slots__ = (
        "form",
        "frames",
        "gatherer",
        "kind",
        "link",
        "low",
        "resume",
        "stream",
        "taken",
        "taker",
        "token",
        "window",
    )

    def __init__(self, link: Link, stream: Stream | None, kind: int, frame: Frame) -> None:
        self.size = frame.end - frame.start
        self.ended = False
        self.began = link.now
        self.route = None
        self.withdraw = None
        self.handed = None
        self.log = None
        self.link = link
        self.stream = stream
        self.kind = kind
        self.frames: list[Frame] = [frame]
        self.form: Form | None = None
        self.gatherer: RequestGatherer | None = None
        self.resume: Callable[[], object] | None = None
        self.taker: Link | None = None
        self.taken: Stream | None = None
        self.window = self.low = 0
        self.token = b""

    # --- joined streams -----------------------------------------------------------------------

    def hand_to(self, link: Link) -> None:
        """Open a stream to a connection's peer for the request, and join the two ends."""
        kind = self.kind
        if kind == _PUSH:
            self._push(link)
            return
        frames = self.frames
        if link.form is not self.form:
            frames = self.frames_for(link)
        stream = link.open(kind)
        origin = self.stream
        if origin is None:
            raise AssertionError("a request has a stream")
        self.taker, self.taken = link, stream
        stream.peer = self
        if self.withdraw is not None:
            self.began = link.time()  # it has waited for a route until now
        core = link.core
        if kind in WITH_CREDIT:
            credit = origin.send_credit
            self.window = window = min(link.window, self.link.options.credit_window)
            self.low = window // 2
            initial = min(window, credit)
            core.relay_request(stream, frames[0], initial)
            # It may be taken out by a destination that does not heed credit: what it may
            # send is for the requester to say.
            stream.reserve = credit - initial
        else:
            core.relay(stream, frames[0])
        for frame in frames[1:]:
            core.relay(stream, frame)
        self.frames.clear()
        if not link.flushing:
            link.flush_soon()
        # Others end soon, and are counted with their end: see `relayed`.
        if self.log is not None and kind in WITH_CREDIT:
            self.log.forward(self)
        if stream.state == CLOSED:
            self.end(0.0, DELIVER if kind in WITH_CREDIT else RELAYED)
            self.unlink()

    def _push(self, link: Link) -> None:
        link.push(self.frames_for(link)[0])
        self.forwarded()
        self.end()

    def frames_for(self, link: Link) -> list[Frame]:
        """Return the frames that have come, in the form that a destination uses.

        Raises:
            ProtocolError: The metadata cannot be said in that form.
        """
        target = link.form
        if target is self.form or target is None or self.form is None:
            return self.frames
        frames, left_out = translated(self.frames, self.form, target)
        if left_out:
            link.core.counters["metadata_entry_left_out"] += left_out
        return frames

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
            if frame.type == _ERROR:
                self.end(0.0, FAILED)
            elif self.kind == _RESPONSE:
                self.end(link.now, RELAYED)
            else:
                self.end()
            # As `unlink` does; no worker has been given a way back.
            target.peer = stream.peer = None
            if stream.reserve:
                near.blocked_on_write.discard(self)
            if stream.state != CLOSED:
                self._end_also(link, stream)
        elif stream.reserve and stream.receive_credit <= self.low:
            self.window = link.learn(frame, near.options.credit_window)
            self.low = self.window // 2
            self.replenish()

    def on_request(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Pass a frame of the requester on to the destination, or keep it until there is one."""
        far, target = self.taker, self.taken
        if far is None or target is None:
            link.session.on_early(self, frame)
            return
        if frame.type == _REQUEST_N:
            target.reserve = min(target.reserve + frame.request_n, MAX_REQUEST_N)
            self.replenish()
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
            self.end(0.0, DELIVER if frame.type == _PAYLOAD else CANCELED)
            self.unlink()
            if stream.state != CLOSED:
                self._end_also(link, stream)

    @staticmethod
    def _end_also(link: Link, stream: Stream) -> None:
        """End the one side of a request whose other side is over: nothing would end it later."""
        link.core.terminate(stream, ErrorCode.CANCELED, "the other side of the stream is over")
        link.flush_soon()

    def _break_off(self, link: Link, target: Stream) -> None:
        """End the far side of a stream whose near side sent what cannot be passed on."""
        # One that is over already was ended by its own side, in the chunk that is being read.
        self.end(0.0, CANCELED if target.state == CLOSED else DROP)
        link.core.terminate(target, ErrorCode.CANCELED, "the stream was broken off")
        link.flush_soon()

    def replenish(self) -> None:
        """Pass credit on to a destination that has used half its window."""
        taker, taken = self.taker, self.taken
        if taker is None or taken is None or taken.state == CLOSED:
            return
        ahead = taken.receive_credit
        if ahead > self.low or not taken.reserve:
            return
        near = self.link
        if near.write_paused:
            if ahead < 0 and near.waiting > near.options.max_overdraft:
                near.core.counters["overdrawn"] += 1
                self.give_up("the destination sends more than it is asked for, and it is not read")
            else:
                near.blocked_on_write.add(self)
            return
        elements = min(taken.reserve, self.window - ahead)
        taken.reserve -= elements
        taker.core.send_request_n(taken, elements)
        taker.flush_soon()

    def give_up(self, text: str) -> None:
        """End both sides of a request that is in somebody's hands."""
        taker, taken = self.taker, self.taken
        self.refuse(ErrorCode.CANCELED, text)
        if taker is not None and taken is not None:
            taker.core.terminate(taken, ErrorCode.CANCELED, text)
            taker.flush_soon()

    # --- how it ends --------------------------------------------------------------------------

    def on_gone(self, stream: Stream, text: str) -> None:
        """End the far side of a stream whose near side is gone."""
        link, target = self.link, self.stream
        self.end(0.0, CANCELED if stream is target else DROP)
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
            self.link.blocked_on_write.discard(self.stream.peer)
            self.stream.peer = None
        if self.taken is not None:
            self.taken.peer = None
        if self.token:
            self.link.worker.local.forget(self.token)
            self.token = b""

    def refuse(self, code: int, text: str, outcome: int = 0) -> None:
        """Answer with an error, if the request is of a kind that has answers, and end.

        Args:
            code: The error code.
            text: What the requester is told.
            outcome: How it ended, for the event log; 0 is what the code says.
        """
        self.end(0.0, outcome or outcome_of_code(code))
        stream = self.stream
        if stream is not None and not stream.closed:
            self.link.core.terminate(stream, code, text)
            self.link.flush_soon()
        self.unlink()

    def fail(self, error: OnwardError) -> None:
        """Tell the requester; a request without an answer is only counted."""
        if not self.ended:
            self.refuse(code_of(error), text_of(error), outcome_of(error))

    # --- what those on the way ask for --------------------------------------------------------

    @property
    def relayed(self) -> bool:
        """Whether a connection has taken the request whose taking is counted with its end."""
        return self.taker is not None and self.kind not in WITH_CREDIT

    @property
    def source(self) -> str:
        """Where the requester is."""
        return self.link.source

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

    def request(self) -> Request:
        """Return the request as handlers see it."""
        return request_of(self.frames, self.form, self.kind)

    def serve(self, handlers: Handlers) -> Handling:
        """Join the request to its handler."""
        return ServedStream(self).start(handlers)

    def merge(self, rules: MergeRules) -> MulticastRequest:
        """Begin to hand the request to several destinations."""
        return MulticastRequest(self, rules)

    def answered_once(self) -> bool:
        """Say whether the request takes one answer at most."""
        return self.kind in _SINGLE

    def whole(self, then: Callable[[], object]) -> bool:
        """Say whether all fragments are here; if not, call `then` when they are."""
        if not more_follow(self.frames[-1]):
            return True
        self.resume = then
        return False
