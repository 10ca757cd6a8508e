"""Lines of messages that wait for room in a mailbox, and what becomes of those who sent them.

A mailbox at its limit does one of two things with one more message. It refuses it, or the message
waits in a *line*: one for each sender, in the order they came. At the end of each turn of the
mailbox's worker the lines are served in rotation, `QUANTUM` messages at a time, so that a sender
with many messages does not keep the others out. While there is a line nothing else is put into
the mailbox, so messages of one sender stay in order.

Three kinds of sender have lines:

- a coroutine that awaits (`send_wait`, `request`): one message, and a future;
- a worker that passes on or answers: it is *paused*, which means that it takes no further message
  until its line is empty;
- a link, for what came over it: it reads on until it keeps too much, and then holds its socket.
  Workers that such a message passes are not paused; see `Cell.hand_over_later`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import MailboxFull, Message, OnwardError, UnknownAddress
from .._log import waiting_text

if TYPE_CHECKING:
    from .._worker import Worker
    from ._cell import Cell
    from ._mailbox import Mailbox
    from ._thread import OwnThread

__all__ = [
    "Line",
    "Room",
    "SenderLine",
    "WorkerLine",
    "join",
    "put_when_room",
    "release_thread",
    "wait_on_thread",
]

QUANTUM: Final = 16
"""Messages that a line may put into a mailbox before the next line has its turn."""

_SLACK: Final = 5.0


class Room(NamedTuple):
    """What a `MailboxFull` says to who can wait for room.

    Attributes:
        intake: The mailbox.
        message: The message, as it was to be put there.
        may_wait: Whether the mailbox's policy lets those wait that are not links.
    """

    intake: Mailbox
    message: Message
    may_wait: bool


class Line(ABC):
    """Messages of one sender that wait for room in one mailbox, in order.

    Attributes:
        intake: The mailbox.
        messages: Those that wait.
    """

    __slots__ = ("intake", "messages")

    def __init__(self, intake: Mailbox) -> None:
        self.intake = intake
        self.messages: deque[Message] = deque()

    def advance(self) -> int:
        """Put messages into the mailbox while there is room, at most `QUANTUM`.

        Returns:
            How many.
        """
        intake, messages = self.intake, self.messages
        for count in range(QUANTUM):
            if not messages or not intake.has_room(messages[0]):
                return count
            message = messages.popleft()
            intake.load(message)
            self.moved(message)
        return QUANTUM

    def leave(self) -> deque[Message]:
        """Leave the mailbox; return the messages that still wait, which are nobody's now."""
        left, self.messages = self.messages, deque()
        self.intake.leave(self)
        return left

    @abstractmethod
    def moved(self, message: Message) -> None:
        """Note that a message is in the mailbox."""

    @abstractmethod
    def done(self) -> None:
        """Let the sender go on: all messages are in the mailbox."""

    @abstractmethod
    def refuse(self) -> None:
        """Tell the sender that the worker has stopped."""


class SenderLine(Line):
    """The one message of a coroutine that awaits room.

    Attributes:
        future: Done when the message is in the mailbox.
    """

    __slots__ = ("future",)

    def __init__(self, intake: Mailbox, message: Message) -> None:
        super().__init__(intake)
        self.messages.append(message)
        self.future: asyncio.Future[None] = intake.node.loop.create_future()

    def advance(self) -> int:
        """Put the message into the mailbox, unless the coroutine has been cancelled."""
        if self.future.cancelled():
            self.messages.clear()
        return super().advance()

    def moved(self, message: Message) -> None:
        """Do nothing: it has been the only one."""

    def done(self) -> None:
        """Let the coroutine go on."""
        if not self.future.done():
            self.future.set_result(None)

    def refuse(self) -> None:
        """Raise `UnknownAddress` in the coroutine."""
        if not self.future.done():
            self.future.set_exception(UnknownAddress(self.intake.address))


class WorkerLine(Line):
    """Messages that a worker has passed on or answered with; it is paused meanwhile.

    They wait for `NodeLimits.room_timeout` after the last that was taken, and are lost then.

    Args:
        intake: The mailbox.
        cell: The worker's.
    """

    __slots__ = ("_cell", "_since", "_timer")

    def __init__(self, intake: Mailbox, cell: Cell) -> None:
        super().__init__(intake)
        self._cell = cell
        node = cell.node
        self._since = node.loop.time()  # of when it waits for the next to be taken
        self._timer = node.loop.call_later(node.limits.room_timeout, self._look)

    def _look(self) -> None:
        node = self._cell.node
        limit = node.limits.room_timeout
        left = self._since + limit - node.loop.time()
        if left > 0:
            self._timer = node.loop.call_later(left, self._look)
        else:
            self.give_up(MailboxFull(self.intake.address, f"no room for {limit:g} s"))

    def moved(self, message: Message) -> None:
        """Note that there was room."""
        self._since = self._cell.node.now

    def done(self) -> None:
        """Let the worker take messages again, if it waits for nothing else."""
        self._timer.cancel()
        self._cell.has_room_in(self.intake)

    def refuse(self) -> None:
        """Lose what waits: the worker that it is for has stopped."""
        self.give_up(UnknownAddress(self.intake.address))

    def give_up(self, error: OnwardError) -> None:
        """Lose what waits, and let the worker go on."""
        left = self.leave()
        node = self._cell.node
        for message in left:
            node.lose(message, error)
        self.done()


