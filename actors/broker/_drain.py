"""The drain of a broker: its connections end before it stops, and no request is lost.

`DrainSteps` is the state machine, without sockets or a clock. `Drain` runs it for the parts of the
broker that have connections, which are its listeners.

- `GRACE`: connections are accepted, as balancers are slow. It ends after `grace`, or once there is
  no connection.
- `ENDING`: the sockets are closed, and each connection begins to end at a random moment of
  `spread`. It ends without connections, or at `timeout`.
- `CUT`: what waits is REJECTED, other streams are CANCELED, and the connections closed, at once.
- `OVER`: nothing is left to do.
- `UNDONE`: the drain was taken back during `GRACE`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from enum import Enum
from typing import TYPE_CHECKING, Final

from ...protocol import counted
from ._options import DrainOptions
from .table._events import BrokerEvent, EventKind

if TYPE_CHECKING:
    from .table._index import TagIndexWorker

__all__ = ["Drain", "DrainPart", "DrainPhase", "DrainSteps"]

_logger = logging.getLogger("onward.actors.broker")

LOOK: Final = 0.05
"""Seconds between two looks at the connections of a drain."""


class DrainPhase(Enum):
    """The phases of a drain."""

    GRACE = "grace"
    ENDING = "ending"
    CUT = "cut"
    OVER = "over"
    UNDONE = "undone"


_FINAL: Final = frozenset({DrainPhase.OVER, DrainPhase.UNDONE})


class DrainPart(ABC):
    """A part of a broker with connections to drain, such as a listener."""

    @property
    @abstractmethod
    def connections_left(self) -> int:
        """The connections that have not ended."""

    def on_drain(self, *, draining: bool) -> None:  # noqa: B027 - a listener does nothing then
        """Prepare for a drain that has begun, or that was taken back.

        Args:
            draining: Whether it has begun.
        """

    @abstractmethod
    async def stop_accepting(self) -> None:
        """Close the listening socket; the connections stay."""

    @abstractmethod
    def begin_to_drain(self, random: Callable[[], float]) -> None:
        """Draw for each connection the moment at which it begins to end, and grant no more leases.

        Args:
            random: Returns a random number, 0 or more and less than 1.
        """

    @abstractmethod
    def drain_to(self, progress: float) -> None:
        """Begin to end connections, and close those without an open stream.

        Args:
            progress: The part of the spread that has passed, 0 to 1.
        """

    @abstractmethod
    def cut(self) -> None:
        """End all streams as REJECTED or CANCELED, and close all connections."""


class DrainSteps:
    """The phase of a drain, by time and connections.

    Args:
        options: The times.
        now: The time at which it begins, in seconds of any monotonic clock.

    Attributes:
        phase: The phase.
    """

    def __init__(self, options: DrainOptions, now: float) -> None:
        self.phase = DrainPhase.GRACE
        self._grace_until = now + options.grace
        self._spread = options.spread
        self._spread_from = self._spread_until = now
        self._until = now + options.timeout

    def step(self, now: float, connections: int) -> DrainPhase:
        """Return the next phase, or the same one if it is not over.

        Args:
            now: The time.
            connections: The connections left.
        """
        is_late = now >= self._until
        if self.phase is DrainPhase.GRACE:
            if now >= self._grace_until or is_late or not connections:
                self.phase = DrainPhase.ENDING
                self._spread_from = now
                self._spread_until = now + self._spread
        elif self.phase is DrainPhase.ENDING:
            if not connections:
                self.phase = DrainPhase.OVER
            elif is_late:
                self.phase = DrainPhase.CUT
        elif self.phase is DrainPhase.CUT:
            self.phase = DrainPhase.OVER
        return self.phase

    def progress(self, now: float) -> float:
        """Return the part of the spread that has passed, 0 to 1."""
        if now >= self._spread_until:
            return 1.0
        return (now - self._spread_from) / (self._spread_until - self._spread_from)

    def hasten(self, options: DrainOptions, now: float) -> None:
        """Shorten the times to those of a drain that begins now; none becomes longer."""
        self._grace_until = min(self._grace_until, now + options.grace)
        self._spread = min(self._spread, options.spread)
        self._spread_until = min(self._spread_until, now + options.spread)
        self._until = min(self._until, now + options.timeout)

    def undo(self) -> bool:
        """Undo the drain; return False after its sockets were closed."""
        if self.phase is DrainPhase.GRACE:
            self.phase = DrainPhase.UNDONE
        return self.phase is DrainPhase.UNDONE


class Drain:
    """A drain in progress.

    Args:
        steps: Its state.
        index: The tag index of the broker.
        parts: The parts with connections; others may join until their sockets are closed.
        random: Returns a random number, 0 or more and less than 1.
    """

    def __init__(
        self,
        steps: DrainSteps,
        index: TagIndexWorker,
        parts: Collection[DrainPart],
        random: Callable[[], float],
    ) -> None:
        self.steps = steps
        self._index = index
        self._parts = parts
        self._random = random
        self._clock = index.node.loop.time

    @property
    def connections_left(self) -> int:
        """The connections that have not ended."""
        return sum(part.connections_left for part in self._parts)

    async def run(self) -> bool:
        """Run it; return False if it was undone."""
        steps = self.steps
        self._tell("draining")
        for part in tuple(self._parts):
            part.on_drain(draining=True)
        _logger.info(
            "the broker drains %s",
            counted(self.connections_left, "connection"),
            extra={"event": "broker.draining"},
        )
        while steps.phase not in _FINAL:
            before = steps.phase
            phase = steps.step(self._clock(), self.connections_left)
            if phase is before:
                if phase is DrainPhase.ENDING:
                    self._advance()
                await asyncio.sleep(LOOK)
            elif phase is DrainPhase.ENDING:
                await self._close_sockets()
            elif phase is DrainPhase.CUT:
                self._cut()
        is_over = steps.phase is DrainPhase.OVER
        if is_over:
            self._index.events.end()
            text = "the broker has drained; %s cut"
            left = counted(self.connections_left, "connection")
            _logger.info(text, left, extra={"event": "broker.drained"})
        return is_over

    def undo(self) -> bool:
        """Undo it; return False after its sockets were closed."""
        if not self.steps.undo():
            return False
        self._tell("serving")
        for part in tuple(self._parts):
            part.on_drain(draining=False)
        _logger.info("the drain is undone", extra={"event": "broker.serving"})
        return True

    async def _close_sockets(self) -> None:
        # No destination can come from now on: requests do not wait for one.
        self._index.closing = True
        for part in tuple(self._parts):
            await part.stop_accepting()
        for part in tuple(self._parts):
            part.begin_to_drain(self._random)
        self._advance()

    def _advance(self) -> None:
        progress = self.steps.progress(self._clock())
        for part in tuple(self._parts):
            part.drain_to(progress)
        if progress >= 1.0:
            # The streams of watchers would never end.
            self._index.events.end()

    def _cut(self) -> None:
        self._index.refuse_waiting()
        for part in tuple(self._parts):
            part.cut()

    def _tell(self, kind: EventKind) -> None:
        events = self._index.events
        if events.watched:
            events.emit(BrokerEvent(kind, time.time()))
