"""`onward broker --processes`: several brokers that are one to clients and operators.

This process never handles traffic. It keeps the listeners' ports, starts the processes, and starts
one anew that has ended. What it is asked to do, by signals or by an operator at any of them, all of
them do.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import stat
import sys
import tempfile
from asyncio.subprocess import Process as Subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from ..actors import Reloads
from ..protocol import counted
from ._broker_plan import Plan, plan_of
from ._config import Configure
from ._logs import LogWriter
from ._process import ASKED, DECISION, Place, Totals
from ._process_channel import Channel, ChannelClosed, Said
from ._process_sockets import SharedSockets
from ._reconfigure import Reconfiguration
from ._run import Interrupted, Pace, StopRequest, run
from ._service import NEWS, Service, reload_on_request, times_of
from ._status import CommandError, Status
from ._systemd import MARGIN

__all__ = ["MAX_ENDS", "WINDOW", "run_processes"]

_logger: Final = logging.getLogger("onward.cli")

START: Final = 60.0
"""Most seconds for the start of a process; then it is killed."""

MAX_ENDS: Final = 5
"""Most ends of one process within `WINDOW`; at one more the broker ends with an error."""

WINDOW: Final = 60.0
"""Seconds in which the ends of a process are counted."""

FIRST: Final = 0.1
"""Seconds before a process that has ended is started anew; doubled with each end in `WINDOW`."""

LONGEST: Final = 5.0
"""Most seconds before that."""

LATE: Final = 2.0
"""Seconds for the end of processes that stop at once; then they are killed."""

_OWN: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS")
"""The variables of the environment that are for this process only."""


def run_processes(arguments: argparse.Namespace, read: Configure, log: LogWriter) -> None:
    """Run the processes of a broker until they are asked to stop.

    Raises:
        CommandError: The configuration is not valid, the processes cannot start, or one ends too
            often.
    """
    running = Reconfiguration(arguments, read)
    plan = plan_of(arguments, running.newest)
    with folder_of(arguments) as folder:
        processes = Processes(arguments, plan, folder)
        service = processes.service
        if arguments.config is not None:
            service.reloads.add("configuration", running.prepare)
        run(processes.work, {**service.signals(), "SIGUSR1": partial(processes.reopen, log)})


@contextmanager
def folder_of(arguments: argparse.Namespace) -> Generator[Path]:
    """Make the folder of the sockets of the processes, for this user only.

    Raises:
        CommandError: It cannot be made, or others may write to it.
    """
    given: str | None = arguments.process_folder
    runtime = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if given is None and not runtime:
        with tempfile.TemporaryDirectory(prefix="onward-") as made:
            yield Path(made)
        return
    path = Path(runtime, "processes") if given is None else Path(given)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise CommandError(f"--process-folder: {path}: {error.strerror}") from error
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise CommandError(f"--process-folder: other users may write to {path}", Status.USAGE)
    yield path.absolute()


class _Child:
    """A process that runs.

    Attributes:
        place: Its place.
        started: The URIs of its listeners, once they are open.
        over: The task that ends with it, and returns its status.
        totals: Its figures at the end, once it has told them.
        log: Those of its event log, if any.
        admin: The URI of its admin interface, if any.
        failed: Why it could not start; `None` if it has not told that.
    """

    def __init__(
        self,
        place: Place,
        process: Subprocess,
        operate: Callable[[str], Awaitable[object]],
        own: socket.socket,
    ) -> None:
        self.place = place
        self.process = process
        self.started: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.totals: Totals | None = None
        self.log, self.admin = "", ""
        self.failed: CommandError | None = None
        self._operate = operate
        self._own = own
        self._channel: Channel | None = None
        self.over: asyncio.Task[int] = asyncio.create_task(self._follow())

    @property
    def serves(self) -> bool:
        """Whether its listeners are open, or were, and it runs."""
        return self.started.done() and not self.over.done()

    async def _follow(self) -> int:
        self._channel = channel = await Channel.open(self._own, self._answered)
        late = asyncio.get_running_loop().call_later(START, self._late)
        try:
            status = await self.process.wait()
            # Its last words are in the channel, which ends with it.
            await asyncio.wait({channel.over}, timeout=LATE)
        finally:
            late.cancel()
            await channel.close()
        return status

    def _late(self) -> None:
        if not self.started.done():
            self.failed = CommandError(f"it has not started within {START:g} s")
            self.signal(kill=True)

    async def ask(self, what: str, timeout: float = ASKED, **values: object) -> Said:
        """Ask it; raises as `Channel.ask`."""
        if self._channel is None:
            raise ChannelClosed
        return await self._channel.ask(what, timeout, **values)

    def stop(self, pace: Pace) -> None:
        """Stop it at a pace."""
        if self.started.done() and self._channel is not None:
            self._channel.tell("stop", pace=pace.name)
        else:
            self.signal(kill=False)  # it may not listen yet, and has no clients

    def signal(self, *, kill: bool) -> None:
        """Terminate or kill it."""
        with suppress(ProcessLookupError):
            (self.process.kill if kill else self.process.terminate)()

    async def _answered(self, what: str, said: Said) -> Said:
        if what == "started" and not self.started.done():
            self.admin = said["admin"]
            self.started.set_result(said["listeners"])
        elif what == "failed":
            self.failed = CommandError(said["text"], Status(said["status"]))
        elif what == "totals":
            self.totals, self.log = Totals(*said["totals"]), said["log"]
        elif what == "operate":
            return {"answer": await self._operate(said["name"])}
        return {}

    def obituary(self) -> str:
        """Describe how it ended."""
        if self.failed is not None:
            return f"has failed: {self.failed}"
        status = self.over.result()
        return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


class _Slot:
    """The place of a process: the one that runs there, and those before it.

    Attributes:
        index: Its number.
        broker_id: The identity of the broker there.
        child: The process; `None` between two.
        ends: The times of the last ends.
        due: The time at which the next one is started.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.broker_id = str(uuid4())
        self.child: _Child | None = None
        self.ends: deque[float] = deque()
        self.due = 0.0

    def ended(self, now: float) -> None:
        """Set the time for the next one.

        Raises:
            CommandError: They end too often.
        """
        if self.child is None:
            raise AssertionError("no process has ended")
        told, self.child = self.child.obituary(), None
        while self.ends and self.ends[0] <= now - WINDOW:
            self.ends.popleft()
        if len(self.ends) >= MAX_ENDS:
            raise CommandError(
                f"process {self.index} {told}; it has ended more than {MAX_ENDS} times "
                f"within {WINDOW:g} s"
            )
        delay = min(LONGEST, FIRST * 2 ** len(self.ends))
        self.ends.append(now)
        self.due = now + delay
        _logger.error(
            "process %d %s; it is started anew in %g s",
            self.index,
            told,
            delay,
            extra={"event": "process.ended", "reason": told},
        )


