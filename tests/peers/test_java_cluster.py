"""Two brokers of ours and the Java broker as one cluster, each with a client of its own."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import NamedTuple

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.actors.cluster import Cluster, ClusterOptions
from onward.protocol.broker import Dialect
from onward.transports.client import Client, ClientOptions, RequestRejected, connect
from onward.transports.rsocket import PeerDialler
from tests.peers.jvm import FAST_START, JavaBroker, JavaMissing, java_broker

pytestmark = [pytest.mark.peer(requester="onward", destination="java broker")]

DIALECTS = (Dialect.SPECIFICATION, Dialect.REFERENCE)
PATIENCE = 60.0
"""Seconds until something has happened on a machine with other things to do."""
CLUSTER = "-Dio.rsocket.broker.cluster."
BROKERS = "-Dio.rsocket.broker.brokers[0]."


class Side(NamedTuple):
    """A broker of ours."""

    node: Node
    cluster: Cluster
    uri: str

    @property
    def up(self) -> int:
        """The peer brokers that it has links with."""
        return sum(row.state == "up" for row in self.cluster.peers())

    def routes_of_java(self) -> int:
        return next((row.routes for row in self.cluster.peers() if row.java), 0)


def free_port() -> int:
    """Return a port for a program that has to tell others of it before it listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@asynccontextmanager
async def side(name: str, *seeds: str) -> AsyncGenerator[Side]:
    async with Node(name) as node:
        broker = await Broker.attach(node)
        cluster = await Cluster.attach(
            node,
            broker,
            ClusterOptions(seeds=seeds, name=name),
            connect=PeerDialler(broker).connect,
        )
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker, peers=cluster)
        cluster.join(listener.uri)
        yield Side(node, cluster, listener.uri)


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.05)


def answering(name: str) -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return name.encode() + b" " + request.data

    @handlers.stream
    async def count(request: Request) -> AsyncGenerator[bytes]:
        for number in range(int(request.data)):
            yield b"%s %d" % (name.encode(), number)

    del answer, count
    return handlers


async def client(stack: AsyncExitStack, uri: str, name: str, service: str) -> Client:
    dialect = Dialect.REFERENCE if name.startswith("java") else Dialect.SPECIFICATION
    options = ClientOptions(dialect=dialect, reconnect=False)
    return await stack.enter_async_context(
        connect(uri, options=options, service=service, handlers=answering(name))
    )


async def asked(client: Client, service: str, text: bytes = b"hi") -> bytes:
    async with asyncio.timeout(PATIENCE):
        return (await client.request(f"service={service}", text)).data


@pytest.fixture
def ports() -> tuple[int, int]:
    """Those of the Java broker: for brokers, and for clients."""
    return free_port(), free_port()


@pytest.fixture
def seed(ports: tuple[int, int]) -> str:
    return f"rsocket+tcp://127.0.0.1:{ports[0]}?proxy={ports[1]}"


@contextmanager
def running(ports: tuple[int, int], *options: str) -> Generator[JavaBroker]:
    """Run the Java broker in a cluster, and kill it at the end."""
    more = f"{CLUSTER}enabled=true", f"{CLUSTER}uri=tcp://127.0.0.1:{ports[0]}"
    place = f"tcp://127.0.0.1:{ports[1]}"
    try:
        with java_broker(place, options=(*FAST_START, *more, *options)) as java:
            yield java
    except JavaMissing as error:
        pytest.skip(f"Java broker: {error}")


async def all_ask_all(clients: dict[str, Client], services: Sequence[str]) -> None:
    for service in services:
        # It tells nothing when it has registered a destination, and a request waits for ever.
        for each in clients.values():
            assert await asked(each, service) == f"{service} hi".encode()


