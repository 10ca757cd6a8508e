"""Brokers that are processes in a network of namespaces, and form a cluster there."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Any, Final

import pytest

from onward.cli import main
from onward.cli._client import ask_broker
from onward.cli._status import CommandError
from tests.peers.jvm import FAST_START, JavaBroker, JavaMissing, java_broker
from tests.peers.programs import LISTENING, TIMEOUT, Program
from tests.support.namespaces import Network, NetworkMissing

__all__ = ["NetworkedBroker", "brokers", "java_in", "java_seed", "joined", "network_of", "until"]

PATIENCE: Final = 120.0
"""Seconds until something has happened in a cluster of many on a machine with two cores."""
ANSWER: Final = 20.0
"""Seconds to wait for the answer of a broker, which may hang, before it is asked again."""
PORT: Final = 8001
CLUSTER_PORT: Final = 7001
"""The port for brokers, of a Java broker."""
RULES: Final = """
[[rule]]
roles = ["broker"]
peer = true

[[rule]]
names = ["*"]
register = "*"
request = ["service=*", "route=*"]
read = true
"""


async def until(
    condition: Callable[[], Awaitable[object]], wanted: object = True, about: str = ""
) -> None:
    """Wait until something is as wanted."""
    end = time.monotonic() + PATIENCE
    while (found := await condition()) != wanted:
        assert time.monotonic() < end, f"{about}: {found}"
        await asyncio.sleep(0.1)


@asynccontextmanager
async def network_of(names: Sequence[str]) -> AsyncGenerator[Network]:
    """Run a network of hosts, or skip the test: links are cut by a proxy in `tests/cli` as well."""
    try:
        running = Network.running(names)
        network = running.__enter__()
    except NetworkMissing as error:
        pytest.skip(f"no network namespaces here: {error}; tests/cli/test_cluster.py cuts by proxy")
    try:
        yield network
    finally:
        running.__exit__(None, None, None)


class NetworkedBroker:
    """An Onward broker at a host of a network.

    Attributes:
        name: The name of the host, and its own.
        uri: Where it listens, for clients of any make.
    """

    def __init__(
        self, network: Network, name: str, words: Sequence[str], stack: AsyncExitStack
    ) -> None:
        self.name = name
        self.uri = f"tcp://{network[name].address}:{PORT}"
        self._enter = network[name].enter
        self._words = words
        self._stack = stack
        self._program: Program | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        onward = str(Path(sys.executable).with_name("onward"))
        uri = f"rsocket+{self.uri}"
        own = ("--listen", uri, "--cluster-name", self.name, "--log", "error")
        running = Program.running(*self._enter, onward, "broker", *own, *self._words)
        self._program = await self._stack.enter_async_context(running)
        async with asyncio.timeout(PATIENCE):
            line = await self._program.line_or_end()
        assert line.partition(LISTENING)[2] == self.uri, line

    def tell(self, number: Signals) -> None:
        """Send it a signal."""
        assert self._program
        self._program.tell_signal(number)

    async def kill(self) -> None:
        """Kill it."""
        assert self._program
        await self._program.kill()

    async def end(self) -> None:
        """Have it drain, and wait until it has ended."""
        assert self._program
        self.tell(SIGTERM)
        assert await self._program.finished() == 0

    async def asked(self, question: str) -> Any:
        """Ask its management service; None if it does not answer."""
        try:
            return await ask_broker(f"rsocket+{self.uri}", question, ANSWER)
        except (CommandError, TimeoutError):
            return None

    async def up(self) -> set[str]:
        """Return the names of the peer brokers that are up; that of a Java broker is `java`."""
        found = await self.asked("/api/v1/peers?kind=broker")
        rows: list[dict[str, Any]] = [] if found is None else found["rows"]
        return {"java" if row["java"] else row["peer"] for row in rows if row["state"] == "up"}

    async def routes(self) -> set[tuple[str, str]]:
        """Return the id and the service of each route that clients have registered."""
        rows: list[dict[str, str]] = await self.asked("routes") or []
        found = [(row["route"], row["service"]) for row in rows]
        return {each for each in found if not each[1].startswith("onward.")}

    async def table(self, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
        """Return the words of `onward peers`, line by line."""
        capsys.readouterr()
        words = ["peers", "--broker", f"rsocket+{self.uri}", "--timeout", str(TIMEOUT)]
        assert await asyncio.to_thread(main, words) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()]


@asynccontextmanager
async def brokers(
    network: Network, names: Sequence[str], folder: Path, *words: str
) -> AsyncGenerator[dict[str, NetworkedBroker]]:
    """Run a cluster of brokers that show a token to each other; they are killed in the end.

    Args:
        network: The network.
        names: The hosts, and names of the brokers.
        folder: The folder for the files of rules, principals and the token.
        words: More options of each.
    """
    rules, principals, token = (folder / name for name in ("rules", "principals", "token"))
    rules.write_text(RULES)
    if not token.exists():
        command = ["token", "new", "brokers", "--role", "broker", "--file", str(principals)]
        token.write_text(await _printed(*command))
    access = ("--principals", str(principals), "--rules", str(rules), "--anonymous")
    mesh = ("--cluster-token", str(token), "--cluster-allow", "*", *words)
    # The first two are seeds of all, so that either finds the others again.
    seeds = [f"rsocket+tcp://{network[name].address}:{PORT}" for name in names[:2]]
    async with AsyncExitStack() as stack:
        made: dict[str, NetworkedBroker] = {}
        for name in names:
            own = f"rsocket+tcp://{network[name].address}:{PORT}"
            more = [word for seed in seeds if seed != own for word in ("--cluster-seed", seed)]
            made[name] = NetworkedBroker(network, name, (*access, *mesh, *more), stack)
        await asyncio.gather(*(each.start() for each in made.values()))
        yield made


async def _printed(*words: str) -> str:
    """Return the first word that a command prints."""
    onward = str(Path(sys.executable).with_name("onward"))
    async with Program.running(onward, *words) as program:
        return (await program.line()).split()[0]


async def joined(made: dict[str, NetworkedBroker], *others: str) -> None:
    """Wait until each broker has links with all others."""
    for name, each in made.items():
        await until(each.up, {*made, *others} - {name}, f"up at {name}")


def java_seed(network: Network, name: str) -> tuple[str, str]:
    """Return the words of an Onward broker that has the Java broker at a host as a seed."""
    address = network[name].address
    return "--cluster-seed", f"rsocket+tcp://{address}:{CLUSTER_PORT}?proxy={PORT}"


def java_in(network: Network, name: str, stack: AsyncExitStack) -> JavaBroker:
    """Run the Java broker at a host, with its two ports; the stack kills it."""
    host = network[name]
    options = (
        *FAST_START,
        "-Dio.rsocket.broker.cluster.enabled=true",
        f"-Dio.rsocket.broker.cluster.uri=tcp://{host.address}:{CLUSTER_PORT}",
    )
    where = f"tcp://{host.address}:{PORT}"
    try:
        java = stack.enter_context(java_broker(where, options=options, enter=host.enter))
    except JavaMissing as error:
        pytest.skip(f"Java broker: {error}")
    # It tells the port that came last, which may be the one for brokers.
    return JavaBroker(java.process, (where,))
