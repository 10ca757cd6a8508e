"""What the README shows runs, and prints what it says."""

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
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^onward .*$", README, re.MULTILINE)
BROKER = "rsocket+tcp://127.0.0.1:8001"
"""Where the README's broker listens. Here it gets any free port."""

MOST_LINES = 200
"""What fits on four screens."""

MOST_TRIES = 100
"""How often a client comes and goes until `onward watch`, which starts meanwhile, sees it."""


def onward(command: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "onward.cli", *shlex.split(command)[1:], *more]


def run(arguments: list[str], status: int = 0, said: str = "") -> str:
    done = subprocess.run(
        arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (status, said)
    return done.stdout


def program(text: str, broker: str = BROKER) -> list[str]:
    return [sys.executable, "-W", "error", "-c", text.replace(BROKER, broker)]


def promised(text: str) -> str:
    """Return what a program's comments say it prints."""
    return "".join(f"{line}\n" for line in re.findall(r"print\(.*\)  # (.*)", text))


@contextmanager
def started(
    arguments: list[str], stdout: IO[str] | int = subprocess.PIPE
) -> Generator[subprocess.Popen[str]]:
    """Start a command; in the end it is stopped, and must stop in order."""
    with subprocess.Popen(arguments, stdout=stdout, text=True) as process:
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0


@pytest.fixture
def broker() -> Generator[str]:
    """The broker that the README starts, at free ports; its URI for TCP."""
    (command,) = [each for each in COMMANDS if each.startswith("onward broker")]
    assert BROKER in command
    with started(onward(re.sub(r":\d+\b", ":0", command))) as process:
        assert process.stdout is not None
        uris = [process.stdout.readline().split()[1] for _ in range(command.count("--listen"))]
        yield next(uri for uri in uris if uri.startswith("rsocket+tcp:"))


def test_it_fits_on_four_screens() -> None:
    before, mark, _ = README.partition("## Where to go next")
    assert mark
    assert len(before.splitlines()) <= MOST_LINES


def test_all_that_it_shows_is_run_here() -> None:
    assert len(PROGRAMS) == 5
    assert [command.split()[1] for command in COMMANDS] == [
        "up",
        "draw",
        "broker",
        "routes",
        "resolve",
        "watch",
    ]
    # Those that are used alone, and the one that is used with a broker.
    assert [BROKER in text for text in PROGRAMS] == [False, False, False, False, True]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "says"),
    [
        (0, "b'hello'\n"),
        (1, "[b'0', b'1', b'2', b'3', b'4']\n"),
        (2, "Accepted() b'3 each'\n"),
        (3, "b'hello'\n"),
    ],
)
def test_its_workers_do_what_it_says(number: int, says: str) -> None:
    assert promised(PROGRAMS[number]) == says
    assert run(program(PROGRAMS[number])) == says


@pytest.mark.slow
def test_its_topology_runs_and_is_drawn() -> None:
    assert "requests with the expected outcome" in run(onward(COMMANDS[0]))
    assert run(onward(COMMANDS[1])).startswith("<svg")


@pytest.mark.slow
def test_its_client_does_what_it_says(broker: str) -> None:
    assert promised(PROGRAMS[4]) == "b'hello, ann'\n"
    assert run(program(PROGRAMS[4], broker)) == promised(PROGRAMS[4])


@pytest.mark.slow
def test_its_questions_to_a_broker_are_answered(broker: str) -> None:
    assert "onward.management" in run(onward(COMMANDS[3], "--broker", broker))
    nobody = "onward resolve: no destination matches\n"
    resolve = run(onward(COMMANDS[4], "--broker", broker), status=1, said=nobody)
    assert "0 of 1 destination matching" in resolve


@pytest.mark.slow
def test_its_watch_tells_that_the_client_came(broker: str, tmp_path: Path) -> None:
    printed = tmp_path / "watch.txt"
    command = onward(COMMANDS[5], "--broker", broker)
    seen = ""
    with printed.open("w") as file, started(command, file):
        for _ in range(MOST_TRIES):
            run(program(PROGRAMS[4], broker))
            seen = printed.read_text()
            if "joined" in seen:
                break
    assert "joined" in seen
    assert "greeter" in seen