@asynccontextmanager
async def process(uri: str, *seeds: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a broker of ours that can be killed."""
    words = [word for seed in seeds for word in ("--cluster-seed", seed)]
    broker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "onward.cli", "broker", "--listen", uri, *words, stdout=DEVNULL
    )
    try:
        yield broker
    finally:
        with suppress(ProcessLookupError):
            broker.kill()
        await broker.wait()


async def test_each_asks_each(ports: tuple[int, int], seed: str) -> None:
    """Each of three clients at three brokers asks each; and two of the brokers are killed."""
    second = f"rsocket+tcp://127.0.0.1:{free_port()}"
    async with AsyncExitStack() as stack:
        java = stack.enter_context(running(ports))
        one = await stack.enter_async_context(side("one", seed, second))
        two = await stack.enter_async_context(process(second, seed, one.uri))
        await until(lambda: one.up == 2)
        places = {"one": one.uri, "two": second, "java": f"rsocket+tcp://127.0.0.1:{ports[1]}"}
        clients = {name: await client(stack, uri, name, name) for name, uri in places.items()}
        await settled(clients["java"], "one", "two")
        await settled(clients["one"], "java")
        await settled(clients["two"], "java")
        await all_ask_all(clients, list(places))
        # Streams as well, with the credit of the requester.
        for asking, service in (("one", "java"), ("java", "one")):
            stream = clients[asking].stream(f"service={service}", b"100")
            got = [element.data async for element in stream]
            assert got == [b"%s %d" % (service.encode(), at) for at in range(100)]

        # One of ours is killed: the others go on.
        two.kill()
        await until(lambda: one.up == 1)
        rest = {name: each for name, each in clients.items() if name != "two"}
        await all_ask_all(rest, ["one", "java"])

        # The Java broker is killed: its routes go with it, at once.
        java.process.kill()
        await until(lambda: one.up == 0 and one.routes_of_java() == 0)
        assert await asked(clients["one"], "one") == b"one hi"

        # It is back, with another id, and is told what is here; its clients connect again.
        stack.enter_context(running(ports))
        await until(lambda: one.up == 1)
        again = await client(stack, places["java"], "java", "java")
        await until(lambda: one.routes_of_java() == 1)
        await settled(again, "one")
        await all_ask_all({"one": clients["one"], "java": again}, ["one", "java"])


async def settled(asking: Client, *services: str) -> None:
    """Wait until the Java broker knows services; a request that comes before waits for ever."""
    for service in services:
        for _ in range(60):
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await asking.request(f"service={service}", b"?")
                    break
        else:
            raise AssertionError(f"{service} is never known")


async def test_a_multicast_reaches_each_once(ports: tuple[int, int], seed: str) -> None:
    got: list[str] = []

    def listening(name: str) -> Handlers:
        handlers = Handlers()

        @handlers.fire_and_forget
        async def take(request: Request) -> None:
            got.append(name + " " + request.data.decode())

        del take
        return handlers

    with running(ports):
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(side("one", seed))
            two = await stack.enter_async_context(side("two", seed, one.uri))
            await until(lambda: one.up == two.up == 2)
            java = f"rsocket+tcp://127.0.0.1:{ports[1]}"
            places = {"one": one.uri, "two": two.uri, "java-1": java, "java-2": java}
            for name, uri in places.items():
                options = ClientOptions(dialect=DIALECTS[uri == java])
                await stack.enter_async_context(
                    connect(uri, options=options, service="all", handlers=listening(name))
                )
            await until(lambda: one.routes_of_java() == 2)
            asking = await client(stack, one.uri, "asking", "asking")
            await asking.send("@multicast service=all", b"m")
            await until(lambda: len(got) >= 4)
            assert sorted(got) == [f"{name} m" for name in sorted(places)]


async def test_it_dials(ports: tuple[int, int]) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(side("one"))
        place = one.uri.removeprefix("rsocket+")
        with running(ports, f"{BROKERS}cluster={place}", f"{BROKERS}proxy={place}"):
            await until(lambda: one.up == 1)
            uri = f"rsocket+tcp://127.0.0.1:{ports[1]}"
            here = await client(stack, one.uri, "one", "one")
            there = await client(stack, uri, "java", "java")
            await until(lambda: one.routes_of_java() == 1)
            await settled(there, "one")
            await all_ask_all({"one": here, "java": there}, ["one", "java"])
        await until(lambda: one.up == 0 and one.routes_of_java() == 0)


async def test_a_request_for_a_destination_that_has_left_is_rejected(
    ports: tuple[int, int], seed: str
) -> None:
    with running(ports):
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(side("one", seed))
            await until(lambda: one.up == 1)
            there = await client(stack, f"rsocket+tcp://127.0.0.1:{ports[1]}", "java", "java")
            async with AsyncExitStack() as leaving:
                await client(leaving, one.uri, "one", "one")
                await settled(there, "one")
            # It has not heard of it, and sends the request here.
            with pytest.raises(RequestRejected):
                await asked(there, "one")
