"""The brokers that are compared: each is a process with a port on loopback."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from _nats import nats_shape
from _rawload import Shape, rsocket_shape

__all__ = [
    "COMPILED",
    "JAVA",
    "LISTENING",
    "NATS",
    "NATS_LISTENING",
    "NATS_OPTIONS",
    "NATS_ROUTED",
    "ONWARD",
    "RELAY",
    "Missing",
    "OtherPrograms",
    "Rival",
    "command_of",
    "compiled_environment",
    "compiled_note",
    "nats_program",
    "onward_at",
    "raise_file_limit",
    "running",
    "running_at",
    "start",
]

HERE = Path(__file__).resolve().parent
ONWARD, COMPILED, JAVA, NATS, RELAY = "onward", "compiled", "java", "nats", "relay"
COMPILED_SITE = HERE.parent / "build" / "compiled" / "site"
"""The folder in which `make compiled` installs Onward's wheel."""
SOURCES = ("protocol", "actors", "transports", "cli")

AS_BROKER = (
    "broker",
    *("--listen", "rsocket+tcp://127.0.0.1:0"),
    # The load and its idle connections are one source, which may take half of the places otherwise.
    *("--max-connections-per-source", "10000"),
)
LISTENING_AT = re.compile(r"listening (rsocket\+\S+)")
LISTENING = re.compile(r"listening rsocket\+tcp://127\.0\.0\.1:(\d+)")
NATS_LISTENING = re.compile(r"Listening for client connections on 127\.0\.0\.1:(\d+)")
NATS_ROUTED = re.compile(r"Listening for route connections on 127\.0\.0\.1:(\d+)")
NATS_OPTIONS = 'listen: "127.0.0.1:-1"\nping_interval: "1h"\n'
"""A PING between the messages of the load would break its stride."""
NATS_PLACES = "/usr/sbin:/usr/local/sbin"
"""The folder of Debian's package, which may not be on a user's path."""
ENDING = 10.0
"""Seconds for a broker to end before it is killed."""


class Missing(Exception):
    """A rival that cannot run on this machine, with the reason."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A broker that listens.

    Attributes:
        name: The name of the broker.
        pid: Its process id.
        port: Its port on 127.0.0.1.
        shape: Returns the shape of request/response in its protocol, for some data.
        note: A remark for the report; mostly empty.
    """

    name: str
    pid: int
    port: int
    shape: Callable[[bytes], Shape] = rsocket_shape
    note: str = ""


class OtherPrograms:
    """The share of the machine's CPU that other programs use; it spoils latencies first."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._before = self._used()

    def share(self) -> float:
        """Return the share so far, 0 to 1. A running child of this process counts as another."""
        passed = (time.monotonic() - self._started) * (os.cpu_count() or 1)
        return max(0.0, self._used() - self._before) / passed

    def _used(self) -> float:
        busy = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
        idle, waiting = int(busy[3]), int(busy[4])
        # The last two are included in user and nice.
        seconds = (sum(map(int, busy[:8])) - idle - waiting) / os.sysconf("SC_CLK_TCK")
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            seconds -= usage.ru_utime + usage.ru_stime
        return seconds


@contextmanager
def start(name: str) -> Generator[Rival]:
    """Start a rival; end it on exit.

    Raises:
        Missing: It is not installed on this machine.
        RuntimeError: It ended without printing its address.
    """
    with _STARTERS[name]() as rival:
        yield rival


def raise_file_limit(files: int) -> int:
    """Raise the soft limit of open files for this process and its children.

    Returns:
        The limit now; it may be less than requested.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


@contextmanager
def onward_at(*wanted: str, words: Sequence[str] = ()) -> Generator[tuple[int, tuple[str, ...]]]:
    """Start Onward's broker with several listeners; end it on exit.

    Args:
        wanted: The URIs of the listeners, each with another scheme; port 0 for any.
        words: More words of the command.

    Yields:
        Its process id, and the URIs of its listeners.

    Raises:
        RuntimeError: It ended without printing its addresses.
    """
    command = [*_command(), "broker", *words]
    for each in wanted:
        command += ("--listen", each)
    with running_at(command, *(LISTENING_AT for _ in wanted)) as started:
        yield started


@contextmanager
def running(
    command: Sequence[str], listening: re.Pattern[str], environment: Mapping[str, str] | None = None
) -> Generator[tuple[int, int]]:
    """Run a command that prints its address; yield its process id and its port."""
    with running_at(command, listening, environment=environment) as (pid, (port,)):
        yield pid, int(port)