async def put_when_room(room: Room) -> None:
    """Put a message into a mailbox once there is room. Called on the node's loop.

    Raises:
        UnknownAddress: The worker has stopped.
        MailboxFull: Too many senders wait already.
    """
    line = join(room)
    if line is None:
        return
    try:
        await line.future
    except asyncio.CancelledError:
        line.leave()
        raise


def wait_on_thread(room: Room, thread: OwnThread, came: Message) -> None:
    """Put a message into a mailbox once there is room, blocking this thread, which is no loop's.

    If the message in hand came over a link, what is passed on waits with that link, as it does
    for other workers, and the thread goes on. Of all that is made of one message only the first
    may wait so while the link is held: with the others the thread waits until there was room.

    Args:
        room: The mailbox, and the message.
        thread: This thread.
        came: The message in hand.

    Raises:
        UnknownAddress: The worker has stopped.
        MailboxFull: There was no room in `NodeLimits.room_timeout`, or the worker is to stop.
    """
    node = room.intake.node
    limit = node.limits.room_timeout
    put = asyncio.run_coroutine_threadsafe(_put_in_time(room, limit, thread, came), node.loop)
    put.result(limit + _SLACK)  # if the loop is closed, nothing comes


async def _put_in_time(room: Room, limit: float, thread: OwnThread, came: Message) -> None:
    intake = room.intake
    if thread.ending:
        raise _sender_stopped(intake)
    link = intake.node.origin_of(came)
    if link is not None and _put_or_keep(room, link):
        await _wait_with_link(room, link, limit, thread)
        return
    line = join(room)
    if line is None:
        return
    thread.stop_waiting = partial(_end_line, line)
    try:
        async with asyncio.timeout(limit):
            await line.future
    except TimeoutError:
        line.leave()
        raise MailboxFull(intake.address, f"no room for {limit:g} s") from None
    except asyncio.CancelledError:
        line.leave()
        raise
    finally:
        thread.stop_waiting = None


def _put_or_keep(room: Room, link: Worker) -> bool:
    """Put a message into a mailbox, now or when there is room: then the link keeps it."""
    intake = room.intake
    try:
        intake.put(room.message)  # there may be room by now, and then nothing would serve a line
    except MailboxFull as full:
        if full.room is not None and link._wait_for_room(full.room):
            return True
        intake.refused -= 1  # it is not refused, after all: the thread waits
        return False
    return True


async def _wait_with_link(room: Room, link: Worker, limit: float, thread: OwnThread) -> None:
    """Wait until a held link keeps a message no more, unless it is the first of those of a call.

    Without it what is made of one message could be more than a link may keep. With it for the
    first as well a worker would stand still for others while what it sends to one waits.
    """
    moved = link._until_moved(room)
    if moved is None:
        return
    if thread.kept != thread.calls:
        thread.kept = thread.calls
        return
    thread.stop_waiting = partial(_set_done, moved)
    try:
        await asyncio.wait((moved,), timeout=limit)  # after that it still waits with the link
    finally:
        thread.stop_waiting = None


def _set_done(moved: asyncio.Future[None]) -> None:
    if not moved.done():
        moved.set_result(None)


def release_thread(thread: OwnThread) -> None:
    """Have a worker's thread wait for room no more: the worker is to stop. On the loop's thread."""
    thread.ending = True
    if thread.stop_waiting is not None:
        thread.stop_waiting()


def _end_line(line: SenderLine) -> None:
    if not line.future.done():
        line.leave()
        line.future.set_exception(_sender_stopped(line.intake))


def _sender_stopped(intake: Mailbox) -> MailboxFull:
    return MailboxFull(intake.address, "the worker that sent it was stopped")


def join(room: Room) -> SenderLine | None:
    """Begin to wait for room; `None` if there was some and the message is in the mailbox.

    Raises:
        UnknownAddress: The worker has stopped.
        MailboxFull: Too many senders wait already.
    """
    intake = room.intake
    try:
        intake.put(room.message)
    except MailboxFull as full:
        if full.room is None:
            raise
    else:
        return None
    intake.refused -= 1  # it is not refused, after all
    limit = intake.node.limits.waiting_senders
    if len(intake.lines or ()) >= limit:
        raise MailboxFull(intake.address, waiting_text(limit, "sender"))
    line = SenderLine(intake, room.message)
    intake.join(line)
    return line
