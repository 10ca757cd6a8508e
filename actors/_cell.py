"""`Cell`: what the node keeps for each worker: its mailbox, its state and its turns.

How a message gets from `Node.route` into a handler:

- `Node.route` appends it to the cell's queue and, unless `scheduled` is set already, sets
  it and appends the cell to the node's run queue. `scheduled` means *somebody will look at
  this queue*: the run queue holds the cell, or the worker is busy and looks when it is done.
- The node drains its run queue in one loop callback and gives each cell a `turn` of a
  bounded number of messages.
- A handler that returned a coroutine gets a task; the cell is `BUSY` until that ends.

Senders may be other threads. No lock is taken: appending is atomic, and whoever clears
`scheduled` looks at the queue once more afterwards. The worst a race can do is put a cell
into the run queue twice, and a turn with nothing to do does nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context as ContextVars
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pykka
from pykka import messages
from pykka._envelope import Envelope

from ..protocol import Address, Context, MailboxFull, Message, UnknownAddress, WorkerStopped
from . import _lifecycle as lifecycle
from ._policy import Mailbox, OnFailure, Overflow, Supervision
from ._state import BUSY, NAMES, NEW, RUNNING, STOPPED
from ._statistics import WorkerStatistics

if TYPE_CHECKING:
    from ._node import Node
    from ._thread import OwnThread
    from ._timer import Timer
    from ._worker import Worker

__all__ = ["Cell", "RoomLater", "Target", "Turn"]

Factory: TypeAlias = "Callable[[], Worker]"


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


class Turn:
    """Something else than a message that a worker does when its turn comes."""

    __slots__ = ()

    def perform(self, cell: Cell) -> None:
        """Do it. Failures of user code propagate; coroutines go to `Cell.suspend`."""
        raise AssertionError(f"unexpected turn {self} of {cell}")


class RoomLater(MailboxFull):
    """The mailbox is full, and its policy lets a sender wait for room."""

    def __init__(self, cell: Cell, message: Message) -> None:
        super().__init__(cell.address, f"{cell.limit} messages wait")
        self.cell = cell
        self.message = message


class Cell(Target):
    """One worker of a node. All but the `put` methods are for the node's loop thread."""

    __slots__ = (
        "addresses",
        "children",
        "context",
        "deadline",
        "done",
        "dropped",
        "factory",
        "failed",
        "failures",
        "handle",
        "handled",
        "node",
        "overflow",
        "parent",
        "refused",
        "registered",
        "restarts",
        "started",
        "state",
        "supervision",
        "task",
        "thread",
        "timers",
        "waiters",
        "worker",
    )

    def __init__(
        self,
        node: Node,
        addresses: tuple[Address, ...],
        factory: Factory | None,
        mailbox: Mailbox,
        supervision: Supervision,
        parent: Cell | None,
    ) -> None:
        self.queue = None
        self.limit = mailbox.limit
        self.scheduled = False
        self.node = node
        self.addresses = addresses
        self.factory = factory
        self.overflow = mailbox.overflow
        self.supervision = supervision
        self.parent = parent
        self.state = NEW
        self.registered = False
        self.worker: Worker | None = None
        self.handle: Callable[[Message], object] | None = None
        self.thread: OwnThread | None = None
        self.task: asyncio.Task[Any] | None = None
        self.context: ContextVars | None = None
        self.started: asyncio.Future[None] | None = None
        self.done: asyncio.Future[None] | None = None
        self.deadline: float | None = None
        self.children: dict[Cell, None] | None = None
        self.timers: dict[Timer, None] | None = None
        self.waiters: deque[asyncio.Future[None]] | None = None
        self.failures: deque[float] | None = None
        self.handled = 0
        self.failed = 0
        self.refused = 0
        self.dropped = 0
        self.restarts = 0

    @property
    def address(self) -> Address:
        """The primary address."""
        return self.addresses[0]

    def __str__(self) -> str:
        return f"{type(self.worker).__name__} {self.addresses[0]}"

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

    def _drop_oldest(self, queue: deque[Any]) -> None:
        # Only messages are dropped; the start, the stop and due timers keep their places.
        kept: list[object] = []
        while queue:
            oldest = queue.popleft()
            if isinstance(oldest, Message | Envelope):
                self._drop(oldest)
                break
            kept.append(oldest)
        queue.extendleft(reversed(kept))

    def _drop(self, item: Message | Envelope[Any]) -> None:
        self.dropped += 1
        if isinstance(item, Message):
            self.node.dead_letter(item, MailboxFull.reason)
        elif item.reply_to is not None:
            error = MailboxFull(self.address, f"{self.limit} messages wait")
            item.reply_to.set_exception((MailboxFull, error, None))
        else:
            self.node.dead_letter(self._as_message(item), MailboxFull.reason)

    def refuse(self, item: object) -> None:
        """Answer or dead-letter something this worker will not handle any more."""
        if isinstance(item, Message):
            self.node.dead_letter(item, WorkerStopped.reason)
        elif isinstance(item, Envelope):
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

    # --- turns ------------------------------------------------------------------------

    def turn(self) -> int:
        """Handle a batch of what waits; return how much that was."""
        queue = self.queue
        if self.state != RUNNING or queue is None:
            return self._turn_out_of_order()
        handle = self.handle
        if handle is None:
            handle = self.handle = lifecycle.bound_handler(self)
        batch = self.node.limits.batch
        count = 0
        while count < batch and queue:
            item = queue.popleft()
            count += 1
            try:
                if type(item) is Message:
                    result = handle(item)
                    if result is not None:
                        self.suspend(result, self.turn_done)
                elif type(item) is Envelope:
                    self._receive(item)
                else:
                    count -= 1
                    item.perform(self)
            except BaseException as error:  # noqa: BLE001 - the top of a worker's loop
                self.raised(error)
            if self.state != RUNNING:
                break
        self.handled += count
        if self.waiters:
            self.wake_waiters()
        if self.state == RUNNING:
            self.look_again()
        return count + 1

    def look_again(self) -> None:
        """Stay in the run queue as long as something waits."""
        if self.queue:
            self.scheduled = True
            self.node.schedule(self)
        else:
            self.scheduled = False
            # A sender that saw the flag just before it was cleared counts on this look.
            if self.queue:
                self.scheduled = True
                self.node.schedule(self)

    def _turn_out_of_order(self) -> int:
        if self.state == NEW:
            lifecycle.start(self)
            if self.state == RUNNING:
                self.look_again()
        elif self.state == STOPPED:
            self.flush()
        return 1

    def suspend(self, result: object, finished: Callable[[asyncio.Task[Any]], object]) -> bool:
        """Run what a handler returned in a task if it is a coroutine.

        The worker takes no further message until the task is done.

        Returns:
            Whether it is a coroutine.
        """
        if not isinstance(result, Coroutine):
            return False
        self.state = BUSY
        if self.context is None:
            self.context = self.node.context.copy()
        task = self.node.loop.create_task(result, context=self.context)
        self.task = task
        task.add_done_callback(finished, context=self.context)
        return True

    def resumed(self, task: asyncio.Task[Any]) -> bool:
        """Note the end of a task; false if the worker has been given up meanwhile."""
        if self.task is not task or self.state == STOPPED:
            if not task.cancelled():
                task.exception()  # nobody else will look at it
            return False
        self.task = None
        if self.state == BUSY:
            self.state = RUNNING
        return True

    def turn_done(self, task: asyncio.Task[Any]) -> None:
        if self.resumed(task):
            error = task_error(task)
            if error is not None:
                self.raised(error)
            if self.state == RUNNING:
                self.turn()

    def _receive(self, envelope: Envelope[Any]) -> None:
        message, future = envelope.message, envelope.reply_to
        if isinstance(message, messages._ActorStop):
            # Left in the queue: whoever asked is answered when the worker has stopped.
            self.post(envelope, first=True)
            lifecycle.stop(self)
            return
        worker = self.worker
        assert worker is not None
        try:
            result = self.call(worker._handle_receive, message)
            if self.suspend(result, partial(self._envelope_done, future)):
                return
        except BaseException as error:
            if future is None:
                raise
            self._answer_error(future, error)
            if is_fatal(error):
                raise
        else:
            if future is not None:
                future.set(result)

    def _envelope_done(self, future: pykka.Future[Any] | None, task: asyncio.Task[Any]) -> None:
        alive = self.resumed(task)
        error = task_error(task)
        if error is None:
            if future is not None:
                future.set(task.result())
        elif future is not None:
            self._answer_error(future, error)
        if alive:
            if error is not None and (future is None or is_fatal(error)):
                self.raised(error)
            if self.state == RUNNING:
                self.turn()

    def _answer_error(self, future: pykka.Future[Any], error: BaseException) -> None:
        future.set_exception((type(error), error, error.__traceback__))
        if not is_fatal(error):
            self.failed += 1
            lifecycle.log_returned(self, error)

    def raised(self, error: BaseException) -> None:
        """Do what the worker's policy says about a failure."""
        self.failed += 1
        if is_fatal(error):
            lifecycle.fatal(self, error)
        elif self.supervision.on_failure is OnFailure.RESUME:
            lifecycle.log_failure(self, error)
        else:
            lifecycle.fail(self, error)

    def call(self, function: Callable[..., object], *args: object) -> object:
        """Call user code: here, or on the worker's own thread, and then it is a coroutine."""
        if self.thread is None:
            return function(*args)
        return self.thread.run(function, *args)

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
            if waiter.done() and not waiter.cancelled():
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

    # --- the end ----------------------------------------------------------------------

    def flush(self) -> None:
        """Answer or dead-letter everything left in the queue of a stopped worker."""
        queue = self.queue
        while queue:
            self.refuse(queue.popleft())
        self.scheduled = False
        if queue:
            self.scheduled = True
            self.node.schedule(self)

    def when_done(self) -> asyncio.Future[None]:
        """Return the future that is done when the worker has stopped."""
        if self.done is None:
            self.done = self.node.loop.create_future()
        return self.done

    def statistics(self) -> WorkerStatistics:
        """Return what is counted for this worker."""
        return WorkerStatistics(
            address=self.address,
            kind=type(self.worker).__name__,
            state=NAMES[self.state],
            waiting=len(self.queue or ()),
            limit=self.limit,
            handled=self.handled,
            failed=self.failed,
            refused=self.refused,
            dropped=self.dropped,
            restarts=self.restarts,
            children=len(self.children or ()),
            timers=len(self.timers or ()),
        )


def task_error(task: asyncio.Task[Any]) -> BaseException | None:
    """Return what a task raised; cancelling a handler fails that one message."""
    if task.cancelled():
        return asyncio.CancelledError("the handler was cancelled")
    return task.exception()


def is_fatal(error: BaseException) -> bool:
    """Tell whether an error is meant for the whole program."""
    return not isinstance(error, Exception | asyncio.CancelledError)
