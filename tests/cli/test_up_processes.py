"""`onward up` with a process for each node: who ends when, and that nobody is left."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from subprocess import Popen
from typing import Any, cast

import psutil
import pytest

from onward.actors.testing import virtual_time
from onward.actors.topology import read
from onward.cli._client import ask_broker
from onward.cli._status import CommandError, Status
from onward.cli._up_processes import _Children
from tests.support.commands import TIMEOUT, onward
from tests.support.counts import exhaustive
from tests.support.fixtures import Patch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "topologies"

WORKERS = """\
import os, sys, time
from onward.actors import Worker

class Alive(Worker):
    # Has a pipe open for as long as the process lives.
    def __init__(self, pipe):
        self._pipe = pipe
    def on_start(self):
        os.write(os.open(self._pipe, os.O_WRONLY), b"%d\\n" % os.getpid())

class Spoof(Worker):
    def on_start(self):
        print('deadbeef {"failed": "spoofed"}', flush=True)
        print("no end of line", end="", flush=True)
        print("x" * 200000, flush=True)
        print("to stderr", file=sys.stderr, flush=True)

class Dies(Worker):
    def handle_message(self, message):
        os._exit(7)

class Fails(Worker):
    def on_start(self):
        raise RuntimeError("no paper")
"""

TWO = """\
[nodes.near.workers]
alive = {{ class = "own_workers:Alive", options = {{ pipe = "{pipe}" }} }}
{near}
[nodes.far.workers]
alive = {{ class = "own_workers:Alive", options = {{ pipe = "{pipe}" }} }}
{far}
[nodes.far.listeners]
main = {{ uri = "tcp://127.0.0.1:0", expose = ["x"] }}
[[links]]
from = "near"
to = "far"
[[requests]]
from = "near"
route = "far => x"
payload = "hello"
"""


class Run:
    """A topology of two nodes that runs.

    Attributes:
        process: The command.
    """

    def __init__(self, process: Popen[str], pipe: int) -> None:
        self.process = process
        self._pipe = pipe
        self._read = b""

    def nodes(self) -> list[int]:
        """Return the process ids of the nodes."""
        while self._read.count(b"\n") < 2:
            assert self._more(), self._read
        return [int(line) for line in self._read.split()]

    def all_end(self) -> bool:
        """Wait until no node has the pipe open any more."""
        while self._more():
            pass
        return True

    def _more(self) -> bool:
        readable, _, _ = select.select([self._pipe], [], [], TIMEOUT)
        assert readable, "a node is left"
        chunk = os.read(self._pipe, 100)
        self._read += chunk
        return bool(chunk)


@contextlib.contextmanager
def running(folder: Path, *words: str, near: str = "", far: str = 'x = "echo"') -> Generator[Run]:
    """Run a topology of two nodes."""
    (folder / "own_workers.py").write_text(WORKERS)
    os.mkfifo(folder / "alive")
    pipe = os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
    file = folder / "two.toml"
    file.write_text(TWO.format(near=near, far=far, pipe=folder / "alive"))
    try:
        with onward("up", *words, str(file)) as process:
            yield Run(process, pipe)
    finally:
        os.close(pipe)


def lines_until(process: Popen[str], last: str) -> list[str]:
    """Return what is printed, up to a line that ends so."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if lines[-1].endswith(last):
            return lines
    assert process.stderr is not None
    raise AssertionError((lines, process.stderr.read()))


def error_line(process: Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


# In one process, and simulated, all of them come out in test_up.py.
SMALLEST, *OTHERS = sorted(EXAMPLES.glob("[0-9]*.toml"))


@pytest.mark.slow
@pytest.mark.parametrize("file", [SMALLEST, *exhaustive(*OTHERS)], ids=lambda file: file.stem)
def test_the_requests_of_the_examples_come_out_as_they_have_to(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onward.cli", "up", "--check", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * TIMEOUT,
    )
    assert (done.returncode, done.stderr) == (Status.OK, "")
    assert done.stdout.splitlines()[-1].startswith("requests with the expected outcome: ")


@pytest.mark.slow
def test_brokers_as_processes_form_a_cluster() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onward.cli", "up", "--check", str(EXAMPLES / "cluster.toml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * TIMEOUT,
    )
    assert done.returncode == Status.OK, done
    assert done.stdout.splitlines()[-1] == "requests with the expected outcome: 3, all"


@pytest.mark.slow
def test_nodes_as_processes_join_each_other_by_their_identities() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onward.cli", "up", "--check", str(EXAMPLES / "identities.toml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * TIMEOUT,
    )
    assert done.returncode == Status.OK, done
    lines = done.stdout.splitlines()
    assert lines[-1] == "requests with the expected outcome: 2, all"
    (engine,) = [line for line in lines if line.startswith("oslo | engine ")]
    assert engine.endswith(" 0#orders")


