"""Mailboxes: the queue behind an address, and the overflow policy.

A message goes from `Router.dispatch` to a handler as follows:

- `dispatch` appends it to the target's queue and, unless `scheduled` is set already, sets
  it and appends the target to the node's run queue. `scheduled` means that the queue will be
  looked at: the run queue holds the worker, or the worker is busy and looks when it is done.
- The node drains its run queue in one loop callback and gives each worker a `turn` of a
  bounded number of messages.
- A coroutine that a handler returns runs in a task; the worker is `BUSY` until that ends.

Senders may be on other threads. No lock is taken: appending is atomic, and the code that clears
`scheduled` looks at the queue once more afterwards. A race can at worst put a worker into the
run queue twice, and a turn with an empty queue does nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import pykka
from pykka import messages
from pykka._envelope import Envelope

from ...protocol import (
    Address,
    Context,
    MailboxFull,
    Message,
    UnknownAddress,
    WorkerStopped,
)
from .._log import waiting_text
from ._policy import Overflow
from ._room import Room
from ._state import STOPPED

if TYPE_CHECKING:
    from ..instruments._composite import Instruments
    from ._cell import Cell
    from ._host import Host
    from ._room import Line
    from ._run_queue import RunQueue

__all__ = [
    "HEAVY",
    "HEAVY_FOR_SLOW",
    "CalledTarget",
    "Heavy",
    "Mailbox",
    "Target",
    "Turn",
    "is_envelope",
]

HEAVY: Final = 16 * 1024
"""Bytes of a payload above which it counts in the bytes that wait. Smaller payloads are bounded by
the number of messages; counting them would cost more than a hop may."""

HEAVY_FOR_SLOW: Final = 512
"""`HEAVY` for the mailbox of a link while its peer is slow; there may be many slow peers."""

_NO_CONTEXT: Final = Context()


class Target:
    """The entry of an address in the table. `Router.dispatch` reads these fields itself.

    Attributes:
        queue: The queue of messages, or `None`: then `put` is called.
        limit: Messages that may wait; at the limit `put` is called.
        heavy: Bytes of a payload above which `put` is called.
        scheduled: Whether the queue will be looked at.
    """

    __slots__ = ("heavy", "limit", "queue", "scheduled")

    queue: deque[Any] | None
    limit: int
    heavy: int
    scheduled: bool

    def put(self, message: Message) -> None:
        """Accept a message that cannot simply be appended to the queue."""
        raise AssertionError(f"unexpected message {message}")

    def turn(self) -> int:
        """Handle a batch of waiting messages; return the cost of the turn in messages."""
        raise AssertionError("unexpected turn")

    def recover(self, error: BaseException) -> None:
        """Recover from an exception that ended a turn."""
        raise AssertionError("unexpected end of a turn") from error

    def cell_of(self) -> Cell | None:
        """Return the cell of the worker at the address, if it is a worker's."""
        return None

    def give_up(self) -> None:
        """Dead-letter the waiting messages after the event loop was closed."""
        raise AssertionError("unexpected end")


class CalledTarget(Target):
    """A target of the run queue that calls functions, for classes that are not compiled.

    Args:
        turn: Does what waits; returns the cost of it in messages.
        recover: Recovers from an exception that ended a turn.
        give_up: Dead-letters what waits after the event loop was closed.
    """

    __slots__ = ("_give_up", "_recover", "_turn")

    def __init__(
        self,
        turn: Callable[[], int],
        recover: Callable[[BaseException], None],
        give_up: Callable[[], None],
    ) -> None:
        self.queue = None
        self.limit = self.heavy = 0
        self.scheduled = False
        self._turn: Final = turn
        self._recover: Final = recover
        self._give_up: Final = give_up

    def turn(self) -> int:
        """Call the function of a turn."""
        return self._turn()

    def recover(self, error: BaseException) -> None:
        """Call the function of an exception."""
        self._recover(error)

    def give_up(self) -> None:
        """Call the function of the closed event loop."""
        self._give_up()


class Turn:
    """An item in the queue of a worker that is not a message."""

    __slots__ = ()

    def perform(self, cell: Cell) -> None:
        """Run the item. Failures of user code propagate; coroutines go to `Cell.suspend`."""
        raise AssertionError(f"unexpected turn {self} of {cell}")


class Heavy(Turn):
    """A message in a mailbox with its bytes counted.

    Args:
        message: The message.
        sender: The link that it came over, if any; it counts in the share of that link.
    """

    __slots__ = ("message", "sender", "size")

    def __init__(self, message: Message, sender: Cell | None) -> None:
        self.message = message
        self.sender = sender
        self.size = len(message[2])

    def perform(self, cell: Cell) -> None:
        """Handle the message."""
        cell.unload(self)
        cell.handle_other(self.message)


