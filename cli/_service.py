"""The ties of a server to the system that runs it: its readiness, its signals and its reloads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial

from .. import transports
from ..actors import Listener, ReloadFailed, Reloads
from ..actors.broker import Broker, DrainOptions
from ..protocol import counted
from ..transports import TlsOptions
from ._run import Pace, StopRequest
from ._systemd import Notifier

__all__ = ["Service", "drain", "operations_of", "reload_on_request", "times_of"]

ORDERLY = 25.0
"""Seconds for a stop by SIGTERM: Kubernetes kills after 30."""

SOON = 2.0
"""Seconds for a stop by SIGINT: a person waits."""

NEWS = 1.0
"""Seconds between two statuses of a drain."""


class Service:
    """A server as its service manager sees it.

    Args:
        notifier: The sender of notifications; by default that of the process's environment.

    Attributes:
        reloads: The parts that are read anew at SIGHUP.
        notifier: The sender of notifications.
    """

    def __init__(self, notifier: Notifier | None = None) -> None:
        self.notifier = notifier or Notifier.of(os.environ)
        self.reloads = Reloads()
        self._status = ""
        self._started = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def signals(self) -> dict[str, Callable[[], object]]:
        """Return the actions for signals other than those that stop the server, by name."""
        return {"SIGHUP": self.request_reload}

    @contextmanager
    def serving(self, status: str) -> Generator[None]:
        """Report that the server is ready, and that its loop is alive, until the end."""
        self._status = status
        self._started.set()
        self.notifier.ready(status)
        with self.notifier.watched(asyncio.get_running_loop()):
            yield

    def reloads_certificates(
        self, listener: Listener, newest: Callable[[], TlsOptions | None] | None = None
    ) -> None:
        """Read the certificates of a listener anew at each reload.

        Args:
            listener: The listener.
            newest: Returns the files of the newest configuration; by default they stay the same.
        """
        secure = listener.uri.partition(":")[0].endswith(("tls", "wss"))
        if not secure or not isinstance(listener, transports.Listener):
            return

        async def prepare() -> Callable[[], object]:
            tls = None if newest is None else newest()
            return await asyncio.to_thread(listener.prepare_reload, tls)

        self.reloads.add(f"certificates of {listener.uri}", prepare)

    def request_reload(self) -> None:
        """Read anew all that can be; the outcome is logged and counted."""
        task = asyncio.get_running_loop().create_task(self._requested())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _requested(self) -> None:
        with suppress(ReloadFailed):
            await self.reload()

    async def reload(self) -> tuple[str, ...]:
        """Read anew all that can be, and report it; return the names of the parts.

        One that is asked for during the start waits for its end.

        Raises:
            ReloadFailed: Some cannot be used; nothing has changed.
        """
        await self._started.wait()  # a listener opens with the values that were read before
        self.notifier.reloading()
        try:
            return await self.reloads.reload()
        finally:
            status = self._status
            error = self.reloads.statistics().error
            status += f"; the last reload was refused: {error}" if error else ""
            # systemd has no way to be told of a reload that failed: it only waits for its end.
            self.notifier.ready(status)


async def drain(stop: StopRequest, broker: Broker, service: Service) -> bool:
    """Drain a broker at the pace that was asked for, and faster if asked again.

    Returns:
        Whether it has drained; False if the drain was undone, and the broker goes on.
    """
    calls: set[asyncio.Task[bool]] = set()

    def begin(pace: Pace) -> None:
        times = times_of(pace, broker.options.drain)
        if pace is not Pace.CONFIGURED:  # that one may be undone, and systemd knows no way back
            service.notifier.stopping(times.timeout, "draining")
        calls.add(asyncio.ensure_future(broker.drain(times)))

    with stop.paces(begin):
        while left := [each for each in calls if not each.done()]:
            await asyncio.wait(left, timeout=NEWS)
            connections = counted(broker.statistics().connections_left, "connection")
            service.notifier.send(f"STATUS=draining: {connections} left")
    if any(each.result() for each in calls):
        return True
    stop.withdraw()
    return False


def operations_of(
    stop: StopRequest, broker: Broker, service: Service
) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return the operations that operators ask the management service for."""

    async def begin_drain() -> object:
        stop.wish(Pace.CONFIGURED)
        return {"draining": True}

    async def undo_drain() -> object:
        if stop.is_final:  # systemd was told STOPPING=1, or the process is killed soon
            return {"error": "the broker stops: a drain by SIGTERM or SIGINT cannot be undone"}
        if broker.undo_drain():
            return {"draining": False}
        return {
            "error": "the sockets are closed" if broker.draining else "the broker does not drain"
        }

    reload = partial(reload_on_request, service)
    return {"drain": begin_drain, "undo-drain": undo_drain, "reload": reload}


async def reload_on_request(service: Service) -> object:
    """Read anew all that can be, and return the outcome as values that JSON can represent."""
    try:
        return {"reloaded": await service.reload()}
    except ReloadFailed as error:
        return {"error": str(error)}


def times_of(pace: Pace, options: DrainOptions) -> DrainOptions:
    """Return the times of a drain at a pace."""
    if pace is Pace.AT_ONCE:
        return options.within(0)
    if pace is Pace.SOON:
        return DrainOptions(0, 0, min(options.timeout, SOON))
    return options.within(ORDERLY) if pace is Pace.ORDERLY else options