@pytest.mark.slow
def test_nodes_as_processes_have_topics_and_domains() -> None:
    file = str(EXAMPLES / "topics_and_domains.toml")
    done = subprocess.run(
        [sys.executable, "-m", "onward.cli", "up", "--check", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * TIMEOUT,
    )
    assert done.returncode == Status.OK, done
    lines = done.stdout.splitlines()
    assert lines[-1] == "requests with the expected outcome: 5, all"
    (topic,) = [line for line in lines if line.startswith("oslo | topic ")]
    assert topic.endswith(" prices")


def wait_for_peers(uri: str, wanted: dict[str, str]) -> None:
    """Wait until the peer brokers of one have some states."""

    async def wait() -> None:
        async with asyncio.timeout(TIMEOUT):
            while True:
                found = await ask_broker(uri, "/api/v1/peers?kind=broker", TIMEOUT)
                if {row["peer"]: row["state"] for row in found["rows"]} == wanted:
                    return
                await asyncio.sleep(0.05)

    asyncio.run(wait())


@pytest.mark.slow
def test_a_broker_that_is_killed_and_started_again_is_in_its_cluster() -> None:
    with onward("up", "--restart", str(EXAMPLES / "cluster.toml")) as process:
        lines = lines_until(process, "up: Three brokers that form a cluster")
        west = next(line for line in lines if line.startswith("west")).partition("listening ")[2]
        wait_for_peers(west, {"north": "up", "south": "up"})
        children = psutil.Process(process.pid).children(recursive=True)
        (north,) = [each for each in children if "north" in each.cmdline()]
        north.kill()
        wait_for_peers(west, {"north": "suspended", "south": "up"})
        wait_for_peers(west, {"north": "up", "south": "up"})
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT)
        assert process.returncode == Status.OK


@pytest.mark.slow
@pytest.mark.parametrize("number", [*exhaustive(signal.SIGINT), signal.SIGTERM])
def test_a_signal_ends_all(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as run:
        process = run.process
        lines = lines_until(process, "two.toml")
        assert lines[0].startswith("far | listening tcp://127.0.0.1:")
        run.nodes()
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, out, err) == (Status.OK, "", "")
        assert run.all_end()


