"""Nodes for synchronous code, each with its own event loop on its own thread."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload
from weakref import WeakSet

from ..protocol import Address, AddressLike, Context, Message, NodeStopped, RouteLike
from ..protocol.options import check_timeout
from ..protocol.payloads import CBOR, Codec
from .pykka._future import check_may_block
from .runtime._policy import MailboxOptions, Supervision

if TYPE_CHECKING:
    from ._node import Node
    from ._transport import Listener
    from .access._guard import AccessLike
    from .runtime._cell import Factory

__all__ = ["BackgroundNode", "default_node", "new_event_loop"]

T = TypeVar("T")

_LAST_STEPS: Final = 0.5
"""Time that tasks have to end once their loop's node has stopped, in seconds."""

_logger = logging.getLogger("onward.actors")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop: uvloop's where it is installed, asyncio's otherwise."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class BackgroundNode:
    """A node that runs on a thread, with blocking calls. Made by `Node.in_background`.

    ```python
    with Node.in_background() as background:
        background.start(Echo, address="echo")
        answer = background.request("echo", b"hi")
    ```

    Every call blocks until it is done and raises the errors of the node's own method. No call
    may be made on a thread that runs an event loop.

    Attributes:
        node: The node. Its `spawn`, `send`, `route` and `statistics` are safe from any
            thread; its other methods are for its loop.
    """

    def __init__(
        self, node: Node, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    ) -> None:
        self.node = node
        self._make_loop = loop_factory or new_event_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._left_behind = False
        # It guards the attributes that follow.
        self._lock = threading.Lock()
        self._calls: set[Future[Any]] = set()  # those that have not returned
        self._stopping = False
        self._ended = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.stop()

    def open(self) -> None:
        """Start the thread and the node on it.

        Raises:
            WouldDeadlock: This thread runs an event loop; the node has not been started.
            RuntimeError: It has been started before.
        """
        check_may_block("BackgroundNode.open()")
        if self._thread is not None:
            raise RuntimeError(f"{self.node.name} has been started already")
        self._loop = self._make_loop()
        _opened.add(self)
        started = threading.Event()
        # A daemon, as the program may end with workers still alive; `default_node` stops its
        # node at exit, and a `with` block at its end.
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, started), name=self.node.name, daemon=True
        )
        self._thread.start()
        started.wait()
        self.call(self.node.__aenter__)

    def stop(self, *, timeout: float = 5.0) -> None:
        """Stop the node and its thread. Idempotent.

        In the child of a fork it has no effect.

        Args:
            timeout: Time that its workers have to stop, in seconds.
        """
        check_timeout(timeout)
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or loop.is_closed() or self._left_behind:
            return
        try:
            with suppress(NodeStopped):  # another thread has stopped it
                self.call(self.node.stop, timeout=timeout)
        finally:
            with self._lock:
                first, self._stopping = not self._stopping, True
            if first:
                loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def call(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any, **named: Any) -> T:
        """Run a coroutine function on the node's loop and return its result.

        Raises:
            WouldDeadlock: This thread runs an event loop.
            NodeStopped: The node has stopped, perhaps meanwhile, or this process was forked since
                it was started.
        """
        check_may_block(f"BackgroundNode.call({function.__name__})")
        if self._loop is None:
            raise RuntimeError(f"{self.node.name} has not been started")
        if self._ended or self._left_behind:
            raise self._stopped_error()
        coroutine = function(*args, **named)
        with self._lock:
            if self._ended:
                coroutine.close()
                raise self._stopped_error()
            # Scheduled before the last steps, which therefore find its task.
            work = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._calls.add(work)
        try:
            return work.result()
        except BaseException as error:
            work.cancel()  # for Ctrl-C here; without effect if the coroutine itself raised
            if self._ended and isinstance(error, CancelledError):
                raise self._stopped_error() from None
            raise
        finally:
            with self._lock:
                self._calls.discard(work)

    def _stopped_error(self) -> NodeStopped:
        return self.node.parts.run_queue.stopped_error()

    def request(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> Message:
        """Send a message and wait for the answer. See `Node.request`."""
        return self.call(self.node.request, route, payload, timeout=timeout, context=context)

    @overload
    def request_value(
        self,
        route: RouteLike,
        value: Any,
        kind: None,
        *,
        codec: Codec = CBOR,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> None: ...
    @overload
    def request_value(
        self,
        route: RouteLike,
        value: Any,
        kind: type[T],
        *,
        codec: Codec = CBOR,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> T: ...
    @overload
    def request_value(
        self,
        route: RouteLike,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> Any: ...
    def request_value(
        self,
        route: RouteLike,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> Any:
        """Send a value as a request and wait for a value. See `onward.actors.call`."""
        from ._typed import call

        return self.call(
            call, self.node, route, value, kind, codec=codec, timeout=timeout, context=context
        )

    def send(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike = (),
        context: Context | None = None,
    ) -> None:
        """Send a message. See `Node.send`."""
        self.node.send(route, payload, return_route=return_route, context=context)

    def start(
        self,
        factory: Factory,
        *,
        address: AddressLike | Iterable[AddressLike] | None = None,
        mailbox: MailboxOptions | None = None,
        supervision: Supervision | None = None,
        access: AccessLike | None = None,
    ) -> Address:
        """Start a worker and wait for its `on_start`. See `Node.start`."""
        return self.call(
            self.node.start,
            factory,
            address=address,
            mailbox=mailbox,
            supervision=Supervision() if supervision is None else supervision,
            access=access,
        )

    def listen(
        self,
        uri: str,
        *,
        expose: Iterable[AddressLike] = (),
        allow: Iterable[AddressLike] = (),
        **options: Any,
    ) -> Listener:
        """Accept connections at a URI. See `Node.listen`."""
        return self.call(self.node.listen, uri, expose=expose, allow=allow, **options)

    def connect(
        self,
        uri: str,
        *,
        expose: Iterable[AddressLike] = (),
        allow: Iterable[AddressLike] = (),
        **options: Any,
    ) -> Address:
        """Connect to a URI. See `Node.connect`."""
        return self.call(self.node.connect, uri, expose=expose, allow=allow, **options)

    def leave_behind(self) -> None:
        """Mark the node as stopped in a forked process, which does not have its thread."""
        self._left_behind = True
        self.node.parts.workers.forked()

    def _run(self, loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(started.set)
        try:
            while not self._run_until_stopped(loop):
                pass
        finally:
            with self._lock:
                self._ended = True
            loop.run_until_complete(_last_steps(loop))
            loop.close()
            with self._lock:
                for work in self._calls:  # of tasks that did not end in time
                    with suppress(InvalidStateError):
                        work.set_exception(self._stopped_error())

    def _run_until_stopped(self, loop: asyncio.AbstractEventLoop) -> bool:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            # Raised by a handler; on this thread it cannot end the program.
            name = self.node.name
            _logger.error(  # noqa: TRY400
                "%r reached the loop of %s, which continues",
                error,
                name,
                extra={"event": "loop.error"},
            )
            return False
        return True


async def _last_steps(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks left on a loop before it is closed."""
    left = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_LAST_STEPS)
    await loop.shutdown_asyncgens()


class _Default:
    """The node used by Pykka-style `SomeWorker.start()`, made when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._background: BackgroundNode | None = None

    def get(self) -> Node:
        with self._lock:
            if self._background is None:
                from ._node import Node

                background = Node.in_background("default")
                background.open()
                # Set last: a node that could not be opened must not be taken for open.
                self._background = background
                atexit.register(background.stop)
            return self._background.node

    def forget(self) -> None:
        """Forget the node in the child of a fork, which does not have its thread."""
        self._lock = threading.Lock()
        self._background = None


_default = _Default()
_opened: Final[WeakSet[BackgroundNode]] = WeakSet()


def _leave_behind() -> None:
    for background in list(_opened):
        background.leave_behind()
    _opened.clear()
    _default.forget()


os.register_at_fork(after_in_child=_leave_behind)


def default_node() -> Node:
    """Return the process's background node, started on first use."""
    return _default.get()
