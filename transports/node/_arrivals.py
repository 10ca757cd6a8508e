"""The messages that came over a link and wait for room in mailboxes of the node."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from ...actors.runtime._room import Line, Room
from ...protocol import Address, MailboxFull, Message, OnwardError, UnknownAddress, counted

if TYPE_CHECKING:
    from ...actors import Node, Worker
    from ...actors.runtime._cell import Cell
    from ...actors.runtime._mailbox import Mailbox

__all__ = ["Arrivals", "size_of"]

MAX_GIVEN_UP: Final = 1000
"""The number of mailboxes given up that a link remembers. The oldest one is forgotten first and
gets its full `stall_timeout` again."""


class Arrivals:
    """The messages of one link that wait for room, in a queue for each mailbox.

    A mailbox that accepts none of them for `stall_timeout` is given up: its messages become dead
    letters, later ones at once, until its worker has handled a message. So a stuck worker costs
    only its own messages and, until then, their places here.

    Args:
        node: The node.
        limit: The maximum number of messages; more become dead letters.
        max_bytes: The bytes, routes included, from which on messages become dead letters.
        stall_timeout: The seconds for which a full mailbox may accept none.
        fewer: Called when the number of messages has decreased.

    Attributes:
        count: The number of messages.
        bytes: The bytes of the messages, routes included.
    """

    __slots__ = (
        "_awaited",
        "_fewer",
        "_given_up",
        "_limit",
        "_lines",
        "_max_bytes",
        "bytes",
        "count",
        "node",
        "stall_timeout",
    )

    def __init__(
        self,
        node: Node,
        limit: int,
        max_bytes: int,
        stall_timeout: float,
        fewer: Callable[[], object],
    ) -> None:
        self.node = node
        self.stall_timeout = stall_timeout
        self.count = 0
        self.bytes = 0
        self._limit = limit
        self._max_bytes = max_bytes
        self._fewer = fewer
        self._lines: dict[Mailbox, _LinkLine] = {}
        self._awaited: dict[int, asyncio.Future[None]] = {}  # by the `id` of a kept message
        # The worker (not kept alive) and its count of handled messages at that time.
        self._given_up: dict[Address, tuple[weakref.ref[Worker], int]] = {}

    def keep(self, room: Room) -> None:
        """Keep a message until there is room, or make it a dead letter if a limit is reached."""
        intake, message, _ = room
        line = self._lines.get(intake)
        if line is None and self._is_given_up(intake):
            self.node.lose(message, intake.full())
            return
        if self.count >= self._limit or self.bytes > self._max_bytes:
            kept = f"a link keeps {counted(self.count, 'message')}"
            self.node.lose(message, MailboxFull(intake.address, kept))
            return
        intake.refused -= 1  # kept, so not refused
        self.count += 1
        self.bytes += size_of(message)
        if line is None:
            line = self._lines[intake] = _LinkLine(intake, self)
            line.messages.append(message)
            intake.join(line)
        else:
            line.messages.append(message)

    def until_moved(self, room: Room) -> asyncio.Future[None] | None:
        """Return a future for the moment the message leaves, if it is the last one kept."""
        line, message = self._lines.get(room.intake), room.message
        if line is None or line.messages[-1] is not message:
            return None
        self._awaited[id(message)] = moved = self.node.loop.create_future()
        return moved

    def moved(self, message: Message) -> None:
        """Subtract a message from the counts."""
        self.count -= 1
        self.bytes -= size_of(message)
        if self._awaited:
            moved = self._awaited.pop(id(message), None)
            if moved is not None and not moved.done():
                moved.set_result(None)

    def ended(self, intake: Mailbox) -> None:
        """Forget an empty queue."""
        self._lines.pop(intake, None)
        self._fewer()

    def fewer(self) -> None:
        """Call the `fewer` callback."""
        self._fewer()

    def close(self) -> None:
        """Make all messages dead letters."""
        for line in list(self._lines.values()):
            line.give_up(MailboxFull(line.intake.address, "the link was closed"))

    def give_up(self, line: _LinkLine) -> None:
        """Give up a mailbox: make its messages dead letters, later ones at once."""
        intake = line.intake
        if len(self._given_up) >= MAX_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]
        cell = cast("Cell", intake)
        self._given_up[cell.address] = weakref.ref(cell.worker), cell.handled
        line.give_up(intake.full())

    def _is_given_up(self, intake: Mailbox) -> bool:
        noted = self._given_up.get(intake.address)
        if noted is None:
            return False
        cell = cast("Cell", intake)
        if noted[0]() is cell.worker and noted[1] == cell.handled:
            return True
        del self._given_up[intake.address]
        return False


class _LinkLine(Line):
    """The queue of a link's messages for one mailbox."""

    __slots__ = ("_arrivals", "_since", "_timer")

    def __init__(self, intake: Mailbox, arrivals: Arrivals) -> None:
        super().__init__(intake)
        self._arrivals = arrivals
        loop = arrivals.node.loop
        self._since = loop.time()  # when the first message began to wait
        self._timer = loop.call_later(arrivals.stall_timeout, self._look)

    def _look(self) -> None:
        arrivals = self._arrivals
        loop = arrivals.node.loop
        left = self._since + arrivals.stall_timeout - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self._look)
        else:
            arrivals.give_up(self)

    def advance(self) -> int:
        """Move messages into the mailbox, and let the link resume reading if few are left."""
        moved = super().advance()
        if moved and self.messages:
            self._arrivals.fewer()
        return moved

    def moved(self, message: Message) -> None:
        """Count a message that has moved, and restart the stall timeout."""
        arrivals = self._arrivals
        self._since = arrivals.node.parts.run_queue.now
        arrivals.moved(message)

    def done(self) -> None:
        """Stop the timer and remove the queue."""
        self._timer.cancel()
        self._arrivals.ended(self.intake)

    def refuse(self) -> None:
        """Drop the waiting messages: the worker has stopped."""
        self.give_up(UnknownAddress(self.intake.address))

    def give_up(self, error: OnwardError) -> None:
        """Drop the waiting messages with an error."""
        arrivals = self._arrivals
        for message in self.leave():
            arrivals.moved(message)
            arrivals.node.lose(message, error)
        self.done()


def size_of(message: Message) -> int:
    """Return the bytes of a message that the peer chose: payload and routes."""
    onward, back, payload, _, _ = message
    return len(payload) + sum(len(value) for route in (onward, back) for _, value in route)