class _Together(Reloads):
    """The reload of all processes, with the own parts of this one."""

    def __init__(self, serving: Callable[[], Sequence[_Child]]) -> None:
        super().__init__()
        self._serving = serving

    async def reload(self) -> tuple[str, ...]:
        """Read all anew in all processes, and apply it if all can use it.

        Raises:
            ReloadFailed: Some cannot be used; nothing has changed.
        """
        async with self.prepared() as apply:
            children = self._serving()
            try:
                errors = await self._of_all(children, "prepare")
                if errors:
                    raise self.refused(errors)
            except BaseException:
                await self._of_all(children, "abort")
                raise
            own = apply()
            said = [await _said(each, "apply") for each in children]
        parts: list[str] = [part for each in said for part in each.get("parts", ())]
        return tuple(dict.fromkeys((*own, *parts)))

    async def _of_all(self, children: Sequence[_Child], what: str) -> dict[str, str]:
        """Ask all processes; return the errors, each part once."""
        errors: dict[str, str] = {}
        for child, said in zip(
            children, await asyncio.gather(*(_said(each, what) for each in children)), strict=True
        ):
            if "failed" in said:
                errors[f"process {child.place.index}"] = said["failed"]
            for part, error in said.get("errors", {}).items():
                errors.setdefault(part, error)
        return errors


