"""The programs of `java/`: built once, and started as child processes.

Benchmarks start the Java broker with this module too, so it needs the standard library alone.

    with java_broker("tcp://127.0.0.1:0") as broker:
        port, pid = broker.ports[0], broker.process.pid
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

__all__ = ["FAST_START", "JavaBroker", "JavaMissing", "build", "java_broker", "java_command"]

FOLDER = Path(__file__).with_name("java")
TARGET = FOLDER / "target"
OLDEST_JAVA = 17
BUILD_TIMEOUT = 300.0
"""Seconds. The first build fetches 90 MB of other people's code."""

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Options of the JVM for programs that run for seconds. Not for a measurement."""


class JavaMissing(Exception):
    """The programs cannot run on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class JavaBroker:
    """A Java broker that listens.

    Attributes:
        process: The JVM. Its standard input has to stay open: it ends when that does.
        uris: Where it listens, as `tcp://127.0.0.1:8001` or `ws://127.0.0.1:8002`.
    """

    process: subprocess.Popen[str]
    uris: tuple[str, ...]

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of its URIs."""
        return tuple(int(uri.rpartition(":")[2]) for uri in self.uris)


def java_command(name: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a program of `java/`, which is built if need be.

    Args:
        name: The class, such as `JavaBroker`.
        arguments: The program's own.
        options: Those of the JVM; none by default.

    Raises:
        JavaMissing: There is no Java, or the programs cannot be built.
    """
    java = build()
    class_path = f"{TARGET / 'java-peer.jar'}:{TARGET / 'lib'}/*"
    return [java, *options, "-cp", class_path, f"onward.peers.{name}", *arguments]


@contextmanager
def java_broker(
    *uris: str,
    options: Sequence[str] = (),
    balancer: str = "roundrobin",
    enter: Sequence[str] = (),
) -> Generator[JavaBroker]:
    """Run the Java broker without a cluster, and kill it at the end.

    Args:
        uris: Where it listens: `tcp://HOST:PORT` or `ws://HOST:PORT`, port 0 for any free one.
            All listeners share one routing table. By default TCP on any free port.
        options: Options of the JVM; none by default, as for a measurement.
        balancer: Its default load balancer, `roundrobin` or `weighted`.
        enter: The words before the command, which run it elsewhere.

    Raises:
        JavaMissing: There is no Java, or the programs cannot be built.
        AssertionError: It ended before it listened.
    """
    wanted = uris or ("tcp://127.0.0.1:0",)
    balance = f"-Dio.rsocket.broker.default-load-balancer={balancer}"
    command = [*enter, *java_command("JavaBroker", *wanted, options=(*options, balance))]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout
        try:
            lines = [process.stdout.readline().split() for _ in wanted]
            assert all(lines), "the Java broker ended before it listened"
            yield JavaBroker(process, tuple(uri for _, uri in lines))
        finally:
            process.kill()
            process.communicate()


def build() -> str:
    """Build the programs, unless they are there already; return the path of Java.

    Processes that run side by side wait for the first one of them. What is built needs neither
    Maven nor a network, until a file of `java/` changes.

    Raises:
        JavaMissing: There is no Java, or the build failed.
    """
    java = shutil.which("java")
    if not java:
        raise JavaMissing("java is not installed")
    words = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    version = re.search(r'version "(\d+)', words)
    if not version or int(version[1]) < OLDEST_JAVA:
        raise JavaMissing(f"java is older than {OLDEST_JAVA}: {words.partition(chr(10))[0]}")
    TARGET.mkdir(exist_ok=True)
    built = TARGET / ".built"
    with (TARGET / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = _digest()
        if not (built.exists() and built.read_text() == wanted):
            _run_maven()
            built.write_text(wanted)
    return java


def _digest() -> str:
    """Return a digest of all that is built."""
    files = [FOLDER / "pom.xml", *sorted(FOLDER.glob("src/**/*.*"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _run_maven() -> None:
    maven = shutil.which("mvn")
    if not maven:
        raise JavaMissing("mvn is not installed, and the programs are not built")
    try:
        done = subprocess.run(
            [maven, "--quiet", "--batch-mode", "package"],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise JavaMissing(f"mvn package did not end within {BUILD_TIMEOUT:.0f} s") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        first = next((line for line in lines if line.startswith("[ERROR]")), "no message")
        raise JavaMissing(f"mvn package failed: {first.removeprefix('[ERROR]').strip()}")
