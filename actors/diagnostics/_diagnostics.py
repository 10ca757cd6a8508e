"""Diagnostics: log lines about workers that are held up, without an error being raised.

Three problems are detected at no cost: a mailbox that is nearly full, a return route that grows as
messages are passed on, and a route that ends too early. Two more cost time for each handler that
awaits, or a thread: a handler that holds its worker, or the whole event loop, for too long; and
workers that await one another in a circle. Each is counted and logged by `onward.diagnostics` with
the names of the workers, the first of a kind for a worker at once and then one a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from weakref import WeakKeyDictionary

from ...protocol import Address, Message, Route, UnknownAddress, format_route
from ...protocol.options import Count, Seconds, check_options
from .._log import SeldomLogger, shown, waiting_text
from ..instruments._instrument import Instrument
from ..runtime._cell import Cell
from ..runtime._host import HostedActor
from ._watchdog import WATCHDOG, LoopWatch

if TYPE_CHECKING:
    from ..routing._table import AddressTable
    from ..runtime._run_queue import RunQueue

__all__ = ["AwaitDiagnostics", "Diagnostics", "DiagnosticsOptions", "DiagnosticsStatistics"]

_logger: Final = logging.getLogger("onward.diagnostics")


@dataclass(frozen=True, slots=True)
class DiagnosticsOptions:
    """The limits of diagnostics.

    Attributes:
        hold: Time a worker may await before it handles its next message, in seconds: in a
            handler, a timer's action, its start or its end. `None` switches this check off, and
            that of workers that await one another: both make handlers that await, and requests,
            slower.
        block: Time the event loop may be held by code that does not await, in seconds. `None`
            switches this check off, and its thread.
        frames: Frames of the code at fault that are shown, the innermost first.

    Raises:
        ValueError: One of them is 0 or less.
    """

    hold: Seconds | None = None
    block: Seconds | None = None
    frames: Count = 4

    def __post_init__(self) -> None:
        check_options(self)

    def instrument(self, node: DiagnosedNode) -> Diagnostics:
        """Return the diagnostics of a node."""
        if self.hold is None:
            return Diagnostics(node, self)
        return AwaitDiagnostics(node, self, self.hold)


class DiagnosedParts(Protocol):
    """The parts of a node that its diagnostics read."""

    @property
    def run_queue(self) -> RunQueue:
        """Its run queue."""
        ...

    @property
    def table(self) -> AddressTable:
        """Its address table."""
        ...


class DiagnosedNode(Protocol):
    """A node, as its diagnostics know it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def parts(self) -> DiagnosedParts:
        """Its parts."""
        ...


@dataclass(frozen=True, slots=True)
class DiagnosticsStatistics:
    """The counters of a node's diagnostics."""

    held: int
    """Times a worker awaited for longer than `hold`."""

    blocked: int
    """Times the event loop was held for longer than `block`."""

    await_cycles: int
    """Requests that close a circle of workers that await one another."""

    nearly_full: int
    """Turns that began with a mailbox at four fifths of its limit or more, and messages for which
    there was no room."""

    long_routes: int
    """Messages passed on with a return route near the limit."""

    routes_cut: int
    """Messages answered by a worker that was not the last of their route."""


