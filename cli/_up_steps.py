"""The protocol between `onward up` and the processes of its nodes.

The command writes lines of JSON to the standard input of a node, `{"do": "listen", ...}`. The
node answers each with one line on its standard output, among the output of its workers. The
node's lines begin with a token from its first step, so that no output of a worker is taken for one.

| do | with | answer |
| --- | --- | --- |
| listen | token, directory; uris: those before a restart | uris and identities of the node |
| link | uris and identities of all nodes | |
| start | | |
| ask | index of a request | ok, told, seconds |
| end | | none: the node ends |

Any answer may be `failed` instead, with an error text. The end of its input ends a node, so no node
outlives the command, however that ends. An end without the step `end` means that the command was
killed; the node then removes the folder of the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from typing import Any, Final, cast

__all__ = ["FOLDER", "GRACE", "Said", "Steps", "decode", "encode"]

FOLDER: Final = "onward-"
"""The start of the name of a run's folder; a node removes no other."""

GRACE: Final = 10.0
"""Longest time for the end of a node that has lost the command, in seconds; then it exits."""

Said = dict[str, Any]
"""A line as a value."""


def encode(said: Said) -> str:
    """Encode a line."""
    return json.dumps(said, separators=(",", ":"))


def decode(line: bytes | str) -> Said:
    """Decode a line."""
    return cast("Said", json.loads(line))


class Steps:
    """The lines of a node's input, read by a thread.

    A thread sees the end even while a worker blocks the event loop. It reads the file
    descriptor: a thread that waits in Python's buffered input keeps the process from ending.

    Args:
        file: The file descriptor, 0 for the standard input. It has to stay open until the thread
            has ended, or the thread would read the next file with that number.
        grace: Seconds the process may go on after the end of the input; then it exits.

    Attributes:
        folder: The folder left by a killed command; empty for none.
    """

    def __init__(self, file: int = 0, *, grace: float = GRACE) -> None:
        self._file = file
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._over = threading.Event()
        self.folder = ""
        self._thread = threading.Thread(target=self._read, name="steps", daemon=True)
        self._thread.start()

    async def next(self) -> Said | None:
        """Return the next line; `None` at the end."""
        line = await self._lines.get()
        return None if line is None else decode(line)

    def close(self) -> None:
        """Allow the process to go on after the end of the input."""
        self._over.set()

    def join(self, timeout: float) -> bool:
        """Wait for the thread, which ends with its input once `close` was called.

        Args:
            timeout: The longest time to wait, in seconds.

        Returns:
            Whether it has ended.
        """
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def remove_folder(self) -> None:
        """Remove the folder that the command has left; other nodes may be removing it too."""
        if os.path.basename(self.folder).startswith(FOLDER):  # noqa: PTH119 - of any text
            shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self) -> None:
        rest = b""
        while chunk := _read_some(self._file):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._put(line)
        self._put(None)
        if not self._over.wait(self._grace):
            self.remove_folder()
            os._exit(1)

    def _put(self, line: bytes | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:
            # The loop is closed: no task waits for a line any more.
            self._over.set()


def _read_some(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:
        return b""