async def _said(child: _Child, what: str) -> Said:
    """Return the answer of a process; one that has ended says nothing, and reads all anew."""
    try:
        return await child.ask(what, DECISION)
    except ChannelClosed:
        return {}
    except CommandError as error:
        return {"failed": str(error)}


class Processes:
    """The processes of a broker.

    Args:
        arguments: The options.
        plan: The broker that they ask for.
        folder: The folder of the sockets of the processes.

    Attributes:
        service: The ties to the system.
    """

    def __init__(self, arguments: argparse.Namespace, plan: Plan, folder: Path) -> None:
        self.service = Service()
        self.service.reloads = _Together(self.serving)
        self._arguments = arguments
        self._plan = plan
        self._folder = folder
        self._slots = [_Slot(index) for index in range(arguments.processes)]
        self._sockets = SharedSockets()
        self._totals = [Totals(0, 0, 0, 0, 0)]
        self._logs: list[str] = []
        self._draining = False
        self._poked = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._stop: StopRequest | None = None

    def _children(self) -> list[_Child]:
        return [each.child for each in self._slots if each.child is not None]

    def serving(self) -> list[_Child]:
        """Return the processes with open listeners."""
        return [each for each in self._children() if each.serves]

    def reopen(self, log: LogWriter) -> None:
        """Open the file of the log anew, in all processes."""
        log.reopen()
        for child in self.serving():
            with suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGUSR1)

    async def work(self, stop: StopRequest) -> None:
        """Run until all have ended.

        Raises:
            CommandError: They cannot start, or one ends too often.
        """
        self._stop = stop
        await self._sockets.open(self._plan.listeners)
        try:
            try:
                uris = await stop.unless(self._start())
            except Interrupted:
                return
            for uri in uris:
                print("listening", uri, flush=True)
            for slot in self._slots:
                print(f"process {slot.index}", self._place(slot, -1).address(), flush=True)
            for child in self._children():
                if child.admin:
                    print("admin", child.admin, flush=True)
            with self.service.serving(", ".join(uris)), stop.paces(self._paced):
                await self._watch()
        finally:
            await self._end_all()
        if not self._arguments.quiet:
            totals = Totals(*map(sum, zip(*self._totals, strict=True)))
            print(f"{totals}{''.join(self._logs)}", flush=True)

    # --- start --------------------------------------------------------------------------------

    async def _start(self) -> list[str]:
        """Start all processes, and return the URIs of the listeners.

        Raises:
            CommandError: One cannot start.
        """
        for slot in self._slots:
            await self._spawn(slot)
        children = self._children()
        left = {each.started for each in children}
        overs = {each.over for each in children}
        while left:
            either: set[asyncio.Future[Any]] = {*left, *overs}
            done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for child in children:
                if child.over in done:
                    text = f"process {child.place.index} {child.obituary()}"
                    raise child.failed or CommandError(text)
            left -= done
        return children[0].started.result()[: len(self._plan.listeners)]

    def _place(self, slot: _Slot, channel: int) -> Place:
        uris, folder = tuple(self._sockets.uris), str(self._folder)
        return Place(slot.index, len(self._slots), slot.broker_id, folder, uris, channel)

    async def _spawn(self, slot: _Slot) -> None:
        own, other = socket.socketpair()
        with other:
            place = self._place(slot, other.fileno())
            environment = {k: v for k, v in os.environ.items() if k not in _OWN}
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "onward.cli", "broker"),
                *self._arguments.words,
                env={**environment, **place.environment()},
                pass_fds=(other.fileno(), *self._sockets.inherited),
                # Ctrl-C on a terminal is for this process alone, which ends the others in order.
                start_new_session=True,
            )
        own.setblocking(False)
        slot.child = _Child(place, process, self._operate, own)
        slot.child.started.add_done_callback(lambda _: self._told(slot.index, process.pid))

    def _told(self, index: int, pid: int) -> None:
        _logger.info(
            "process %d has started, with the id %d",
            index,
            pid,
            extra={"event": "process.started"},
        )

    # --- while they run -----------------------------------------------------------------------

    async def _watch(self) -> None:
        """Start each process anew that ends, until all have ended in a drain.

        Raises:
            CommandError: One ends too often.
        """
        clock = asyncio.get_running_loop().time
        while True:
            self._poked.clear()
            for slot in self._slots:
                await self._look_at(slot, clock())
            children = self._children()
            if self._draining:
                if not children:
                    return
                left = counted(len(children), "process")
                self.service.notifier.send(f"STATUS=draining: {left} left")
            due = [each.due - clock() for each in self._slots if each.child is None]
            timeout = NEWS if self._draining else max(0.0, min(due)) if due else None
            poked = asyncio.create_task(self._poked.wait())
            try:
                changes: set[asyncio.Task[Any]] = {poked, *(each.over for each in children)}
                await asyncio.wait(
                    changes,
                    timeout=timeout,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                poked.cancel()

    async def _look_at(self, slot: _Slot, now: float) -> None:
        child = slot.child
        if child is not None and child.over.done():
            if child.totals is not None:
                self._totals.append(child.totals)
                self._logs.append(child.log)
            if self._draining:
                slot.child, slot.due = None, now
            else:
                slot.ended(now)
        if slot.child is None and not self._draining and slot.due <= now:
            await self._spawn(slot)

    def _paced(self, pace: Pace) -> None:
        """Stop all processes at a pace."""
        self._draining = True
        times = times_of(pace, self._plan.options.drain)
        if pace is not Pace.CONFIGURED:  # that one may be undone
            self.service.notifier.stopping(times.timeout, "draining")
            self._sockets.close()
        for child in self._children():
            child.stop(pace)
        self._kill_after(LATE if pace is Pace.AT_ONCE else times.timeout + MARGIN)
        self._poked.set()

    def _kill_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._kill_all)

    def _kill_all(self) -> None:
        for child in self._children():
            child.signal(kill=True)

    async def _end_all(self) -> None:
        """End the processes that still run, and close the sockets."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._sockets.close()
        children = self._children()
        for child in children:
            child.stop(Pace.AT_ONCE)
        overs = [each.over for each in children]
        if overs:
            await asyncio.wait(overs, timeout=LATE)
            self._kill_all()
            await asyncio.wait(overs)

    # --- for operators ------------------------------------------------------------------------

    async def _operate(self, name: str) -> object:
        """Perform what an operator has asked one of the processes for, in all of them."""
        if self._stop is None:
            raise AssertionError("it does not run")
        if name == "drain":
            self._stop.wish(Pace.CONFIGURED)
            return {"draining": True}
        if name == "undo-drain":
            return await self._undo(self._stop)
        if name == "reload":
            return await reload_on_request(self.service)
        raise CommandError(f"there is no operation {name!r}")

    async def _undo(self, stop: StopRequest) -> object:
        if stop.is_final:
            return {"error": "the broker stops: a drain by SIGTERM or SIGINT cannot be undone"}
        if not self._draining:
            return {"error": "the broker does not drain"}
        for said in await asyncio.gather(*(_said(each, "undo-drain") for each in self.serving())):
            answer: dict[str, Any] = said.get("answer") or {}
            error: object = answer.get("error")
            if error is not None:
                self._paced(Pace.CONFIGURED)  # those that could are to drain again
                return {"error": error}
        self._draining = False
        if self._deadline is not None:
            self._deadline.cancel()
        stop.withdraw()
        self._poked.set()
        return {"draining": False}
