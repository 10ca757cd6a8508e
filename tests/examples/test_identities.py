"""The programs of the guides to identities, as processes: each prints what its docstring says."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from onward.actors.identity import make_key_file
from tests.support.commands import TIMEOUT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "identities"
URI = "tcp://127.0.0.1:0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the keys that the guides make."""
    for name in ("oslo", "rome", "prices", "orders"):
        make_key_file(tmp_path / f"{name}.key")
    return tmp_path


@pytest.fixture(autouse=True)
def _interruptible() -> Generator[None]:
    """Have programs obey SIGINT: a shell has those that it runs in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def program(folder: Path, name: str, *words: str) -> Generator[Popen[str]]:
    """Run a program in a folder, and end it."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *words]
    with Popen(command, cwd=folder, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def printed(process: Popen[str], count: int) -> dict[str, str]:
    """Return the next lines of a program, by their first words."""
    assert process.stdout is not None
    lines = [process.stdout.readline().strip().partition(" ") for _ in range(count)]
    return {name: rest for name, _, rest in lines}


def interrupted(process: Popen[str]) -> tuple[str, int | None]:
    """Send a program what Ctrl-C sends; return what it has printed of errors, and its status."""
    process.send_signal(signal.SIGINT)
    process.wait(TIMEOUT)
    assert process.stderr is not None
    return process.stderr.read(), process.returncode


@pytest.mark.slow
def test_an_engine_is_asked_by_its_identity(folder: Path) -> None:
    with program(folder, "serve", URI) as serve:
        told = printed(serve, 3)
        words = (told["node"], told["engine"], told["listening"])
        asked = subprocess.run(
            [sys.executable, str(EXAMPLES / "ask.py"), *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert interrupted(serve) == ("", 0)
    assert (asked.stdout, asked.stderr, asked.returncode) == ("hello\n", "", 0)


@pytest.mark.slow
def test_what_is_published_reaches_a_subscriber(folder: Path) -> None:
    with program(folder, "publish", URI) as publish:
        told = printed(publish, 3)
        words = (told["topic"], told["node"], told["listening"])
        with program(folder, "subscribe", *words) as subscribe:
            assert printed(subscribe, 1) == {"subscribed": ""}
            assert publish.stdin is not None
            publish.stdin.write("apples 3\n")
            publish.stdin.flush()
            assert printed(subscribe, 1) == {"apples": "3"}
            assert interrupted(subscribe) == ("", 0)
            assert interrupted(publish) == ("", 0)  # while it reads its input


@pytest.mark.slow
def test_a_node_joins_a_domain(folder: Path) -> None:
    with program(folder, "found", URI) as found:
        told = printed(found, 3)
        words = (told["domain"], told["node"], told["listening"])
        with program(folder, "member", *words) as member:
            assert printed(member, 1) == {"result": "OK"}
            assert interrupted(member) == ("", 0)
        assert interrupted(found) == ("", 0)
