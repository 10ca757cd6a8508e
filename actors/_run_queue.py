"""The run queue: what every node does on its event loop, and how it is woken."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from enum import Enum, auto
from typing import Any, TypeVar

from ..protocol import NodeStopped
from ._mailbox import Target
from ._policy import NodeLimits

__all__ = ["Phase", "RunQueue"]

T = TypeVar("T")


class Phase(Enum):
    """The life of a node."""

    NOT_STARTED = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class RunQueue:
    """Targets with messages waiting, each given its turn on one event loop.

    Args:
        name: Of the node; for errors.
        limits: Of the node.

    Attributes:
        phase: How far in its life the node is.
        thread_id: The thread its event loop runs on.
        context: The `contextvars` that its turns see.
        now: The loop's time when the node last looked, in seconds: at the start of a pass of
            its run queue, of a request, and when a handler that awaited is done. Deadlines are
            compared with it, as asking the clock for each message would cost too much.
    """

    def __init__(self, name: str, limits: NodeLimits) -> None:
        self.name = name
        self.limits = limits
        self.context = copy_context()
        self.phase = Phase.NOT_STARTED
        self._ready: deque[Target] = deque()
        self._awake = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread_id = 0
        self.now = 0.0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop the node lives on.

        Raises:
            NodeStopped: The node has not been started yet.
        """
        if self._loop is None:
            raise NodeStopped(self.name, "not started")
        return self._loop

    def _open(self) -> None:
        if self.phase is not Phase.NOT_STARTED:
            raise NodeStopped(self.name, "a node can be started once")
        self._loop = asyncio.get_running_loop()
        self.thread_id = threading.get_ident()
        self.context = copy_context()
        self.now = self._loop.time()
        self.phase = Phase.OPEN

    def schedule(self, target: Target) -> None:
        """Append to the run queue. The caller has set `scheduled`."""
        self._ready.append(target)
        if not self._awake:
            self._wake()

    def _wake(self) -> None:
        # Two threads may both come here: a second drain finds nothing to do.
        self._awake = True
        try:
            if threading.get_ident() == self.thread_id and self._loop is not None:
                self._loop.call_soon(self._pass, self.limits.drain, context=self.context)
            else:
                loop, limit = self.loop, self.limits.drain
                loop.call_soon_threadsafe(self._pass, limit, context=self.context)
        except RuntimeError:
            # The loop was closed without stopping the node. Nobody will handle these.
            self._awake = False
            while self._ready:
                self._ready.popleft().give_up()

    def _pass(self, left: int) -> None:
        self.now = self.loop.time()
        self._drain(left)

    def _drain(self, left: int) -> None:
        ready = self._ready
        try:
            while ready and left > 0:
                left -= ready.popleft().turn()
        finally:
            if ready:
                self.loop.call_soon(self._pass, self.limits.drain, context=self.context)
            else:
                self._awake = False
                # A sender that saw the flag just before it was cleared counts on this.
                if ready:
                    self._wake()

    def call_on_loop(self, function: Callable[[], object]) -> None:
        """Have the loop call a function soon. From any thread."""
        loop = self.loop
        if threading.get_ident() == self.thread_id:
            loop.call_soon(function, context=self.context)
        else:
            loop.call_soon_threadsafe(function, context=self.context)

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._loop:
            return await work
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise NodeStopped(self.name, "" if self._loop else "not started")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