@pytest.mark.slow
def test_nothing_is_left_when_the_command_is_killed(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running(tmp_path) as run:
        process = run.process
        lines_until(process, "two.toml")
        run.nodes()
        assert len(list(tmp_path.glob("onward-*"))) == 1
        process.kill()
        assert run.all_end()
        assert not list(tmp_path.glob("onward-*"))


@pytest.mark.slow
def test_when_one_is_killed_all_end(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        lines_until(run.process, "two.toml")
        os.kill(run.nodes()[0], signal.SIGKILL)
        out, err = run.process.communicate(timeout=TIMEOUT)
        assert (run.process.returncode, out) == (Status.FAILED, "")
        assert err.startswith("onward up: the node ")
        assert err.endswith(" was killed by signal 9\n")
        assert run.all_end()


@pytest.mark.slow
def test_the_others_are_kept_when_one_ends(tmp_path: Path) -> None:
    with running(tmp_path, "--keep") as run:
        lines_until(run.process, "two.toml")
        first, second = run.nodes()
        os.kill(first, signal.SIGKILL)
        assert "was killed by signal 9; 1 still run" in error_line(run.process)
        os.kill(second, 0)
        os.kill(second, signal.SIGKILL)
        assert "was killed by signal 9; 0 still run" in error_line(run.process)
        out, err = run.process.communicate(timeout=TIMEOUT)
        assert (run.process.returncode, out) == (Status.FAILED, "")
        assert err == "onward up: all nodes have ended\n"
        assert run.all_end()


@pytest.mark.slow
def test_what_is_kept_ends_with_a_signal(tmp_path: Path) -> None:
    with running(tmp_path, "--keep") as run:
        lines_until(run.process, "two.toml")
        os.kill(run.nodes()[0], signal.SIGKILL)
        error_line(run.process)
        run.process.send_signal(signal.SIGTERM)
        _, err = run.process.communicate(timeout=TIMEOUT)
        assert (run.process.returncode, err) == (Status.OK, "")
        assert run.all_end()


@pytest.mark.slow
def test_one_that_ends_is_started_again_at_the_same_place(tmp_path: Path) -> None:
    with running(tmp_path, "--restart") as run:
        lines = lines_until(run.process, "two.toml")
        uri = next(line for line in lines if line.startswith("far | listening "))
        where = uri.removeprefix("far | listening tcp://")
        far, _ = run.nodes()  # in the order of their start
        os.kill(far, signal.SIGKILL)
        told = "the node far was killed by signal 9; it starts again in 1 s"
        assert error_line(run.process) == f"onward up: {told}\n"
        assert lines_until(run.process, where)[-1] == uri
        assert error_line(run.process) == "onward up: the node far runs again\n"
        done = subprocess.run(
            [sys.executable, "-m", "onward.cli", "request", f"1#{where} => x", "hi"],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        assert (done.stdout, done.stderr) == ("hi\n", "")
        run.process.send_signal(signal.SIGTERM)
        run.process.communicate(timeout=TIMEOUT)
        assert run.process.returncode == Status.OK
        assert run.all_end()


@pytest.mark.slow
def test_a_request_to_one_that_dies_fails(tmp_path: Path) -> None:
    with running(tmp_path, "--check", far='x.class = "own_workers:Dies"') as run:
        out, err = run.process.communicate(timeout=TIMEOUT)
        assert run.process.returncode == Status.FAILED
        assert "FAILED" in out
        assert "had an unexpected outcome" in err
        assert run.all_end()


@pytest.mark.slow
def test_a_part_that_cannot_start_is_told(tmp_path: Path) -> None:
    with running(tmp_path, near='x.class = "own_workers:Fails"') as run:
        process = run.process
        out, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == Status.FAILED
        assert "up:" not in out
        where = f"near: {tmp_path}/two.toml:3: nodes.near.workers.x: cannot start: no paper"
        assert err.splitlines()[-1] == f"onward up: {where}"


@pytest.mark.slow
def test_what_workers_print_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    with running(tmp_path, "--check", near='x.class = "own_workers:Spoof"') as run:
        process = run.process
        out, err = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, err) == (Status.OK, "near | to stderr\n")
        assert 'near | deadbeef {"failed": "spoofed"}\n' in out
        assert "near | no end of linexxx" in out
        assert out.count("x" * 1000) >= 4


@pytest.mark.slow
def test_who_reads_the_output_may_go(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        process = run.process
        lines_until(process, "two.toml")
        run.nodes()
        assert process.stdout is not None
        process.stdout.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) in (Status.OK, Status.FAILED)
        assert run.all_end()


@pytest.mark.slow
def test_nodes_can_be_run_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    (tmp_path / "own_workers.py").write_text(WORKERS)
    text = TWO.format(near="", far='x = "echo"', pipe=os.devnull)
    file.write_text(text.replace("tcp://127.0.0.1:0", f"uds://{tmp_path}/far"))
    # The one that connects comes first, and waits.
    with onward("up", "--node", "near", str(file)) as near:
        with onward("up", "--node", "far", str(file)) as far:
            lines = lines_until(far, "up: far")
            assert lines[0] == f"listening uds://{tmp_path}/far"
            assert lines_until(near, "up: near") == ["up: near"]
            far.send_signal(signal.SIGTERM)
            assert far.wait(TIMEOUT) == Status.OK
        near.send_signal(signal.SIGINT)
        assert near.wait(TIMEOUT) == Status.OK
    file.write_text(text)
    with onward("up", "--node", "near", str(file)) as near:
        _, err = near.communicate(timeout=TIMEOUT)
        assert near.returncode == Status.FAILED
        assert err.endswith("the URI of far.main is not known\n")
    with onward("up", "--node", "far", "--for", "0.05", str(file)) as far:
        assert far.wait(TIMEOUT) == Status.OK


class Ended:
    """A node whose process has ended."""

    def __init__(self, ends: list[float], after: float = 0.0) -> None:
        async def over() -> int:
            await asyncio.sleep(after)
            ends.append(asyncio.get_running_loop().time())
            return 3

        self.over = asyncio.create_task(over())

    def obituary(self) -> str:
        return "the node a ended with status 3"

    async def end(self, timeout: float) -> None:
        pass


class Restarted(_Children):
    """Nodes that end again a given number of seconds after each start."""

    def __init__(self, lives: list[float]) -> None:
        plan = read(b"[nodes.a]", "a.toml")
        super().__init__(plan, argparse.Namespace(restart=True, keep=False), "")
        self._lives = iter(lives)
        self.began = asyncio.get_running_loop().time()
        self.ends: list[float] = []
        self._start_anew()

    def _start_anew(self) -> None:
        self._children = {"a": cast("Any", Ended(self.ends, next(self._lives)))}

    async def _restart(self, name: str) -> None:
        self._start_anew()


@virtual_time
async def test_restarts_in_a_row_are_further_and_further_apart_and_bounded() -> None:
    children = Restarted([0.0] * 6)
    with pytest.raises(CommandError, match="status 3, after 5 restarts in a row"):
        await children.watch(None)
    assert [end - children.began for end in children.ends] == [0, 1, 3, 7, 15, 31]


@virtual_time
async def test_a_node_that_ran_for_long_begins_anew() -> None:
    children = Restarted([0.0, 0.0, 100.0, 0.0, 1000.0])
    await children.watch(500.0)
    assert [end - children.began for end in children.ends] == [0, 1, 103, 104]
