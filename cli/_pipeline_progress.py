"""Progress of `onward pipeline`: a line for each stage, a live one on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Final, TextIO

__all__ = ["ProgressReporter"]

_OFTEN: Final = 0.5
"""Seconds between two changes of the live line."""

_WIDTH: Final = 78
"""Most characters of a live line: a wrapped line could not be overwritten."""


class ProgressReporter:
    """A reporter of stages on stderr, so that stdout holds results alone.

    Use it as a context manager: it may have a thread, which redraws the live line.

    Args:
        quiet: Whether to print nothing.
        output: The stream; stderr by default.
    """

    def __init__(self, *, quiet: bool = False, output: TextIO | None = None) -> None:
        self._quiet = quiet
        self._output = sys.stderr if output is None else output
        self._live = not quiet and self._output.isatty()
        self._lock = threading.Lock()
        self._stage: tuple[str, float] | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ProgressReporter:
        """Start the live line."""
        if self._live:
            self._thread = threading.Thread(target=self._redraw, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the live line, and wipe off an unfinished stage."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._wipe()
            self._stage = None

    def begin(self, name: str) -> None:
        """Start a stage."""
        with self._lock:
            self._stage = (name, time.monotonic())
            self._draw()

    def done(self, name: str, text: str) -> None:
        """Print the result of a stage, and the time it took."""
        with self._lock:
            began = time.monotonic() if self._stage is None else self._stage[1]
            self._stage = None
            self._wipe()
            if not self._quiet:
                took = time.monotonic() - began
                print(f"{name:<12} {took:6.1f} s  {text}".rstrip(), file=self._output, flush=True)

    def say(self, text: str) -> None:
        """Print a line."""
        with self._lock:
            self._wipe()
            if not self._quiet:
                print(text, file=self._output, flush=True)
            self._draw()

    def _redraw(self) -> None:
        while not self._ended.wait(_OFTEN):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if self._live and self._stage is not None:
            name, began = self._stage
            line = f"{name:<12} {time.monotonic() - began:6.1f} s  ..."[:_WIDTH]
            print(f"\r\x1b[K{line}", end="", file=self._output, flush=True)

    def _wipe(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=self._output, flush=True)
