"""The sending end of a pipe, without I/O.

Messages are numbered from 1, and several that wait share a frame. A frame is kept until the
receiver has dealt with all of it. It is sent again

- *soon*, when the receiver reports frames that were sent after it: three of them, or one that is
  older than a round trip and an eighth. (As QUIC does, RFC 9002 section 6.1. What is compared
  is the order of sending, and a repetition counts as one only when so much time has passed that
  it must have been the repetition that arrived.)
- *late*, when nothing at all is heard for a timeout made of the measured round trip, which doubles
  each time: then only the oldest one, as a question. What the answer shows to be missing is
  sent soon.

The caller does what `frames` and `take_events` give out after each call of `send`, `receive`,
`handle_timer`, `end` and `abort`, and calls `handle_timer` when `timer` says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeGuard

from .._errors import PayloadTooBig
from .._message import Message
from .._words import counted
from ..bare import encode_data
from ._errors import PipeClosed, PipeFull
from ._flight import Flight, SentFrame
from ._frames import (
    NO_EPOCH,
    Abort,
    Confirm,
    End,
    Ended,
    Frame,
    OpenPipe,
    PipeOpened,
    PipeRefusal,
    PipeRefused,
    RouteWriter,
    Unknown,
    encode_frame,
    encode_messages,
)
from ._options import PipeOptions
from ._round_trip import RoundTrip
from ._sender_events import Broken, Missed, Overdue, SenderClosed, SenderEvent
from ._states import SENDER, SenderInput, SenderState

__all__ = ["Sender"]

_END_TRIES: Final = 8
"""Times the end is told again. A receiver that is done may be gone before its answer arrives."""

_PLAIN_END_TRIES: Final = 3
"""The same for an unconfirmed pipe: there may be no receiver, and nothing is promised."""

_REFUSALS: Final = {
    PipeRefusal.FULL: "the receiver has as many pipes as it may",
    PipeRefusal.PEER_FULL: "the receiver has as many pipes of this peer as one may have",
}


class Sender:
    """The sending end of a pipe.

    Args:
        options: Its guarantees and limits.
        new_identity: Gives 16 random bytes: a new identity for each pipe that is opened.

    Attributes:
        state: The state of this end.
        accepted: Messages taken, those waiting to be sent included.
        frames_sent: Frames with messages that were sent, repetitions aside.
        resent: Frames that were sent again.
        confirmed: Messages that the receiver has handed on.
        missed: Messages that the receiver went on without.
        in_doubt: Messages reported in doubt.
        unsent: Messages reported as not sent.
        overdue: Messages that expired before they could be sent.
        stale: Frames from a receiver that were not for this pipe, or not now.
        round_trip: The measured round trip.
    """

    def __init__(self, options: PipeOptions, new_identity: Callable[[], bytes]) -> None:
        self.state = SenderState.IDLE
        self.accepted = 0
        self.frames_sent = 0
        self.resent = 0
        self.confirmed = 0
        self.missed = 0
        self.in_doubt = 0
        self.unsent = 0
        self.overdue = 0
        self.stale = 0
        self.round_trip = RoundTrip(options.first_timeout, options.min_timeout, options.max_timeout)
        self._options = options
        self._mode = options.mode
        self._new_identity = new_identity
        self._routes = RouteWriter()
        self._queue: deque[tuple[bytes, Message]] = deque()
        self._out: list[bytes] = []
        self._events: list[SenderEvent] = []
        self._forget()

    def _forget(self) -> None:
        """Reset to the state before a pipe was opened."""
        self._identity = b""
        self._epoch = NO_EPOCH
        self._opened = not self._mode.confirm
        self._window = self._options.window
        self._window_bytes = self._options.window_bytes
        self._next = 1
        self._done = 0
        self._bytes = 0  # of the segments
        self._segments: deque[SentFrame] = deque()
        self._flight = Flight(self.round_trip)
        self._keep_alive = self._options.keep_alive
        self._again_at: float | None = None
        self._give_up_at: float | None = None
        self._keep_at: float | None = None
        self.round_trip.backoff = 0

    # --- what the user wants ------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Messages that wait to be sent."""
        return len(self._queue)

    @property
    def confirmed_mode(self) -> bool:
        """Whether messages are confirmed, and sent again when lost."""
        return self._mode.confirm

    @property
    def unconfirmed(self) -> int:
        """Messages that have been sent and are not known to be dealt with."""
        return self._next - 1 - self._done if self._mode.confirm else 0

    @property
    def room(self) -> int:
        """Number of messages that can be accepted now."""
        return self._options.queue - len(self._queue)

    def send(self, message: Message, behind: int = 0) -> None:
        """Send a message: onward route, return route and payload go through the pipe.

        Args:
            message: The message, which is what is reported if it does not get through.
            behind: How many addresses of its onward route lead to the pipe, and do not go
                through it.

        Raises:
            PipeFull: As many wait as may.
            PipeClosed: The end has been asked for.
            PayloadTooBig: It is over `max_message`.
            EmptyRoute: There is nowhere to go behind the pipe.
            RouteTooLong: Its routes are too long for a pipe.
        """
        queue = self._queue
        if len(queue) >= self._options.queue:
            waiting = f"{counted(len(queue), 'message')} waiting"
            raise PipeFull(message[0][0] if message[0] else "", waiting)
        if self.state in _ENDS:
            raise PipeClosed(message[0][0] if message[0] else "")
        part = self._routes.write(message, behind) + encode_data(message[2])
        if len(part) > self._options.max_message:
            raise PayloadTooBig(len(part), self._options.max_message)
        queue.append((part, message))
        self.accepted += 1

    def end(self, now: float, *, tell: bool = False) -> None:
        """Send what waits, have it confirmed, tell the receiver, and be done. Idempotent.

        Args:
            now: The time, in seconds.
            tell: Whether the receiver has to hear of the end of a pipe that nothing went through.
        """
        if (self._queue or tell) and self.state is SenderState.IDLE:
            self._begin(now)
        self._move(SenderInput.END)
        self._after(now)

    def abort(self) -> None:
        """Break the pipe at once: what is not confirmed is in doubt, what waits is not sent."""
        if self.state is SenderState.CLOSED:
            return
        if self._identity:
            self._out.append(encode_frame(Abort(self._identity, self._epoch)))
        if self._segments or self._queue:
            self._break("it was aborted", keep_queue=False)
        self._move(SenderInput.ABORT)

    # --- what is to be done ---------------------------------------------------------------------

    def frames(self, now: float) -> list[bytes]:
        """Return the frames that are to be sent now. They count as sent."""
        if self._queue:
            if not self._identity and self.state is not SenderState.CLOSED:
                self._begin(now)
            if self._opened:
                while self._queue and self._cut(now):
                    pass
                if self.state is SenderState.DRAINING:
                    self._after(now)
        out, self._out = self._out, []
        return out

    def take_events(self) -> list[SenderEvent]:
        """Return what has happened since the last call."""
        events = self._events
        if events:
            self._events = []
        return events

    def timer(self) -> float | None:
        """Return when to call `handle_timer`, or `None` if nothing is waited for."""
        if self._again_at is None:
            return self._keep_at
        times = (self._again_at, self._give_up_at, self._flight.lost_at)
        return min(each for each in times if each is not None)

    def handle_timer(self, now: float) -> None:
        """Run the timers that are due."""
        if self._give_up_at is not None and now >= self._give_up_at:
            self._gives_up()
            return
        if self._flight.lost_at is not None and now >= self._flight.lost_at:
            self._send_lost(now)
        if self._again_at is not None and now >= self._again_at:
            self.round_trip.back_off()
            self._send_again(now)
        elif self._keep_at is not None and now >= self._keep_at:
            self._ask(now)

    # --- what the receiver says ------------------------------------------------------------------

    def receive(self, frame: Frame, now: float) -> None:
        """Receive a frame of the receiver. Frames of another pipe are counted and ignored."""
        if frame.identity != self._identity:
            self.stale += 1
        elif isinstance(frame, PipeOpened) and not self._opened:
            self._epoch = frame.epoch
            self._opened = True
            self._window = max(1, min(self._window, frame.window))
            self._window_bytes = min(self._window_bytes, frame.window_bytes)
            self._keep_alive = self._asks_within(frame.idle / 1000)
            self._move(SenderInput.OPENED)
            self._heard(now)
            self._after(now)
        elif isinstance(frame, PipeRefused) and not (self._opened and self._mode.confirm):
            if self.state is not SenderState.ENDING:
                self._break(_REFUSALS[frame.reason], keep_queue=False)
            self._move(SenderInput.REFUSED)
        elif self._answers(frame):
            if isinstance(frame, Confirm):
                self._confirmed(frame, now)
            elif isinstance(frame, Ended):
                self._move(SenderInput.ENDED)
            else:
                self._unknown()
            self._after(now)
        else:
            self.stale += 1

    def _answers(self, frame: Frame) -> TypeGuard[Confirm | Ended | Unknown]:
        """Whether a frame answers this pipe, in its epoch."""
        kinds = (Confirm, Ended, Unknown) if self._mode.confirm else (Ended,)
        return isinstance(frame, kinds) and frame.epoch == self._epoch and self._opened

    def _asks_within(self, idle: float) -> float:
        """Return when to ask a receiver that takes others to be gone after so many seconds."""
        options = self._options
        return max(min(options.keep_alive, idle / 2), min(options.keep_alive, options.max_timeout))

    def _confirmed(self, frame: Confirm, now: float) -> None:
        done = frame.done
        if not self._done <= done < self._next:
            # Overtaken by a later one, which said more; or a receiver that is wrong.
            self.stale += 1
            return
        if frame.missed:
            self._report_missed(frame, done)
        self.confirmed += done - self._done
        self._done = done
        segments = self._segments
        while segments and segments[0].last <= done:
            segment = segments.popleft()
            self._bytes -= len(segment.body)
            if not segment.received:
                self._flight.arrived(segment, now)
        if frame.received:
            self._mark_received(frame, now)
        self._heard(now)
        if self._flight:
            self._send_lost(now)

    def _report_missed(self, frame: Confirm, done: int) -> None:
        """Report what was missed of the messages that were not known to be dealt with."""
        numbers = {
            number
            for first, last in frame.missed
            for number in range(max(first, self._done + 1), min(last, done) + 1)
        }
        if numbers:
            messages = tuple(
                message
                for segment in self._segments
                for number, message in enumerate(segment.messages, segment.first)
                if number in numbers
            )
            self.missed += len(messages)
            self.confirmed -= len(messages)
            self._events.append(Missed(messages))

    def _mark_received(self, frame: Confirm, now: float) -> None:
        ranges = iter(frame.received)
        first, last = next(ranges)
        for segment in self._segments:
            while last < segment.last:
                first, last = next(ranges, (0, 0))
                if not last:
                    return
            if first <= max(segment.first, self._done + 1) and not segment.received:
                segment.received = True
                self._flight.arrived(segment, now)

    # --- sending again ---------------------------------------------------------------------------

    def _send_lost(self, now: float) -> None:
        """Send again what later frames have overtaken."""
        for segment in self._flight.take_lost(now):
            self._transmit(segment, now)

    def _send_again(self, now: float) -> None:
        """Send again the frames that should have been answered by now."""
        if not self._opened:
            self._out.append(encode_frame(OpenPipe(self._identity, self._mode)))
            self._arm(now)
        elif self.state is SenderState.ENDING:
            if self.round_trip.backoff > (_END_TRIES if self._mode.confirm else _PLAIN_END_TRIES):
                self._gives_up()  # all is confirmed: nothing is in doubt
            else:
                self._send_end(now)
        else:
            segment = self._flight.take_oldest()
            if segment is None:
                self._ask(now)
            else:
                self._transmit(segment, now)

    def _ask(self, now: float) -> None:
        """Ask for a confirmation: a frame without messages."""
        self._emit(self._next, 0, b"")
        self._arm(now)

    def _send_end(self, now: float) -> None:
        last = self._next - 1
        self._out.append(encode_frame(End(self._identity, self._epoch, self._mode, last)))
        self._arm(now)

    # --- sending ---------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        """Give the pipe an identity, and ask the receiver to open it if need be."""
        self._identity = self._new_identity()
        if self._mode.confirm:
            self._move(SenderInput.SEND)
            self._out.append(encode_frame(OpenPipe(self._identity, self._mode)))
            self._arm(now)
        else:
            self._move(SenderInput.START)

    def _cut(self, now: float) -> bool:
        """Send one frame of what waits, as far as the window allows; tell whether it did."""
        queue, options = self._queue, self._options
        room = options.frame_messages
        left = options.frame_bytes
        if self._mode.confirm:
            open_ = self._window - (self._next - 1 - self._done)
            if open_ < min(len(queue), room, max(1, self._window // 4)):
                return False  # a sliver: it costs as much as a full frame
            room = min(room, open_)
            if self._segments:
                left = min(left, self._window_bytes - self._bytes)
                if len(queue[0][0]) > self._window_bytes - self._bytes:
                    return False
        parts: list[bytes] = []
        messages: list[Message] = []
        overdue: list[Message] = []
        while queue and room:
            context = queue[0][1][4]
            if context is not None and (due := context[0]) is not None and due <= now:
                overdue.append(queue.popleft()[1])
                continue
            left -= len(queue[0][0])
            if left < 0 and parts:
                break
            part, message = queue.popleft()
            parts.append(part)
            messages.append(message)
            room -= 1
        if overdue:
            self.overdue += len(overdue)
            self._events.append(Overdue(tuple(overdue)))
        if parts:
            self._send_new(tuple(messages), b"".join(parts), now)
        return True

    def _send_new(self, messages: tuple[Message, ...], body: bytes, now: float) -> None:
        first = self._next
        self._next += len(messages)
        self.frames_sent += 1
        if self._mode.confirm:
            segment = SentFrame(first, messages, body)
            self._segments.append(segment)
            self._bytes += len(body)
            self._transmit(segment, now)
        else:
            self._emit(first, len(messages), body)

    def _transmit(self, segment: SentFrame, now: float) -> None:
        if segment.sends:
            self.resent += 1
        self._flight.take_off(segment, now)
        self._emit(segment.first, len(segment.messages), segment.body)
        self._arm(now)

    def _emit(self, first: int, count: int, body: bytes) -> None:
        base = min(first, self._done + 1) if self._mode.confirm else first
        self._out.append(
            encode_messages(self._identity, self._epoch, self._mode, base, first, count, body)
        )

    # --- time, and the end -----------------------------------------------------------------------

    def _arm(self, now: float) -> None:
        """Expect an answer to what was sent just now."""
        self._keep_at = None
        self._again_at = now + self.round_trip.timeout()
        if self._give_up_at is None:
            self._give_up_at = now + self._options.give_up

    def _heard(self, now: float) -> None:
        """Record a sign of the receiver, and restart the timer if more is due from it."""
        self.round_trip.backoff = 0
        if self._segments or self.state is SenderState.ENDING:
            self._again_at = now + self.round_trip.timeout()
            self._give_up_at = now + self._options.give_up
        else:
            self._again_at = self._give_up_at = self._flight.lost_at = None
            self._keep_at = now + self._keep_alive

    def _unknown(self) -> None:
        # At the end it has forgotten what it has dealt with: nothing is in doubt.
        if self.state is not SenderState.ENDING:
            self._break("the receiver does not know the pipe", keep_queue=True)
        self._move(SenderInput.UNKNOWN)

    def _gives_up(self) -> None:
        if self.state is not SenderState.ENDING:
            why = f"nothing was heard for {self._options.give_up:g} s"
            self._break(why, keep_queue=False)
        self._move(SenderInput.GIVE_UP)

    def _break(self, why: str, *, keep_queue: bool) -> None:
        in_doubt = tuple(
            message
            for segment in self._segments
            for number, message in enumerate(segment.messages, segment.first)
            if number > self._done
        )
        unsent = () if keep_queue else tuple(message for _, message in self._queue)
        if not keep_queue:
            self._queue.clear()
        self.in_doubt += len(in_doubt)
        self.unsent += len(unsent)
        self._forget()
        self._events.append(Broken(why, in_doubt, unsent))

    def _after(self, now: float) -> None:
        """Go on towards the end, if it has been asked for, as far as it goes."""
        if self.state is not SenderState.DRAINING or self._queue or self.unconfirmed:
            return
        if self._opened or not self._identity:  # else it is being opened, to be told of the end
            self._move(SenderInput.DRAINED)
            if self._identity:
                self._send_end(now)
            else:
                self._move(SenderInput.ENDED)

    def _move(self, given: SenderInput) -> None:
        state = SENDER.get((self.state, given), self.state)
        if state is SenderState.CLOSED and self.state is not state:
            self._forget()
            self._events.append(SenderClosed())
        self.state = state


_ENDS: Final = frozenset({SenderState.DRAINING, SenderState.ENDING, SenderState.CLOSED})
