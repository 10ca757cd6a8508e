"""The receiving end of a pipe, without I/O.

What came and may be handed on is `ready`, in order. The caller hands the first of it on, as far
as it can, and says so with `handed_on` or `refuse`; only that counts as dealt with, and is
confirmed. By the ordering:

- *strict*: a message is ready once all before it are. Others are held back. When one is missing
  for too long it is missed: reported, and the others are ready.
- *monotonic*: a message is ready at once if it is newer than all before. Those it has overtaken
  are missed.
- *none*: a message is ready at once. If it is confirmed, one that came before is dropped.

Ready, held back and missing messages are within the window. The sender of a confirmed pipe sends
nothing beyond it. In an unconfirmed pipe, a message beyond the window moves it on, past missing
messages; and while a whole window is ready and not handed on, further frames are lost and
reported. Bytes are counted as they are in frames, the routes included.

A pipe that is not confirmed has no beginning that both ends know of: it may have been going on
before this receiver was made. So what comes first is waited for only a little, and a gap in front
of it says so.

The caller does what `answers` and `take_events` give out after each call of `receive` and
`handle_timer`, and calls `handle_timer` when `timer` says so.
"""

from __future__ import annotations

from collections import deque

from .._message import Message
from ._frames import (
    NO_EPOCH,
    Abort,
    Confirm,
    End,
    Ended,
    OpenPipe,
    PipeData,
    PipeOpened,
    Ranges,
    encode_frame,
    message_size,
)
from ._missed import MAX_RANGES, MissedNumbers, ranges_of
from ._options import Mode, Ordering, PipeReceiverOptions
from ._receiver_events import Gap, ReceiverEvent, WindowOverflow, answer_to_stranger
from ._states import RECEIVER, ReceiverInput, ReceiverState

__all__ = ["Receiver"]