class Diagnostics(Instrument):
    """An instrument that logs mailboxes that are nearly full, and routes that grow or are cut.

    Each node has one, unless it is made with `diagnostics=None`. It does not change the behaviour
    of the node.

    Args:
        node: The node.
        options: The limits.
    """

    def __init__(self, node: DiagnosedNode, options: DiagnosticsOptions) -> None:
        self.node: Final = node
        self.run_queue: Final = node.parts.run_queue
        self.options: Final = options
        self._seldom: Final = SeldomLogger(_logger)
        self._seldom_blocked: Final = SeldomLogger(_logger)  # for the watchdog's thread only
        self._held = 0
        self._blocked = 0
        self._cycles = 0
        self._nearly_full = 0
        self._long_routes = 0
        self._routes_cut = 0
        if options.block is not None:
            WATCHDOG.watch(LoopWatch(self, options.block))

    def statistics(self) -> DiagnosticsStatistics:
        """Return the counters. Safe from any thread."""
        return DiagnosticsStatistics(
            held=self._held,
            blocked=self._blocked,
            await_cycles=self._cycles,
            nearly_full=self._nearly_full,
            long_routes=self._long_routes,
            routes_cut=self._routes_cut,
        )

    # --- mailboxes and routes ---------------------------------------------------------

    def mailbox_nearly_full(self, worker: HostedActor, waiting: int) -> None:
        """Count and log a nearly full mailbox."""
        cell = _cell_of(worker)
        self._nearly_full += 1
        self._seldom.log(
            logging.WARNING,
            f"nearly full {cell.address}",
            "node %r: %s for %s (limit %d)",
            self.node.name,
            waiting_text(waiting, "message"),
            str(cell),
            cell.limit,
            extra={"event": "mailbox.nearly_full"},
        )

    def long_route(self, message: Message) -> None:
        """Count and log a growing return route."""
        self._long_routes += 1
        self._seldom.log(
            logging.WARNING,
            f"long route {message.to}",
            "node %r: a return route of %d addresses grows at %s, as when relays point at each "
            "other: %s",
            self.node.name,
            len(message.return_route),
            str(message.to),
            shown(format_route(message.return_route)),
            extra={"event": "route.grows"},
        )

    def route_cut(self, message: Message) -> None:
        """Count and log an answer of a worker that is not the last of a route."""
        self._routes_cut += 1
        self._seldom.log(
            logging.WARNING,
            f"route cut {message.to}",
            "node %r: %s answered a message before the end of its route; the rest is dropped: %s",
            self.node.name,
            str(message.to),
            shown(format_route(message.onward_route[1:])),
            extra={"event": "route.cut"},
        )

    # --- the event loop ---------------------------------------------------------------

    def loop_held(self, frame: FrameType) -> None:
        """Count and log the code that holds the event loop. Called on the watchdog's thread."""
        self._blocked += 1
        frames = list(_outwards(frame))
        who = _holder(frames, self.node)
        self._seldom_blocked.log(
            logging.WARNING,
            f"blocked {who}",
            "node %r: the event loop has been held for %g s by %s, in %s",
            self.node.name,
            self.options.block or 0.0,
            who,
            " < ".join(_places(frames, self.options.frames)),
            extra={"event": "loop.blocked"},
        )


