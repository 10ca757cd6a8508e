"""One leg of a multicast exchange."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...actors.broker import DestinationEnd, Request, StartEnd
from ...actors.broker._exchange import CANCELED, DELIVER
from ...protocol import LOCAL, Address, InDoubt, OnwardError, PayloadTooBig, Route, UnknownAddress
from ...protocol.rsocket import (
    COMPLETE,
    FOLLOWS,
    NEXT,
    ErrorCode,
    Frame,
    FrameType,
    Stream,
    payload_frames,
)
from ._leg_stream import LegStream
from ._request import INTERACTIONS, WITH_CREDIT, FrameExchange, completes, more_follow
from ._served import Served

if TYPE_CHECKING:
    from ...actors.broker._instrument import RequestCounting
    from ._link import Link
    from ._multicast import MulticastRequest

__all__ = ["Leg"]

_CANCEL: Final = int(FrameType.CANCEL)
_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)
_ERROR: Final = int(FrameType.ERROR)
_FNF: Final = int(FrameType.REQUEST_FNF)
_PAYLOAD: Final = int(FrameType.PAYLOAD)
_PUSH: Final = int(FrameType.METADATA_PUSH)
_REQUEST_N: Final = int(FrameType.REQUEST_N)


class Leg(FrameExchange):
    """One destination's part of a multicast exchange; the requester's end for that destination.

    Attributes:
        multicast: The multicast.
        to: The destination's end, after the hand-over: a stream or a handler.
        answered: Whether the destination has completed its response.
        silent: Whether it has sent no element yet.
        number: The number of the leg.
        shares: The destinations that it is for: several, if it goes to a peer broker. It has as
            many shares of the credit and of the bytes held.
        part: The frames of an unfinished element that are held; `None` if there are none.
        said: Bytes of the element that it is sending.
        largest: Bytes of its largest element.
        pace: Elements that it may be ahead of the requester, by the sizes seen so far.
        needs: The requester's credit for which it waits, or 0.
        input_open: Whether it accepts elements of a channel's requester.
        wanted: Elements that it has requested so far.
        queue: Frames that it cannot be sent yet; `None` if there are none.
        resume: Called with the last fragment, if a worker waits for the whole request.
    """

    __slots__ = (
        "_middle",
        "_token",
        "answered",
        "input_open",
        "largest",
        "multicast",
        "needs",
        "number",
        "pace",
        "part",
        "queue",
        "resume",
        "said",
        "shares",
        "silent",
        "to",
        "wanted",
    )

    def __init__(self, multicast: MulticastRequest, number: int, shares: int = 1) -> None:
        exchange = multicast.exchange
        self.size = exchange.size
        self.ended = False
        self.began = multicast.began
        self.route = None
        self.withdraw = None
        self.handed = None
        self.log = None
        self.multicast = multicast
        self.to: LegStream | Served | None = None
        self.answered = False
        self.silent = True
        self.number = number
        self.shares = shares
        self.part: list[Frame] | None = None
        self.said = 0
        self.largest = 1
        self.pace = shares
        self.needs = 0
        self.input_open = exchange.kind == _CHANNEL
        self.wanted = 0
        self.queue: deque[Frame] | None = None
        self.resume: Callable[[], object] | None = None
        self._middle = False  # the last frame sent to it has more fragments to follow
        self._token = b""

    @property
    def kept(self) -> bool:
        """Whether the leg has neither ended nor been handed over."""
        return not self.ended and self.to is None

    # --- to the destination -------------------------------------------------------------------

    def hand_to(self, link: Link) -> None:
        """Open a stream to a destination for the request, or queue it if the request is large."""
        multicast = self.multicast
        exchange = multicast.exchange
        if exchange.kind == _PUSH:
            link.push(exchange.frames_for(link, self.route)[0])
            link.legs.taken += 1
            self.forwarded()
            multicast.on_taken(self)
        elif multicast.large(exchange.size):
            multicast.in_turns().hand_to(self, link)
        else:
            self.hand_over(link, multicast.began)

    def hand_over(self, link: Link, now: float) -> None:
        """Open the stream, and send the frames of the request that have arrived.

        Args:
            link: The destination's connection.
            now: The time.

        Raises:
            NotDelivered: As for `hand_to`.
        """
        multicast = self.multicast
        exchange = multicast.exchange
        frames = exchange.frames_for(link, self.route)
        core, kind = link.core, exchange.kind
        stream = link.open(kind, now)
        stream.peer = self
        self.to = to = LegStream(link, stream)
        last = frames[-1]
        if kind in WITH_CREDIT:
            first = 1 if self.shares == 1 else max(1, min(self.shares, multicast.granted))
            core.relay_request(stream, frames[0], first)
            to.begin(first)
        else:
            core.relay(stream, frames[0])
        if len(frames) > 1:
            for frame in frames[1:]:
                core.relay(stream, frame)
        link.legs.taken += 1
        if not link.flushing:
            link.flush_soon()
        if exchange.log is not None:
            exchange.log.copy(exchange, self.route)
        multicast.on_placed()
        self._after(last)
        if self.queue is not None:
            self._send_queued()

    def relay(self, frame: Frame) -> None:
        """Send a fragment of the request, or keep it until the destination reads."""
        # The same fragment may have ended this leg, as too much is kept for those before it.
        if self.ended or not isinstance(self.to, LegStream):
            return
        if self.queue is not None or self._socket_full() or not self._has_turn(frame):
            self.multicast.channel_input().keep_for(self, frame)
        else:
            self._send(frame)

    def relay_error(self, frame: Frame) -> None:
        """Send the error that ends a channel, and end the leg."""
        if self.to is not None:
            self.to.relay(frame)
            self.drop(over=isinstance(self.to, Served), outcome=CANCELED)

    def put(self, frame: Frame) -> None:
        """Send an element of a channel, or keep it until the destination has credit and room."""
        if not self.input_open:
            return
        if self.to is None or self.queue is not None or not self._may_have(frame):
            self.multicast.channel_input().keep_for(self, frame)
        else:
            self._send(frame)

    def _may_have(self, frame: Frame) -> bool:
        element = bool(frame.word & (NEXT | FOLLOWS))
        allowed = self._middle or not element or (self.to is not None and self.to.credit > 0)
        return allowed and not self._socket_full() and self._has_turn(frame)

    def _has_turn(self, frame: Frame) -> bool:
        """Whether the queue of large frames allows a frame to be sent now."""
        multicast, to = self.multicast, self.to
        if not isinstance(to, LegStream) or not multicast.large(frame.end - frame.start):
            return True
        return multicast.in_turns().allows(self, to.link)

    def _socket_full(self) -> bool:
        """Return whether the destination's socket is full; if so, arrange to be resumed."""
        to = self.to
        if not isinstance(to, LegStream):
            return False
        link = to.link
        if link.write_paused:
            link.blocked_on_write.add(self)
            self.multicast.channel_input().wait_for_socket(self)
            return True
        if link.core.pending <= link.flow.high_water:
            return False
        link.node.loop.call_soon(self.replenish)
        return True

    def replenish(self) -> None:
        """Send the frames kept while the destination's socket was full."""
        if not self.ended:
            self.multicast.channel_input().reads_again(self)
            self._send_queued()
            self.multicast.settle()

    def _send_queued(self) -> None:
        while self.queue is not None and self._may_have(self.queue[0]):
            self._send(self.multicast.channel_input().take_for(self, self.queue))

    def _send(self, frame: Frame) -> None:
        to = self.to
        if to is None:
            raise AssertionError("frames are sent only after the hand-over")
        to.relay(frame)
        self._after(frame)

    def _after(self, frame: Frame) -> None:
        """Update the leg after a frame was sent."""
        self._middle = more_follow(frame)
        kind = self.multicast.kind
        if kind == _FNF:
            if not self._middle:
                self.multicast.on_taken(self)
        elif kind == _CHANNEL and not self._middle and self._is_last(frame):
            self.stop_input_here()

    def _is_last(self, frame: Frame) -> bool:
        """Return whether the element that ends with a frame is the requester's last one."""
        multicast = self.multicast
        return bool(frame.word & COMPLETE) or multicast.final

    def stop_input_here(self) -> None:
        """Close the leg's input, and end the leg if its response is complete."""
        self.multicast.channel_input().let_go(self)
        if self.answered:
            self.drop(over=True)

    # --- from the destination -----------------------------------------------------------------

    def on_answer(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Handle a frame of the destination."""
        kind = frame.type
        if kind == _PAYLOAD:
            self.silent = False
            self.multicast.on_payload(self, frame)
        elif kind == _REQUEST_N:
            self.request_n(frame.request_n)
        elif kind == _ERROR:
            self.multicast.on_error(self, frame.error_code, frame.error_text, frame)
        elif kind == _CANCEL:
            self.cancel_input()

    def on_gone(self, stream: Stream, text: str) -> None:
        """Go on without the destination."""
        self.multicast.on_left(self)

    def finish_answer(self) -> None:
        """Mark the response as complete, and end the leg if its input is closed."""
        if not self.answered:
            self.answered = True
            self.multicast.forget(self, due=True)
        if not self.input_open:
            self.drop(over=True)

    # --- from a handler -----------------------------------------------------------------------

    def start(self, start: StartEnd) -> DestinationEnd:
        """Start the destination's end of the request, and join the two."""
        multicast = self.multicast
        exchange = multicast.exchange
        request = exchange.request()
        interaction = INTERACTIONS[exchange.kind]
        served = Served(self, multicast.link)
        self.to = served
        if completes(exchange.frames):
            multicast.channel_input().let_go(self)
        handling = served.start(start, interaction, request, complete=not self.input_open)
        if not handling.over:
            self.forwarded()
        multicast.on_placed()
        if not interaction.answered:
            multicast.on_taken(self)
        elif not self.ended and exchange.kind in WITH_CREDIT:
            served.want(1)
        return handling

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Merge an element of the handler."""
        mtu = self.multicast.link.core.limits.mtu
        raws = tuple(payload_frames(1, data, metadata, complete=complete, mtu=mtu))
        self.silent = False
        for raw in raws:
            self.multicast.on_payload(self, _frame_of(raw))

    def complete(self) -> None:
        """Merge the completion of the handler."""
        (raw,) = payload_frames(1, next=False, complete=True)
        self.multicast.on_payload(self, _frame_of(raw))

    def error(self, code: int, text: str) -> None:
        """Merge an error of the handler."""
        self.multicast.on_error(self, code, text)

    def request_n(self, n: int) -> None:
        """Request `n` more elements of the requester."""
        input_ = self.multicast.channel_input()
        input_.ask(self, n)
        self._send_queued()
        input_.balance()
        self.multicast.settle()

    def cancel_input(self) -> None:
        """Close the leg's input at the destination's wish."""
        if not self.ended:
            self.stop_input_here()
            self.multicast.channel_input().balance()
            self.multicast.settle()

    # --- from a worker ------------------------------------------------------------------------

    def answer(self, payload: bytes) -> None:
        """Merge the answer of a worker of this node."""
        if self.ended:
            raise UnknownAddress(Address(LOCAL, self._token), "no request waits for this answer")
        try:
            self.element(payload, None, complete=True)
        except PayloadTooBig:
            self.multicast.on_error(self, ErrorCode.APPLICATION_ERROR, "the answer is too big")

    def return_route(self) -> Route:
        """Return the return route of a worker's answer."""
        link = self.multicast.link
        if not INTERACTIONS[self.multicast.kind].answered:
            return ()
        if not self._token:
            self._token = link.worker.local.expect(self)
        return (*link.return_route, Address(LOCAL, self._token))

    def fail(self, error: OnwardError) -> None:
        """Go on without a destination that did not take the request, or failed on it."""
        if self.ended:
            return
        if isinstance(error, InDoubt):
            self.multicast.on_left(self)
        else:
            self.multicast.on_skipped(self, error)

    # --- for the index, the workers and the handlers ------------------------------------------

    def wait(self) -> None:
        """Copy the frames out of the chunks of input that hold them."""
        self.multicast.exchange.wait()

    def data(self) -> bytes:
        """Return the payload data."""
        return self.multicast.exchange.data()

    def request(self) -> Request:
        """Return the request as it is given to handlers."""
        return self.multicast.exchange.request()

    def answered_once(self) -> bool:
        """Return whether the request takes one answer at most."""
        return self.multicast.exchange.answered_once()

    def whole(self, then: Callable[[], object]) -> bool:
        """Return whether all fragments have arrived; if not, call `then` when they have."""
        if self.multicast.whole:
            return True
        self.resume = then
        self.multicast.wait_for_rest()
        return False

    # --- the end ------------------------------------------------------------------------------

    @property
    def source(self) -> str:
        """The source of the requester's connection."""
        return self.multicast.link.source

    @property
    def account(self) -> RequestCounting | None:
        """The counting of the request, for the event log."""
        return self.multicast.exchange.log

    def forwarded(self) -> None:
        """Count the destination's copy of the request, for the event log."""
        exchange = self.multicast.exchange
        if exchange.log is not None:
            exchange.log.copy(exchange, self.route)

    def end(self, now: float = 0.0, outcome: int = DELIVER) -> None:
        """Complete the leg: the destination has all of a fire-and-forget."""
        if not self.ended:
            self.multicast.on_taken(self)

    def drop(self, now: float = 0.0, *, over: bool = False, outcome: int = 0) -> None:
        """End the leg.

        Args:
            now: The time of the response; see `Exchange.end`.
            over: Whether the destination has ended its side. Otherwise its stream is cancelled.
            outcome: How it ended for the destination. By default it was answered if the destination
                has ended its side, else cancelled.
        """
        if self.ended:
            return
        super().end(now, outcome or (DELIVER if over else CANCELED))
        due = not self.answered
        self.answered = True
        multicast = self.multicast
        if multicast.input is not None:
            multicast.input.let_go(self)
        if multicast.answers is not None:
            multicast.answers.leave(self)
        multicast.forget(self, due=due)
        if self._token:
            multicast.link.worker.local.forget(self._token)
        to = self.to
        if to is None:
            multicast.on_placed()
        elif isinstance(to, LegStream):
            to.stream.peer = None
            to.link.blocked_on_write.discard(self)
        if to is not None and not over:
            to.cancel()
        if isinstance(to, Served):
            to.release()  # the handler of a request without an answer goes on


def _frame_of(raw: bytes) -> Frame:
    """Return a frame of bytes with a length prefix."""
    return Frame.of(raw, 3, len(raw), int.from_bytes(raw[3:7]), int.from_bytes(raw[7:9]))
