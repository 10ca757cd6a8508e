"""Two brokers of ours and the Java broker as one cluster, each with a client of its own."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from signal import SIGCONT, SIGSTOP

import pytest

from onward.actors.broker import Handlers, Request
from onward.transports.client import ClientOptions, RequestRejected, connect
from tests.peers.java_cluster import (
    BROKERS,
    DIALECTS,
    GOT,
    PATIENCE,
    TAKEN,
    all_ask_all,
    asked,
    client,
    free_port,
    running,
    secret_stores,
    settled,
    side,
    until,
)
from tests.peers.programs import TRANSPORTS
from tests.support.certificates import Certificates
from tests.support.proxy import CuttingProxy

pytestmark = [pytest.mark.peer(requester="onward", destination="java broker")]

RULES = """
[[rule]]
names = ["anonymous"]
peer = true
register = "*"
request = "service=*"
"""


LINKS = (*TRANSPORTS, "wss")
"""What a link with it can be over."""


@pytest.fixture
def ports() -> tuple[int, int]:
    """Those of the Java broker: for brokers, and for clients."""
    return free_port(), free_port()


@pytest.fixture
def seed(ports: tuple[int, int]) -> str:
    return f"rsocket+tcp://127.0.0.1:{ports[0]}?proxy={ports[1]}"


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
        places = {"java": f"rsocket+tcp://127.0.0.1:{ports[1]}", "one": one.uri, "two": second}
        clients = {"java": await client(stack, places["java"], "java", "java")}
        await until(lambda: one.routes_of_java() == 1)
        for name in ("one", "two"):
            clients[name] = await client(stack, places[name], name, name)
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
        await until(lambda: one.up == 1 and one.told)
        again = await client(stack, places["java"], "java", "java")
        await until(lambda: one.routes_of_java() == 1)
        await settled(again, "one")
        await all_ask_all({"one": clients["one"], "java": again}, ["one", "java"])


async def elements(texts: Sequence[str]) -> AsyncGenerator[bytes]:
    for text in texts:
        yield text.encode()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("transport", LINKS)
async def test_every_interaction_goes_both_ways(
    ports: tuple[int, int], certificates: Certificates, transport: str
) -> None:
    """Each crosses the link, which is over what the Java broker listens by."""
    secure = certificates if transport == "wss" else None
    options = secret_stores(certificates) if secure else ()
    tls = secure.anonymous if secure else None
    seed = f"rsocket+{transport}://127.0.0.1:{ports[0]}?proxy={ports[1]}"
    async with AsyncExitStack() as stack:
        stack.enter_context(running(ports, *options, by=transport))
        one = await stack.enter_async_context(side("one", seed, secure=secure))
        await until(lambda: one.up == 1)
        uri = f"rsocket+{transport}://127.0.0.1:{ports[1]}"
        there = await client(stack, uri, "java", "java", tls)
        await until(lambda: one.routes_of_java() == 1)
        here = await client(stack, one.uri, "one", "one", tls)
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
        uri = f"rsocket+tcp://127.0.0.1:{ports[1]}"
        await client(stack, uri, "java", "java")
        await until(lambda: one.routes_of_java() == 1)
        here = await client(stack, one.uri, "one", "one")
        java.process.send_signal(SIGSTOP)
        try:
            # Its lifetime of five seconds ends, and its routes go with the link.
            await until(lambda: one.up == 0 and one.routes_of_java() == 0)
            assert await asked(here, "one") == b"one hi"
            with pytest.raises(RequestRejected):
                await here.request("@no-route=reject service=java", b"")
        finally:
            java.process.send_signal(SIGCONT)
        await until(lambda: one.up == 1 and one.told)
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
        there = await client(stack, f"rsocket+tcp://127.0.0.1:{ports[1]}", "java", "java")
        await until(lambda: one.routes_of_java() == 1)
        here = await client(stack, one.uri, "one", "one")
        await client(stack, place, "two", "two")
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
        assert await asked(here, "one") == b"one hi"
        uri = f"rsocket+tcp://127.0.0.1:{ports[1]}"
        for number, cut in enumerate((proxies, proxies[:1], proxies[1:])):
            await until(lambda: one.up == 1 and one.told)
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
            places = {"java-1": java, "java-2": java, "one": one.uri, "two": two.uri}

            async def listen(name: str) -> None:
                uri = places[name]
                options = ClientOptions(dialect=DIALECTS[uri == java])
                await stack.enter_async_context(
                    connect(uri, options=options, service="all", handlers=listening(name))
                )

            await listen("java-1")
            await until(lambda: one.routes_of_java() == 1)
            await listen("java-2")
            await until(lambda: one.routes_of_java() == 2)
            await listen("one")
            await listen("two")
            await until(lambda: sum(row.routes for row in one.cluster.peers()) == 3)
            asking = await client(stack, one.uri, "asking", "asking")
            await asking.send("@multicast service=all", b"m")
            await until(lambda: len(got) >= 4)
            assert sorted(got) == [f"{name} m" for name in sorted(places)]


@pytest.mark.parametrize("transport", ["tcp", "wss"])
@pytest.mark.parametrize("rules", ["", RULES], ids=["without-rules", "by-a-rule"])
async def test_it_dials(
    ports: tuple[int, int], certificates: Certificates, rules: str, transport: str
) -> None:
    secure = certificates if transport == "wss" else None
    options = secret_stores(certificates) if secure else ()
    tls = secure.anonymous if secure else None
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(side("one", rules=rules, secure=secure))
        place = one.uri.removeprefix("rsocket+")
        dials = (f"{BROKERS}cluster={place}", f"{BROKERS}proxy={place}")
        with running(ports, *dials, *options, by=transport):
            await until(lambda: one.up == 1)
            uri = f"rsocket+{transport}://127.0.0.1:{ports[1]}"
            there = await client(stack, uri, "java", "java", tls)
            await until(lambda: one.routes_of_java() == 1)
            here = await client(stack, one.uri, "one", "one", tls)
            await settled(there, "one")
            await all_ask_all({"one": here, "java": there}, ["one", "java"])
        await until(lambda: one.up == 0 and one.routes_of_java() == 0)


async def test_a_java_broker_that_does_not_trust_the_certificate(
    ports: tuple[int, int], certificates: Certificates
) -> None:
    """It dials, and leaves: the system's authorities have not signed the certificate."""
    async with side("one", secure=certificates) as one:
        place = one.uri.removeprefix("rsocket+")
        with running(ports, f"{BROKERS}cluster={place}", f"{BROKERS}proxy={place}"):
            await until(lambda: bool(one.listener.statistics().refused_handshakes))
            assert "certificate" in str(one.listener.statistics().refused_handshakes)
            assert one.cluster.peers() == []


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
