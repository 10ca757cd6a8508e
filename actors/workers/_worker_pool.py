"""`WorkerPool`: one address for several equal workers, which are its children."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...protocol import Message, OnwardError, WorkerStopped
from ...protocol.options import Count, check_value
from ..runtime._cell import Cell, Factory
from ..runtime._policy import MailboxOptions, OnFailure, Overflow, Supervision
from ..runtime._state import RUNNING
from ._spreader import Spread, Spreading

__all__ = ["REPLACE_AFTER", "WorkerPool", "WorkerPoolStatistics"]

REPLACE_AFTER: Final = 1.0
"""Time after which a worker of a pool that has stopped is replaced, in seconds."""

_logger = logging.getLogger("onward.actors")

_MAILBOX: Final = MailboxOptions(overflow=Overflow.WAIT)
_RESTART: Final = Supervision(OnFailure.RESTART)


@dataclass(frozen=True, slots=True)
class WorkerPoolStatistics:
    """The statistics of a pool at one moment. The counts include stopped workers."""

    size: int
    """Workers that the pool is to have."""

    running: int
    """Workers that accept messages."""

    stopping: int
    """Workers that the pool has been made smaller by, and that still handle messages."""

    waiting: int
    """Messages in the mailboxes of the workers."""

    handled: int
    """Messages that the workers have taken from their mailboxes."""

    failed: int
    """Times a worker failed."""

    restarts: int
    """Restarts of workers."""

    replaced: int
    """Workers that stopped by themselves or failed too often, and were replaced."""


class WorkerPool(Spreading):
    """A worker that spawns several equal children and passes each message to one of them.

    ```
    [pool, rest…] <- [back…]        becomes        [worker 2, rest…] <- [back…]
    ```

    A child answers from its own address, so a requester continues with it directly.

    If a child does not accept a message, the next one is tried; a message with a key has one
    child only. If all are full, the pool waits for the first that lets senders wait. A message
    that no child accepts becomes a dead letter.

    Failed children are restarted, by their supervision. A child that has stopped is replaced
    after `REPLACE_AFTER`; meanwhile messages with its keys are refused, `WorkerStopped`.

    Args:
        factory: Function that makes a child.
        size: The number of children.
        spread: The method of choice.
        key: Function that returns the key of a message, used in place of `spread`: messages with
            the same key go to the same child. If it raises an `OnwardError`, the message is lost
            with that error.
        mailbox: The mailbox of each child. By default the pool waits for room.
        supervision: The supervision of each child.

    Raises:
        ValueError: An argument is of another type, or there are no children.
    """

    def __init__(
        self,
        factory: Factory,
        size: int,
        spread: Spread = Spread.ROUND_ROBIN,
        *,
        key: Callable[[Message], bytes] | None = None,
        mailbox: MailboxOptions = _MAILBOX,
        supervision: Supervision = _RESTART,
    ) -> None:
        super().__init__(spread, key)
        self._factory = factory
        self._size: int = check_value("size", size, Count)
        self._mailbox = check_value("mailbox", mailbox, MailboxOptions)
        self._supervision = check_value("supervision", supervision, Supervision)
        # In place of a child that has stopped there is `None`, until it is replaced.
        self._children: list[Cell | None] = []
        self._stopping: dict[Cell, None] = {}
        self._retired = [0, 0, 0]
        self._replaced = 0

    async def on_start(self) -> None:
        """Start the children. A subclass that overrides this must call it."""
        self._children = []
        self._stopping = {}
        options = {"mailbox": self._mailbox, "supervision": self._supervision}
        starts = (self.start_child(self._factory, **options) for _ in range(self._size))
        for address in await asyncio.gather(*starts):
            self._admit(len(self._children), self.node.parts.table.cell(address))

    def resize(self, size: int) -> None:
        """Spawn further children, or stop the last ones. Call it on the loop.

        A child that is stopped handles its waiting messages first. With a key, most keys stay
        with their child.

        Args:
            size: The new number of children.

        Raises:
            ValueError: It is less than 1.
            LimitReached: The node has as many addresses as it may.
        """
        self._size = check_value("size", size, Count)
        while len(self._children) > size:
            child = self._children.pop()
            if child is not None:
                self._stopping[child] = None
                child.worker.stop()
        while len(self._children) < size:
            self._spawn(len(self._children))

    def statistics(self) -> WorkerPoolStatistics:
        """Return the statistics of the pool."""
        running = [child for child in self._children if child is not None]
        cells = [*running, *self._stopping]
        handled, failed, restarts = (
            sum(column) for column in zip(self._retired, *map(_counts, cells), strict=True)
        )
        return WorkerPoolStatistics(
            size=self._size,
            running=len(running),
            stopping=len(self._stopping),
            waiting=sum(len(cell.queue or ()) for cell in cells),
            handled=handled,
            failed=failed,
            restarts=restarts,
            replaced=self._replaced,
        )

    def handle_message(self, message: Message) -> None:
        """Pass a message to a child."""
        try:
            self._send_on(message)
        except OnwardError as error:
            self.node.lose(message, error)

    def _places(self) -> int:
        return len(self._children)

    def _place_of(self, digest: int, count: int) -> int:
        return _jump(digest, count)

    def _owed(self, index: int) -> int:
        child = self._children[index]
        return 0 if child is None else len(child.queue or ()) + (child.state != RUNNING)

    def _send_by(self, index: int, message: Message, *, waits: bool) -> None:
        child = self._children[index]
        if child is None or child.is_stopping:
            raise WorkerStopped(self.address, f"its worker {index + 1} is replaced soon")
        redirected = message.redirect(child.address)
        if waits:
            self.route(redirected)
        else:
            self._route_now(redirected)

    def _spawn(self, index: int) -> None:
        address = self.spawn(self._factory, mailbox=self._mailbox, supervision=self._supervision)
        self._admit(index, self.node.parts.table.cell(address))

    def _admit(self, index: int, child: Cell) -> None:
        self._children[index : index + 1] = [child]
        self.node.watch(child.address, partial(self._stopped, child))

    def _stopped(self, child: Cell) -> None:
        """Count a child that has stopped; replace it, unless the pool was made smaller."""
        for column, count in enumerate(_counts(child)):
            self._retired[column] += count
        self._stopping.pop(child, None)
        if child in self._children:
            index = self._children.index(child)
            self._children[index] = None
            self._replace_later(index)

    def _replace_later(self, index: int) -> None:
        cell = self._placed
        if cell.worker is self and not cell.is_stopping:
            self.after(REPLACE_AFTER, partial(self._replace, index))

    def _replace(self, index: int) -> None:
        if index >= len(self._children) or self._children[index] is not None:
            return  # the pool was resized meanwhile
        try:
            self._spawn(index)
        except Exception:
            _logger.exception(
                "%s cannot make another worker",
                self.address,
                extra={"event": "worker.not_replaced"},
            )
            self._replace_later(index)
        else:
            self._replaced += 1


def _counts(cell: Cell) -> tuple[int, int, int]:
    return cell.handled, cell.failed, cell.restarts


def _jump(key: int, count: int) -> int:
    """Return the place of a key among `count`, the same for most keys if `count` changes.

    The jump consistent hash of Lamping and Veach.
    """
    place, following = 0, 0
    while following < count:
        place = following
        key = (key * 2862933555777941757 + 1) % (1 << 64)
        following = int((place + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return place
