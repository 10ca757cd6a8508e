"""Two brokers of ours and the Java broker as one cluster, each with a client of its own."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from signal import SIGCONT, SIGSTOP
from typing import NamedTuple

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.actors.cluster import Cluster, ClusterOptions
from onward.actors.security import Authorization
from onward.protocol.broker import Dialect
from onward.protocol.security import read_rules
from onward.transports.client import Client, ClientOptions, RequestRejected, connect
from onward.transports.rsocket import DestinationError, PeerDialler, RSocketListener
from tests.peers.jvm import FAST_START, JavaBroker, JavaMissing, java_broker
from tests.peers.programs import TRANSPORTS
from tests.support.proxy import CuttingProxy

pytestmark = [pytest.mark.peer(requester="onward", destination="java broker")]

DIALECTS = (Dialect.SPECIFICATION, Dialect.REFERENCE)
PATIENCE = 60.0
"""Seconds until something has happened on a machine with other things to do."""
CLUSTER = "-Dio.rsocket.broker.cluster."
BROKERS = "-Dio.rsocket.broker.brokers[0]."


TAKEN = ("note", "news")
"""What a destination gets without an answer."""
RULES = """
[[rule]]
names = ["anonymous"]
peer = true
register = "*"
request = "service=*"
"""


class Side(NamedTuple):
    """A broker of ours."""

    listener: RSocketListener
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
async def side(name: str, *seeds: str, rules: str = "") -> AsyncGenerator[Side]:
    async with Node(name) as node:
        authorization = Authorization(read_rules(rules)) if rules else None
        broker = await Broker.attach(node, authorization=authorization)
        cluster = await Cluster.attach(
            node,
            broker,
            ClusterOptions(seeds=seeds, name=name),
            connect=PeerDialler(broker).connect,
        )
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker, peers=cluster)
        cluster.join(listener.uri)
        assert isinstance(listener, RSocketListener)
        yield Side(listener, cluster, listener.uri)


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.05)


GOT: list[str] = []
"""What the destinations of `answering` got without an answer."""


def answering(name: str) -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return name.encode() + b" " + request.data

    @handlers.stream
    async def count(request: Request) -> AsyncGenerator[bytes]:
        for number in range(int(request.data)):
            yield b"%s %d" % (name.encode(), number)

    @handlers.channel
    async def echo(_: Request, incoming: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        async for element in incoming:
            yield name.encode() + b" " + element

    @handlers.fire_and_forget
    async def take(request: Request) -> None:
        GOT.append(f"{name} {request.data.decode()}")

    @handlers.metadata_push("news")
    async def take_push(_: Request) -> None:
        GOT.append(f"{name} news")

    del answer, count, echo, take, take_push
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
def running(ports: tuple[int, int], *options: str, by: str = "tcp") -> Generator[JavaBroker]:
    """Run the Java broker in a cluster, and kill it at the end."""
    more = f"{CLUSTER}enabled=true", f"{CLUSTER}uri={by}://127.0.0.1:{ports[0]}"
    place = f"{by}://127.0.0.1:{ports[1]}"
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


async def elements(texts: Sequence[str]) -> AsyncGenerator[bytes]:
    for text in texts:
        yield text.encode()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_interaction_goes_both_ways(ports: tuple[int, int], transport: str) -> None:
    """Each crosses the link, which is over TCP or WebSocket as the Java broker listens by."""
    seed = f"rsocket+{transport}://127.0.0.1:{ports[0]}?proxy={ports[1]}"
    async with AsyncExitStack() as stack:
        stack.enter_context(running(ports, by=transport))
        one = await stack.enter_async_context(side("one", seed))
        await until(lambda: one.up == 1)
        here = await client(stack, one.uri, "one", "one")
        uri = f"rsocket+{transport}://127.0.0.1:{ports[1]}"
        there = await client(stack, uri, "java", "java")
        await until(lambda: one.routes_of_java() == 1)
        await settled(there, "one")
        GOT.clear()
        for asking, service in ((here, "java"), (there, "one")):
            to = f"service={service}"
            async with asyncio.timeout(PATIENCE):
                assert await asked(asking, service) == f"{service} hi".encode()
                stream = [each.data async for each in asking.stream(to, b"300")]
                assert stream == [b"%s %d" % (service.encode(), at) for at in range(300)]
                texts = [str(number) for number in range(100)]
                channel = [each.data async for each in asking.channel(to, elements(texts))]
                assert channel == [f"{service} {text}".encode() for text in texts]
                await asking.send(to, b"note")
                await asking.push(to, route="news")
        wanted = sorted(f"{service} {text}" for service in ("one", "java") for text in TAKEN)
        await until(lambda: sorted(GOT) == wanted)


async def test_a_java_broker_that_is_stopped_and_goes_on(ports: tuple[int, int], seed: str) -> None:
    async with AsyncExitStack() as stack:
        java = stack.enter_context(running(ports))
        one = await stack.enter_async_context(side("one", seed))
        await until(lambda: one.up == 1)
        here = await client(stack, one.uri, "one", "one")
        uri = f"rsocket+tcp://127.0.0.1:{ports[1]}"
        await client(stack, uri, "java", "java")
        await until(lambda: one.routes_of_java() == 1)
        java.process.send_signal(SIGSTOP)
        try:
            # Its lifetime of five seconds ends, and its routes go with the link.
            await until(lambda: one.up == 0 and one.routes_of_java() == 0)
            assert await asked(here, "one") == b"one hi"
            with pytest.raises(RequestRejected):
                await here.request("@no-route=reject service=java", b"")
        finally:
            java.process.send_signal(SIGCONT)
        await until(lambda: one.up == 1)
        again = await client(stack, uri, "java-again", "java-again")
        await until(lambda: one.routes_of_java() == 1)
        await settled(again, "one")
        await all_ask_all({"one": here, "java": again}, ["one", "java-again"])


async def test_a_broker_of_ours_that_is_stopped_and_goes_on(
    ports: tuple[int, int], seed: str
) -> None:
    place = f"rsocket+tcp://127.0.0.1:{free_port()}"
    async with AsyncExitStack() as stack:
        stack.enter_context(running(ports))
        one = await stack.enter_async_context(side("one", seed, place))
        two = await stack.enter_async_context(process(place, seed, one.uri))
        await until(lambda: one.up == 2)
        here = await client(stack, one.uri, "one", "one")
        await client(stack, place, "two", "two")
        there = await client(stack, f"rsocket+tcp://127.0.0.1:{ports[1]}", "java", "java")
        await settled(there, "one", "two")
        await settled(here, "two", "java")
        two.send_signal(SIGSTOP)
        try:
            await until(lambda: one.up == 1)
            await all_ask_all({"one": here, "java": there}, ["one", "java"])
        finally:
            two.send_signal(SIGCONT)
        await until(lambda: one.up == 2)
        # The Java broker is told again what is there.
        await settled(there, "two")
        await all_ask_all({"one": here, "java": there}, ["one", "two", "java"])


async def test_links_that_are_cut_and_heal(ports: tuple[int, int]) -> None:
    """A proxy cuts both connections to the Java broker, and refuses others for a while."""
    async with AsyncExitStack() as stack:
        stack.enter_context(running(ports))
        proxies = [await stack.enter_async_context(CuttingProxy(port).running()) for port in ports]
        seed = f"rsocket+tcp://127.0.0.1:{proxies[0].port}?proxy={proxies[1].port}"
        one = await stack.enter_async_context(side("one", seed))
        await until(lambda: one.up == 1)
        here = await client(stack, one.uri, "one", "one")
        uri = f"rsocket+tcp://127.0.0.1:{ports[1]}"
        for number, cut in enumerate((proxies, proxies[:1], proxies[1:])):
            there = await client(stack, uri, f"java-{number}", f"java-{number}")
            await until(lambda: one.routes_of_java() == 1)
            await settled(there, "one")
            await all_ask_all({"one": here, "java": there}, ["one", f"java-{number}"])
            for proxy in proxies:
                proxy.refuses = True
            for proxy in cut:
                proxy.cut()
            await until(lambda: one.up == 0 and one.routes_of_java() == 0)
            assert await asked(here, "one") == b"one hi"
            for proxy in proxies:
                proxy.refuses = False
            await until(lambda: one.up == 1)


async def settled(asking: Client, *services: str) -> None:
    """Wait until the Java broker knows services; a request that comes before waits for ever."""
    for service in services:
        for _ in range(60):
            try:
                async with asyncio.timeout(1):
                    await asking.request(f"service={service}", b"?")
                    break
            except TimeoutError:
                continue
            except DestinationError:  # its link to the other broker is lost, and not yet back
                await asyncio.sleep(0.5)
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


@pytest.mark.parametrize("rules", ["", RULES], ids=["without-rules", "by-a-rule"])
async def test_it_dials(ports: tuple[int, int], rules: str) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(side("one", rules=rules))
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


async def test_a_java_broker_that_no_rule_lets_in(ports: tuple[int, int]) -> None:
    async with side("one", rules=RULES.replace("peer = true", "")) as one:
        place = one.uri.removeprefix("rsocket+")
        with running(ports, f"{BROKERS}cluster={place}", f"{BROKERS}proxy={place}"):
            await until(lambda: one.listener.statistics().closed.get("setup refused", 0) > 0)
            assert one.cluster.peers() == []
