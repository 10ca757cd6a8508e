"""A worker on top of the liveness state machine: its timer, its hooks, its waits."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias

from ...protocol import Address, NotDelivered, UnknownAddress
from ...protocol.options import check_timeout
from ...protocol.sessions import Acceptor, Action, Actions, Opener, SessionState
from .._worker import Worker
from ..runtime._timer import Timer
from ._errors import SessionClosed, SessionDown

__all__ = ["Hook", "LivenessWorker"]

Hook: TypeAlias = "Callable[[Any], object] | None"
"""A hook, called on the loop with the worker. It must not block; its exceptions are logged. `None`
for no hook."""

_logger: Final = logging.getLogger("onward.actors.sessions")


class LivenessWorker(Worker):
    """A worker with a route that is pinged and replaced. All its methods are for the node's loop.

    Attributes:
        ups: Times it came up.
        downs: Times it went down.
    """

    _machine: Opener | Acceptor
    _down_error: ClassVar[type[NotDelivered]] = SessionDown
    _closed_error: ClassVar[type[NotDelivered]] = SessionClosed

    def __init__(self, on_up: Hook, on_down: Hook, on_closed: Hook) -> None:
        super().__init__()
        self.ups = 0
        self.downs = 0
        self._on_up = on_up
        self._on_down = on_down
        self._on_closed = on_closed
        self._alarm: Timer | None = None
        self._alarm_at = 0.0
        self._unwatch: Callable[[], None] | None = None
        self._unhear: Callable[[], None] | None = None
        self._changed = asyncio.Event()

    @property
    def state(self) -> SessionState:
        """The state of its machine."""
        return self._machine.state

    @property
    def cause(self) -> str:
        """The reason why it last went down, or is over, in a few words; empty if it never has."""
        return self._machine.cause

    async def until_up(self, timeout: float = 30.0) -> None:
        """Wait until it is up.

        Args:
            timeout: The longest time to wait, in seconds.

        Raises:
            NotDelivered: It did not come up in time, or is over.
        """
        try:
            async with asyncio.timeout(check_timeout(timeout)):
                while self.state is not SessionState.UP:
                    if self.state >= SessionState.CLOSING:
                        raise self._closed_error(self.address, self.cause)
                    await self._changed.wait()
        except TimeoutError:
            raise self._down_error(self.address, f"not up in {timeout:g} s") from None

    async def until_down(self) -> str:
        """Wait until it is down or over; return the reason."""
        while self.state in (SessionState.ESTABLISHING, SessionState.UP):
            await self._changed.wait()
        return self.cause

    async def until_closed(self) -> str:
        """Wait until it is over; return the reason."""
        while self.state is not SessionState.CLOSED:
            await self._changed.wait()
        return self.cause

    async def close(self, reason: str = "closed") -> None:
        """Close it, inform the other end, and stop this worker. Idempotent.

        It returns when the other end has confirmed, or was sent the close `close_attempts` times.

        Args:
            reason: The reason sent to the other end, in a few words.
        """
        self._act(self._machine.close(self._now(), reason))
        await self.until_closed()

    # --- the machine --------------------------------------------------------------------

    def _now(self) -> float:
        return self.node.loop.time()

    def _act(self, actions: Actions) -> None:
        for action in actions:
            self._do(action)
        if actions:
            self._tell_waiting()
        self._arm()

    def _tell_waiting(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _do(self, action: Action) -> None:
        if action is Action.UP:
            self.ups += 1
            self._came_up()
            self._call(self._on_up)
        elif action is Action.DOWN:
            self.downs += 1
            self._forget_link()
            self._call(self._on_down)
        elif action is Action.TELL:
            self._tell()
        elif action is Action.OVER:
            self._forget_link()
            self._over()
            self._call(self._on_closed)
        else:
            raise AssertionError(f"unexpected {action} of {self}")

    def _came_up(self) -> None:
        """Resume the work that waited for the other end."""

    @abstractmethod
    def _tell(self) -> None:
        """Inform the other end that it is over."""

    @abstractmethod
    def _over(self) -> None:
        """End the work that cannot go on."""

    @abstractmethod
    def _lost(self, cause: str, epoch: int) -> None:
        """Report to the machine that the route of a handshake is lost."""

    def _call(self, hook: Hook) -> None:
        if hook is not None:
            try:
                hook(self)
            except Exception:
                _logger.exception(
                    "a hook of %s failed", self.address, extra={"event": "hook.failed"}
                )

    # --- the timer ----------------------------------------------------------------------

    def _due_at(self) -> float | None:
        """The time of the next wake-up, in seconds of the loop's clock."""
        return self._machine.wake_at

    def _arm(self) -> None:
        """Set the one timer to the earliest time that is due."""
        due = self._due_at()
        if due is None:
            return
        if self._alarm is not None and self._alarm.active:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = self.after(max(0.0, due - self._now()), self._wake)

    def _wake(self) -> None:
        self._act(self._machine.tick(self._now()))

    # --- the first hop of the route -----------------------------------------------------

    def _watch_link(self, first: Address) -> None:
        """Watch the first hop of the route, if it is a worker of this node, for its stop."""
        self._forget_link()
        epoch = self._machine.epoch
        try:
            self._unwatch = self.node.watch(first, lambda: self._link_gone(epoch))
            self._unhear = self.node.parts.workers.watch_losses(
                first, lambda: self._link_lost(epoch)
            )
        except UnknownAddress:
            self._unwatch = None  # it has stopped, or is no worker: pings detect it

    def _link_gone(self, epoch: int) -> None:
        self._lost("the first hop of the route stopped", epoch)

    def _link_lost(self, epoch: int) -> None:
        # The link reconnects, but the state of the other end went with the connection.
        self._lost("the connection of the first hop was lost", epoch)

    def _forget_link(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if self._unhear is not None:
            self._unhear()
            self._unhear = None
