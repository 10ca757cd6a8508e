"""The log of a server: written by a thread, so that a blocked stderr never holds the loop."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..actors._log import LIKE_IT, Repeats
from ..protocol import counted
from ._arguments import add_log, word
from ._log_format import FORMATS
from ._status import CommandError, Status

__all__ = ["LogWriter", "SeldomFilter", "add_server_log", "server_log"]

MAX_LINES: Final = 10_000
"""Most lines of the log that wait to be written; one more is dropped and counted."""

OPERATED: Final = frozenset(
    {
        "admin.connection_closed",
        "admin.log_level",
        "admin.operation",
        "broker.drained",
        "broker.draining",
        "broker.serving",
        "certificates.reloaded",
        "configuration.changed",
        "identity.trust_request_taken",
        "process.started",
        "reload.done",
    }
)
"""The events that operators cause; each is written."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds for which the end of the process waits for the lines that are not written."""


class SeldomFilter(logging.Filter):
    """A filter that passes one line a minute for each event, with a count of the others.

    These lines always pass: errors, what operators do, lines below INFO, lines without an event,
    and those that have been limited.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._repeats = Repeats(clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written; one that is has the count of those held back."""
        event: object = getattr(record, "event", None)
        if event is None or not logging.INFO <= record.levelno < logging.ERROR:
            return True
        # Not by its reason: that may be a text of the peer, which has as many as it likes.
        kind = str(event)
        if kind in OPERATED or hasattr(record, "limited"):
            return True
        kept_back = self._repeats.take(kind)
        if kept_back:
            record.msg, record.args = f"{record.getMessage()} ({LIKE_IT % kept_back})", None
        return kept_back is not None


class LogWriter(logging.Handler):
    """A handler that formats records at once, and has a thread write them.

    Args:
        path: The file to append to; `None` for stderr.
        limit: Most lines that wait; one more is dropped and counted.

    Attributes:
        dropped: Lines that were dropped since the start, as the output did not take them.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path | None = None, limit: int = MAX_LINES) -> None:
        super().__init__()
        self._path = path
        self._limit = limit
        self._fd = self._open()
        self._lines: deque[str] = deque()
        self._wakes = threading.Condition()
        self._ends = False
        self._reopens = False
        self._unreported = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="onward-log", daemon=True)
        self._thread.start()

    def _open(self) -> int:
        if self._path is None:
            return os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def emit(self, record: logging.LogRecord) -> None:
        """Format a record and queue it; never block."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - as every handler of `logging`
            self.handleError(record)
            return
        with self._wakes:
            if len(self._lines) >= self._limit or self._ends:
                self.dropped += 1
                self._unreported += 1
                return
            self._lines.append(line)
            self._wakes.notify()

    def reopen(self) -> None:
        """Open the file anew, as after it was renamed. stderr stays as it is."""
        with self._wakes:
            self._reopens = self._path is not None
            self._wakes.notify()

    def close(self) -> None:
        """Write what waits, for at most `CLOSE_TIMEOUT`. Idempotent."""
        with self._wakes:
            self._ends = True
            self._wakes.notify()
        self._thread.join(CLOSE_TIMEOUT)
        super().close()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while self._step():
            pass
        os.close(self._fd)

    def _step(self) -> bool:
        """Write the lines that wait; return whether to go on."""
        with self._wakes:
            while not (self._lines or self._ends or self._reopens or self._unreported):
                self._wakes.wait()
            lines, unreported = list(self._lines), self._unreported
            ends, reopens = self._ends and not lines, self._reopens
            self._lines.clear()
            self._unreported, self._reopens = 0, False
        if reopens:
            self._open_anew()
        if unreported:
            lines.append(self._loss(unreported))
        if lines:
            self._write("".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))
        return not ends

    def _open_anew(self) -> None:
        try:
            fd = self._open()
        except OSError as error:
            # The old file is still open, and it is better than none.
            self._write(f"cannot open {self._path}: {error.strerror}\n".encode())
            return
        os.close(self._fd)
        self._fd = fd

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            with self._wakes:
                # Not reported: the line about it would be lost, too.
                self.dropped += data.count(b"\n")

    def _loss(self, lines: int) -> str:
        record = logging.LogRecord(
            "onward.cli",
            logging.WARNING,
            __file__,
            0,
            "%s of the log lost: the output did not take them in time",
            (counted(lines, "line"),),
            None,
        )
        record.event = "log.lost"
        return self.format(record)


def add_server_log(parser: argparse.ArgumentParser) -> None:
    """Add the options for the log of a server."""
    add_log(parser)
    parser.add_argument(
        "--log-format",
        type=word(*FORMATS),
        choices=tuple(FORMATS),
        default="text",
        help="text; json, an object on each line; or journal, for systemd (default %(default)s)",
    )
    parser.add_argument(
        "--log-file",
        metavar="FILE",
        type=Path,
        help="append the log to this file; SIGUSR1 opens it anew (default: stderr)",
    )


@contextmanager
def server_log(arguments: argparse.Namespace, process: int | None = None) -> Generator[LogWriter]:
    """Log as the options of `add_server_log` say.

    Args:
        arguments: The options.
        process: The number of this process, as one of several.

    Raises:
        CommandError: The file cannot be opened.
    """
    try:
        writer = LogWriter(arguments.log_file)
    except OSError as error:
        text = f"--log-file: {arguments.log_file}: {error.strerror}"
        raise CommandError(text, Status.FAILED) from error
    writer.setFormatter(FORMATS[arguments.log_format](process))
    writer.addFilter(SeldomFilter())
    root = logging.getLogger()
    root.addHandler(writer)
    root.setLevel(arguments.log.upper())
    try:
        yield writer
    finally:
        root.removeHandler(writer)
        writer.close()
