"""A request that is relayed from one connection to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...actors.broker import DestinationEnd, MulticastRules, Request, StartEnd
from ...actors.broker._exchange import CANCELED, DELIVER, DROP, FAILED, RELAYED, outcome_of
from ...actors.broker._tally import SAMPLED
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
from ._forwarded import Pin, drop_kept, forward, frames_for_java, frames_for_peer, sent_elsewhere
from ._metadata import JAVA, PEER
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
    from ...actors.broker import Ask
    from ...actors.broker.table._remote import AnyRoute
    from ...protocol.security import Principal
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
    """A request read from a connection, and the joint of its two streams.

    It is the `peer` of the requester's stream from the start and of the destination's stream from
    the hand-over, until the request ends. One object serves both directions, as a relayed request
    makes as few objects as possible.

    Attributes:
        link: The requester's connection.
        stream: The requester's stream; `None` for a metadata push.
        kind: The frame type of the request.
        frames: The frames of the request that were read before the hand-over; after it only those
            of a request that a peer broker may reject.
        form: The form of its ADDRESS, once parsed.
        pin: Its metadata for peer brokers, if they are remembered with those of its requester.
        gatherer: Collects a fragmented request until its metadata is whole.
        resume: Called with the last fragment, if a worker waits for the whole request.
        taker: The destination's connection, after the hand-over.
        taken: The destination's stream.
        window: Elements that the destination may be ahead of the requester's socket, by the sizes
            seen so far.
        low: Elements left of the window at which more credit is passed on. Like the window, it is
            set for interactions with credit only.
        token: The last address of a worker's return route; empty if none was issued.
        checked: The principal of the credentials in the request itself. It is unset for most
            requests, which have none that are checked, so that it costs them nothing.
        named: The query of a request that names it instead of an ADDRESS; unset for all others.
        tried: The routes at peer brokers that have rejected the request; unset without.
        read_at: When the request was read, if it has waited for a route; unset without.
        uncounted: Whether a peer broker has the stream or channel, and the event log does not count
            that yet, as the request may still go elsewhere; unset for others.
    """

    checked: Principal
    low: int
    named: Ask
    tried: tuple[AnyRoute, ...]
    read_at: float
    uncounted: bool
    window: int

    __slots__ = (
        "checked",
        "form",
        "frames",
        "gatherer",
        "kind",
        "link",
        "low",
        "named",
        "pin",
        "read_at",
        "resume",
        "stream",
        "taken",
        "taker",
        "token",
        "tried",
        "uncounted",
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
        self.pin: Pin | None = None
        self.gatherer: RequestGatherer | None = None
        self.resume: Callable[[], object] | None = None
        self.taker: Link | None = None
        self.taken: Stream | None = None
        self.token = b""

    # --- joined streams -----------------------------------------------------------------------

    def hand_to(self, link: Link) -> None:
        """Open a stream to a connection's peer for the request, and join the two streams."""
        kind = self.kind
        if kind == _PUSH:
            self._push(link)
            return
        frames = self.frames
        if link.form is not self.form:
            if link.to_broker:
                forward(self, link)
                return
            frames = self.frames_for(link)
        now = self.link.now
        if self.withdraw is not None:
            now = self.began = link.time()  # it waited for a route until now
        stream = link.open(kind, now)
        origin = self.stream
        if origin is None:
            raise AssertionError("a request has a stream")
        self.taker, self.taken = link, stream
        stream.peer = self
        core = link.core
        if kind in WITH_CREDIT:
            credit = origin.send_credit
            self.window = window = min(link.window, self.link.flow.credit_window)
            self.low = window // 2
            initial = min(window, credit)
            core.relay_request(stream, frames[0], initial)
            # A destination that ignores its window may draw on the reserve: the requester's
            # credit is the limit.
            stream.reserve = credit - initial
        else:
            # Forwarding the Request: a broker "MUST not mutate the wrapped metadata, or data of the
            # request."
            core.relay(stream, frames[0])
        for frame in frames[1:]:
            core.relay(stream, frame)
        self.frames.clear()
        if not link.flushing:
            link.flush_soon()
        # Other requests are short and counted at their end: see `relayed`.
        if self.log is not None and kind in WITH_CREDIT and not link.to_broker:
            self.log.forward(self)
        if stream.state == CLOSED:
            if kind == _FNF:
                self.link.tally.sent += 1
                FrameExchange.end(self, 0.0, RELAYED)
            else:
                self.end(0.0, DELIVER if kind in WITH_CREDIT else RELAYED)
            self.unlink()

    def _push(self, link: Link) -> None:
        link.push(self.frames_for(link)[0])
        link.legs.taken += 1
        self.forwarded()
        self.end()

    def frames_for(self, link: Link, route: AnyRoute | None = None) -> list[Frame]:
        """Return the frames read so far, in the form that a destination uses.

        Args:
            link: The connection of the destination.
            route: The route of the destination, if it is not that of the request: of a leg.

        Raises:
            ProtocolError: The metadata cannot be written in that form.
            NotDelivered: The destination is at a peer broker, and so is the requester.
        """
        target = link.form
        if target is JAVA:
            return frames_for_java(self, self.route if route is None else route)
        if target is PEER:
            return frames_for_peer(self, link)
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
        kept = self.frames
        if (
            kept
            and (frame.type == _ERROR or self.kind != _RESPONSE)
            and sent_elsewhere(self, link, frame)
        ):
            return  # a peer broker has rejected it
        try:
            near.core.relay(target, frame)
        except LocalProtocolError:
            self._break_off(near, target)
            return
        if not near.flushing:
            near.flush_soon()
        # Not the state of the destination's stream: that is ahead by the rest of the read.
        if target.state == CLOSED:
            if frame.type == _ERROR:
                self.end(0.0, FAILED)
            elif self.kind == _RESPONSE:
                if kept:
                    link.retry_room += len(kept[0].buffer)  # they go with this object
                tally = near.tally
                tally.answered += 1
                if not tally.answered & (SAMPLED - 1):
                    tally.took(_RESPONSE, link.now - self.began)
                FrameExchange.end(self, link.now, RELAYED)  # counted above, for less
            else:
                self.end()
            # As `unlink` does; no token was issued.
            target.peer = stream.peer = None
            if stream.reserve or stream.state != CLOSED:
                near.blocked_on_write.discard(self)
                self._end_also(link, stream)
        elif kept or (stream.reserve and stream.receive_credit <= self.low):
            self._go_on(link, frame)

    def _go_on(self, link: Link, frame: Frame) -> None:
        """Drop what is kept at the first fragment of an answer; else pass credit on."""
        if self.frames:
            drop_kept(self)
            return
        self.window = link.learn(frame, self.link.flow.credit_window)
        self.low = self.window // 2
        self.replenish()

    def on_request(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Pass a frame of the requester on to the destination, or keep it until the hand-over."""
        far, target = self.taker, self.taken
        if far is None or target is None:
            link.session.on_early(self, frame)
            return
        if frame.type == _REQUEST_N:
            # Reactive Streams Semantics: "Credits are cumulative. Once credits are granted from
            # Requester to Responder, they cannot be revoked."
            target.reserve = min(target.reserve + frame.request_n, MAX_REQUEST_N)
            self.replenish()
            return
        try:
            far.core.relay(target, frame)
        except LocalProtocolError:
            self._break_off(far, target)
            return
        far.flush_soon()
        if far.write_paused and far is not link:
            self._slow_down(link, far)
        if target.state == CLOSED:
            self.end(0.0, DELIVER if frame.type == _PAYLOAD else CANCELED)
            self.unlink()
            self._end_also(link, stream)

    def _slow_down(self, link: Link, far: Link) -> None:
        """Leave the requester unread until the destination reads, or end the request."""
        if link.only_requests():
            link.block(far)
        elif link.to_broker and far.waiting > far.flow.max_overdraft:
            # The link has other requesters, and goes on being read.
            far.core.counters["overdrawn"] += 1
            self.give_up("the destination does not keep up")

    @staticmethod
    def _end_also(link: Link, stream: Stream) -> None:
        """End a stream after the stream joined to it has ended, if it is not over yet."""
        # Error Codes, CANCELED: "The Responder canceled the request but may have started processing
        # it (similar to REJECTED but doesn't guarantee lack of side-effects)."
        if stream.state != CLOSED:
            link.core.terminate(stream, ErrorCode.CANCELED, "the other side of the stream is over")
            link.flush_soon()

    def _break_off(self, link: Link, target: Stream) -> None:
        """End the stream joined to one that sent a frame which cannot be passed on."""
        drop_kept(self)
        # A closed one was ended by its own peer, in the chunk that is being read.
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
            if ahead < 0 and near.waiting > near.flow.max_overdraft:
                near.core.counters["overdrawn"] += 1
                self.give_up("the destination exceeds its credit, and the requester does not read")
            else:
                near.blocked_on_write.add(self)
            return
        elements = min(taken.reserve, self.window - ahead)
        taken.reserve -= elements
        taker.core.send_request_n(taken, elements)
        taker.flush_soon()

    def give_up(self, text: str) -> None:
        """End both streams of a request that was handed over."""
        taker, taken = self.taker, self.taken
        self.refuse(ErrorCode.CANCELED, text)
        if taker is not None and taken is not None:
            taker.core.terminate(taken, ErrorCode.CANCELED, text)
            taker.flush_soon()

    # --- the end ------------------------------------------------------------------------------

    def on_gone(self, stream: Stream, text: str) -> None:
        """End the other stream after the loss of one."""
        link, target = self.link, self.stream
        self.end(0.0, CANCELED if stream is target else DROP)
        if stream is target:
            link, target = self.taker or link, self.taken
        if target is not None:
            link.core.terminate(target, ErrorCode.CANCELED, text)
            link.flush_soon()
        self.unlink()

    def end(self, now: float = 0.0, outcome: int = DELIVER) -> None:
        """Count the end of the request, and release its destination."""
        if not self.ended:
            link = self.link
            if link.tally.end(self.kind, outcome):
                link.tally.took(self.kind, link.time() - self.began)
        super().end(now, outcome)

    def unlink(self) -> None:
        """Release both streams after the end of the request.

        The exchange and its streams form a cycle; its collection would cost more than the request.
        """
        drop_kept(self)
        if self.stream is not None:
            self.link.blocked_on_write.discard(self.stream.peer)
            self.stream.peer = None
        if self.taken is not None:
            self.taken.peer = None
        if self.token:
            self.link.worker.local.forget(self.token)
            self.token = b""

    def refuse(self, code: int, text: str, outcome: int = 0) -> None:
        """End the request; answer with an error if its interaction has a response.

        Args:
            code: The error code.
            text: The text for the requester.
            outcome: The outcome for the event log; 0 derives it from the code.
        """
        self.end(0.0, outcome or outcome_of_code(code))
        stream = self.stream
        if stream is not None and not stream.closed:
            self.link.core.terminate(stream, code, text)
            self.link.flush_soon()
        self.unlink()

    def fail(self, error: OnwardError) -> None:
        """Send an error to the requester; a request without a response is only counted."""
        if not self.ended:
            self.refuse(code_of(error), text_of(error), outcome_of(error))

    # --- for the index, the workers and the handlers ------------------------------------------

    @property
    def relayed(self) -> bool:
        """Whether a connection has taken the request and the end of the request counts that."""
        if self.taker is None:
            return False
        return self.kind not in WITH_CREDIT or getattr(self, "uncounted", False)

    @property
    def source(self) -> str:
        """The source of the requester's connection."""
        return self.link.source

    @property
    def kept(self) -> bool:
        """Whether the request has neither ended nor been handed over, so that frames are kept."""
        return not self.ended and self.taker is None

    def wait(self) -> None:
        """Copy the frames out of the chunks of input that hold them."""
        self.read_at = getattr(self, "read_at", 0.0) or self.began
        self.frames = [frame.detached() for frame in self.frames]

    def data(self) -> bytes:
        """Return the payload data, joined if it came in fragments."""
        return b"".join(bytes(frame.data or b"") for frame in self.frames)

    def metadata(self) -> bytes:
        """Return the metadata of the request, joined if they came in fragments."""
        return b"".join(bytes(frame.metadata or b"") for frame in self.frames)

    def return_route(self) -> Route:
        """Return the return route of a worker's answer: the connection, then this request.

        The second address cannot be guessed. A worker that has answered one request of a connection
        knows the connection's address, but cannot answer another request.
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
            raise UnknownAddress(Address(LOCAL, self.token), "no request waits for this answer")
        try:
            # Request Response: "Upon sending a response, the stream is terminated on the
            # Responder."
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
        """Return the request as it is given to handlers."""
        link = self.link
        principal = getattr(self, "checked", link.session.principal)
        return request_of(
            self.frames,
            self.form,
            self.kind,
            principal,
            shared=link.shared.by_several,
            source=link.identity.source,
        )

    def start(self, start: StartEnd) -> DestinationEnd:
        """Start the destination's end of the request, and join the two."""
        return ServedStream(self).start(start)

    def divide(self, rules: MulticastRules) -> MulticastRequest:
        """Return the multicast of the request."""
        return MulticastRequest(self, rules)

    def answered_once(self) -> bool:
        """Return whether the request takes one answer at most."""
        return self.kind in _SINGLE

    def whole(self, then: Callable[[], object]) -> bool:
        """Return whether all fragments have arrived; if not, call `then` when they have."""
        if not more_follow(self.frames[-1]):
            return True
        self.resume = then
        return False
