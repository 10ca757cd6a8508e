"""The run queue of a node, and how its event loop is woken."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...protocol import NodeStopped
from .._errors import NodeNotStarted
from .._log import SeldomLogger
from ._mailbox import Target
from ._policy import NodeLimits

if TYPE_CHECKING:
    from ..instruments._composite import Instruments
    from ._turn_times import TurnTimes

__all__ = ["Phase", "RunQueue"]

T = TypeVar("T")

_faults: Final = SeldomLogger(logging.getLogger("onward.actors"))


_FORKED: Final = -1
_LOOP_CLOSED: Final = -2
_ENDS: Final = {
    _FORKED: "its thread is in the process that this one was forked from; start a node here",
    _LOOP_CLOSED: "its event loop was closed",
}
"""The texts for nodes that ended without being stopped, by `RunQueue.thread_id`."""


class Phase(Enum):
    """The phases in the life of a node."""

    NOT_STARTED = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class RunQueue:
    """The targets with waiting messages, which have their turns on one event loop.

    Args:
        name: The name of the node, for errors.
        limits: The limits of the node.

    Attributes:
        phase: The phase of the node's life.
        event_loop: The event loop, or `None` before the start; see `loop`.
        thread_id: The thread of its event loop; negative once there is none.
        context: The `contextvars` of its turns.
        now: The loop's time, in seconds, when the node last read it: at the start of a pass of
            its run queue or of a request, and when a handler that awaited is done. Deadlines are
            compared with it, as reading the clock for each message would cost too much.
        ready: The targets that are to have a turn, in order.
        awake: Whether the loop will look at them.
        lock: The lock for the counted bytes of mailboxes.
        waiting_bytes: Bytes of the counted payloads that wait in all mailboxes.
        out_of_bytes: How often a mailbox had no room for a message because of these.
        instruments: The instruments of the node as one, if there are any.
        sampler: The same, if one of them samples the messages that enter the node.
        times: The times of messages that are measured, if they are.
        on_loop_closed: Called once if the loop is closed without stopping the node.
    """

    __slots__ = (
        "awake",
        "context",
        "event_loop",
        "instruments",
        "limits",
        "lock",
        "name",
        "now",
        "on_loop_closed",
        "out_of_bytes",
        "phase",
        "ready",
        "sampler",
        "thread_id",
        "times",
        "waiting_bytes",
    )

    def __init__(self, name: str, limits: NodeLimits) -> None:
        self.name: Final = name
        self.limits: Final = limits
        self.context = copy_context()
        self.phase = Phase.NOT_STARTED
        self.ready: Final[deque[Target]] = deque()
        self.awake = False
        self.event_loop: asyncio.AbstractEventLoop | None = None
        self.thread_id = 0
        self.now = 0.0
        self.lock = threading.RLock()
        self.waiting_bytes = 0
        self.out_of_bytes = 0
        self.on_loop_closed: Callable[[], object] | None = None
        self.instruments: Instruments | None = None
        # Apart, as each send asks for it, and `Instruments` is not compiled.
        self.sampler: Instruments | None = None
        self.times: TurnTimes | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the node.

        Raises:
            NodeNotStarted: The node has not been started yet.
        """
        if self.event_loop is None:
            raise NodeNotStarted(self.name)
        return self.event_loop

    @property
    def is_gone(self) -> bool:
        """Whether the loop is closed."""
        return self.event_loop is not None and self.event_loop.is_closed()

    def open(self) -> None:
        """Begin to run on the current event loop."""
        if self.phase is not Phase.NOT_STARTED:
            raise _StartedBefore(self.name, "a node can be started once")
        self.event_loop = asyncio.get_running_loop()
        self.thread_id = threading.get_ident()
        self.context = copy_context()
        self.now = self.event_loop.time()
        self.phase = Phase.OPEN

    def schedule(self, target: Target) -> None:
        """Append a target to the run queue. The caller has set its `scheduled`."""
        self.ready.append(target)
        if not self.awake:
            self.wake()

    def wake(self) -> None:
        # Two threads may both get here; the second drain finds an empty queue.
        self.awake = True
        try:
            if threading.get_ident() == self.thread_id and self.event_loop is not None:
                self.event_loop.call_soon(self._pass, self.limits.drain, context=self.context)
            else:
                loop, limit = self.loop, self.limits.drain
                loop.call_soon_threadsafe(self._pass, limit, context=self.context)
        except RuntimeError:
            if not self.loop.is_closed():
                raise
            self.loop_gone()

    def loop_gone(self) -> NodeStopped:
        """Record that the loop was closed without stopping the node; return the error for that.

        The messages in mailboxes become dead letters, as there will be no further turn.
        """
        if self.phase in (Phase.OPEN, Phase.CLOSING):
            self.phase = Phase.CLOSED
            self.thread_id = _LOOP_CLOSED
            self.awake = False
            if self.on_loop_closed is not None:
                self.on_loop_closed()
        return self.stopped_error()

    def forked(self) -> None:
        """Record that this process was forked, without the loop's thread. Idempotent."""
        self.phase = Phase.CLOSED
        self.thread_id = _FORKED
        self.lock = threading.RLock()  # another thread may have held it

    def stopped_error(self) -> NodeStopped:
        """Return the error for using the node while it does not run."""
        if self.phase is Phase.NOT_STARTED:
            return NodeNotStarted(self.name)
        return NodeStopped(self.name, _ENDS.get(self.thread_id, ""))

    def _pass(self, left: int) -> None:
        self.now = self.loop.time()
        self.drain(left)

    def drain(self, left: int) -> None:
        ready = self.ready
        times = self.times
        try:
            if times is not None and ready and times.due():
                left -= times.take(ready)
            while ready and left > 0:
                target = ready.popleft()
                try:
                    left -= target.turn()
                except BaseException as error:
                    # A fault of the node; `turn` handles those of workers.
                    left -= 1
                    target.recover(error)
                    if not isinstance(error, Exception):
                        raise
        finally:
            if ready:
                self.loop.call_soon(self._pass, self.limits.drain, context=self.context)
            else:
                self.awake = False
                # A sender that saw the flag just before it was cleared relies on this check.
                if ready:
                    self.wake()

    def fault(self, doing: str, error: BaseException) -> None:
        """Log an exception that must affect one message only.

        Args:
            doing: The step that raised it, such as "delivering a message".
            error: The exception.
        """
        kind = f"{self.name} {doing} {type(error).__name__}"
        with suppress(Exception):  # handlers of `logging` are the user's
            _faults.log(logging.ERROR, kind, "node %r: %s failed", self.name, doing, error=error)

    def call_on_loop(self, function: Callable[[], object]) -> None:
        """Schedule a function to be called soon on the loop. From any thread."""
        loop = self.loop
        if threading.get_ident() == self.thread_id:
            loop.call_soon(function, context=self.context)
        else:
            loop.call_soon_threadsafe(function, context=self.context)

    async def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, from any loop.

        Raises:
            NodeStopped: The node has not started, or has stopped.
        """
        if asyncio.get_running_loop() is self.event_loop:
            return await work
        if self.event_loop is None or self.event_loop.is_closed() or self.thread_id < 0:
            work.close()
            raise self.stopped_error()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.event_loop))


class _StartedBefore(NodeStopped):
    reason = "node cannot be started"
