"""Lines of messages that wait for room in a mailbox.

A mailbox at its limit refuses one more message, or the message waits in a *line*. Each sender has
one line, in order of arrival. At the end of each turn of the mailbox's worker the lines are served
in rotation, `QUANTUM` messages at a time, so that a sender with many messages does not keep the
others out. While there is a line no other message is put into the mailbox, so the messages of one
sender stay in order.

Three kinds of sender have lines:

- a coroutine that awaits (`send_wait`, `request`): one message, and a future;
- a worker that passes on or answers: it is *paused*, which means that it handles no further
  message until its line is empty;
- a link, for messages that came over it: it reads until it keeps too many bytes, and then stops
  reading. Workers that such a message passes are not paused; see `_room_elsewhere`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import MailboxFull, Message, OnwardError, UnknownAddress
from .._log import waiting_text

if TYPE_CHECKING:
    from ._cell import Cell
    from ._host import HostedActor
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
    """The details of a `MailboxFull` for a sender that can wait for room.

    Attributes:
        intake: The mailbox.
        message: The message that was refused.
        may_wait: Whether the mailbox's policy lets senders other than links wait.
    """

    intake: Mailbox
    message: Message
    may_wait: bool


class Line(ABC):
    """Messages of one sender that wait for room in one mailbox, in order.

    Attributes:
        intake: The mailbox.
        messages: The messages that wait.
    """

    __slots__ = ("intake", "messages")

    def __init__(self, intake: Mailbox) -> None:
        self.intake = intake
        self.messages: deque[Message] = deque()

    def advance(self) -> int:
        """Put messages into the mailbox while there is room, at most `QUANTUM`.

        Returns:
            The number of messages put.
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
        """Leave the mailbox; return the messages that still wait, for the caller to handle."""
        left, self.messages = self.messages, deque()
        self.intake.leave(self)
        return left

    @abstractmethod
    def moved(self, message: Message) -> None:
        """Record that a message is in the mailbox."""

    @abstractmethod
    def done(self) -> None:
        """Resume the sender after all messages have been put into the mailbox."""

    @abstractmethod
    def refuse(self) -> None:
        """Fail the messages because the worker of the mailbox has stopped."""


class SenderLine(Line):
    """The one message of a coroutine that awaits room.

    Attributes:
        future: A future that is done when the message is in the mailbox.
    """

    __slots__ = ("future",)

    def __init__(self, intake: Mailbox, message: Message) -> None:
        super().__init__(intake)
        self.messages.append(message)
        self.future: asyncio.Future[None] = intake.run_queue.loop.create_future()

    def advance(self) -> int:
        """Put the message into the mailbox, unless the coroutine has been cancelled."""
        if self.future.cancelled():
            self.messages.clear()
        return super().advance()

    def moved(self, message: Message) -> None:
        """Ignore the move: the line has one message only."""

    def done(self) -> None:
        """Resume the coroutine."""
        if not self.future.done():
            self.future.set_result(None)

    def refuse(self) -> None:
        """Raise `UnknownAddress` in the coroutine."""
        if not self.future.done():
            self.future.set_exception(UnknownAddress(self.intake.address))


class WorkerLine(Line):
    """The messages that a paused worker has passed on or answered with.

    They are lost `NodeLimits.room_timeout` after the last of them was accepted.

    Args:
        intake: The mailbox.
        cell: The cell of the worker.
        moved_on: Function that is called once no message of the line waits.
    """

    __slots__ = ("_cell", "_moved_on", "_since", "_timer")

    def __init__(self, intake: Mailbox, cell: Cell, moved_on: Callable[[], object]) -> None:
        super().__init__(intake)
        self._cell = cell
        self._moved_on = moved_on
        run_queue = cell.run_queue
        self._since = run_queue.loop.time()  # since when no message was accepted
        self._timer = run_queue.loop.call_later(run_queue.limits.room_timeout, self._look)

    def _look(self) -> None:
        run_queue = self._cell.run_queue
        limit = run_queue.limits.room_timeout
        left = self._since + limit - run_queue.loop.time()
        if left > 0:
            self._timer = run_queue.loop.call_later(left, self._look)
        else:
            self.give_up(MailboxFull(self.intake.address, f"no room for {limit:g} s"))

    def moved(self, message: Message) -> None:
        """Record the time at which a message was accepted."""
        self._since = self._cell.run_queue.now

    def done(self) -> None:
        """Resume the worker, unless it waits for room in another mailbox."""
        self._timer.cancel()
        self._moved_on()

    def refuse(self) -> None:
        """Lose the messages because the worker of the mailbox has stopped."""
        self.give_up(UnknownAddress(self.intake.address))

    def give_up(self, error: OnwardError) -> None:
        """Lose the messages, and resume the worker."""
        left = self.leave()
        host = self._cell.host
        for message in left:
            host.lose(message, error)
        self.done()


