"""The sending half of a pipe on a node: a state machine, its timer, and the way to the receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...protocol import Message, OnwardError, Route
from ...protocol.options import check_timeout
from ...protocol.pipes import (
    Broken,
    Data,
    Frame,
    FrameReader,
    Missed,
    Overdue,
    PipeBroken,
    PipeClosed,
    PipeFrameError,
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
"""How often a worker that waits for room looks whether it is to stop, in seconds."""

__all__ = ["AckReceiver", "PipeSenderStatistics", "Sending"]


@dataclass(frozen=True, slots=True)
class PipeSenderStatistics:
    """What is counted at the sending end of a pipe.

    Attributes:
        state: Where it is, as in `SenderState`.
        accepted: Messages taken.
        waiting: Messages that wait to be sent.
        unconfirmed: Messages sent and not known to be dealt with.
        confirmed: Messages that the receiver has handed on.
        missed: Messages that the receiver went on without.
        in_doubt: Messages reported in doubt.
        unsent: Messages reported as not sent.
        overdue: Messages whose deadline passed before they could be sent.
        frames: Frames of messages sent, repetitions aside.
        resent: Frames sent again.
        not_routed: Frames that the node could not send. They are sent again like lost ones; where
            nothing is confirmed their messages are lost.
        stale: Frames from a receiver that were not for this pipe, or not now.
        round_trip: How long a confirmation takes, in seconds; `None` as long as none has come.
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


class Sending:
    """The sending half of a pipe. All of it is for the node's loop.

    Frames are sent when what waited in the worker's mailbox has been handled: so messages that
    came together go together.

    Args:
        worker: Whose pipe it is.
        options: The pipe's.
        on_missed: Is told of messages the receiver went on without.
        on_broken: Is told when the pipe broke.
        on_closed: Is called when it is over.
        tell: Whether the receiver has to hear of the end of a pipe that nothing went through.
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
        """Take a message that came to the worker.

        Raises:
            PipeFull: As many wait as may.
            OnwardError: As `Sender.send`.
        """
        self.machine.send(message, 1)
        if not self._posted:
            self._posted = True
            self._worker._placed.post(self)

    def perform(self, cell: Cell) -> None:
        """Send what has been accepted: the worker's turn has come."""
        self._posted = False
        self.flush()

    def flush(self) -> None:
        """Send what is to be sent, tell what is to be told, and set the timer."""
        machine, node, route = self.machine, self._worker.node, self.route
        if route is not None:
            now = node.loop.time()
            source = self._worker.address
            while frames := machine.frames(now):
                for frame in frames:
                    try:
                        node.carry(Message(route, self.back, frame, source))
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
        """Take in what the receiver says."""
        self.machine.receive(frame, self._worker.node.loop.time())
        self.flush()

    async def room(self) -> bool:
        """Wait until there is room for a good part of the queue, or no use in waiting.

        Returns:
            Whether to go on: not if the worker is to stop by some time, which breaks the pipe.
        """
        self.flush()
        cell = self._worker._placed
        while self.machine.room <= 0 and not self._closed.done():
            if cell.deadline is not None:
                return False
            if self._rooms is None:
                self._rooms = self._worker.node.loop.create_future()
            # Nothing tells a worker that it is asked to stop while it has a message in hand.
            await asyncio.wait((self._rooms,), timeout=_LOOK_AGAIN)
        return True

    @property
    def closed(self) -> bool:
        """Whether the pipe is over: nothing more is sent."""
        return self._closed.done()

    def end(self) -> None:
        """Send what waits, also in the worker's mailbox, and tell the receiver."""
        self._worker._placed.post(_End(self))

    def end_now(self) -> None:
        """Send what has been accepted, and tell the receiver."""
        self.machine.end(self._worker.node.loop.time(), tell=self._tell)
        self.flush()

    async def ended(self, timeout: float) -> None:
        """End, and wait until all is confirmed and the receiver knows, or break the pipe.

        Raises:
            PipeBroken: It took longer; what is in doubt has been reported.
        """
        self.end()
        try:
            async with asyncio.timeout(check_timeout(timeout)):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self.abort()
            raise PipeBroken(self._worker.address, f"not at its end in {timeout:g} s") from None

    def abort(self) -> None:
        """Break the pipe at once, and let go of the timer."""
        self.machine.abort()
        self.flush()
        self._make_room()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def statistics(self) -> PipeSenderStatistics:
        """Return what is counted."""
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
        """Lose the messages of a frame that could not be sent and will not be again."""
        sent = None if self.machine.confirmed_mode else decode_frame(frame)
        if isinstance(sent, Data):
            self.machine.unsent += len(sent.messages)
            for message in sent.messages:
                self._worker.node.lose(message, error)

    def _make_room(self) -> None:
        rooms, self._rooms = self._rooms, None
        if rooms is not None and not rooms.done():
            rooms.set_result(None)

    def _arm(self, now: float) -> None:
        # The time moves on with every frame: a timer that is early is cheaper than a new one.
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


class _End:
    """The end of a pipe, in its place behind the messages that came before."""

    __slots__ = ("_sending",)

    def __init__(self, sending: Sending) -> None:
        self._sending = sending

    def perform(self, cell: Cell) -> None:
        """Take nothing more."""
        self._sending.end_now()


class AckReceiver(Worker):
    """Hears what the receiver of a pipe says, also while the pipe's worker waits for room."""

    def __init__(self, sending: Sending) -> None:
        super().__init__()
        self._sending = sending
        self._reader = FrameReader()

    def handle_message(self, message: Message) -> None:
        """Take in a frame."""
        try:
            frame = self._reader.read(message[2])
        except PipeFrameError as error:
            self.node.lose(message, error)
        else:
            self._sending.receive(frame)
