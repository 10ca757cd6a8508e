"""The commands of the tutorial do what its pages show."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "tutorial" / "topology.md").read_text()
SHOWN = re.findall(
    r'^```console title="(.*?)"\n\$ \.venv/bin/(onward .*?)\n(.*?)^```$',
    PAGE,
    re.MULTILINE | re.DOTALL,
)
"""Title, command and output of each block."""

TIMEOUT = 60
"""Seconds; only a failing test takes so long."""

ENVIRONMENT = {**os.environ, "PYTHONUTF8": "1"}


def words(command: str) -> list[str]:
    return [sys.executable, "-m", "onward.cli", *shlex.split(command)[1:]]


def run(command: str) -> str:
    done = subprocess.run(
        words(command),
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def same(text: str) -> str:
    """Leave out what differs from run to run: ports, times, random addresses."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:…", text)
    text = re.sub(r"(< 1|\d+) ms", "… ms", text)
    text = re.sub(r"\b\d+\.\d{3}\b", "…", text)
    text = re.sub(r"\b0#[0-9a-f]{6}…", "0#…", text)
    return re.sub(r" +", " ", text)


def shown(title: str) -> tuple[str, str]:
    """Return the command of a block, and what it prints."""
    ((command, printed),) = [(each[1], each[2]) for each in SHOWN if each[0] == title]
    return command, printed


@contextmanager
def up() -> Generator[list[str]]:
    """Run the topology as processes, to its end; what they say when all of them are up."""
    command, printed = shown("onward up")
    with subprocess.Popen(
        words(command), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield [process.stdout.readline() for _ in printed.splitlines()]
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 0


def test_all_that_is_shown_is_run_here() -> None:
    assert [title for title, _, _ in SHOWN] == [
        "onward",
        "onward",
        "onward up",
        "onward trace",
        "onward draw",
    ]
    assert PAGE.count("```console") == len(SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_check_says_what_the_page_says(number: int) -> None:
    title, command, printed = SHOWN[number]
    assert title == "onward"
    assert same(run(command)) == same(printed)


@pytest.mark.slow
def test_a_message_takes_the_way_the_page_shows() -> None:
    command, printed = shown("onward trace")
    with up() as lines:
        assert sorted(map(same, lines)) == sorted(same(shown("onward up")[1]).splitlines(True))
        (hub,) = re.findall(r"^hub \| listening (\S+)$", "".join(lines), re.MULTILINE)
        traced = run(re.sub(r"tcp://127\.0\.0\.1:\d+", hub, command))
    assert same(traced).startswith(same(printed))
    assert traced.endswith("answer: hello, ann\n")


def test_the_picture_is_what_is_drawn(tmp_path: Path) -> None:
    command, _ = shown("onward draw")
    drawn = tmp_path / "drawn.svg"
    before, mark, _ = command.partition(" -o ")
    assert mark
    assert run(f"{before} -o {shlex.quote(str(drawn))}") == ""
    assert drawn.read_bytes() == (ROOT / "docs" / "pictures" / "three_nodes.svg").read_bytes()