async def put_when_room(room: Room) -> None:
    """Put a message into a mailbox once there is room. Called on the node's loop.

    Raises:
        UnknownAddress: The worker has stopped.
        MailboxFull: Too many senders wait already.
    """
    line = join(room)
    if line is not None:
        try:
            await line.future
        except asyncio.CancelledError:
            line.leave()
            raise
    room.intake.refused -= 1  # it has waited instead


def wait_on_thread(room: Room, thread: OwnThread, came: Message) -> None:
    """Put a message into a mailbox once there is room, blocking a worker's own thread.

    If the message in hand came over a link, the message waits with that link, and the thread
    continues. While the link has stopped reading, only the first message made of one message in
    hand may wait so; the thread blocks until there was room for each other one.

    Args:
        room: The mailbox, and the message.
        thread: The calling thread.
        came: The message in hand.

    Raises:
        UnknownAddress: The worker has stopped.
        MailboxFull: There was no room in `NodeLimits.room_timeout`, or the worker is to stop.
    """
    run_queue = room.intake.run_queue
    limit = run_queue.limits.room_timeout
    put = asyncio.run_coroutine_threadsafe(_put_in_time(room, limit, thread, came), run_queue.loop)
    put.result(limit + _SLACK)  # a closed loop gives no result


async def _put_in_time(room: Room, limit: float, thread: OwnThread, came: Message) -> None:
    intake = room.intake
    if thread.ending:
        raise _sender_stopped(intake)
    found = intake.host.link_of(came)
    link = None if found is None else found.worker
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


def _put_or_keep(room: Room, link: HostedActor) -> bool:
    """Put a message into a mailbox, or let a link keep it; return false if neither is possible."""
    intake = room.intake
    if intake.put_if_room(room.message):  # by now, and no turn serves a line
        return True
    intake.refused += 1  # which the link takes back if it keeps the message
    if link._wait_for_room(room):
        return True
    intake.refused -= 1  # the thread waits instead
    return False


async def _wait_with_link(room: Room, link: HostedActor, limit: float, thread: OwnThread) -> None:
    """Wait until a link that has stopped reading has moved a message, unless it is a call's first.

    Without the wait, the messages made of one message could exceed the share of the link. With
    it for the first message too, a worker that waits for one sender would block the others.
    """
    moved = link._until_moved(room)
    if moved is None:
        return
    if thread.kept != thread.calls:
        thread.kept = thread.calls
        return
    if _leads_back(room.intake, thread):
        return
    thread.stop_waiting, thread.waits_for = partial(_set_done, moved), room.intake
    try:
        await asyncio.wait((moved,), timeout=limit)  # then the message still waits with the link
    finally:
        thread.stop_waiting = thread.waits_for = None


def _leads_back(mailbox: Mailbox, thread: OwnThread) -> bool:
    """Whether room in a mailbox depends on a thread, directly or through threads that wait."""
    each: Mailbox | None = mailbox
    while each is not None:
        other: OwnThread | None = getattr(each, "thread", None)
        if other is thread:
            return True
        each = None if other is None else other.waits_for
    return False


def _set_done(moved: asyncio.Future[None]) -> None:
    if not moved.done():
        moved.set_result(None)


def release_thread(thread: OwnThread) -> None:
    """End a worker thread's wait for room, because the worker is to stop. On the loop's thread."""
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
    """Begin to wait for room; return `None` if the message could be put into the mailbox at once.

    Raises:
        UnknownAddress: The worker has stopped.
        MailboxFull: Too many senders wait already.
    """
    intake = room.intake
    if intake.put_if_room(room.message):
        return None
    limit = intake.run_queue.limits.waiting_senders
    if len(intake.lines or ()) >= limit:
        raise MailboxFull(intake.address, waiting_text(limit, "sender"))
    line = SenderLine(intake, room.message)
    intake.join(line)
    return line
