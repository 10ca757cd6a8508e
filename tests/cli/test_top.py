"""`onward top` on a terminal of its own, and without one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onward.cli import main
from onward.cli._screen import has_color, size_of
from onward.cli._status import Status
from tests.support.commands import TIMEOUT, broker_process
from tests.support.fixtures import Capsys

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
COLOR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A terminal with a command in it.

    Attributes:
        process: The command.
        text: All that it has written.
    """

    def __init__(self, *words: str, **environment: str) -> None:
        self.master, self.slave = pty.openpty()
        self.text = ""
        self.resize(100, 20)
        self.modes = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "onward.cli", *words],
            stdin=self.slave,
            stdout=self.slave,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TERM": "xterm", "PYTHONUTF8": "1", **environment},
        )

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, wanted: str) -> str:
        """Read until something is written, and return what was read."""
        found = ""
        deadline = time.monotonic() + TIMEOUT
        while wanted not in found:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.master], [], [], max(0.0, left))
            assert ready, f"{wanted!r} did not come: {found!r}"
            found += os.read(self.master, 65536).decode()
        self.text += found
        return found

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> int:
        """Wait for the end; the terminal is as it was before."""
        if LEAVE not in self.text:
            self.read(LEAVE)
        status = self.process.wait(TIMEOUT)
        assert self.text.rindex(LEAVE) > self.text.rindex(ENTER)
        assert termios.tcgetattr(self.slave) == self.modes
        return status


@contextmanager
def terminal(*words: str, **environment: str) -> Generator[Terminal]:
    made = Terminal(*words, **environment)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()
        os.close(made.master)
        os.close(made.slave)


@pytest.fixture(scope="module")
def uri() -> Generator[str]:
    with broker_process() as found:
        yield found


def test_keys_choose_what_is_shown(uri: str) -> None:
    with terminal("top", "--broker", uri) as shown:
        assert "0 waiting  0 rejected  0 lost  1 stream  1 conn" in shown.read("q quit")
        assert COLOR.search(shown.text)
        shown.press("2")
        assert "PRINCIPAL" in shown.read("workers")
        shown.press("s")
        shown.read("sort: received_bytes")
        shown.press("r")
        shown.read("sort: received_bytes reversed")
        shown.press("\x1b[A")  # an arrow is no key
        shown.press("p")
        shown.read("PAUSED")
        shown.press("q")
        assert shown.ended() == Status.OK


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_signals_leave_the_terminal_as_it_was(name: str, uri: str) -> None:
    with terminal("top", "--broker", uri) as shown:
        shown.read("q quit")
        shown.process.send_signal(getattr(signal, name))
        assert shown.ended() == Status.OK


def test_a_broker_that_goes_leaves_it_as_well() -> None:
    with broker_process() as uri:
        shown = Terminal("top", "--broker", uri, "--interval", "0.1")
        shown.read("q quit")
    try:
        assert shown.ended() == Status.FAILED
        _, error = shown.process.communicate()
        assert "onward top: " in error
    finally:
        os.close(shown.master)
        os.close(shown.slave)


def test_another_size_is_drawn_at_once(uri: str) -> None:
    with terminal("top", "--broker", uri, "--interval", "60") as shown:
        shown.read("q quit")
        shown.read("q quit")  # the second look comes sooner, with rates
        shown.resize(50, 8)
        shown.process.send_signal(signal.SIGWINCH)
        frame = shown.read("\x1b[J")
        assert frame.count("\r\n") == 7
        assert [line for line in plain(frame).split("\r\n") if len(line) > 50] == []
        shown.press("q")
        assert shown.ended() == Status.OK


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", text)


def test_it_is_stopped_and_goes_on(uri: str) -> None:
    with terminal("top", "--broker", uri) as shown:
        shown.read("q quit")
        shown.process.send_signal(signal.SIGTSTP)
        shown.read(LEAVE)
        _, status = os.waitpid(shown.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert termios.tcgetattr(shown.slave) == shown.modes
        shown.text = ""
        shown.process.send_signal(signal.SIGCONT)
        shown.read(ENTER)
        shown.read("q quit")
        shown.press("q")
        assert shown.ended() == Status.OK


def test_no_color(uri: str) -> None:
    with terminal("top", "--broker", uri, "--count", "1", NO_COLOR="1") as shown:
        assert shown.ended() == Status.OK
        assert not COLOR.search(shown.text)
    assert has_color({"TERM": "xterm"})
    assert has_color({"TERM": "xterm", "NO_COLOR": ""})
    assert not has_color({"TERM": "dumb"})
    assert not has_color({})


def test_without_a_terminal_it_is_text_or_json(uri: str, capsys: Capsys) -> None:
    words = ("top", "--broker", uri, "--count", "2", "--interval", "0.1")
    assert main([*words, "--view", "connections", "--sort", "id"]) == Status.OK
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count("PRINCIPAL") == 2
    assert main([*words, "--json", "--top", "1", "--view", "workers"]) == Status.OK
    lines = capsys.readouterr().out.splitlines()
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert [(each["view"], len(each["rows"])) for each in found] == [("workers", 1)] * 2
    assert found[0]["total"] > 1
    assert found[0]["statistics"]["requests_rate"] > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--interval", "0.01"), "at least 0.1 seconds"),
        (("--top", "201"), "at most 200"),
        (("--sort", "nonsense"), "--sort is one of requests, in_progress"),
    ],
)
def test_wrong_options(words: tuple[str, ...], told: str, capsys: Capsys) -> None:
    assert main(["top", *words]) == Status.USAGE
    assert told in capsys.readouterr().err


def test_a_broker_in_a_program_has_no_problems_to_tell(broker: str, capsys: Capsys) -> None:
    words = ("top", "--broker", broker, "--count", "1", "--json", "--interval", "0.1")
    assert main(words) == Status.FAILED
    assert "the broker's answer is: " in capsys.readouterr().err


def test_the_size_of_what_is_no_terminal() -> None:
    with Path(os.devnull).open() as file:
        assert size_of(file.fileno()) == (80, 24)
