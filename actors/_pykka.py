"""The parts of a Pykka actor that a worker has only if somebody asks for them.

A Pykka actor is made with a URN, an inbox, an event and a ref: 2 KiB and 20 µs, of no use
to a worker that is reached by its address. Here all four come into being together when the
first of them is read.
"""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, overload

import pykka
from pykka import messages
from pykka._envelope import Envelope

from ._future import LoopFuture
from ._state import STOPPING

if TYPE_CHECKING:
    from ._cell import Cell
    from ._worker import Worker

__all__ = ["Inbox", "Late", "WorkerRef", "adopt_identity", "mark_stopped"]

T = TypeVar("T")
W = TypeVar("W", bound="Worker")

_logger = logging.getLogger("pykka")
_NAMES: Final = ("actor_urn", "actor_inbox", "actor_stopped", "_actor_ref")
_lock: Final = threading.RLock()


class Inbox:
    """What `tell` and `ask` put messages into: the mailbox of the worker's cell."""

    __slots__ = ("cell", "early")

    def __init__(self, cell: Cell | None) -> None:
        self.cell = cell
        # What a worker sends to itself in __init__, before it has a cell.
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
        """Refuse: messages are taken by the worker's own turns.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("messages of a worker are taken by its turns")

    def empty(self) -> bool:
        """Tell whether nothing waits."""
        return not (self.early if self.cell is None else self.cell.queue)


class WorkerRef(pykka.ActorRef[W], Generic[W]):
    """A ref whose `stop` can be awaited without blocking a loop."""

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
        """Ask the worker to stop once it has handled what waits for it.

        Returns:
            Whether it was alive; as a future unless `block`.

        Raises:
            WouldDeadlock: `block` on the thread of an event loop.
            pykka.Timeout: `block`, and it did not stop in time.
        """
        answer = self.ask(messages._ActorStop(), block=False)
        stopped: LoopFuture[bool] = LoopFuture()
        assert isinstance(answer, LoopFuture)

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


class Late(Generic[T]):
    """An attribute of a Pykka actor that is made when first read."""

    def __set_name__(self, owner: type[object], name: str) -> None:
        self._name = name

    def __get__(self, worker: Worker | None, owner: type[object]) -> T:
        if worker is None:
            raise AttributeError(self._name)
        with _lock:
            state = vars(worker)
            if self._name not in state:
                _make_identity(worker, state)
            value: T = state[self._name]
            return value


def _make_identity(worker: Worker, state: dict[str, Any]) -> None:
    cell: Cell | None = state.get("_cell")
    state["actor_urn"] = uuid.uuid4().urn
    state["actor_inbox"] = Inbox(cell)
    state["actor_stopped"] = threading.Event()
    if cell is not None and cell.state >= STOPPING:
        state["actor_stopped"].set()
    state["_actor_ref"] = WorkerRef(worker)


def adopt_identity(old: Worker, new: Worker) -> None:
    """Have refs to the old instance of a worker lead to the new one."""
    with _lock:
        made = {name: vars(old)[name] for name in _NAMES if name in vars(old)}
        if made:
            vars(new).update(made)
            made["_actor_ref"]._actor_weakref = weakref.ref(new)


def join_inbox(worker: Worker, cell: Cell) -> None:
    """Lead a worker's inbox to its cell, with what it holds already."""
    with _lock:
        inbox: Inbox | None = vars(worker).get("actor_inbox")
        if inbox is not None:
            inbox.cell = cell
            while inbox.early:
                cell.put_envelope(inbox.early.popleft())


def mark_stopped(cell: Cell) -> None:
    """Have refs say that the worker is not alive, before its last words. Idempotent."""
    worker = cell.worker
    if worker is None:
        return
    with _lock:
        event: threading.Event | None = vars(worker).get("actor_stopped")
        if event is None or event.is_set():
            return
        if cell.registered:
            pykka.ActorRegistry.unregister(worker.actor_ref)
        event.set()
    if cell.registered:
        _logger.debug("Stopped %s", worker)
