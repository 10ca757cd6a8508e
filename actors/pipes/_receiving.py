"""The receiving half of a pipe on a node: a state machine, its timer, and message delivery."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ...protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    Context,
    MailboxFull,
    Message,
    OnwardError,
    Outside,
    Route,
)
from ...protocol.pipes import (
    NO_EPOCH,
    Abort,
    End,
    Frame,
    Gap,
    OpenPipe,
    Ordering,
    PipeClosed,
    PipeData,
    PipeFrameError,
    PipeFrameReader,
    PipeReceiverOptions,
    Receiver,
    ReceiverState,
    Unknown,
    answer_to_stranger,
    encode_frame,
)
from .._errors import Refused
from .._worker import Worker
from ._hooks import call_hook
from ._memory import ReceiverMemory, Retired, mode_of, random_bytes

if TYPE_CHECKING:
    from ..runtime._cell import Cell
    from ..sessions._return_routes import ReturnRoutes

__all__ = ["MAX_RETIRED", "PipeReceiverStatistics", "ReceivingHalf"]

logger: Final = logging.getLogger("onward")

MAX_RETIRED: Final = 64
"""Closed pipes that a receiver remembers, so that a late frame opens none of them again. A late
frame of a forgotten pipe would replace the open one: the sender of that one would start a new pipe
and report messages in doubt."""

_FIRST_RETRY: Final = 0.001
_LONGEST_RETRY: Final = 0.05
_MAX_GIVEN_UP: Final = 1000
_SMALL: Final = 16 * 1024
"""Size of a frame that an empty pipe may always hold, however much the other pipes hold."""


@dataclass(frozen=True, slots=True)
class PipeReceiverStatistics:
    """Counters of the receiving end, over all pipes that it received.

    Attributes:
        pipes: Pipes opened.
        handed_on: Messages handed on.
        missed: Messages missed, including those refused.
        duplicates: Messages dropped because they were repeated or too late.
        beyond: Messages dropped because they were beyond the window.
        refused: Messages that no worker accepted; they are missed.
        held: Messages held back or not handed on yet.
        strangers: Frames of unknown or closed pipes.
    """

    pipes: int
    handed_on: int
    missed: int
    duplicates: int
    beyond: int
    refused: int
    held: int
    strangers: int


class ReceivingHalf:
    """The receiving half of a pipe. Its methods are for the node's loop.

    Args:
        worker: The worker of the pipe; confirmations come from its address.
        options: Its limits.
        trace: An address to put in front of the return routes of delivered messages.
        on_gap: Called with the numbers of missed messages.
        on_closed: Called when a pipe is over, or idle for too long.
        retired: The pipes that are over.
        budget: The bytes that may be held, shared with others; by default only the window limits.
        returns: The return routes of messages sent to the other end, if there are any.
    """

    __slots__ = (
        "_back",
        "_budget",
        "_counted",
        "_given_up",
        "_handle",
        "_handle_at",
        "_on_closed",
        "_on_gap",
        "_options",
        "_outside",
        "_posted",
        "_reader",
        "_retired",
        "_retry",
        "_returns",
        "_stalled",
        "_worker",
        "machine",
        "pipes",
        "refused",
        "strangers",
        "totals",
    )

    def __init__(
        self,
        worker: Worker,
        options: PipeReceiverOptions,
        *,
        trace: Address | None = None,
        on_gap: Callable[[Gap], object] | None,
        on_closed: Callable[[Receiver], object],
        retired: Retired | None = None,
        budget: ReceiverMemory | None = None,
        returns: ReturnRoutes | None = None,
    ) -> None:
        self.machine: Receiver | None = None
        self.pipes = 0
        self.refused = 0
        self.strangers = 0
        self.totals = [0, 0, 0, 0]
        self._worker = worker
        self._options = options
        self._on_gap = on_gap
        self._on_closed = on_closed
        self._reader = PipeFrameReader(worker.address, trace)
        self._retired = Retired(MAX_RETIRED) if retired is None else retired
        self._budget = budget
        self._counted = 0  # of the budget
        self._back: Route = ()
        self._returns = returns
        self._outside: Context | None = None  # of all that is handed on, if frames are from there
        self._posted = False
        self._given_up: dict[Address, None] = {}
        self._stalled: tuple[Address, float] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = 0.0

    # --- incoming frames --------------------------------------------------------------------

    def read(self, message: Message) -> Frame | None:
        """Parse the frame in a message; an invalid one becomes a dead letter."""
        try:
            return self._reader.read(message[2])
        except PipeFrameError as error:
            self._worker.node.lose(message, error)
            return None

    def receive(self, frame: Frame, message: Message) -> None:
        """Process a frame of a sender, and hand on the messages that are ready."""
        if not isinstance(frame, OpenPipe | PipeData | End | Abort):
            self.strangers += 1
            return
        now = self._worker.node.loop.time()
        machine = self.machine
        if machine is None or machine.identity != frame.identity:
            machine = self._opened(frame, now)
            if machine is None:
                self._answer_stranger(frame, message)
                return
        self._back = message[1]
        context = message[4]
        if context is not None and (outside := context[4]) is not None:
            # The other node chose all the routes in the frame.
            self._outside = Context(outside=Outside(MAX_ROUTE_LENGTH, outside.allows))
        if self._budget is not None and isinstance(frame, PipeData):
            frame = self._within(self._budget, machine, frame)
        machine.receive(frame, now)
        if machine.ready and self._retry is None:
            self._hand_on(machine)
        self._count()
        if not self._posted:
            self._posted = True
            self._worker._placed.post(self)

    def _within(self, budget: ReceiverMemory, machine: Receiver, frame: PipeData) -> PipeData:
        """Return the frame, without its messages if the budget is used up."""
        early = frame.mode.ordering is Ordering.STRICT and frame.first > machine.next_number
        # Half is kept for messages in order: those held back wait for them.
        fits = budget.used + frame.size <= (budget.limit // 2 if early else budget.limit)
        if fits or not frame.messages or (not machine.held and frame.size <= _SMALL):
            return frame
        machine.refuse_frame(frame)
        return replace(frame, messages=(), size=0)

    def _count(self) -> None:
        if self._budget is not None:
            held = 0 if self.machine is None else self.machine.held_bytes
            self._budget.used += held - self._counted
            self._counted = held

    def perform(self, cell: Cell) -> None:
        """Send confirmations: all frames from the mailbox have been processed."""
        self._posted = False
        self._settle()

    def _opened(self, frame: OpenPipe | PipeData | End | Abort, now: float) -> Receiver | None:
        """Return a receiver for a pipe that is not open, if this frame opens one."""
        mode, begin = mode_of(frame), self._retired.begin(frame)
        if mode is None or begin is None:
            return None
        if isinstance(frame, End) and self.machine is not None:
            return None  # the frame closes its pipe: no reason to replace the open one
        self.close()
        self._retired.forget(frame.identity)
        self.pipes += 1
        epoch = random_bytes(self._worker.node, len(NO_EPOCH))
        self.machine = Receiver(self._options, frame.identity, epoch, mode, now, begin)
        return self.machine

    def _answer_stranger(self, frame: OpenPipe | PipeData | End | Abort, message: Message) -> None:
        self.strangers += 1
        answer = answer_to_stranger(frame)
        if answer is not None and message[1]:
            self._send(message[1], answer)
        for lost in self._retired.lost(frame):
            self._worker.node.lose(lost, PipeClosed(self._worker.address))

    def _send(self, route: Route, frame: bytes) -> None:
        me = self._worker.address
        # A lost frame is requested again; an unreachable peer is counted with the lost frames.
        self._worker.node.parts.router.dispatch_or_lose(Message(route, (me,), frame, me))

    def _settle(self) -> None:
        """Send the answers, call the hooks, and set the timer."""
        machine = self.machine
        if machine is None:
            return
        now = self._worker.node.loop.time()
        for frame in machine.answers(now):
            if self._back:
                self._send(self._back, frame)
        self._tell(machine)
        self._count()
        if machine.state is ReceiverState.CLOSED:
            self._is_over(machine)
        else:
            self._arm(machine, now)

    def _tell(self, machine: Receiver) -> None:
        for event in machine.take_events():
            if isinstance(event, Gap):
                call_hook(self._on_gap, self._worker, event)
            else:
                for message in event.messages:
                    self._worker.node.lose(
                        message, MailboxFull(message[0][0], "and the pipe's window")
                    )

    # --- outgoing messages --------------------------------------------------------------------

    def _hand_on(self, machine: Receiver) -> bool:
        """Hand on the ready messages while there is room; return whether that was all."""
        ready, given_up = machine.ready, self._given_up
        route = self._worker._out.dispatch if self._outside is None else self._route_outside
        while ready:
            count = 0
            try:
                try:
                    for message in ready:
                        route(message)
                        count += 1
                        if given_up:
                            given_up.pop(message[0][0], None)
                finally:
                    machine.handed_on(count)
            except MailboxFull as error:
                if not self._gives_up(ready[0][0][0], count):
                    return False
                self._refuse(machine, error)
            except OnwardError as error:
                self._refuse(machine, error)
            except Exception as error:
                # A rule failed for this message only; those behind it may have other rules.
                logger.exception(
                    "%s could not hand on a message",
                    self._worker.address,
                    extra={"event": "pipe.not_delivered"},
                )
                self._refuse(machine, Refused(ready[0][0][0], f"{type(error).__name__} in a rule"))
        self._stalled = None
        return True

    def _route_outside(self, message: Message) -> None:
        """Hand on a message of another node, along a return route or to an allowed address."""
        onward, back, payload, source, context = message
        outside = self._outside
        if self._returns is None or not self._returns.admits(onward):
            if context is not None and outside is not None:
                outside = context._replace(outside=outside.outside)
            context = outside
        # Checked here, because the worker's frames have no address behind its own.
        message = Message(onward, back, payload, source, context)
        self._worker._out.dispatch(self._worker.node.parts.guards.pass_on(message))

    def _refuse(self, machine: Receiver, error: OnwardError) -> None:
        self.refused += 1
        self._worker.node.lose(machine.ready[0], error)
        machine.refuse()

    def _gives_up(self, full: Address, progress: int) -> bool:
        """Whether a full mailbox has used up its time; if not, try again a little later."""
        if full in self._given_up:
            return True
        loop = self._worker.node.loop
        now = loop.time()
        if self._stalled is None or self._stalled[0] != full or progress:
            self._stalled = full, now
        elif now - self._stalled[1] >= self._options.stall_timeout:
            if len(self._given_up) >= _MAX_GIVEN_UP:
                del self._given_up[next(iter(self._given_up))]
            self._given_up[full] = None
            self._stalled = None
            return True
        if self._retry is None:
            self._retry = loop.call_later(_FIRST_RETRY, self._try_again, _FIRST_RETRY)
        return False

    def _try_again(self, waited: float) -> None:
        self._retry = None
        machine = self.machine
        if machine is None:
            return
        before = machine.done
        loop = self._worker.node.loop
        wait = min(2 * waited, _LONGEST_RETRY)
        # Set first: a mailbox that is still full finds this timer and sets none of its own.
        self._retry = loop.call_later(wait, self._try_again, wait)
        if self._hand_on(machine):
            self._retry.cancel()
            self._retry = None
        if machine.done != before:
            machine.confirm_soon(loop.time())
        self._settle()

    # --- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Hand on the messages that can be, close the pipe, and inform the sender."""
        machine = self.machine
        if machine is None:
            return
        machine.close()
        self._is_over(machine)

    def stop(self) -> None:
        """Close, and inform the sender that this end has stopped."""
        machine = self.machine
        if machine is not None:
            machine.confirm_soon(self._worker.node.loop.time())
            self._settle()
            if machine.mode.confirm and self._back:
                self._send(self._back, encode_frame(Unknown(machine.identity, machine.epoch)))
        self.close()
        for handle in (self._retry, self._handle):
            if handle is not None:
                handle.cancel()
        self._retry = self._handle = None

    def _is_over(self, machine: Receiver) -> None:
        self._hand_on(machine)
        for message in machine.take_all():
            self._worker.node.lose(message, PipeClosed(self._worker.address))
        self._tell(machine)
        self.totals = [a + b for a, b in zip(self.totals, _counts(machine), strict=True)]
        self.machine = None
        self._stalled = None
        self._count()
        self._retired.keep(machine)
        self._on_closed(machine)

    def statistics(self) -> PipeReceiverStatistics:
        """Return the counters."""
        counts, held = self.totals, 0
        if self.machine is not None:
            counts = [a + b for a, b in zip(counts, _counts(self.machine), strict=True)]
            held = self.machine.held
        handed_on, missed, duplicates, beyond = counts
        return PipeReceiverStatistics(
            pipes=self.pipes,
            handed_on=handed_on,
            missed=missed,
            duplicates=duplicates,
            beyond=beyond,
            refused=self.refused,
            held=held,
            strangers=self.strangers,
        )

    def _arm(self, machine: Receiver, now: float) -> None:
        at = machine.timer()
        if self._handle is not None:
            if self._handle_at <= at:
                return
            self._handle.cancel()
        self._handle_at = at = max(at, now)
        self._handle = self._worker.node.loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._handle = None
        machine = self.machine
        if machine is None:
            return
        now = self._worker.node.loop.time()
        if machine.timer() <= now:
            machine.handle_timer(now)
            if machine.ready and self._retry is None:
                self._hand_on(machine)
            self._settle()
        else:
            self._arm(machine, now)


def _counts(machine: Receiver) -> tuple[int, int, int, int]:
    return machine.handed, machine.missed, machine.duplicates, machine.beyond