class Receiver:
    """The receiving end of a pipe: of one identity of a sender.

    Args:
        options: Its limits.
        identity: The pipe's.
        epoch: Eight random bytes of its own; `NO_EPOCH` if the pipe is not confirmed.
        mode: The guarantees that the sender requests.
        now: The time, in seconds.
        begin: The number of the first message that it waits for. More than 1 for a pipe that is not
            confirmed, and of which a receiver before this one took those before.

    Attributes:
        identity: As given.
        epoch: As given.
        mode: As given.
        state: The state of this end.
        ready: The messages to hand on, in order. Use `handed_on` and `refuse` to take it off.
        done: All messages up to this number are dealt with.
        handed: Messages handed on.
        missed: Messages missed, those refused included.
        duplicates: Messages that came again, or too late, and were dropped.
        beyond: Messages beyond the window, which were not taken. A confirmed one comes again.
        over: Whether the sender has ended or broken the pipe, so that nothing more comes.
        idle_at: Time at which the sender counts as gone, in seconds.
    """

    def __init__(
        self,
        options: PipeReceiverOptions,
        identity: bytes,
        epoch: bytes,
        mode: Mode,
        now: float,
        begin: int = 1,
    ) -> None:
        self.identity = identity
        self.epoch = epoch if mode.confirm else NO_EPOCH
        self.mode = mode
        self.state = ReceiverState.OPEN
        self.ready: deque[Message] = deque()
        self.done = begin - 1
        self.over = False
        self.handed = 0
        self.missed = 0
        self.duplicates = 0
        self.beyond = 0
        self.idle_at = now + options.idle_timeout
        self._options = options
        self._spans: deque[list[int]] = deque()  # first number and count of what is ready
        self._ready_bytes = 0
        self._size = 0  # of the frame that is being taken
        self._next = begin  # all before it has come or is missed
        self._held: dict[int, Message] = {}  # beyond it, waiting for it: only strict
        self._held_bytes = 0
        self._early: set[int] = set()  # beyond it, ready or dealt with: only without an order
        self._dealt: set[int] = set()  # beyond `done`, and dealt with: only without an order
        self._missed = MissedNumbers()
        self._last = 0
        self._fresh = 0  # messages taken since the last confirmation
        self._confirm_at: float | None = None
        self._gap_at: float | None = None
        self._gap = 0  # what was missing when that was set
        self._answers: list[bytes] = []
        self._events: list[ReceiverEvent] = []

    @property
    def held(self) -> int:
        """Messages held back, or ready and not handed on."""
        return len(self.ready) + len(self._held)

    @property
    def held_bytes(self) -> int:
        """Bytes of them."""
        return self._ready_bytes + self._held_bytes

    @property
    def next_number(self) -> int:
        """The number of the first message that has not come and is not missed."""
        return self._next

    # --- what the sender says -------------------------------------------------------------------

    def receive(self, frame: OpenPipe | PipeData | End | Abort, now: float) -> None:
        """Receive a frame of the sender with this pipe's identity.

        A frame of another epoch is answered with `Unknown`: it was for an earlier receiver.
        """
        if isinstance(frame, OpenPipe):
            self._open(now)
        elif frame.epoch != self.epoch or self.state is ReceiverState.CLOSED:
            answer = answer_to_stranger(frame)
            if answer is not None:
                self._answers.append(answer)
        elif isinstance(frame, PipeData):
            self._data(frame, now)
        elif isinstance(frame, End):
            self.over = True
            # A sender sends nothing beyond the window, so one that says so is wrong.
            beyond = self.done + self._options.window
            self._last = min(frame.last, beyond) if self.mode.confirm else frame.last
            self._move(ReceiverInput.END)
            self._heard(now)
            if self._gap_at is None:
                self._watch_gap(now)
            self._count_done()
        else:
            self.over = True
            self._move(ReceiverInput.ABORT)

    def _open(self, now: float) -> None:
        options = self._options
        idle = max(1, int(1000 * options.idle_timeout))
        opened = PipeOpened(self.identity, self.epoch, options.window, options.window_bytes, idle)
        self._answers.append(encode_frame(opened))
        self._heard(now)

    def _data(self, frame: PipeData, now: float) -> None:
        self._heard(now)
        if self._missed:
            self._missed.heard(frame.base)
        messages, odd = frame.messages, self.duplicates + self.beyond
        had_gap = self._has_gap()
        if messages and self._takes_any(frame):
            self._size = frame.size or sum(map(message_size, messages))
            self._take(frame.first, messages)
        if self.mode.confirm:
            # The sender wants to hear at once of what it should not have sent, or has to again, and
            # that a gap is closed: its window may be full.
            self._fresh += len(messages)
            due = self._fresh >= self._options.confirm_messages or not messages
            if due or had_gap or self._has_gap() or self.duplicates + self.beyond != odd:
                self._confirm_at = now
            elif self._confirm_at is None:
                self._confirm_at = now + self._options.confirm_delay
        if self._gap_at is None:
            self._watch_gap(now)

    def _takes_any(self, frame: PipeData) -> bool:
        """Whether any message of a frame may be taken."""
        options, messages = self._options, frame.messages
        if self.mode.confirm:
            # No sender sends what is a window beyond the first it wants to hear of.
            if frame.first < frame.base + options.window:
                return True
            self.beyond += len(messages)
            return False
        if len(self.ready) < options.window and self._ready_bytes < options.window_bytes:
            return True
        self.refuse_frame(frame)  # a whole window is ready and not handed on
        return False

    def refuse_frame(self, frame: PipeData) -> None:
        """Count the messages of a frame as beyond the window; what does not come again is lost."""
        self.beyond += len(frame.messages)
        if not self.mode.confirm:
            self._events.append(WindowOverflow(frame.messages))

    def _take(self, first: int, messages: tuple[Message, ...]) -> None:
        ordering = self.mode.ordering
        if not self.mode.confirm and ordering is Ordering.NONE:
            self._add_ready(first, messages, self._size)
        elif (
            first == self._next and not self._held and not self._early and self._fits_all(messages)
        ):
            self._next += len(messages)
            self._add_ready(first, messages, self._size)
        elif ordering is Ordering.MONOTONIC:
            self._take_newer(first, messages)
        else:
            for number, message in enumerate(messages, first):
                if number < self._next or number in self._held or number in self._early:
                    self.duplicates += 1
                elif self._fits(number, message):
                    if ordering is Ordering.STRICT:
                        self._hold(number, message)
                    else:
                        self._early.add(number)
                        self._add_ready(number, (message,))
                    self._close_up()
                else:
                    self.beyond += 1

    def _fits_all(self, messages: tuple[Message, ...]) -> bool:
        """Whether messages that are next and in order are within the window."""
        if not self.mode.confirm:
            return True
        if self._next + len(messages) - 1 > self.done + self._options.window:
            return False
        return not self.ready or self._ready_bytes + self._size <= self._options.window_bytes

    def _fits(self, number: int, message: Message) -> bool:
        """Whether a message is within the window; an unconfirmed pipe moves its window."""
        options, size = self._options, message_size(message)
        if self.mode.confirm:
            if number > self.done + options.window:
                return False
            taken = self._held_bytes + self._ready_bytes
            if number == self._next and not self.ready:
                return True  # the others wait for it
            return taken + size <= options.window_bytes
        while self._held and (
            number >= self._next + options.window or self._held_bytes + size > options.window_bytes
        ):
            self._pass_gap()
        if number >= self._next + options.window:
            self._miss(self._next, number - options.window, began=self._begins())
            self._next = number - options.window + 1
        return number >= self._next

    def _hold(self, number: int, message: Message) -> None:
        self._held[number] = message
        self._held_bytes += message_size(message)

    def _take_newer(self, first: int, messages: tuple[Message, ...]) -> None:
        late = min(max(0, self._next - first), len(messages))
        self.duplicates += late
        for number, message in enumerate(messages[late:], first + late):
            if self.mode.confirm and not self._fits(number, message):
                self.beyond += 1
                continue
            if number > self._next:
                self._miss(self._next, number - 1, began=self._begins())
            self._next = number + 1
            self._add_ready(number, (message,))

    def _add_ready(self, first: int, messages: tuple[Message, ...], size: int = 0) -> None:
        self.ready.extend(messages)
        size = size or sum(map(message_size, messages))
        self._ready_bytes += size
        spans = self._spans
        if spans and spans[-1][0] + spans[-1][1] == first:
            spans[-1][1] += len(messages)
        else:
            spans.append([first, len(messages)])

    def _close_up(self) -> None:
        """Make early messages ready up to the next missing one."""
        while self._next in self._held:
            message = self._held.pop(self._next)
            size = message_size(message)
            self._held_bytes -= size
            self._add_ready(self._next, (message,), size)
            self._next += 1
        while self._next in self._early:
            self._early.discard(self._next)
            self._next += 1

    # --- what became of it -----------------------------------------------------------------------

    def handed_on(self, count: int) -> None:
        """Record that the first `count` messages of `ready` have been handed on."""
        self.handed += count
        ready = self.ready
        if count == len(ready):
            ready.clear()
            self._ready_bytes = 0
        else:
            for _ in range(count):
                self._take_first()
        self._deal(count)

    def refuse(self) -> None:
        """Record the first message of `ready` as missed: it cannot be handed on."""
        first = self._spans[0][0]
        self._take_first()
        self._miss(first, first)
        self._deal(1)

    def _take_first(self) -> None:
        # With an address put in front of its way back a message is longer than it was in its frame.
        size = message_size(self.ready.popleft())
        self._ready_bytes = max(0, self._ready_bytes - size) if self.ready else 0

    def _deal(self, count: int) -> None:
        """Record that the first `count` ready messages are dealt with."""
        spans = self._spans
        while count:
            span = spans[0]
            part = min(count, span[1])
            count -= part
            if self.mode.ordering is not Ordering.NONE:
                self.done = span[0] + part - 1
            elif self.mode.confirm:
                self._dealt.update(range(span[0], span[0] + part))
            span[0] += part
            span[1] -= part
            if not span[1]:
                spans.popleft()
        self._count_done()

    def _count_done(self) -> None:
        if self.mode.ordering is Ordering.NONE:
            dealt = self._dealt
            while self.done + 1 in dealt:
                self.done += 1
                dealt.discard(self.done)
        elif not self.ready:
            self.done = self._next - 1
        if self.state is ReceiverState.FINISHING and not self.ready and self.done >= self._due():
            self._move(ReceiverInput.FINISHED)
            self._confirm_at = None  # a sender ends when it has heard of everything
            self._answers.append(encode_frame(Ended(self.identity, self.epoch)))

    def _due(self) -> int:
        """Return the number of the last message that is waited for, once the end is known."""
        waits = self.mode.confirm or self.mode.ordering is Ordering.STRICT
        return self._last if waits else 0

    # --- what is missing -------------------------------------------------------------------------

    def _has_gap(self) -> bool:
        return bool(self._held or self._early or self._next <= self._due())

    def _watch_gap(self, now: float) -> None:
        """Start the timer of the first gap."""
        options = self._options
        self._gap = self._next
        wait = options.gap_timeout
        if self._begins():
            wait = min(wait, options.begin_timeout)
        self._gap_at = now + wait if self._has_gap() else None

    def _begins(self) -> bool:
        """Whether messages may have been sent before this receiver was made, without an epoch."""
        return self._next == 1 and not self.mode.confirm

    def _pass_gap(self) -> None:
        """Pass the first gap: its messages are missed."""
        first = self._next
        beyond, last = self._held or self._early, self._last
        if beyond:
            # All that is missing is looked at once, however many gaps there are.
            last = first
            while last + 1 not in beyond:
                last += 1
        self._miss(first, last, began=self._begins())
        if self.mode.ordering is Ordering.NONE:
            self._dealt.update(range(first, last + 1))
        self._next = last + 1
        self._close_up()
        self._count_done()

    def _miss(self, first: int, last: int, *, began: bool = False) -> None:
        events = self._events
        before = events[-1] if events else None
        if isinstance(before, Gap) and before.last == first - 1 and before.began == began:
            events[-1] = Gap(before.first, last, began)
        else:
            events.append(Gap(first, last, began))
        if began:
            return
        self.missed += last - first + 1
        if self.mode.confirm:
            self._missed.add(first, last)

    # --- what is to be done ----------------------------------------------------------------------

    def answers(self, now: float) -> list[bytes]:
        """Return the frames to send to the sender now. They count as sent."""
        if self._confirm_at is not None and self._confirm_at <= now:
            self._answers.append(encode_frame(self._confirmation()))
            self._confirm_at = None
            self._fresh = 0
        answers = self._answers
        if answers:
            self._answers = []
        return answers

    def _confirmation(self) -> Confirm:
        done, missed = self._missed.up_to(self.done)
        received: Ranges = () if self._next - 1 == done else ((done + 1, self._next - 1),)
        if self._held or self._early:
            received += ranges_of(sorted(self._held or self._early))
        return Confirm(self.identity, self.epoch, done, received[:MAX_RANGES], missed)

    def confirm_soon(self, now: float) -> None:
        """Schedule a confirmation at once: there is room in the window again."""
        if self.mode.confirm and self.state is not ReceiverState.CLOSED:
            self._confirm_at = now

    def take_events(self) -> list[ReceiverEvent]:
        """Return what has happened since the last call."""
        events = self._events
        if events:
            self._events = []
        return events

    def timer(self) -> float:
        """Return when to call `handle_timer`."""
        time = self.idle_at
        if self._gap_at is not None and self._gap_at < time:
            time = self._gap_at
        if self._confirm_at is not None and self._confirm_at < time:
            time = self._confirm_at
        return time

    def handle_timer(self, now: float) -> None:
        """Run the timers that are due. A sender that was idle for too long closes the pipe."""
        if self._gap_at is not None and now >= self._gap_at:
            if self._next == self._gap and self._has_gap():
                self._pass_gap()
                self.confirm_soon(now)
            self._watch_gap(now)
        if now >= self.idle_at:
            self.close()

    def close(self) -> None:
        """Close the pipe: messages held back become ready, missing ones are passed."""
        while self._held or self._early:
            self._pass_gap()
        self._move(ReceiverInput.CLOSE)

    def take_all(self) -> list[Message]:
        """Remove and return all messages that are not handed on."""
        left = [*self.ready, *(self._held[number] for number in sorted(self._held))]
        self.ready.clear()
        self._spans.clear()
        self._held.clear()
        self._ready_bytes = self._held_bytes = 0
        return left

    def _heard(self, now: float) -> None:
        self.idle_at = now + self._options.idle_timeout

    def _move(self, given: ReceiverInput) -> None:
        self.state = RECEIVER.get((self.state, given), self.state)
