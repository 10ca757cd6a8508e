"""The log of a server: off the loop, bounded, and seldom."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onward.actors._log import INTERVAL, MAX_KINDS
from onward.cli import _logs, main
from onward.cli._log_format import TextFormatter
from onward.cli._logs import (
    OPERATED,
    LogWriter,
    SeldomFilter,
)
from onward.cli._status import Status
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys, Patch


def record(text: str, level: int = logging.WARNING, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("onward", level, "", 1, text, None, None)
    for name, value in extra.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def pipe(monkeypatch: Patch) -> Iterator[int]:
    """The reading end of a pipe that the writer takes for stderr."""
    reader, writer = os.pipe()

    def open_pipe(_: LogWriter) -> int:
        return os.dup(writer)

    monkeypatch.setattr(LogWriter, "_open", open_pipe)
    yield reader
    os.close(reader)
    os.close(writer)


class Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage()


def test_a_blocked_output_holds_no_one_up_and_loses_are_counted(pipe: int) -> None:
    writer = LogWriter(limit=100)
    writer.setFormatter(Plain())
    line = "x" * 10_000  # the pipe holds 64 KiB: the thread is blocked soon
    for _ in range(1000):
        writer.emit(record(line))
    assert writer.dropped >= 1000 - 100 - 7 - 100
    dropped = writer.dropped
    text = ""
    # The thread may have reported some of them before the last were dropped.
    while sum(map(int, re.findall(r"(\d+) lines? of the log lost", text))) < dropped:
        text += os.read(pipe, 1 << 20).decode()
    assert text.count(line) == 1000 - dropped
    writer.close()
    writer.close()
    writer.emit(record("late"))
    assert writer.dropped == dropped + 1


def test_the_end_does_not_wait_for_a_blocked_output(pipe: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(_logs, "CLOSE_TIMEOUT", 0.01)
    writer = LogWriter()
    writer.setFormatter(Plain())
    for _ in range(20):
        writer.emit(record("x" * 10_000))
    writer.close()
    assert writer._thread.is_alive()
    while writer._thread.is_alive():
        os.read(pipe, 1 << 20)
        writer._thread.join(0.01)


def test_a_file_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = LogWriter(path)
    writer.setFormatter(Plain())
    writer.emit(record("before"))
    wait_for(path, "before\n")
    path.rename(tmp_path / "log.1")
    writer.reopen()
    while not path.exists():
        time.sleep(0.001)
    writer.emit(record("after"))
    writer.close()
    assert path.read_text() == "after\n"
    assert (tmp_path / "log.1").read_text() == "before\n"


def test_a_file_that_cannot_be_opened_anew_leaves_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    writer = LogWriter(folder / "log")
    writer.setFormatter(Plain())
    folder.rename(tmp_path / "away")
    writer.reopen()
    wait_for(
        tmp_path / "away" / "log", f"cannot open {folder / 'log'}: No such file or directory\n"
    )
    writer.emit(record("after"))
    writer.close()
    assert (tmp_path / "away" / "log").read_text().endswith("\nafter\n")


def test_a_full_disk_is_counted() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    writer = LogWriter(full)
    writer.setFormatter(Plain())
    writer.emit(record("lost"))
    writer.close()
    assert writer.dropped == 1


def test_a_record_that_cannot_be_formatted_is_left_out(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    writer = LogWriter(tmp_path / "log")
    writer.setFormatter(TextFormatter())
    broken = record("%d")
    broken.args = ("x",)
    writer.emit(broken)
    writer.close()
    assert (tmp_path / "log").read_text() == ""


def wait_for(path: Path, text: str) -> None:
    """Wait until the thread has written a text."""
    begun = time.monotonic()
    while path.read_text() != text:
        assert time.monotonic() - begun < TIMEOUT
        time.sleep(0.001)


def test_one_line_a_minute_of_one_event() -> None:
    now = [1000.0]
    seldom = SeldomFilter(lambda: now[-1])

    def passed(text: str, **extra: Any) -> str:
        made = record(text, **extra)
        return made.getMessage() if seldom.filter(made) else ""

    slow = {"event": "connection.closed", "reason": "too slow"}
    assert passed("a", **slow) == "a"
    assert passed("b", **slow) == ""
    assert passed("c", **{**slow, "reason": "a text of the peer"}) == ""
    assert passed("c", event="connection.limited") == "c"
    now.append(1000.0 + INTERVAL)
    assert passed("d", **slow) == "d (and 2 like it since the last such line)"
    # Without an event, limited already, or for a debugger.
    assert [passed("e"), passed("e")] == ["e", "e"]
    assert [passed("e", limited=True, **slow) for _ in range(2)] == ["e", "e"]
    assert all(seldom.filter(record("f", logging.DEBUG, **slow)) for _ in range(2))


def test_reasons_of_peers_silence_no_other_event() -> None:
    seldom = SeldomFilter(lambda: 1000.0)
    rejected = "connection.setup_rejected"
    for number in range(MAX_KINDS + 10):
        seldom.filter(record("x", logging.INFO, event=rejected, reason=f"{number}"))
    assert seldom.filter(record("x", logging.INFO, event="connection.closed"))


def test_errors_and_what_operators_do_are_always_written() -> None:
    seldom = SeldomFilter(lambda: 1000.0)
    for number in range(MAX_KINDS + 10):
        seldom.filter(record("x", event=f"{number}"))
    for _ in range(2):
        assert seldom.filter(record("x", logging.ERROR, event="reload.refused"))
        assert all(seldom.filter(record("x", event=event)) for event in OPERATED)


def test_the_events_of_operators_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "log.md").read_text()
    assert all(f"| `{event}` |" in text for event in OPERATED)


def test_a_broker_with_a_log_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    words = ("--log", "info", "--log-format", "json", "--log-file", str(path))
    with onward("broker", "--listen", "rsocket+tcp://127.0.0.1:0", *words) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        host, _, port = uri.removeprefix("rsocket+tcp://").rpartition(":")
        with socket.create_connection((host, int(port))) as peer:
            peer.sendall(b"\x00\x00\x05hello")
            while peer.recv(4096):
                pass
        while not path.read_text():
            time.sleep(0.001)
        path.rename(tmp_path / "log.1")
        process.send_signal(signal.SIGUSR1)
        while not path.exists():
            time.sleep(0.001)
        process.terminate()
        out, err = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, err) == (0, "")
        assert "stopped:" in out
    first = json.loads((tmp_path / "log.1").read_text().splitlines()[0])
    assert first["level"] == "info"
    assert "SETUP" in first["message"]


def test_a_broker_with_a_blocked_stderr_goes_on() -> None:
    with onward("broker", "--listen", "rsocket+tcp://127.0.0.1:0", "--log", "debug") as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        host, _, port = uri.removeprefix("rsocket+tcp://").rpartition(":")
        # stderr is a pipe that nothing reads: after 64 KiB each write to it blocks.
        for _ in range(1000):
            with socket.create_connection((host, int(port)), TIMEOUT) as peer:
                peer.sendall(b"\x00\x00\x05hello")
                while peer.recv(4096):
                    pass
        process.terminate()
        assert process.wait(TIMEOUT) == 0


def test_a_log_file_that_cannot_be_opened(tmp_path: Path, capsys: Capsys) -> None:
    assert main(["broker", "--log-file", str(tmp_path / "no" / "log")]) == Status.FAILED
    assert "--log-file" in capsys.readouterr().err
