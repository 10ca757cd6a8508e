"""Connections between brokers, in virtual time.

A connection is like one of TCP: ordered, and what is sent while a direction is cut waits. It ends
when an end closes it, which the other end is told if the way there is open, or when an end has
heard nothing for the lifetime of its keepalive. The keepalive itself is not sent: an end notices
the silence of a direction that is cut, or the sender of which hangs or is gone.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

LIFETIME: Final = 5.0
"""Silence after which an end takes its connection for lost, in seconds."""
KEEPALIVE: Final = 1.0
"""Time between two keepalives: by as much may the silence be noticed later."""
CONNECT_TIMEOUT: Final = 3.0
"""Time after which an attempt to connect is given up, in seconds."""


class Clockwork:
    """Calls in the order of their times.

    Attributes:
        now: The time, in seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: float, call: Callable[..., object], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(time, self.now), self._count, call, arguments))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, call, arguments = heapq.heappop(self._queue)
            call(*arguments)
        self.now = until


class Host(Protocol):
    """One end of connections, as the network knows it."""

    number: int
    alive: bool
    stalled_until: float

    def receive(self, wire: Wire, message: Any) -> None: ...
    def connection_lost(self, wire: Wire, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Fin:
    """The end of a connection, as the other end is told."""

    reason: str


@dataclass(slots=True)
class Direction:
    """What is under way from one end to the other."""

    queue: deque[tuple[float, Any]] = field(default_factory=deque[tuple[float, Any]])
    last_at: float = 0.0
    quiet_since: float | None = None
    disturbed_at: float = 0.0


class Wire:
    """One connection; end 0 has dialled."""

    __slots__ = ("bytes", "directions", "ends", "made_at", "messages", "network", "open", "peers")

    def __init__(self, network: Network, dialler: Host, acceptor: Host) -> None:
        self.network = network
        self.ends = (dialler, acceptor)
        self.open = [True, True]
        # What each end keeps the other one as.
        self.peers: list[Any] = [None, None]
        self.directions = (Direction(), Direction())
        self.made_at = network.clock.now
        self.messages = 0
        self.bytes = 0

    def side(self, host: Host) -> int:
        return 0 if host is self.ends[0] else 1

    def other(self, host: Host) -> Host:
        return self.ends[1 - self.side(host)]

    def is_open(self, host: Host) -> bool:
        return self.open[self.side(host)]

    def last_disturbed(self, sender: Host) -> float:
        """Return when the way from an end was last disturbed, or the connection made."""
        direction = self.directions[self.side(sender)]
        if direction.quiet_since is not None:
            return self.network.clock.now
        return max(self.made_at, direction.disturbed_at)

    def send(self, host: Host, message: Any, size: int = 0) -> None:
        side = self.side(host)
        if not self.open[side]:
            return
        self.messages += 1
        self.bytes += size
        self._queue(side, message)

    def close(self, host: Host, reason: str) -> None:
        side = self.side(host)
        if self.open[side]:
            self.open[side] = False
            self._queue(side, Fin(reason))

    def _queue(self, side: int, message: Any) -> None:
        network, direction = self.network, self.directions[side]
        at = max(network.clock.now + network.delay(), direction.last_at)
        direction.last_at = at
        direction.queue.append((at, message))
        network.clock.at(at, self.deliver, side)

    def deliver(self, side: int) -> None:
        """Hand over what has arrived from an end, unless the way is cut or the other end hangs."""
        network, direction, receiver = self.network, self.directions[side], self.ends[1 - side]
        while direction.queue and direction.queue[0][0] <= network.clock.now:
            if network.is_cut(self.ends[side], receiver) or network.is_stalled(receiver):
                return
            _, message = direction.queue.popleft()
            if not self.open[1 - side] or not receiver.alive:
                continue
            if isinstance(message, Fin):
                self._lose(1 - side, message.reason)
            else:
                receiver.receive(self, message)

    def _lose(self, side: int, reason: str) -> None:
        if self.open[side] and self.ends[side].alive:
            self.close(self.ends[side], reason)
            self.ends[side].connection_lost(self, reason)

    def look(self) -> None:
        """Find out whether the directions are silent."""
        now = self.network.clock.now
        for side, direction in enumerate(self.directions):
            sender = self.ends[side]
            quiet = (
                not sender.alive
                or self.network.is_stalled(sender)
                or self.network.is_cut(sender, self.ends[1 - side])
            )
            if quiet and direction.quiet_since is None:
                direction.quiet_since = now
                late = self.network.draw.random() * KEEPALIVE
                self.network.clock.at(now + LIFETIME + late, self._silent, side, now)
            elif not quiet and direction.quiet_since is not None:
                direction.quiet_since = None
                direction.disturbed_at = now
            if self.network.is_stalled(self.ends[1 - side]):
                direction.disturbed_at = now
            self.deliver(side)

    def _silent(self, side: int, since: float) -> None:
        receiver = self.ends[1 - side]
        if self.directions[side].quiet_since != since or not receiver.alive:
            return
        if self.network.is_stalled(receiver):
            self.network.clock.at(receiver.stalled_until, self._silent, side, since)
            return
        self._lose(1 - side, "no keepalive")


class Network:
    """All connections, and the ways that are cut.

    Args:
        clock: The time.
        draw: The source of randomness.
        delays: The least and the longest time of a message, in seconds.
    """

    def __init__(self, clock: Clockwork, draw: random.Random, delays: tuple[float, float]) -> None:
        self.clock = clock
        self.draw = draw
        self.delays = delays
        self.wires: list[Wire] = []
        self.counts = Counter[str]()
        self._cut: set[tuple[int, int]] = set()

    def delay(self) -> float:
        least, most = self.delays
        return least + (most - least) * self.draw.random() ** 3

    def is_cut(self, sender: Host, receiver: Host) -> bool:
        return (sender.number, receiver.number) in self._cut

    def is_stalled(self, host: Host) -> bool:
        return self.clock.now < host.stalled_until

    def cut(self, sender: int, receiver: int) -> None:
        """Cut the way from one host to another, and not the way back."""
        self._cut.add((sender, receiver))
        self.look()

    def cut_all(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Cut both ways between pairs of hosts."""
        for one, other in pairs:
            self._cut |= {(one, other), (other, one)}
        self.look()

    def heal(self, *ways: tuple[int, int]) -> None:
        """Heal these ways, or all."""
        if ways:
            self._cut.difference_update(ways)
        else:
            self._cut.clear()
        self.look()

    def look(self) -> None:
        """Look at all connections, after something has changed."""
        self.wires = [wire for wire in self.wires if any(wire.open)]
        for wire in self.wires:
            wire.look()

    def connect(
        self,
        dialler: Host,
        acceptor: Host | None,
        done: Callable[[Wire | None], None],
    ) -> None:
        """Connect, or call `done` with nothing after a while."""
        clock = self.clock
        if acceptor is None or not acceptor.alive:
            clock.at(clock.now + 2 * self.delay(), done, None)
        elif (
            self.is_cut(dialler, acceptor)
            or self.is_cut(acceptor, dialler)
            or self.is_stalled(acceptor)
        ):
            clock.at(clock.now + CONNECT_TIMEOUT, done, None)
        else:
            wire = Wire(self, dialler, acceptor)
            self.wires.append(wire)
            done(wire)
