"""A request with several destinations, one `Leg` for each.

The responses are merged by the rules of the interaction. The first signal of a request/response
wins. The elements of streams and channels are passed on in order of arrival, one whole element
at a time: fragments of two are never mixed. An error ends all.

"Credits are cumulative. Once credits are granted from Requester to Responder, they cannot be
revoked." So each destination is granted what the requester wants, up to a window, and excess
elements are held (`ResponseMerge`). In the other direction of a channel, each destination
requests elements at its own pace, and the requester may be a window ahead of the slowest
(`ChannelInput`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...actors.broker import MulticastRules
from ...actors.broker._exchange import CANCELED, DELIVER, DROP, FAILED, REJECTED
from ...protocol import InDoubt, NotDelivered, OnwardError
from ...protocol.rsocket import (
    CLOSED,
    COMPLETE,
    FOLLOWS,
    NEXT,
    ErrorCode,
    Frame,
    FrameType,
    LocalProtocolError,
    Stream,
)
from ._channel import ChannelInput
from ._frame_copies import LARGE, FrameCopies
from ._leg import Leg
from ._request import completes, more_follow
from ._response_merge import ResponseMerge

if TYPE_CHECKING:
    from ._exchange import StreamExchange
    from ._link import Link

__all__ = ["MulticastRequest"]

_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)
_ERROR: Final = int(FrameType.ERROR)
_PAYLOAD: Final = int(FrameType.PAYLOAD)
_REQUEST_N: Final = int(FrameType.REQUEST_N)
_RESPONSE: Final = int(FrameType.REQUEST_RESPONSE)

LOST: Final = "the connection to the destination was lost"


class MulticastRequest:
    """A multicast exchange: the legs of one request, and the `peer` of its requester's stream.

    Args:
        exchange: The request.
        rules: The limits, and the counters of the legs' outcomes.

    Attributes:
        exchange: The request.
        rules: The limits and counters.
        link: The requester's connection.
        stream: The requester's stream; `None` for a metadata push.
        began: When it was divided, in seconds of the loop's clock.
        talking: The leg with an element that the requester has a part of.
        answers: The merge of the elements of streams; `None` until there is one.
        input: The elements of a channel's requester, and the frames kept for slow destinations;
            `None` until there are any.
        legs: The legs that have not ended.
        due: The number of legs that have not completed their response.
        shares: The destinations of these legs together.
        begun: Whether all legs have been made.
        copies: The queue of large frames; `None` until there is one.
        whole: Whether all frames of the request itself have arrived.
        granted: Elements that the requester has requested so far.
        final: Whether the first frame of a channel has the C flag.
    """

    __slots__ = (
        "_completed",
        "_finished",
        "_left",
        "_made",
        "_refusal",
        "_said",
        "_waiting",
        "answers",
        "began",
        "begun",
        "copies",
        "due",
        "exchange",
        "final",
        "granted",
        "input",
        "legs",
        "link",
        "rules",
        "shares",
        "stream",
        "talking",
        "whole",
    )

    def __init__(self, exchange: StreamExchange, rules: MulticastRules) -> None:
        self.exchange = exchange
        self.rules = rules
        self.link = exchange.link
        self.began = exchange.link.time()
        self.stream = stream = exchange.stream
        last = exchange.frames[-1]
        self.whole = not more_follow(last)
        self.copies: FrameCopies | None = None
        first = exchange.frames[0]
        self.final = exchange.kind == _CHANNEL and bool(first.word & COMPLETE)
        self.granted = 0 if stream is None else stream.send_credit
        self.legs: dict[Leg, None] = {}
        self.begun = False
        self._waiting = 0  # legs that no destination has taken
        self._made = 0  # legs made so far
        self.due = self.shares = 0
        self.talking: Leg | None = None
        # Only if needed, and until the end: they refer to this object, and to collect such a cycle
        # costs as much as some of the legs.
        self.answers: ResponseMerge | None = None
        self.input: ChannelInput | None = None
        if exchange.kind == _CHANNEL:
            self.input = ChannelInput(self, ended=self.whole and completes(exchange.frames))
        self._said = False
        self._completed = False
        self._finished = False
        self._left = False
        self._refusal: OnwardError = NotDelivered("the destination", "it has just left")
        exchange.withdraw = self.close
        if stream is not None:
            stream.peer = self

    def leg(self, shares: int = 1) -> Leg:
        """Return a new leg.

        Args:
            shares: The destinations that it is for: several, if it goes to a peer broker.
        """
        self._made += 1
        made = Leg(self, self._made, shares)
        self.legs[made] = None
        self.due += 1
        self.shares += shares
        if made.input_open:
            self.channel_input().join(made)
        self._waiting += 1
        return made

    def begin(self) -> None:
        """Begin to multicast: all legs have been made."""
        self.begun = True
        self._let_go()
        self.settle()

    def on_placed(self) -> None:
        """Count a leg that a destination has taken, or that has ended before."""
        self._waiting -= 1
        self._let_go()

    def _let_go(self) -> None:
        """Release the request's frames once all destinations have them."""
        if self.begun and self.whole and not self._waiting:
            self.exchange.frames.clear()

    def response_merge(self) -> ResponseMerge:
        """Return the merge of the elements, made at the first call."""
        answers = self.answers
        if answers is None:
            answers = self.answers = ResponseMerge(self)
        return answers

    def channel_input(self) -> ChannelInput:
        """Return the requester's elements and the frames kept, made at the first call."""
        input_ = self.input
        if input_ is None:
            input_ = self.input = ChannelInput(self, ended=False)
        return input_

    @property
    def last_answers(self) -> bool:
        """Whether only one destination still responds."""
        return self.begun and self.due == 1

    @property
    def kind(self) -> int:
        """The frame type of the request."""
        return self.exchange.kind

    # --- from the requester -------------------------------------------------------------------

    def on_request(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Handle a frame of the requester."""
        kind = frame.type
        if kind == _PAYLOAD:
            if self.whole:
                # Multicast Routing, Request / Channel: "the broker will stream each message from
                # the client to the routing destinations."
                self.channel_input().take(frame)
            else:
                self._on_fragment(frame)
            self.settle()
        elif kind == _REQUEST_N:
            self.granted += frame.request_n
            self.replenish()
        else:
            if kind == _ERROR:
                for leg in tuple(self.legs):
                    # Multicast Routing, Request / Channel: "An error message will cancel all
                    # streams."
                    leg.relay_error(frame)
            self._end(CANCELED)

    def on_gone(self, stream: Stream, text: str) -> None:
        """End the request after the loss of the requester."""
        self._end(CANCELED)

    def _on_fragment(self, frame: Frame) -> None:
        """Pass on a fragment of the request itself, and keep it for legs not taken yet."""
        exchange = self.exchange
        self.whole = not more_follow(frame)
        if self.whole and completes([exchange.frames[0], frame]):
            self.channel_input().ended = True
        late = False
        if self.large(frame.end - frame.start):
            frame = frame.detached()
        for leg in tuple(self.legs):
            if leg.kept:
                late = True
            else:
                leg.relay(frame)
        if exchange.ended:
            return
        if late:
            self.link.session.keep(exchange, frame)
        self._let_go()

    def large(self, size: int) -> bool:
        """Whether the copies of a frame are handed over a few at a time."""
        count = self._made if not self.begun else len(self.legs)
        return count > 1 and size * count > LARGE

    def in_turns(self) -> FrameCopies:
        """Return the queue of large frames."""
        copies = self.copies
        if copies is None:
            copies = self.copies = FrameCopies(self)
        return copies

    def wait_for_rest(self) -> None:
        """Resume the legs that wait for the whole request, with its last fragment."""
        self.exchange.resume = self._resume

    def _resume(self) -> None:
        for leg in tuple(self.legs):
            if leg.resume is not None:
                leg.resume()

    # --- from the destinations ----------------------------------------------------------------

    def on_payload(self, leg: Leg, frame: Frame) -> None:
        """Handle a PAYLOAD of a destination."""
        if self.kind == _RESPONSE:
            self._on_response(leg, frame)
            return
        answers = self.response_merge()
        goes_on = leg.part is not None or leg is self.talking
        # Multicast Routing, Request / Stream: "combine the response streams into a single stream
        # back to the client."
        if goes_on or frame.word & (NEXT | FOLLOWS):
            self._said = True
            answers.take(leg, frame)
            if self.exchange.ended:
                return
        if frame.word & COMPLETE:
            self._completed = True
            leg.finish_answer()
        answers.drain()
        answers.replenish(leg)
        self.settle()

    def _on_response(self, leg: Leg, frame: Frame) -> None:
        """Relay the response of the first destination that responds, or a fragment of it."""
        # Multicast Routing, Request / Reply: "The broker will only reply to client with the FIRST
        # message that returns. This includes an error. It will cancel requests that have not
        # completed and ignore additional results."
        if self.talking is None:
            self.talking = leg
            for other in tuple(self.legs):
                if other is not leg:
                    other.drop()
        self.relay(frame)
        if not more_follow(frame):
            leg.drop(self.link.time(), over=True)
            self._end()

    def relay(self, frame: Frame) -> None:
        """Send a frame to the requester as it is."""
        link, stream = self.link, self.stream
        if stream is None:
            raise AssertionError("a request with answers has a stream")
        try:
            link.core.relay(stream, frame)
        except LocalProtocolError:
            return  # the requester cancelled in the chunk that is being read
        if not link.flushing:
            link.flush_soon()

    def on_error(self, leg: Leg, code: int, text: str, frame: Frame | None = None) -> None:
        """End the request with a destination's error, or skip one that rejected the request.

        Args:
            leg: The destination.
            code: Its error code.
            text: Its text.
            frame: The ERROR frame, if there is one.
        """
        # Error Codes, REJECTED: "The Responder guarantees that it didn't process the request."
        if code == ErrorCode.REJECTED and leg.part is None and leg.silent:
            self.on_skipped(leg, NotDelivered("the destination", text))
            return
        # Multicast Routing: "An error message will cancel all streams."
        leg.drop(over=True, outcome=FAILED)
        if frame is None:
            self.exchange.refuse(code, text, FAILED)
        else:
            self.relay(frame)
            self._end(FAILED)

    def on_taken(self, leg: Leg) -> None:
        """Complete a leg that has been sent all of a request without a response."""
        self._completed = True
        leg.drop(over=True)
        self.settle()

    def on_skipped(self, leg: Leg, error: OnwardError) -> None:
        """Go on without a destination that could not take the request."""
        self.rules.skipped += 1
        # Its traceback refers to the leg, and so to this object.
        self._refusal = error.with_traceback(None)
        leg.drop(outcome=REJECTED)
        self._go_on()

    def on_left(self, leg: Leg) -> None:
        """Go on without a lost destination, or end the request."""
        # Multicast Routing: "The broker implementation can either emit an error closing the stream,
        # or quietly handle its removal."
        self.rules.left += 1
        self._left = True
        if leg is self.talking or self.rules.fail_on_leave:
            # The requester has a part of an element, or the option requires the error.
            leg.drop(outcome=DROP)
            self.exchange.refuse(ErrorCode.CANCELED, LOST)
            return
        leg.drop(outcome=DROP)
        self._go_on()

    def _go_on(self) -> None:
        self._balance()
        self.settle()

    def _balance(self) -> None:
        if self.input is not None:
            self.input.balance()

    def forget(self, leg: Leg, *, due: bool) -> None:
        """Count a leg that has completed its response, and remove one that has ended."""
        if due:
            self.due -= 1
            self.shares -= leg.shares
        if leg.ended:
            self.legs.pop(leg, None)

    def replenish(self) -> None:
        """Send the elements held, and grant the destinations credit."""
        if not self.exchange.ended:
            if self.answers is not None:
                self.answers.drain()
            self.settle()

    # --- bytes held ---------------------------------------------------------------------------

    def book(self, size: int) -> None:
        """Add to the bytes held, or subtract from them."""
        self.link.multicast_held += size
        self.rules.held += size

    def exceeds(self) -> bool:
        """End the request if its requester or all hold too many bytes; return whether it ended."""
        most = self.link.gathering.max_multicast_held
        if self.link.multicast_held > most:
            self.overflow(f"over {most} bytes are held for multicasts of this connection")
            return True
        if self.rules.held > self.rules.max_total:
            self.rules.exceeded += 1
            self.overflow("too many bytes are held for multicasts")
            return True
        return False

    def overflow(self, text: str) -> None:
        """End the request because too many bytes would be held for it."""
        self.rules.overflowed += 1
        self.exchange.refuse(ErrorCode.CANCELED, text)

    def give_up(self, text: str) -> None:
        """End the request because the requester's backlog is too large."""
        self.exchange.refuse(ErrorCode.CANCELED, text)

    # --- the end ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Complete the response, or end the request, if no destination still responds."""
        exchange = self.exchange
        if exchange.ended or not self.begun:
            return
        if self.due or (self.answers is not None and self.answers.waiting):
            return
        if not self._finished:
            self._finished = True
            if not self._said and not self._completed:
                self._end_unanswered()
                return
            if self.stream is not None and self.stream.state != CLOSED:
                self.link.core.send_payload(self.stream, next=False, complete=True)
                self.link.flush_soon()
                self._balance()
        if not self.legs:
            self._balance()  # no destination accepts elements of the requester
            self._end()

    def _end_unanswered(self) -> None:
        """End a request without any response: all destinations were skipped or lost."""
        exchange = self.exchange
        if self._left:
            exchange.fail(InDoubt("the destination", "all destinations were lost"))
        else:
            exchange.fail(self._refusal)

    def _end(self, outcome: int = DELIVER) -> None:
        self.exchange.end(0.0, outcome)
        self.exchange.unlink()

    def close(self) -> None:
        """Cancel every leg at the end of the request."""
        if self.input is not None:
            self.input.close()
        if self.copies is not None:
            self.copies.close()
        for leg in tuple(self.legs):
            leg.drop()
        if self.answers is not None:
            self.answers.close()
        self.answers = self.input = self.talking = None
        self.link.blocked_on_write.discard(self)
