"""A full-screen view in a terminal: plain control sequences, and what restores the terminal.

There is no library for it in the standard library but curses, which needs a terminal description
and takes the event loop away. The sequences used are those of the VT100 and xterm, which all
terminals of today know.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["Screen", "has_color", "size_of"]

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The alternate screen, without a cursor, and without the wrapping of long lines."""

_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"

_HOME: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K"
_END_OF_SCREEN: Final = "\x1b[J"

_STOPS: Final = ("SIGHUP", "SIGQUIT")
"""Signals that end the view, besides those that end every command."""

_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|[^\[O])?")
"""What arrows and other keys without a character send."""

MAX_KEYS: Final = 64
"""The maximum number of bytes of keys that are read at a time."""


def has_color(environment: Mapping[str, str]) -> bool:
    """Whether the terminal shows colors, and its user wants them (no-color.org)."""
    return not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"


def size_of(descriptor: int) -> tuple[int, int]:
    """Return the columns and lines of a terminal; 80 and 24 if they are not known."""
    try:
        columns, lines = os.get_terminal_size(descriptor)
    except OSError:
        return 80, 24
    return columns or 80, lines or 24


class Screen:
    """The terminal of the process, while a view has it.

    Args:
        key: Called with each key that is pressed.
        changed: Called when the view has to be drawn anew: another size, or back from a stop.
        stop: Called when the view has to end.
    """

    def __init__(
        self,
        key: Callable[[str], object],
        changed: Callable[[], object],
        stop: Callable[[], object],
    ) -> None:
        self._key = key
        self._changed = changed
        self._stop = stop
        self._out = sys.stdout.fileno()
        self._in: int | None = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._modes: list[Any] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """The columns and lines."""
        return size_of(self._out)

    def draw(self, lines: list[str]) -> None:
        """Draw the lines of a frame, which fit."""
        text = f"{_END_OF_LINE}\n".join(lines)
        self._write(f"{_HOME}{text}{_END_OF_LINE}{_END_OF_SCREEN}")

    @contextmanager
    def taken(self) -> Generator[None]:
        """Draw on the terminal from now on, and restore it at any end."""
        loop = asyncio.get_running_loop()
        actions: dict[str, Callable[[], object]] = {
            "SIGWINCH": self._changed,
            "SIGTSTP": self._suspend,
            **dict.fromkeys(_STOPS, self._stop),
        }
        numbers = [getattr(signal, name) for name in actions]
        self._take()
        try:
            for number, act in zip(numbers, actions.values(), strict=True):
                loop.add_signal_handler(number, act)
            if self._in is not None:
                loop.add_reader(self._in, self._read, self._in)
            yield
        finally:
            if self._in is not None:
                loop.remove_reader(self._in)
            for number in numbers:
                loop.remove_signal_handler(number)
            self._give_back()

    def _take(self) -> None:
        if self._in is not None:
            self._modes = termios.tcgetattr(self._in)
            tty.setcbreak(self._in, termios.TCSADRAIN)
        self._write(_ENTER)

    def _give_back(self) -> None:
        try:
            self._write(_LEAVE)
            if self._in is not None and self._modes is not None:
                termios.tcsetattr(self._in, termios.TCSADRAIN, self._modes)
        except (OSError, termios.error):
            return  # the terminal has gone

    def _suspend(self) -> None:
        """Give the terminal back, stop the process as Ctrl-Z does, and go on when it is told to."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self._changed()

    def _read(self, descriptor: int) -> None:
        try:
            keys = os.read(descriptor, MAX_KEYS)
        except OSError:
            keys = b""
        if not keys:  # the terminal has gone
            self._stop()
            return
        for key in _SEQUENCE.sub("", keys.decode(errors="replace")):
            self._key(key)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