class Mailbox(Target):
    """The bounded mailbox of a worker, with its overflow policy.

    The methods under "arrival" may be called from any thread, the others from the loop's.
    """

    __slots__ = (
        "addresses",
        "bytes",
        "dropped",
        "host",
        "lines",
        "most",
        "most_bytes",
        "overflow",
        "refused",
        "run_queue",
        "state",
    )

    run_queue: RunQueue
    host: Host
    addresses: tuple[Address, ...]
    most: int  # messages that may wait; `limit` is the same, or 0 while there is a line
    most_bytes: int
    bytes: int  # of the waiting payloads that were over `heavy`
    overflow: Overflow
    state: int
    lines: deque[Line] | None
    refused: int
    dropped: int

    @property
    def address(self) -> Address:
        """The primary address of the worker."""
        return self.addresses[0]

    # --- arrival; from any thread -----------------------------------------------------

    def put(self, message: Message) -> None:
        """Accept a message when there is no queue yet, or no room in it.

        Raises:
            UnknownAddress: The worker has stopped.
            MailboxFull: There is no room, and the policy is not to drop messages.
        """
        if self.state == STOPPED:
            raise UnknownAddress(message[0][0])
        if self._has_room_for(message):
            self.load(message)

    def put_if_room(self, message: Message) -> bool:
        """Accept a message if there is room; return whether there was. A refusal is not counted.

        Raises:
            UnknownAddress: The worker has stopped.
        """
        if self.state == STOPPED:
            raise UnknownAddress(message[0][0])
        if self.queue is not None and (self.lines or not self.has_room(message)):
            return False
        self.load(message)
        return True

    def load(self, message: Message) -> None:
        """Put a message into the queue, even beyond the limit."""
        if len(message[2]) <= self.heavy:
            self.post(message)
            return
        run_queue = self.run_queue
        if message[4] is None:
            # `Sending.forward` checks the size only of messages with a context, which is cheaper.
            message = message._replace(context=_NO_CONTEXT)
        heavy = Heavy(message, self.host.share_of(message))
        with run_queue.lock:
            self.bytes += heavy.size
            run_queue.waiting_bytes += heavy.size
            if heavy.sender is not None:
                heavy.sender.inside += heavy.size
        self.post(heavy)

    def unload(self, heavy: Heavy) -> None:
        """Subtract a message that has left the queue from the counted bytes."""
        run_queue, sender = self.run_queue, heavy.sender
        with run_queue.lock:
            self.bytes -= heavy.size
            run_queue.waiting_bytes -= heavy.size
            if sender is None:
                return
            sender.inside -= heavy.size
        if get_ident() == run_queue.thread_id:
            sender.worker._inside_shrunk(sender.inside)
        else:
            run_queue.call_on_loop(partial(sender.worker._inside_shrunk, sender.inside))

    def put_envelope(self, envelope: Envelope[Any]) -> None:
        """Accept an envelope of Pykka's `tell` or `ask`.

        A stopped worker answers `pykka.ActorDeadError` at once.

        Raises:
            MailboxFull: There is no room, and the policy is not to drop messages.
        """
        if self.state == STOPPED:
            self.refuse(envelope)
        elif isinstance(envelope.message, messages._ActorStop):
            self.post_stop(envelope)
        elif self._has_room_for(envelope):
            self.post(envelope)

    def post(self, item: object, *, first: bool = False) -> None:
        """Put an item into the queue, even beyond the limit."""
        queue = self.queue
        if queue is None:
            with self.run_queue.lock:
                queue = self.queue
                if queue is None:
                    queue = self.queue = deque()
        if first:
            queue.appendleft(item)
        else:
            queue.append(item)
        if not self.scheduled:
            self.scheduled = True
            self.run_queue.schedule(self)

    def post_stop(self, item: object) -> None:
        """Put a request to stop into the queue."""
        self.post(item)

    def has_room(self, item: Message | Envelope[Any]) -> bool:
        """Whether there is room for a message, not counting the lines that wait for room."""
        queue = self.queue
        if queue is None:
            return True
        return len(queue) < self.most and not self._is_too_heavy(item)

    def _is_too_heavy(self, item: Message | Envelope[Any]) -> bool:
        """Whether a message would exceed the limit of bytes. One message may always wait."""
        if type(item) is not Message or not self.bytes:
            return False
        size = len(item[2])
        if size <= self.heavy:
            return False
        run_queue = self.run_queue
        return (
            self.bytes + size > self.most_bytes
            or run_queue.waiting_bytes + size > run_queue.limits.waiting_bytes
        )

    def _fills_all(self, item: Message | Envelope[Any], waiting: int) -> bool:
        """Whether only the bytes in all mailboxes together leave no room for a message here."""
        if self.lines or waiting >= self.most or type(item) is not Message:
            return False
        return self.bytes + len(item[2]) <= self.most_bytes

    def _has_room_for(self, item: Message | Envelope[Any]) -> bool:
        if not self.lines and self.has_room(item):
            return True
        queue = self.queue
        if queue is None:
            return True
        run_queue = self.run_queue
        instruments = run_queue.instruments
        if instruments is not None:
            self.found_full(instruments, len(queue))
        if self._fills_all(item, len(queue)):
            with run_queue.lock:
                run_queue.out_of_bytes += 1
        if self.overflow is Overflow.DROP_NEWEST:
            self._drop(item)
            return False
        if self.overflow is Overflow.DROP_OLDEST:
            while self._drop_oldest(queue) and self._is_too_heavy(item):
                pass
            return True
        self.refused += 1
        error = self.full()
        if isinstance(item, Message):
            error.room = Room(self, item, self.overflow is Overflow.WAIT)
        raise error

    def full(self) -> MailboxFull:
        """Return the error for a mailbox without room."""
        waiting = len(self.queue or ())
        if waiting >= self.most:
            return MailboxFull(self.address, waiting_text(self.most, "message"))
        if self.lines:
            return MailboxFull(self.address, "other senders wait for room")
        return MailboxFull(self.address, waiting_text(self.bytes, "byte"))

    def found_full(self, instruments: Instruments, waiting: int) -> None:
        """Report a full mailbox to the instruments."""
        raise AssertionError(f"unexpected {instruments} of {waiting} messages")

    def _drop_oldest(self, queue: deque[Any]) -> bool:
        # Only messages are dropped; starts, stops and due timers keep their places.
        kept: list[object] = []
        dropped = False
        while queue:
            oldest = queue.popleft()
            if type(oldest) is Heavy:
                self.unload(oldest)
                oldest = oldest.message
            if is_message(oldest):
                self._drop(oldest)
                dropped = True
                break
            kept.append(oldest)
        queue.extendleft(reversed(kept))
        return dropped

    def _drop(self, item: Message | Envelope[Any]) -> None:
        self.dropped += 1
        if isinstance(item, Message):
            self.host.lose(item, self.full())
        elif item.reply_to is not None:
            error = self.full()
            item.reply_to.set_exception((MailboxFull, error, None))
        else:
            self.host.dead_letter(self._as_message(item), MailboxFull.reason)

    def refuse(self, item: object) -> None:
        """Answer or dead-letter an item that this worker will not handle."""
        if type(item) is Heavy:
            self.unload(item)
            item = item.message
        if isinstance(item, Message):
            self.host.lose(item, WorkerStopped(self.address))
        elif is_envelope(item):
            future = item.reply_to
            if future is None:
                if not isinstance(item.message, messages._ActorStop):
                    self.host.dead_letter(self._as_message(item), WorkerStopped.reason)
            elif isinstance(item.message, messages._ActorStop):
                future.set(None)
            else:
                dead = pykka.ActorDeadError(f"{self} stopped before handling the message")
                future.set_exception((pykka.ActorDeadError, dead, None))

    def _as_message(self, envelope: Envelope[Any]) -> Message:
        """Return a Pykka message in the form of a dead letter."""
        return Message((self.address,), (), b"", None, Context(meta=envelope.message))

    # --- lines that wait for room; on the loop's thread ---------------------------------

    def join(self, line: Line) -> None:
        """Add a line, to be served when there is room."""
        if self.lines is None:
            self.lines = deque()
        self.lines.append(line)
        self.limit = 0  # so that no message passes those that wait

    def leave(self, line: Line) -> None:
        """Remove a line."""
        lines = self.lines
        if lines is not None and line in lines:
            lines.remove(line)
            if lines:
                self.serve_lines()  # it may have been the first line
            else:
                self.limit = self.most

    def serve_lines(self) -> None:
        """Put waiting messages into the mailbox, from each line in turn while there is room."""
        lines = self.lines
        while lines:
            line = lines[0]
            if self.state == STOPPED:
                lines.popleft()
                line.refuse()
                continue
            moved = line.advance()
            if line.messages:
                if not moved:
                    break  # no line passes it, or a large message would never find room
                lines.rotate(-1)
                continue
            lines.popleft()
            if not lines:
                self.limit = self.most
            line.done()
        if not lines:
            self.limit = self.most


def is_message(item: object) -> TypeGuard[Message | Envelope[Any]]:
    """Whether an item of a queue is a message, routed or of Pykka's."""
    if is_envelope(item):
        return not isinstance(item.message, messages._ActorStop)
    return type(item) is Message


def is_envelope(item: object) -> TypeGuard[Envelope[Any]]:
    """Whether an item of a queue came by Pykka's `tell` or `ask`."""
    return type(item) is Envelope
