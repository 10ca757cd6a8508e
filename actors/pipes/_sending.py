"""The sending half of a pipe on a node: a state machine, its timer, and the receiver's route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...protocol import Message, OnwardError, Route
from ...protocol.options import check_timeout
from ...protocol.pipes import (
    Broken,
    Frame,
    Missed,
    Overdue,
    PipeBroken,
    PipeClosed,
    PipeData,
    PipeFrameError,
    PipeFrameReader,
    PipeMissed,
    PipeOptions,
    Sender,
    decode_frame,
)
from .._errors import Expired
from .._worker import Worker
from ._hooks import call_hook
from ._memory import random_bytes

if TYPE_CHECKING:
    from ..runtime._cell import Cell

_LOOK_AGAIN: Final = 0.05
"""The time between two checks of a worker that waits for room for its stop, in seconds."""

__all__ = ["AckReceiver", "PipeSenderStatistics", "SendingHalf"]


@dataclass(frozen=True, slots=True)
class PipeSenderStatistics:
    """Counters of the sending end of a pipe.

    Attributes:
        state: The state, as in `SenderState`.
        accepted: Messages accepted.
        waiting: Messages that wait to be sent.
        unconfirmed: Messages sent and neither confirmed nor reported.
        confirmed: Messages that the receiver has handed on.
        missed: Messages that the receiver skipped.
        in_doubt: Messages reported in doubt.
        unsent: Messages reported as not sent.
        overdue: Messages that passed their deadline before they were sent.
        frames: Frames of messages sent, without repetitions.
        resent: Frames sent again.
        not_routed: Frames that the node could not send. A confirmed pipe sends them again, like
            lost ones; the messages of an unconfirmed one are lost.
        stale: Frames from a receiver that were for another pipe, or out of turn.
        round_trip: The time of a confirmation, in seconds; `None` before the first.
    """

    state: str
    accepted: int
    waiting: int
    unconfirmed: int
    confirmed: int
    missed: int
    in_doubt: int
    unsent: int
    overdue: int
    frames: int
    resent: int
    not_routed: int
    stale: int
    round_trip: float | None


class SendingHalf:
    """The sending half of a pipe. Its methods are for the node's loop.

    Frames are sent when all messages that waited in the worker's mailbox have been handled, so
    messages that arrived together share a frame.

    Args:
        worker: The worker of the pipe.
        options: The options of the pipe.
        on_missed: Called with messages that the receiver skipped.
        on_broken: Called when the pipe broke.
        on_closed: Called when the pipe is over.
        tell: Whether to announce the end of a pipe that carried no message.
    """

    __slots__ = (
        "_closed",
        "_handle",
        "_handle_at",
        "_on_broken",
        "_on_closed",
        "_on_missed",
        "_posted",
        "_rooms",
        "_tell",
        "_worker",
        "back",
        "machine",
        "not_routed",
        "route",
    )

    def __init__(
        self,
        worker: Worker,
        options: PipeOptions,
        *,
        on_missed: Callable[[Missed], object] | None,
        on_broken: Callable[[Broken], object] | None,
        on_closed: Callable[[], object],
        tell: bool = False,
    ) -> None:
        node = worker.node
        self.machine = Sender(options, lambda: random_bytes(node))
        self._tell = tell
        self.route: Route | None = None
        self.back: Route = ()
        self.not_routed = 0
        self._worker = worker
        self._on_missed = on_missed
        self._on_broken = on_broken
        self._on_closed = on_closed
        self._posted = False
        self._closed: asyncio.Future[None] = node.loop.create_future()
        self._rooms: asyncio.Future[None] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = 0.0

    def accept(self, message: Message) -> None:
        """Accept a message of the worker.

        Raises:
            PipeFull: The queue is full.
            OnwardError: As `Sender.send`.
        """
        self.machine.send(message, 1)
        if not self._posted:
            self._posted = True
            self._worker._placed.post(self)

    def perform(self, cell: Cell) -> None:
        """Send the accepted messages, at the worker's turn."""
        self._posted = False
        self.flush()

    def flush(self) -> None:
        """Send the frames that are due, call the hooks, and set the timer."""
        machine, node, route = self.machine, self._worker.node, self.route
        if route is not None:
            now = node.loop.time()
            source = self._worker.address
            while frames := machine.frames(now):
                for frame in frames:
                    try:
                        node.parts.router.dispatch(Message(route, self.back, frame, source))
                    except OnwardError as error:
                        self.not_routed += 1
                        self._lose_frame(frame, error)
            self._arm(now)
        for event in machine.take_events():
            if isinstance(event, Missed):
                self._lose(event.messages, PipeMissed)
                call_hook(self._on_missed, self._worker, event)
            elif isinstance(event, Overdue):
                for message in event.messages:
                    node.lose(message, Expired(self._worker.address))
            elif isinstance(event, Broken):
                self._lose(event.in_doubt, PipeBroken, event.why)
                self._lose(event.unsent, PipeClosed, event.why)
                call_hook(self._on_broken, self._worker, event)
            elif not self._closed.done():
                self._closed.set_result(None)
                self._on_closed()
        if self._rooms is not None and 2 * machine.waiting <= machine.room:
            self._make_room()

    def receive(self, frame: Frame) -> None:
        """Process a frame of the receiver."""
        self.machine.receive(frame, self._worker.node.loop.time())
        self.flush()

    async def room(self) -> bool:
        """Wait until a good part of the queue is free, or waiting is of no use.

        Returns:
            Whether to go on: false if the worker has to stop by a set time, which breaks the pipe.
        """
        self.flush()
        cell = self._worker._placed
        while self.machine.room <= 0 and not self._closed.done():
            if cell.deadline is not None:
                return False
            if self._rooms is None:
                self._rooms = self._worker.node.loop.create_future()
                # No event reports a stop request to a worker in the middle of a message.
            await asyncio.wait((self._rooms,), timeout=_LOOK_AGAIN)
        return True

    @property
    def closed(self) -> bool:
        """Whether the pipe is over: nothing more is sent."""
        return self._closed.done()

    def end(self) -> None:
        """Send the waiting messages, those in the worker's mailbox too, and end the pipe."""
        self._worker._placed.post(_PipeEnd(self))

    def end_now(self) -> None:
        """Send the accepted messages, and end the pipe."""
        self.machine.end(self._worker.node.loop.time(), tell=self._tell)
        self.flush()

    async def ended(self, timeout: float) -> None:
        """End the pipe and wait until all is confirmed and the receiver knows, or break it.

        Raises:
            PipeBroken: It took longer. The messages in doubt have been reported.
        """
        self.end()
        try:
            async with asyncio.timeout(check_timeout(timeout)):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self.abort()
            raise PipeBroken(self._worker.address, f"not at its end in {timeout:g} s") from None

    def abort(self) -> None:
        """Break the pipe at once, and cancel the timer."""
        self.machine.abort()
        self.flush()
        self._make_room()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def statistics(self) -> PipeSenderStatistics:
        """Return the counters."""
        machine = self.machine
        return PipeSenderStatistics(
            state=machine.state.name,
            accepted=machine.accepted,
            waiting=machine.waiting,
            unconfirmed=machine.unconfirmed,
            confirmed=machine.confirmed,
            missed=machine.missed,
            in_doubt=machine.in_doubt,
            unsent=machine.unsent,
            overdue=machine.overdue,
            frames=machine.frames_sent,
            resent=machine.resent,
            not_routed=self.not_routed,
            stale=machine.stale,
            round_trip=machine.round_trip.smoothed,
        )

    def _lose(
        self,
        messages: tuple[Message, ...],
        error: type[PipeMissed | PipeBroken | PipeClosed],
        why: str = "",
    ) -> None:
        for message in messages:
            self._worker.node.lose(message, error(self._worker.address, why))

    def _lose_frame(self, frame: bytes, error: OnwardError) -> None:
        """Report the messages of a frame that could not be sent and is not sent again."""
        sent = None if self.machine.confirmed_mode else decode_frame(frame)
        if isinstance(sent, PipeData):
            self.machine.unsent += len(sent.messages)
            for message in sent.messages:
                self._worker.node.lose(message, error)

    def _make_room(self) -> None:
        rooms, self._rooms = self._rooms, None
        if rooms is not None and not rooms.done():
            rooms.set_result(None)

    def _arm(self, now: float) -> None:
        # The time moves with every frame: an early timer is cheaper than a new one.
        at = self.machine.timer()
        if at is None:
            return
        if self._handle is not None:
            if self._handle_at <= at:
                return
            self._handle.cancel()
        self._handle_at = at = max(at, now)
        self._handle = self._worker.node.loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._worker.node.loop.time()
        at = self.machine.timer()
        if at is not None and at <= now:
            self.machine.handle_timer(now)
            self.flush()
        else:
            self._arm(now)


class _PipeEnd:
    """The end of a pipe, queued behind the messages that came before."""

    __slots__ = ("_sending",)

    def __init__(self, sending: SendingHalf) -> None:
        self._sending = sending

    def perform(self, cell: Cell) -> None:
        """End the pipe."""
        self._sending.end_now()


class AckReceiver(Worker):
    """The worker for a receiver's frames, which are handled while the pipe's worker waits too."""

    def __init__(self, sending: SendingHalf) -> None:
        super().__init__()
        self._sending = sending
        self._reader = PipeFrameReader()

    def handle_message(self, message: Message) -> None:
        """Process a frame."""
        try:
            frame = self._reader.read(message[2])
        except PipeFrameError as error:
            self.node.lose(message, error)
        else:
            self._sending.receive(frame)
