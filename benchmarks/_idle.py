"""Idle connections, each with a route, and their cost in a broker's memory."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from _rawload import connect

__all__ = ["SETTLING", "collect_garbage", "idle_connections", "resident_bytes"]

IDLE_SERVICE = "idle"
SETTLING = 1.0
"""Seconds of idleness before a broker's memory is read."""


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def collect_garbage(pid: int) -> bool:
    """Make a JVM collect its garbage; return whether it did.

    Only for a JVM: the signal that jcmd sends ends any other process.
    """
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        return False
    done = subprocess.run([jcmd, str(pid), "GC.run"], capture_output=True, check=False)
    return done.returncode == 0


@contextmanager
def idle_connections(port: int, count: int) -> Generator[None]:
    """Hold a number of idle connections open, each registered as a route."""
    opened: list[socket.socket] = []
    try:
        # One by one, so that the open ones are closed when one fails.
        opened.extend(connect(port, IDLE_SERVICE) for _ in range(count))
        time.sleep(SETTLING)
        yield
    finally:
        for each in opened:
            each.close()
