"""`Worker`: what users derive from. A Pykka actor whose turns run on a node's event loop."""

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
from .pykka._inbox import Identity, Inbox, identity
from .runtime._cell import Cell, Factory
from .runtime._lifecycle import Stop
from .runtime._policy import MailboxOptions, Supervision
from .runtime._timer import Timer

if TYPE_CHECKING:
    import asyncio
    from threading import Event

    from .access._guard import AccessLike
    from .runtime._room import Room

__all__ = ["ThreadWorker", "Worker"]

_HOOKS: Final = ("handle_message", "on_failure", "on_start", "on_stop")
"""Methods that the node calls, which must not yield."""

_SUPERVISION: Final = Supervision()


class Worker(Sending):
    """A worker with an address, a mailbox and one message at a time.

    Override what you need; each of these may be `def` or `async def`:

    - `handle_message`: a routed message came;
    - `on_start`, `on_stop`: the first and the last thing it does;
    - `on_failure`: in place of `on_stop`, when a failure stops or restarts it;
    - `on_receive`, or any method called through a proxy: a message of Pykka's came.

    A plain `def` runs on the node's event loop and must not block; an `async def` runs in a
    task, in the worker's own `contextvars` context, and the worker takes no further message
    until it ends. Workers are spawned on a node, `node.spawn(Echo)`; `Echo.start()` as in
    Pykka runs one on a node in the background, where, as in Pykka, a failed `tell` stops it.

    Attributes:
        node: The node it runs on. This and the next are there from `on_start` on.
        address: Its primary address.
        leaves_node: Whether what it is sent goes to another node, as a link's does: the rest
            of the route is then of addresses there, and what it sends comes from there.
        notices_end: Whether a link finds out by itself, without a message, that its other end is
            gone: then what was registered over it is kept as long as it is there.
        stops_last: Whether it stops after all others, and after the transports, when the
            node stops: an event log hears what the end of those loses.
        has_flows: Whether an event log counts what it handles; not if that is counted otherwise.
        default_mailbox: Its mailbox, if it is spawned without one. Where senders wait for room
            in those of links and of workers that pass messages on, nothing is lost on the way.

    Raises:
        BadHandler: When a class is defined: one of these methods yields.
    """

    _cell: Cell | None = None
    _identity: Identity | None = None
    leaves_node: ClassVar[bool] = False
    notices_end: ClassVar[bool] = False
    stops_last: ClassVar[bool] = False
    has_flows: ClassVar[bool] = True
    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions()
    _needs_thread: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _HOOKS:
            hook = vars(cls).get(name)
            if isgeneratorfunction(hook) or isasyncgenfunction(hook):
                raise BadHandler(f"{cls.__name__}.{name}", YIELDS)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        # Pykka makes a URN, an inbox, an event and a ref here; see `_pykka`.
        pass

    def _join(self, cell: Cell) -> None:
        self._cell = cell
        self.node = cell.node
        self.address = cell.addresses[0]
        self._out = cell.node.sender_for(cell)

    @property
    def _placed(self) -> Cell:
        if self._cell is None:
            raise RuntimeError(f"{type(self).__name__} has not been spawned yet")
        return self._cell

    def _has_start(self) -> bool:
        return type(self).on_start is not Worker.on_start

    def _wait_for_room(self, room: Room) -> bool:
        """Have a message that came by this worker wait for room; links do, others do not."""
        del room
        return False

    def _until_moved(self, room: Room) -> asyncio.Future[None] | None:
        """Return what is done once a message waits for room no more, if this link is held."""
        del room
        return None

    def _inside_shrunk(self, size: int) -> None:
        """Note how many bytes wait of what this worker, a link, has brought."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All its addresses, the primary one first."""
        return self._placed.addresses

    # --- what users override ----------------------------------------------------------

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Handle a routed message. By default it becomes a dead letter, "unhandled"."""
        self.node.dead_letter(message, "unhandled")
        self.node.answer_error(message, "unhandled")
        return None

    def on_start(self) -> Awaitable[None] | None:
        """Prepare, before the first message. If it raises, the worker does not start."""

    def on_stop(self) -> Awaitable[None] | None:
        """Clean up, after the last message and after the children have stopped.

        Not called when a failure is the cause: see `on_failure`. What it raises is logged.
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
        """Spawn a child: a worker that stops before this one does. See `Node.spawn`."""
        return self.node.spawn_child(self._placed, factory, address, mailbox, supervision, access)

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
        return self.node.start_child(self._placed, factory, address, mailbox, supervision, access)

    def after(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Do something once, as a turn of this worker, after so many seconds.

        Args:
            seconds: How long to wait; 0 is as soon as what waits already has been handled.
            action: What to do, `def` or `async def`.

        Raises:
            LimitReached: The worker has as many timers as it may.
        """
        return Timer(self._placed, seconds, action, repeat=False)

    def every(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Do something again and again, each time as a turn of this worker.

        Args:
            seconds: From one time to the next; more than 0. The first is after one period.
            action: What to do, `def` or `async def`. While it waits or runs, the times
                that pass are skipped.

        Raises:
            LimitReached: The worker has as many timers as it may.
        """
        return Timer(self._placed, seconds, action, repeat=True)

    def stop(self) -> None:
        """Stop this worker once it has handled what waits for it now. From any thread."""
        self._placed.post(Stop())

    # --- what Pykka asks of a kind of actor -------------------------------------------

    # Attributes there, properties here: all four come into being when one is read.

    @property
    def actor_urn(self) -> str:
        """A URN with a random UUID. See `pykka.Actor.actor_urn`."""
        return identity(self).urn

    @property
    def actor_inbox(self) -> Inbox:
        """Where `tell` and `ask` put messages. See `pykka.Actor.actor_inbox`."""
        return identity(self).inbox

    @property
    def actor_stopped(self) -> Event:
        """Set when the worker begins to stop. See `pykka.Actor.actor_stopped`."""
        return identity(self).stopped

    @property
    def actor_ref(self) -> pykka.ActorRef[Any]:
        """The ref to hand out. See `pykka.Actor.actor_ref`."""
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
        default_node().adopt(self)


class ThreadWorker(Worker):
    """A worker whose code runs on a thread of its own, where it may block.

    Everything else is as for `Worker`: the mailbox, one message at a time, supervision. An
    `async def` handler runs on an event loop of that thread. A thread cannot be
    interrupted: a handler that hangs is given up when the worker is stopped, and reported.
    """

    _needs_thread: ClassVar[bool] = True
