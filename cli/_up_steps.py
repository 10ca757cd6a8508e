"""How the nodes of a topology that are processes are led: the lines between them and the command.

The command writes lines of JSON to the standard input of a node, `{"do": "listen", ...}`, and the
node answers each by one on its standard output, between what its workers print. So that no
worker can be taken for it, the node's lines begin with a token that the first line told it.

| do | with | answer |
| --- | --- | --- |
| listen | token, directory | `uris`: where the listeners are |
| link | uris: where all listeners are | |
| start | | |
| ask | index of a request | ok, told, seconds |
| end | | none: the node ends |

Any answer may be `failed` instead, with what was told. The end of its input ends a node: nothing
outlives the command that leads it, however that ends. Where that comes before `end` the command was
killed, and the folder of the run is the node's to remove.
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
"""What the name of the folder of a run begins with; a node removes no other."""

GRACE: Final = 10.0
"""Seconds a node that has lost the command may take to end; then it ends at once."""

Said = dict[str, Any]
"""A line as a value."""


def encode(said: Said) -> str:
    """Write a line."""
    return json.dumps(said, separators=(",", ":"))


def decode(line: bytes | str) -> Said:
    """Read a line."""
    return cast("Said", json.loads(line))


class Steps:
    """The lines that come to a node, read by a thread.

    A thread, as it sees the end also while a worker blocks the event loop. It reads the file
    itself: a thread that waits in Python's buffered input keeps the process from ending.

    Args:
        file: The number of the file, 0 for the standard input. It is to stay open until the
            thread has ended, or the thread would read what gets the number next.
        grace: Seconds the process may go on after the end; then it is ended.

    Attributes:
        folder: What is left by a command that was killed; empty for nothing.
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
        """Let the process live on after the end of the input."""
        self._over.set()

    def join(self, timeout: float) -> bool:
        """Wait for the thread, which ends with its input once `close` was called.

        Args:
            timeout: How long to wait, in seconds.

        Returns:
            Whether it has ended.
        """
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def remove_folder(self) -> None:
        """Remove what the command has left; others who were led by it may be at it too."""
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
            # The loop is closed: nobody wants to know any more.
            self._over.set()


def _read_some(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:
        return b""