@contextmanager
def running_at(
    command: Sequence[str],
    *listening: re.Pattern[str],
    environment: Mapping[str, str] | None = None,
) -> Generator[tuple[int, tuple[str, ...]]]:
    """Run a command that prints several addresses, in this order.

    Yields:
        Its process id, and the groups of the patterns.
    """
    with _started(command, environment) as process:
        yield process.pid, tuple(_said(process, each) for each in listening)


def _said(process: subprocess.Popen[str], wanted: re.Pattern[str]) -> str:
    """Return the group of the next line that matches."""
    for line in process.stdout or ():
        if found := wanted.search(line):
            return found[1]
    raise RuntimeError(f"{process.args!r} did not listen")


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[str]]:
    """Run a command with additional environment variables; end it on exit."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=ENDING)
            except subprocess.TimeoutExpired:
                process.kill()


def command_of(name: str) -> tuple[list[str], dict[str, str]]:
    """Return the command of a program in Python, and the environment variables it needs.

    Args:
        name: `ONWARD`, `COMPILED` or `RELAY`.

    Raises:
        Missing: It is not installed on this machine.
    """
    if name == RELAY:
        return [sys.executable, str(HERE / "_relay.py")], {}
    if name == ONWARD:
        return _command(), {}
    return [str(Path(sys.executable).with_name("onward"))], compiled_environment()


def _command() -> list[str]:
    """Return the command of Onward."""
    # `ONWARD` can name another version, as of a second checkout, to compare two.
    given = os.environ.get("ONWARD")
    return shlex.split(given) if given else [str(Path(sys.executable).with_name("onward"))]


@contextmanager
def _onward() -> Generator[Rival]:
    given = os.environ.get("ONWARD")
    note = f"onward is what ONWARD names: {given}" if given else ""
    with running([*_command(), *AS_BROKER], LISTENING) as (pid, port):
        yield Rival(ONWARD, pid, port, note=note)


def compiled_environment() -> dict[str, str]:
    """Return the environment variables with which `onward` is the compiled build.

    Raises:
        Missing: It is not built.
    """
    if not any(COMPILED_SITE.rglob("*.so")):
        raise Missing("it is not built: make compiled")
    environment = {"PYTHONPATH": str(COMPILED_SITE)}
    onward = str(Path(sys.executable).with_name("onward"))
    version = subprocess.run(
        [onward, "--version"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if "compiled" not in version:
        raise Missing(f"what is in {COMPILED_SITE} is {version.strip()}")
    return environment


@contextmanager
def _compiled() -> Generator[Rival]:
    command, environment = command_of(COMPILED)
    with running([*command, *AS_BROKER], LISTENING, environment) as (pid, port):
        yield Rival(COMPILED, pid, port, note=compiled_note())


def compiled_note() -> str:
    """Return a note that the compiled build is older than sources; empty if it is not."""
    return _older_than_sources(min(each.stat().st_mtime for each in COMPILED_SITE.rglob("*.so")))


def _older_than_sources(built: float) -> str:
    """Return the note on a build of this time."""
    root = HERE.parent
    newer = sum(
        path.stat().st_mtime > built for folder in SOURCES for path in (root / folder).rglob("*.py")
    )
    if not newer:
        return ""
    return f"compiled is older than {newer} of the source files: make compiled"


@contextmanager
def _relay() -> Generator[Rival]:
    command, _ = command_of(RELAY)
    with running(command, LISTENING) as (pid, port):
        yield Rival(RELAY, pid, port)


def nats_program() -> str:
    """Return the path of nats-server.

    Raises:
        Missing: It is not installed on this machine.
    """
    given = os.environ.get("NATS_SERVER")
    found = given or shutil.which("nats-server") or shutil.which("nats-server", path=NATS_PLACES)
    if not found:
        raise Missing("nats-server is not on the path, and NATS_SERVER does not name it")
    if not shutil.which(found):
        raise Missing(f"NATS_SERVER names {found}, which cannot be run")
    return found


@contextmanager
def _nats() -> Generator[Rival]:
    found = nats_program()
    with TemporaryDirectory() as folder:
        options = Path(folder, "nats.conf")
        options.write_text(NATS_OPTIONS)
        with running([found, "-c", str(options)], NATS_LISTENING) as (pid, port):
            yield Rival(NATS, pid, port, nats_shape)


@contextmanager
def _java() -> Generator[Rival]:
    # The peers of the tests are not an installed package.
    sys.path.insert(0, str(HERE.parent))
    from tests.peers.jvm import JavaMissing, java_broker

    try:
        with java_broker("tcp://127.0.0.1:0") as broker:
            yield Rival(JAVA, broker.process.pid, broker.ports[0])
    except JavaMissing as missing:
        raise Missing(str(missing)) from None


_STARTERS = {ONWARD: _onward, COMPILED: _compiled, JAVA: _java, NATS: _nats, RELAY: _relay}
