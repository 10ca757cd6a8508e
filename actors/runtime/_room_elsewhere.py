"""The messages that a worker has passed on, or answered with, and that wait for room elsewhere.

A worker is paused while such a message waits, so that a chain of workers is as slow as its
slowest. A message that came over a link waits with the link, which holds back its peer.
"""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Final

from ...protocol import MailboxFull, Message
from .._log import waiting_text
from ._mailbox import Mailbox, Turn
from ._room import Room, WorkerLine, release_thread, wait_on_thread
from ._state import BUSY, RUNNING

if TYPE_CHECKING:
    from ._cell import Cell

__all__ = ["hand_over_later", "has_room_in", "wait_no_more"]


class _Pause(Turn):
    """The turn at which a worker pauses if a message it has sent still waits for room."""

    __slots__ = ()

    def perform(self, cell: Cell) -> None:
        """Pause the worker if it still waits for room."""
        cell.pausing = False
        if cell.waits_for:
            cell.paused = True
            cell.state = BUSY


_PAUSE: Final = _Pause()


def hand_over_later(cell: Cell, full: MailboxFull, came: Message) -> None:
    """Queue a forwarded message or an answer that waits for room in a full mailbox.

    If the message in hand came over a link, the message waits with the link, which holds
    back its peer, and the worker continues with messages of other senders. Otherwise the
    worker is paused, so that a chain of workers is as slow as its slowest.

    Args:
        cell: The cell of the worker that sent the message.
        full: The error with the full mailbox and the message.
        came: The message in hand.

    Raises:
        MailboxFull: The message may not wait.
    """
    room: Room | None = full.room
    if room is None or not room.may_wait:
        raise full
    if get_ident() != cell.run_queue.thread_id:
        if cell.thread is None or not cell.thread.is_current():
            raise full
        room.intake.refused -= 1  # the message waits instead
        wait_on_thread(room, cell.thread, came)
        return
    link = cell.host.link_of(came)
    if link is None or not link.worker._wait_for_room(room):
        _wait(cell, room)


def _wait(cell: Cell, room: Room) -> None:
    """Wait for room in a mailbox before the next message."""
    intake, message = room.intake, room.message
    waits_for = cell.waits_for
    if waits_for is None:
        waits_for = cell.waits_for = {}
    line = waits_for.get(intake)
    if line is None:
        if _closes_circle(cell, intake):
            # All workers of the circle would wait forever, so the limit is exceeded.
            if len(intake.queue or ()) >= intake.most + cell.run_queue.limits.waiting_messages:
                raise MailboxFull(intake.address, "workers wait for one another")
            intake.refused -= 1
            intake.load(message)
            return
        line = waits_for[intake] = WorkerLine(intake, cell, partial(has_room_in, cell, intake))
        intake.join(line)
    elif len(line.messages) >= cell.run_queue.limits.waiting_messages:
        raise MailboxFull(intake.address, f"{waiting_text(len(line.messages), 'message')} for room")
    intake.refused -= 1  # the message waits instead
    line.messages.append(message)
    if not cell.pausing and not cell.paused:
        cell.pausing = True
        cell.post(_PAUSE, first=True)


def _closes_circle(cell: Cell, intake: Mailbox) -> bool:
    """Whether the worker of a mailbox waits for a worker, directly or through others."""
    seen: set[Mailbox] = set()
    look_at = [intake]
    while look_at:
        each = look_at.pop()
        if each is cell:
            return True
        if each not in seen:
            seen.add(each)
            waiter = each.cell_of()
            if waiter is not None and waiter.waits_for:
                look_at.extend(waiter.waits_for)
    return False


def has_room_in(cell: Cell, intake: Mailbox) -> None:
    """Resume the worker if it waits for room in no other mailbox."""
    waits_for = cell.waits_for
    if waits_for is None:
        return
    waits_for.pop(intake, None)
    if not waits_for and cell.paused:
        cell.paused = False
        if cell.state == BUSY:
            cell.state = RUNNING
            cell.look_again()


def wait_no_more(cell: Cell) -> None:
    """Drop the worker's messages that wait for room, because it is to stop."""
    for line in list((cell.waits_for or {}).values()):
        line.give_up(MailboxFull(line.intake.address, "the worker that sent it was stopped"))
    if cell.thread is not None:
        release_thread(cell.thread)
