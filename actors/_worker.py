"""`Worker`: the base class of workers, a Pykka actor with its turns on a node's event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from inspect import isasyncgenfunction, isgeneratorfunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pykka

from ..protocol import Address, AddressLike, Message
from ._background import default_node
from ._errors import YIELDS, BadHandler
from ._sending import Sending
from .pykka._future import LoopFuture
from .pykka._inbox import Inbox, identity
from .runtime._policy import MailboxOptions, Supervision
from .runtime._stopping import Stop
from .runtime._timer import Timer

if TYPE_CHECKING:
    from threading import Event

    from .access._guard import AccessLike
    from .runtime._cell import Cell, Factory

__all__ = ["ThreadWorker", "Worker"]

_HOOKS: Final = ("handle_message", "on_failure", "on_start", "on_stop")
"""Methods that the node calls, which must not yield."""

_SUPERVISION: Final = Supervision()


class Worker(Sending):
    """A worker with an address and a mailbox, which handles one message at a time.

    A subclass overrides any of these methods, by `def` or `async def`:

    - `handle_message`, for routed messages;
    - `on_start` and `on_stop`, the first and the last methods called;
    - `on_failure`, called in place of `on_stop` when a failure stops or restarts it;
    - `on_receive`, or any method called through a proxy, for messages of Pykka's.

    A plain `def` runs on the node's event loop and must not block; an `async def` runs in a
    task, in the worker's own `contextvars` context, and the worker handles no further message
    until it ends. Workers are spawned on a node, `node.spawn(Echo)`; `Echo.start()` as in
    Pykka runs one on a node in the background, where, as in Pykka, a failed `tell` stops it.

    Attributes:
        node: The node it runs on. This and `address` are set from `on_start` on.
        address: Its primary address.
        leaves_node: Whether it is a link: it sends messages on to another node, which resolves
            the rest of their routes, and its own messages come from there.
        is_connection: Whether it stands for one connection with a peer that is no node. What came
            over it has its own share of room and rates, as what came over a link.
        notices_end: Whether a link detects without a message that its peer is gone. Then
            registrations over it are kept until it ends.
        stops_last: Whether it stops after all others, and after the transports, when the
            node stops, as an event log does to record their last losses.
        has_flows: Whether an event log counts the messages it handles.
        default_mailbox: Its mailbox, if it is spawned without one. Links and workers that pass
            messages on let senders wait for room, so that no message is lost on its route.

    Raises:
        BadHandler: When a class is defined: one of these methods yields.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _HOOKS:
            hook = vars(cls).get(name)
            if isgeneratorfunction(hook) or isasyncgenfunction(hook):
                raise BadHandler(f"{cls.__name__}.{name}", YIELDS)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        # Pykka makes a URN, an inbox, an event and a ref here; see `pykka._inbox`.
        pass

    @property
    def _placed(self) -> Cell:
        if self._cell is None:
            raise RuntimeError(f"{type(self).__name__} has not been spawned yet")
        return self._cell

    def _has_start(self) -> bool:
        return type(self).on_start is not Worker.on_start

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All its addresses, the primary one first."""
        return self._placed.addresses

    # --- methods to override ----------------------------------------------------------

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Handle a routed message. By default it becomes a dead letter, "unhandled"."""
        self.node.dead_letter(message, "unhandled")
        self.node.answer_error(message, "unhandled")
        return None

    def on_start(self) -> Awaitable[None] | None:
        """Prepare the worker before its first message. If it raises, the worker does not start."""

    def on_stop(self) -> Awaitable[None] | None:
        """Clean up after the last message and after the children have stopped.

        Not called after a failure, see `on_failure`. Its exceptions are logged.
        """

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Awaitable[None] | None:
        """Clean up before a failure stops or restarts the worker; not called on `RESUME`."""

    # --- children, timers, the end ----------------------------------------------------

    def spawn(
        self,
        factory: Factory,
        *,
        address: AddressLike | Iterable[AddressLike] | None = None,
        mailbox: MailboxOptions | None = None,
        supervision: Supervision = _SUPERVISION,
        access: AccessLike | None = None,
    ) -> Address:
        """Spawn a child, a worker that stops before this one does. See `Node.spawn`."""
        workers, cell = self.node.parts.workers, self._placed
        return workers.spawn(factory, address, mailbox, supervision, access, cell)

    def start_child(
        self,
        factory: Factory,
        *,
        address: AddressLike | Iterable[AddressLike] | None = None,
        mailbox: MailboxOptions | None = None,
        supervision: Supervision = _SUPERVISION,
        access: AccessLike | None = None,
    ) -> Coroutine[Any, Any, Address]:
        """Spawn a child and await its `on_start`. See `Node.start`."""
        workers, cell = self.node.parts.workers, self._placed
        return workers.start(factory, address, mailbox, supervision, access, cell)

    def after(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Schedule an action to run once, in a turn of this worker.

        Args:
            seconds: Time to wait; with 0, it runs after the messages that wait already.
            action: The action, `def` or `async def`.

        Raises:
            LimitReached: The worker has as many timers as it may.
        """
        return Timer(self._placed, seconds, action, repeat=False)

    def every(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Schedule an action to run repeatedly, in turns of this worker.

        Args:
            seconds: The period; more than 0. The first run is after one period.
            action: The action, `def` or `async def`. Runs that are due while it waits or runs
                are skipped.

        Raises:
            LimitReached: The worker has as many timers as it may.
        """
        return Timer(self._placed, seconds, action, repeat=True)

    def stop(self) -> None:
        """Stop this worker once it has handled its waiting messages. From any thread.

        A wait before a restart ends at once.
        """
        self._placed.post_stop(Stop())

    # --- the interface of a Pykka actor -----------------------------------------------

    # Pykka's attributes are properties here; all four are made when one is read.

    @property
    def actor_urn(self) -> str:
        """A URN with a random UUID. See `pykka.Actor.actor_urn`."""
        return identity(self).urn

    @property
    def actor_inbox(self) -> Inbox:
        """The inbox of `tell` and `ask`. See `pykka.Actor.actor_inbox`."""
        return identity(self).inbox

    @property
    def actor_stopped(self) -> Event:
        """An event that is set when the worker begins to stop. See `pykka.Actor.actor_stopped`."""
        return identity(self).stopped

    @property
    def actor_ref(self) -> pykka.ActorRef[Any]:
        """The reference to the worker. See `pykka.Actor.actor_ref`."""
        return identity(self).ref

    def __str__(self) -> str:
        return f"{type(self).__name__} ({self.actor_urn})"

    @staticmethod
    def _create_actor_inbox() -> Inbox:
        return Inbox(None)

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return LoopFuture()

    def _start_actor_loop(self) -> None:
        default_node().parts.workers.adopt(self)


class ThreadWorker(Worker):
    """A worker that runs on its own thread and may block.

    Mailbox, turns and supervision are as for `Worker`. An `async def` handler runs on an event
    loop of that thread. A thread cannot be interrupted: a handler that hangs is given up when
    the worker is stopped, and logged.
    """

    _needs_thread: ClassVar[bool] = True
