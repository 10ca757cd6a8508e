"""Mailboxes: what an address leads to, and what happens when it is full.

How a message gets from `Router.route` into a handler:

- `route` appends it to the target's queue and, unless `scheduled` is set already, sets
  it and appends the target to the node's run queue. `scheduled` means *somebody will look at
  this queue*: the run queue holds the worker, or the worker is busy and looks when it is done.
- The node drains its run queue in one loop callback and gives each worker a `turn` of a
  bounded number of messages.
- A handler that returned a coroutine gets a task; the worker is `BUSY` until that ends.

Senders may be other threads. No lock is taken: appending is atomic, and whoever clears
`scheduled` looks at the queue once more afterwards. The worst a race can do is put a worker
into the run queue twice, and a turn with nothing to do does nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, TypeGuard

import pykka
from pykka import messages
from pykka._envelope import Envelope

from ..protocol import Address, Context, MailboxFull, Message, UnknownAddress, WorkerStopped
from ._policy import Overflow
from ._state import STOPPED

if TYPE_CHECKING:
    from ._cell import Cell
    from ._node import Node
    from ._observer import Observer

__all__ = ["Intake", "RoomLater", "Target", "Turn", "is_envelope"]


class Target:
    """What an address of the table leads to. `Node.route` reads these fields itself.

    Attributes:
        queue: Where messages wait, or `None`: then `put` decides.
        limit: How many may wait; at the limit `put` decides.
        scheduled: Whether somebody will look at the queue.
    """

    __slots__ = ("limit", "queue", "scheduled")

    queue: deque[Any] | None
    limit: int
    scheduled: bool

    def put(self, message: Message) -> None:
        """Take a message where appending to the queue is not all there is to it."""
        raise AssertionError(f"unexpected message {message}")

    def turn(self) -> int:
        """Handle a batch of what waits; return how much that was."""
        raise AssertionError("unexpected turn")

    def give_up(self) -> None:
        """Turn what waits into dead letters: the event loop is closed."""
        raise AssertionError("unexpected end")


class Turn:
    """Something else than a message that a worker does when its turn comes."""

    __slots__ = ()

    def perform(self, cell: Cell) -> None:
        """Do it. Failures of user code propagate; coroutines go to `Cell.suspend`."""
        raise AssertionError(f"unexpected turn {self} of {cell}")


class RoomLater(MailboxFull):
    """The mailbox is full, and its policy lets a sender wait for room."""

    def __init__(self, intake: Intake, message: Message) -> None:
        super().__init__(intake.address, f"{intake.limit} messages wait")
        self.intake = intake
        self.message = message


class Intake(Target):
    """The mailbox of a worker: what it takes, refuses and drops.

    The methods under "what arrives" are for any thread, the others for the loop's.
    """

    __slots__ = (
        "addresses",
        "dropped",
        "node",
        "overflow",
        "refused",
        "state",
        "waiters",
    )

    node: Node
    addresses: tuple[Address, ...]
    overflow: Overflow
    state: int
    waiters: deque[asyncio.Future[None]] | None
    refused: int
    dropped: int

    @property
    def address(self) -> Address:
        """The primary address."""
        return self.addresses[0]

    # --- what arrives; from any thread ------------------------------------------------

    def put(self, message: Message) -> None:
        """Take a message when there is no queue yet, or no room in it.

        Raises:
            UnknownAddress: The worker has stopped.
            MailboxFull: There is no room, and the policy gives the message back.
        """
        if self.state == STOPPED:
            raise UnknownAddress(message[0][0])
        if self._has_room_for(message):
            self.post(message)

    def put_envelope(self, envelope: Envelope[Any]) -> None:
        """Take what Pykka's `tell` or `ask` sends.

        A stopped worker answers `pykka.ActorDeadError` at once.

        Raises:
            MailboxFull: There is no room, and the policy gives the message back.
        """
        if self.state == STOPPED:
            self.refuse(envelope)
        elif isinstance(envelope.message, messages._ActorStop) or self._has_room_for(envelope):
            self.post(envelope)

    def post(self, item: object, *, first: bool = False) -> None:
        """Put something into the queue, room or not."""
        queue = self.queue
        if queue is None:
            with self.node.lock:
                queue = self.queue
                if queue is None:
                    queue = self.queue = deque()
        if first:
            queue.appendleft(item)
        else:
            queue.append(item)
        if not self.scheduled:
            self.scheduled = True
            self.node.schedule(self)

    def _has_room_for(self, item: Message | Envelope[Any]) -> bool:
        queue = self.queue
        if queue is None or len(queue) < self.limit:
            return True
        observer = self.node.observer
        if observer is not None:
            self.found_full(observer, len(queue))
        if self.overflow is Overflow.DROP_NEWEST:
            self._drop(item)
            return False
        if self.overflow is Overflow.DROP_OLDEST:
            self._drop_oldest(queue)
            return True
        self.refused += 1
        if self.overflow is Overflow.WAIT and isinstance(item, Message):
            raise RoomLater(self, item)
        raise MailboxFull(self.address, f"{self.limit} messages wait")

    def found_full(self, observer: Observer, waiting: int) -> None:
        """Tell who looks on that there was no room in the mailbox."""
        raise AssertionError(f"unexpected {observer} of {waiting} messages")

    def _drop_oldest(self, queue: deque[Any]) -> None:
        # Only messages are dropped; the start, the stop and due timers keep their places.
        kept: list[object] = []
        while queue:
            oldest = queue.popleft()
            if is_message(oldest):
                self._drop(oldest)
                break
            kept.append(oldest)
        queue.extendleft(reversed(kept))

    def _drop(self, item: Message | Envelope[Any]) -> None:
        self.dropped += 1
        if isinstance(item, Message):
            self.node.lose(item, MailboxFull(self.address, f"{self.limit} messages wait"))
        elif item.reply_to is not None:
            error = MailboxFull(self.address, f"{self.limit} messages wait")
            item.reply_to.set_exception((MailboxFull, error, None))
        else:
            self.node.dead_letter(self._as_message(item), MailboxFull.reason)

    def refuse(self, item: object) -> None:
        """Answer or dead-letter something this worker will not handle any more."""
        if isinstance(item, Message):
            self.node.lose(item, WorkerStopped(self.address))
        elif is_envelope(item):
            future = item.reply_to
            if future is None:
                if not isinstance(item.message, messages._ActorStop):
                    self.node.dead_letter(self._as_message(item), WorkerStopped.reason)
            elif isinstance(item.message, messages._ActorStop):
                future.set(None)
            else:
                dead = pykka.ActorDeadError(f"{self} stopped before handling the message")
                future.set_exception((pykka.ActorDeadError, dead, None))

    def _as_message(self, envelope: Envelope[Any]) -> Message:
        """Give a message of Pykka's a form in which it can be a dead letter."""
        return Message((self.address,), (), b"", None, Context(meta=envelope.message))

    # --- room for waiting senders -----------------------------------------------------

    async def room(self) -> None:
        """Wait until there may be room in the mailbox.

        Raises:
            MailboxFull: Too many senders wait already.
        """
        waiters = self.waiters
        if waiters is None:
            waiters = self.waiters = deque()
        limit = self.node.limits.waiting_senders
        if len(waiters) >= limit:
            raise MailboxFull(self.address, f"{limit} senders wait")
        if self.state == STOPPED or self.queue is None or len(self.queue) < self.limit:
            return
        waiter: asyncio.Future[None] = self.node.loop.create_future()
        waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.wake_waiters()  # the room it was given is another's
            elif waiter in waiters:
                waiters.remove(waiter)
            raise

    def wake_waiters(self) -> None:
        """Wake as many waiting senders as there is room, those first that came first."""
        waiters, queue = self.waiters, self.queue
        if waiters is None or queue is None:
            return
        room = len(waiters) if self.state == STOPPED else self.limit - len(queue)
        while waiters and room > 0:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= 1


def is_message(item: object) -> TypeGuard[Message | Envelope[Any]]:
    """Tell whether something in a queue is a message, routed or of Pykka's."""
    if is_envelope(item):
        return not isinstance(item.message, messages._ActorStop)
    return type(item) is Message


def is_envelope(item: object) -> TypeGuard[Envelope[Any]]:
    """Tell whether something in a queue came by Pykka's `tell` or `ask`."""
    return type(item) is Envelope