class AwaitDiagnostics(Diagnostics):
    """Diagnostics that also log workers that await for too long, or one another.

    A timer is set only while a worker awaits.

    An await cycle is detected when the request that closes it is made: each worker in it has a
    request of the previous one in hand, and the route of the new request contains one of them.
    The requester is known for `Worker.request`, and for `Node.request` in a handler itself, but
    not in a task that the handler makes, or on another thread. Cycles through a rule or another
    node are not detected.

    Args:
        node: The node.
        options: The limits.
        hold: `DiagnosticsOptions.hold`.
    """

    def __init__(self, node: DiagnosedNode, options: DiagnosticsOptions, hold: float) -> None:
        super().__init__(node, options)
        self._hold: Final = hold
        self._asking: dict[Address, Address] = {}  # the requesters, by mailbox
        self._since: dict[Cell, float] = {}  # start of each wait, oldest first
        # The worker of each task; a task that is done disappears by itself.
        self._workers: WeakKeyDictionary[asyncio.Task[Any], Cell] = WeakKeyDictionary()
        self._timer: asyncio.TimerHandle | None = None

    def worker_suspended(self, worker: HostedActor) -> None:
        """Record the time at which a worker began to await."""
        cell = _cell_of(worker)
        self._since[cell] = self.run_queue.loop.time()
        self._workers[cast("asyncio.Task[Any]", cell.task)] = cell
        if self._timer is None:
            self._timer = self.run_queue.loop.call_later(self._hold, self._look)

    def worker_resumed(self, worker: HostedActor) -> None:
        """Record that a worker no longer awaits."""
        self._since.pop(_cell_of(worker), None)
        if not self._since and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Log the workers that have awaited too long, and set the timer for the next."""
        self._timer = None
        loop = self.run_queue.loop
        while self._since:
            cell, since = next(iter(self._since.items()))
            if since + self._hold > loop.time():
                self._timer = loop.call_at(since + self._hold, self._look)
                return
            del self._since[cell]
            self._tell_held(cell)

    def _tell_held(self, cell: Cell) -> None:
        self._held += 1
        message = cell.in_hand
        self._seldom.log(
            logging.WARNING,
            f"held {cell.address}",
            "node %r: %s has awaited for %g s%s, in %s; %s for it",
            self.node.name,
            str(cell),
            self._hold,
            "" if message is None else shown(f" with {message} in hand"),
            " < ".join(_places(_awaiting(cell.task), self.options.frames)) or "no frame",
            waiting_text(len(cell.queue or ()), "message"),
            extra={"event": "worker.held"},
        )

    def request_begun(self, source: Address | None, reply: Address, onward: Route) -> None:
        """Record a request, and log it if it closes an await cycle."""
        asker = self._asker() if source is None else self._cell(source)
        if asker is None:
            return
        self._asking[reply] = asker.address
        if asker.task is None:
            return  # a request outside of its turns, which does not hold the worker
        asked = {cell for cell in map(self._cell, self._local(onward)) if cell is not None}
        awaiting = [asker]
        while awaiting[-1] not in asked:
            before = self._awaited_by(awaiting[-1])
            if before is None or before in awaiting:
                return
            awaiting.append(before)
        self._cycles += 1
        circle = [*reversed(awaiting), awaiting[-1]]
        self._seldom.log(
            logging.WARNING,
            f"cycle {min(cell.address for cell in awaiting)}",
            "node %r: await cycle, which only a timeout ends: %s",
            self.node.name,
            " awaits ".join(map(str, circle)),
            extra={"event": "worker.cycle"},
        )

    def _asker(self) -> Cell | None:
        """Return the worker of the running coroutine, if there is one."""
        task = asyncio.current_task()
        cell = None if task is None else self._workers.get(task)
        return cell if cell is not None and cell.task is task else None

    def request_ended(self, reply: Address) -> None:
        """Remove a request that is over."""
        self._asking.pop(reply, None)

    def _awaited_by(self, cell: Cell) -> Cell | None:
        """Return the requester of the request that a worker has in hand, if any."""
        message = cell.in_hand
        if message is None or not message.return_route:
            return None
        source = self._asking.get(message.return_route[-1])
        return None if source is None else self._cell(source)

    def _local(self, onward: Route) -> Iterator[Address]:
        """Yield the leading addresses of a route that belong to this node."""
        for step in onward:
            cell = self._cell(step)
            if cell is None or cell.worker.leaves_node:
                return
            yield step

    def _cell(self, address: Address) -> Cell | None:
        with contextlib.suppress(UnknownAddress):
            return self.node.parts.table.cell(address)
        return None


def _cell_of(worker: HostedActor) -> Cell:
    cell = worker._cell
    if cell is None:
        raise AssertionError(f"unexpected {type(worker).__name__} without a cell")
    return cell


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _holder(frames: Iterable[FrameType], node: DiagnosedNode) -> str:
    """Return a text for the worker that runs in a thread's frames."""
    found: HostedActor | None = None
    for frame in frames:
        who: object = frame.f_locals.get("self")
        if isinstance(who, Cell) and who.run_queue is node.parts.run_queue:
            return str(who)
        # A handler that is a coroutine has no cell around it: the outermost worker counts.
        if isinstance(who, HostedActor) and who._cell is not None:
            found = who
    return "no worker" if found is None else str(found._cell)


def _awaiting(task: asyncio.Task[Any] | None) -> Iterator[FrameType]:
    """Return the frames of a task's awaited coroutines, the innermost first."""
    frames: list[FrameType] = []
    awaits: Any = None if task is None else task.get_coro()
    while awaits is not None:
        frame = getattr(awaits, "cr_frame", None) or getattr(awaits, "gi_frame", None)
        if frame is not None:
            frames.append(frame)
        awaits = getattr(awaits, "cr_await", None) or getattr(awaits, "gi_yieldfrom", None)
    return reversed(frames)


def _places(frames: Iterable[FrameType], most: int) -> Iterator[str]:
    for number, frame in enumerate(frames):
        if number == most:
            return
        code = frame.f_code
        yield f"{code.co_name} ({PurePath(code.co_filename).name}:{frame.f_lineno})"
