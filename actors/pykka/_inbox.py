"""The parts of a Pykka actor, made for a worker on first use.

A Pykka actor is made with a URN, an inbox, an event and a reference: 2 KiB and 20 µs, of no use
to a worker that is reached by its address. Here all four are made together when the first of
them is read.
"""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Sized
from typing import Any, Final, Literal, Protocol, cast, overload

import pykka
from pykka import messages
from pykka._envelope import Envelope

from ._future import LoopFuture, check_may_block

__all__ = [
    "Identity",
    "Inbox",
    "WorkerRef",
    "adopt_identity",
    "identity",
    "join_inbox",
    "leave_behind",
    "mark_stopped",
]


_logger = logging.getLogger("pykka")
_lock: Final = threading.RLock()


class ActorCell(Protocol):
    """The cell of a worker, as the parts of its Pykka actor know it."""

    @property
    def worker(self) -> Any:
        """The worker."""
        ...

    @property
    def queue(self) -> Sized | None:
        """The queue of its mailbox, once a message was put there."""
        ...

    @property
    def registered(self) -> bool:
        """Whether the worker is in Pykka's registry."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is stopping or has stopped."""
        ...

    def put_envelope(self, envelope: Envelope[Any]) -> None:
        """Put a message of `tell` or `ask` into the mailbox."""
        ...


class ActorWorker(Protocol):
    """A worker, with its cell and the parts of its Pykka actor once they are made."""

    _identity: Identity | None

    @property
    def _cell(self) -> ActorCell | None: ...


class Inbox:
    """The inbox of `tell` and `ask`, which puts messages into the mailbox of the worker's cell."""

    __slots__ = ("cell", "early")

    def __init__(self, cell: ActorCell | None) -> None:
        self.cell = cell
        # Messages that a worker sends to itself in `__init__`, before it has a cell.
        self.early: deque[Envelope[Any]] = deque()

    def put(self, envelope: Envelope[Any], /) -> None:
        """Put a message into the mailbox.

        Raises:
            MailboxFull: The mailbox is at its limit and its policy is to fail or to wait.
        """
        if self.cell is None:
            self.early.append(envelope)
        else:
            self.cell.put_envelope(envelope)

    def get(self) -> Envelope[Any]:
        """Raise an error, as messages are taken by the worker's own turns.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("messages of a worker are taken by its turns")

    def empty(self) -> bool:
        """Whether no message waits."""
        return not (self.early if self.cell is None else self.cell.queue)


class WorkerRef(pykka.ActorRef[Any]):
    """A reference that never blocks an event loop.

    A blocking call on a loop's thread raises before a message is sent. The future that a
    call without blocking returns can be awaited.
    """

    def __init__(self, worker: ActorWorker, identity: Identity) -> None:
        # Not by the base class, which reads the worker's properties that are being made now.
        self._actor_weakref = weakref.ref(worker)
        self.actor_class = type(worker)
        self.actor_urn = identity.urn
        self.actor_inbox = identity.inbox
        self.actor_stopped = identity.stopped

    @overload
    def ask(
        self, message: Any, *, block: Literal[False], timeout: float | None = None
    ) -> pykka.Future[Any]: ...
    @overload
    def ask(self, message: Any, *, block: Literal[True], timeout: float | None = None) -> Any: ...
    @overload
    def ask(
        self, message: Any, *, block: bool = True, timeout: float | None = None
    ) -> Any | pykka.Future[Any]: ...

    def ask(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, message: Any, *, block: bool = True, timeout: float | None = None
    ) -> Any | pykka.Future[Any]:
        """Send a message and wait for the answer, or return a future of it unless `block`.

        Raises:
            WouldDeadlock: `block` is set on the thread of an event loop.
            pykka.Timeout: `block` is set, and there was no answer in time.
            pykka.ActorDeadError: `block` is set, and the worker has stopped.
            Exception: `block` is set, and the worker raised it.
        """
        if block and timeout != 0:
            check_may_block("ActorRef.ask()")
        return super().ask(message, block=block, timeout=timeout)

    @overload
    def stop(self, *, block: Literal[True], timeout: float | None = None) -> bool: ...
    @overload
    def stop(
        self, *, block: Literal[False], timeout: float | None = None
    ) -> pykka.Future[bool]: ...
    @overload
    def stop(
        self, *, block: bool = True, timeout: float | None = None
    ) -> bool | pykka.Future[bool]: ...

    def stop(
        self, *, block: bool = True, timeout: float | None = None
    ) -> bool | pykka.Future[bool]:
        """Request the worker to stop once it has handled its waiting messages.

        Returns:
            Whether it was alive; as a future unless `block`.

        Raises:
            WouldDeadlock: `block` is set on the thread of an event loop.
            pykka.Timeout: `block` is set, and it did not stop in time.
        """
        if block and timeout != 0:
            check_may_block("ActorRef.stop()")
        answer = cast("LoopFuture[None]", self.ask(messages._ActorStop(), block=False))
        stopped: LoopFuture[bool] = LoopFuture()

        def settled() -> None:
            try:
                answer.get(timeout=0)
            except pykka.ActorDeadError:
                stopped.set(False)
            else:
                stopped.set(True)

        if not answer._on_outcome(settled):
            settled()
        return stopped.get(timeout=timeout) if block else stopped


class Identity:
    """The Pykka attributes of a worker.

    Attributes:
        urn: A URN with a random UUID.
        inbox: The inbox of `tell` and `ask`.
        stopped: An event that is set when the worker begins to stop.
        ref: The reference to the worker.
    """

    __slots__ = ("inbox", "ref", "stopped", "urn")

    urn: str
    inbox: Inbox
    stopped: threading.Event
    ref: WorkerRef


def identity(worker: ActorWorker) -> Identity:
    """Return the Pykka attributes of a worker, made on first use."""
    found = worker._identity
    if found is not None:
        return found
    with _lock:
        found = worker._identity
        if found is None:
            cell = worker._cell
            found = Identity()
            found.urn = uuid.uuid4().urn
            found.inbox = Inbox(cell)
            found.stopped = threading.Event()
            if cell is not None and cell.is_stopping:
                found.stopped.set()
            found.ref = WorkerRef(worker, found)
            worker._identity = found
    return found


def adopt_identity(old: ActorWorker, new: ActorWorker) -> None:
    """Move the Pykka attributes of a worker's old instance to the new one."""
    with _lock:
        made = new._identity = old._identity
        if made is not None:
            made.ref._actor_weakref = weakref.ref(new)
            made.stopped.clear()


def join_inbox(worker: ActorWorker, cell: ActorCell) -> None:
    """Connect a worker's inbox to its cell, and move its early messages there."""
    with _lock:
        made = worker._identity
        if made is not None:
            made.inbox.cell = cell
            while made.inbox.early:
                cell.put_envelope(made.inbox.early.popleft())


def mark_stopped(cell: ActorCell) -> None:
    """Mark the references to a worker as dead, before `on_stop`. Idempotent."""
    worker = cell.worker
    with _lock:
        made = worker._identity
        if made is None or made.stopped.is_set():
            return
        if cell.registered:
            pykka.ActorRegistry.unregister(made.ref)
        made.stopped.set()
    if cell.registered:
        _logger.debug("Stopped %s", worker, extra={"event": "worker.stopped"})


def leave_behind(worker: ActorWorker) -> None:
    """Mark the references to a worker as dead in the child of a fork.

    No lock is taken, as the thread that held it may not exist.
    """
    made = worker._identity
    if made is not None:
        made.stopped = threading.Event()
        made.stopped.set()
        made.ref.actor_stopped = made.stopped
