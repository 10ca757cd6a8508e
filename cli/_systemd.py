"""The protocol between a service and systemd: notifications, and sockets that it has opened.

The specification is `sd_notify(3)` and `sd_listen_fds(3)`. Without systemd nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["Notifier"]

MARGIN: Final = 10.0
"""Seconds that systemd waits beyond the time that a drain may take."""


class Notifier:
    """The sender of a service's notifications to systemd.

    Args:
        path: The socket's path; a first character `@` stands for an abstract name. Without one
            nothing is sent.
        watchdog: Seconds after which systemd restarts a service that is silent; 0 for never.
    """

    def __init__(self, path: str = "", watchdog: float = 0.0) -> None:
        self._path = f"\0{path[1:]}" if path.startswith("@") else path
        self._watchdog = watchdog
        self._stopping = False

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Notifier:
        """Return the notifier that the environment of the process asks for."""
        seconds = 0.0
        # "If $WATCHDOG_PID is set, the watchdog is for the process with this ID only."
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            with suppress(ValueError):
                seconds = int(environment.get("WATCHDOG_USEC", "0")) / 1e6
        return cls(environment.get("NOTIFY_SOCKET", ""), max(0.0, seconds))

    def send(self, *lines: str) -> None:
        """Send assignments such as `READY=1` in one datagram. Losses are ignored."""
        if not self._path:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), self._path)

    def ready(self, status: str) -> None:
        """Report that the service serves, unless it stops: there is no way back from that."""
        if not self._stopping:
            self.send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that the service begins to reload, unless it stops; `ready` ends it.

        Both lines are one datagram: systemd ignores a `RELOADING=1` without the time.
        """
        if self._stopping:
            return
        micros = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.send("RELOADING=1", f"MONOTONIC_USEC={micros}")

    def stopping(self, seconds: float, status: str) -> None:
        """Report that the service stops, and how long that may take from now on."""
        self._stopping = True
        micros = int((seconds + MARGIN) * 1e6)
        self.send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={micros}", f"STATUS={status}")

    @contextmanager
    def watched(self, loop: asyncio.AbstractEventLoop) -> Generator[None]:
        """Send `WATCHDOG=1` from the loop, twice in the time that systemd waits for it."""
        if not self._watchdog:
            yield
            return
        timer: asyncio.TimerHandle | None = None

        def beat() -> None:
            nonlocal timer
            self.send("WATCHDOG=1")
            timer = loop.call_later(self._watchdog / 2, beat)

        beat()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
