"""Capture of Java's stdout and stderr, which are shown only when they explain an error.

At each start a virtual machine writes a dozen lines that do not concern the user, and for each
error a stack, for which the command prints one line of its own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

__all__ = ["MAX_KEPT", "Kept", "kept_output"]

MAX_KEPT: Final = 64 * 1024
"""Bytes of captured output that are kept; the last ones."""


class Kept:
    """The end of the captured output."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def add(self, data: bytes) -> None:
        """Append captured output."""
        with self._lock:
            self._data += data
            del self._data[:-MAX_KEPT]

    def end(self) -> None:
        """Mark the end of the output."""
        self._ended.set()

    def wait(self, seconds: float) -> None:
        """Wait until the output has ended, but no longer than so many seconds."""
        self._ended.wait(seconds)

    def text(self) -> str:
        """Return the captured text."""
        with self._lock:
            return self._data.decode("utf-8", "replace")


@contextmanager
def kept_output() -> Generator[Kept]:
    """Capture the output of processes started in the block, for as long as they live.

    This process has its own stdout and stderr back at the end. A thread reads until the last of
    those processes has ended, so none of them ever waits for a reader.
    """
    kept = Kept()
    sys.stdout.flush()
    sys.stderr.flush()
    ours = os.dup(1), os.dup(2)
    reading, writing = os.pipe()
    try:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(writing)
        threading.Thread(target=_read, args=(reading, kept), name="output", daemon=True).start()
        yield kept
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, own in enumerate(ours, start=1):
            os.dup2(own, number)
            os.close(own)


def _read(reading: int, kept: Kept) -> None:
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while data := pipe.read(8192):
            kept.add(data)
    kept.end()
