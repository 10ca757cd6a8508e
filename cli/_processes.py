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
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..protocol import counted
from ._admin import print_admin
from ._broker_plan import Plan, plan_of
from ._cluster import ids_of
from ._config import Configure
from ._event_log import node_name
from ._logs import LogWriter
from ._process import Place, Totals
from ._process_channel import Said
from ._process_folder import folder_of
from ._process_reload import Together, said_by
from ._process_slot import LATE, Child, Slot
from ._process_sockets import SharedSockets
from ._process_whole import WholeBroker
from ._reconfigure import Reconfiguration
from ._rules import reload_of
from ._run import Interrupted, Pace, StopRequest, run
from ._service import NEWS, Service, reload_on_request, times_of
from ._status import CommandError
from ._systemd import MARGIN

__all__ = ["run_processes"]

_logger: Final = logging.getLogger("onward.cli")

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
    if plan.admin is not None:
        plan = replace(plan, admin=replace(plan.admin, newest=running.shared_tls))
    with folder_of(arguments) as folder:
        processes = Processes(arguments, plan, folder)
        service = processes.service
        if arguments.config is not None:
            service.reloads.add("configuration", running.prepare)
        if plan.admin is not None:
            # Those of the admin interface: the processes have theirs.
            authentication, authorization = plan.admin.authentication, plan.admin.authorization
            if authorization is not None:
                service.reloads.add("rules", reload_of(running.newest, authorization))
            if authentication is not None:
                service.reloads.add("authentication", authentication.prepare_reload)
        run(processes.work, {**service.signals(), "SIGUSR1": partial(processes.reopen, log)})


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
        self.service.reloads = Together(self.serving)
        self._arguments = arguments
        self._plan = plan
        self._folder = folder
        self._slots = [Slot(index, each) for index, each in enumerate(ids_of(arguments))]
        names = ("drain", "undo-drain", "reload")
        operations = {name: partial(self._operate, name) for name in names}
        self._whole = WholeBroker(node_name(arguments, "broker"), self._slots, operations)
        self._sockets = SharedSockets()
        self._totals = [Totals(0, 0, 0, 0, 0)]
        self._logs: list[str] = []
        self._draining = False
        self._poked = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._stop: StopRequest | None = None

    def _children(self) -> list[Child]:
        return [each.child for each in self._slots if each.child is not None]

    def serving(self) -> list[Child]:
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
        async with self._whole.administered(self._plan, self.service) as admin:
            try:
                try:
                    uris = await stop.unless(self._start())
                except Interrupted:
                    return
                for uri in uris:
                    print("listening", uri, flush=True)
                for slot in self._slots:
                    print(f"process {slot.index}", self._place(slot, -1).address(), flush=True)
                if admin is not None:
                    print_admin(admin)
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

    def _place(self, slot: Slot, channel: int) -> Place:
        uris, folder = tuple(self._sockets.uris), str(self._folder)
        brokers = tuple(each.broker_id for each in self._slots)
        return Place(slot.index, len(self._slots), brokers, folder, uris, channel)

    async def _spawn(self, slot: Slot) -> None:
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
        slot.child = Child(place, process, self._answered, own)
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

    async def _look_at(self, slot: Slot, now: float) -> None:
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

    async def _answered(self, what: str, said: Said) -> Said:
        """Answer one of the processes."""
        if what == "operate":
            return {"answer": await self._operate(said["name"])}
        if what == "whole":
            return await self._whole.asked(said)
        raise AssertionError(f"unexpected question {what}")

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
        for said in await asyncio.gather(*(said_by(each, "undo-drain") for each in self.serving())):
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
