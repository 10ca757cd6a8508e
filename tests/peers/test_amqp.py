"""Clients of AMQP 1.0: Proton for Python, rhea for Node, go-amqp, and protonj2 for Java."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.dispatch import (
    DISPATCH,
    Accept,
    CircuitClosed,
    CircuitConsumer,
    CircuitHandler,
    CircuitProducer,
    Dispatcher,
    Received,
)
from onward.protocol.dispatch import (
    ACCEPTED,
    Access,
    Gate,
    Last,
    Mechanism,
    Retry,
    RoutingPattern,
    Semantics,
)
from onward.protocol.security import Principal, UserPassword
from onward.transports.amqp import AmqpContainer, AmqpOptions, LinkRoute
from tests.peers.foreign import HERE, NPM, PeerMissing, built
from tests.peers.jvm import FAST_START
from tests.support.amqp import needs_proton
from tests.support.amqp_queues import Queues
from tests.support.certificates import Certificates
from tests.support.security import gated
from tests.support.transports import eventually

pytestmark = [pytest.mark.peer, pytest.mark.real_time]

TIMEOUT = 60.0
BUILD_TIMEOUT = 300.0
GO = ("go", "build", "-mod=mod", "-o", "peer", ".")
MAVEN = ("mvn", "--quiet", "--batch-mode", "package")
CLASSES = "{place}/target/amqp-peer-1.jar:{place}/target/lib/*"
PYTHON = (sys.executable, "-W", "error", "{place}/peer.py")
MAKES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    # Nothing has to be built but Proton itself, which is in the environment of the tests.
    "proton": ("amqp_python", (), PYTHON),
    "rhea": ("amqp_js", NPM, ("node", "{place}/peer.js")),
    "go-amqp": ("amqp_go", GO, ("{place}/peer",)),
    "protonj2": (
        "amqp_java",
        MAVEN,
        ("java", *FAST_START, "-cp", CLASSES, "onward.peers.AmqpPeer"),
    ),
}


EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "amqp"
SHOPPERS = {
    "proton": (sys.executable, "-W", "error", "{examples}/shopper.py"),
    "rhea": ("node", "{place}/shopper.mjs"),
    "go-amqp": ("{place}/shop",),
    "protonj2": ("java", *FAST_START, "-cp", "{place}/target/lib/*", "{examples}/Shopper.java"),
}
"""The programs of the page about clients of AMQP."""


def place_of(name: str) -> Path:
    """Return where a client is built; skip the test if it cannot be."""
    needs_proton()
    folder, build, run = MAKES[name]
    if not build:
        return HERE / folder
    try:
        for tool in (build[0], run[0]):
            if "{place}" not in tool and shutil.which(tool) is None:
                raise PeerMissing(f"{tool} is not installed")
        return built(folder, [build], timeout=BUILD_TIMEOUT)
    except PeerMissing as error:
        pytest.skip(f"AMQP client {name}: {error}")


@pytest.fixture(scope="module", params=MAKES)
def client(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The command of a client."""
    place = place_of(request.param)
    return tuple(each.format(place=place) for each in MAKES[request.param][2])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def listening(
    uri: str = "amqp://127.0.0.1:0", **more: Any
) -> AsyncGenerator[tuple[Dispatcher, str]]:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        listener = await node.listen(uri, dispatcher=dispatcher, **more)
        yield dispatcher, listener.uri.replace("127.0.0.1", "localhost")


async def printed(*command: str, **environment: str) -> str:
    """Run a program, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, env={**os.environ, **environment}
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), TIMEOUT)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode()


async def run(client: tuple[str, ...], uri: str, *arguments: str, **environment: str) -> Any:
    """Run a client, and return what it reports."""
    return json.loads(await printed(*client, uri, *arguments, **environment))


def by_content(delivery: Received) -> None:
    if b"bad" in delivery.payload:
        delivery.reject("shop:closed", "come back tomorrow")
    elif b"back" in delivery.payload:
        delivery.release()
    elif b"lost" in delivery.payload:
        delivery.modify()
    else:
        delivery.accept()


async def test_a_client_sends_and_is_told_each_outcome(client: tuple[str, ...]) -> None:
    async with listening() as (dispatcher, uri):
        await dispatcher.consume("orders", by_content, accept=Accept.SELF)
        sent = ["good", "bad", "back", "lost", "@300000", "good"]
        assert await run(client, uri, "send", "orders", *sent) == [
            "accepted",
            "rejected shop:closed",
            "released",
            "modified",
            "accepted",
            "accepted",
        ]


async def test_a_client_waits_for_credit_and_has_a_window(client: tuple[str, ...]) -> None:
    async with listening() as (dispatcher, uri):
        many = ["good"] * 600
        sending = asyncio.create_task(run(client, uri, "send", "orders", *many))
        got: list[bytes] = []
        # Nothing is sent before there is a consumer.
        producers = 0
        async with asyncio.timeout(TIMEOUT):
            while not producers:
                await asyncio.sleep(0.01)
                producers = dispatcher.statistics().producers
        await dispatcher.consume("orders", lambda each: got.append(each.payload), window=5)
        assert await sending == ["accepted"] * 600
        assert len(got) == 600


async def test_a_client_receives_and_tells_each_outcome(client: tuple[str, ...]) -> None:
    async with listening() as (dispatcher, uri):
        producer = await dispatcher.produce("orders")
        receiving = asyncio.create_task(
            run(client, uri, "receive", "orders", "accept", "reject", "modify", "release", "accept")
        )
        outcomes = [
            type(await asyncio.wait_for(producer.send(each), TIMEOUT)).__name__
            for each in (b"a", b"b", b"c", b"d", b"x" * 300_000)
        ]
        assert outcomes == ["Accepted", "Rejected", "Modified", "Released", "Accepted"]
        assert await receiving == ["a", "b", "c", "d", "@300000"]


async def test_a_client_drains(client: tuple[str, ...]) -> None:
    if "amqp_go" in client[0]:
        pytest.skip("go-amqp drains with a credit of 0, which Proton's engine does not answer")
    async with listening() as (dispatcher, uri):
        hold = Semantics(gate=Gate.OPEN, undeliverable=(Retry(), Last.RELEASE))
        dispatcher.provision("orders", hold)
        producer = await dispatcher.produce("orders")
        sending = [asyncio.create_task(producer.send(each)) for each in (b"a", b"b", b"c")]
        assert await run(client, uri, "drain", "orders", "20") == ["a", "b", "c", 0]
        assert await asyncio.gather(*sending) == [ACCEPTED] * 3


async def test_a_client_asks_with_a_dynamic_address(client: tuple[str, ...]) -> None:
    proton: Any = importlib.import_module("proton")
    async with listening() as (dispatcher, uri):
        answers = await dispatcher.produce_any()

        async def answer(delivery: Received) -> None:
            message = proton.Message()
            message.decode(delivery.payload)
            again = proton.Message(f"{message.body} pears", correlation_id=message.correlation_id)
            # A client that waits for the outcome before it reads the answer.
            delivery.accept()
            await answers.send(message.reply_to, bytes(again.encode()))

        await dispatcher.consume("orders", answer)
        assert await run(client, uri, "request", "orders", "12") == ["12 pears", "1"]


async def test_one_client_sends_to_another(client: tuple[str, ...]) -> None:
    async with listening() as (_, uri):
        hows = ["accept", "reject", "accept"]
        receiving = asyncio.create_task(run(client, uri, "receive", "orders", *hows))
        assert await run(client, uri, "send", "orders", "a", "b", "@200000") == [
            "accepted",
            "rejected shop:closed",
            "accepted",
        ]
        assert await receiving == ["a", "b", "@200000"]


# --- links that go through to a container -------------------------------------------------------


@asynccontextmanager
async def through() -> AsyncGenerator[tuple[Queues, AmqpContainer, str]]:
    """A container of Proton, a node that is connected to it, and another one with a listener."""
    with Queues() as queues:
        async with Node("shop") as node, Node("depot") as depot:
            here, there = await Dispatcher.attach(node), await Dispatcher.attach(depot)
            for each in (here, there):
                each.provision("jobs", Semantics(mechanism=Mechanism.LINK))
            listener = await node.listen("amqp://127.0.0.1:0", dispatcher=here)
            joined = await depot.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
            await here.neighbour(joined.uri)
            uri = f"amqp://127.0.0.1:{queues.port}"
            container = AmqpContainer(uri, there, [LinkRoute("jobs", "queue")])
            await depot.start(lambda: container)
            await eventually(lambda: here._core.topology.network.nodes_of("jobs"))
            yield queues, container, listener.uri.replace("127.0.0.1", "localhost")


async def test_a_client_of_proton_sends_through_to_a_container() -> None:
    needs_proton()
    proton: Any = importlib.import_module("proton")
    utils: Any = importlib.import_module("proton.utils")

    def send(uri: str) -> list[int]:
        connection = utils.BlockingConnection(uri, timeout=TIMEOUT)
        sender = connection.create_sender("jobs")
        states = [
            sender.send(proton.Message(each)).remote_state for each in ("good", "@" * 300_000)
        ]
        with pytest.raises(utils.SendException):
            sender.send(proton.Message("bad"))
        connection.close()
        return states

    async with through() as (queues, container, uri):
        assert await asyncio.to_thread(send, uri) == [proton.Delivery.ACCEPTED] * 2
        assert len(queues.messages["queue"]) == 3
        await eventually(lambda: not container.statistics().circuits)


async def test_a_client_sends_through_to_a_container(client: tuple[str, ...]) -> None:
    async with through() as (queues, container, uri):
        bodies = ["good", "bad", "back", "lost", "@300000", "good"]
        assert await run(client, uri, "send", "jobs", *bodies) == [
            "accepted",
            "rejected shop:closed",
            "released",
            "modified",
            "accepted",
            "accepted",
        ]
        assert len(queues.messages["queue"]) == len(bodies)
        await eventually(lambda: not container.statistics().circuits)


async def test_a_client_receives_through_from_a_container(client: tuple[str, ...]) -> None:
    proton: Any = importlib.import_module("proton")
    async with through() as (queues, _, uri):
        queues.messages["queue"] = [proton.Message(each) for each in ("a", "b", "c", "d")]
        hows = ["accept", "reject", "modify", "release"]
        assert await run(client, uri, "receive", "jobs", *hows) == ["a", "b", "c", "d"]
        expected = ["accepted", "rejected shop:closed", "modified", "released"]
        await eventually(lambda: queues.outcomes == expected)


async def test_a_client_drains_a_container(client: tuple[str, ...]) -> None:
    if "amqp_go" in client[0]:
        pytest.skip("go-amqp drains with a credit of 0, which Proton's engine does not answer")
    proton: Any = importlib.import_module("proton")
    async with through() as (queues, _, uri):
        queues.messages["queue"] = [proton.Message(each) for each in ("a", "b", "c")]
        assert await run(client, uri, "drain", "jobs", "20") == ["a", "b", "c", 0]


async def test_a_client_is_told_of_a_container_that_is_not_there(client: tuple[str, ...]) -> None:
    async with listening() as (dispatcher, uri):
        dispatcher.provision("jobs", Semantics(mechanism=Mechanism.LINK))
        assert await run(client, uri, "send", "jobs", "a") == {"error": "amqp:not-found"}


async def test_a_client_with_tls_and_a_password(
    client: tuple[str, ...], certificates: Certificates
) -> None:
    ann = Principal("ann", "test", frozenset({"shop"}))
    bob = Principal("bob", "test")
    _, authentication = gated(
        {UserPassword("ann", "secret"): ann, UserPassword("bob", "secret"): bob}
    )
    more: dict[str, Any] = {"tls": certificates.listener, "authentication": authentication}
    ca = str(certificates.authority)
    async with listening("amqps://127.0.0.1:0", **more) as (dispatcher, uri):
        dispatcher.provision("orders", Semantics(access=Access(producers=frozenset({"shop"}))))
        await dispatcher.consume("orders", lambda _: None)
        asked = ("send", "orders", "a")
        assert await run(client, uri, *asked, USER_NAME="ann", PASSWORD="secret", CA=ca) == [
            "accepted"
        ]
        refused = await run(client, uri, *asked, USER_NAME="bob", PASSWORD="secret", CA=ca)
        assert refused == {"error": "amqp:unauthorized-access"}
        wrong = await run(client, uri, *asked, USER_NAME="ann", PASSWORD="wrong", CA=ca)
        assert "error" in wrong


async def test_a_client_is_refused_with_a_condition(client: tuple[str, ...]) -> None:
    async with listening(options=AmqpOptions(max_message=1000)) as (dispatcher, uri):
        dispatcher.provision("closed", Semantics(pattern=RoutingPattern.UNAVAILABLE))
        refused = await run(client, uri, "send", "closed", "a")
        assert refused == {"error": "amqp:not-found"}
        got: list[Received] = []
        await dispatcher.consume("orders", got.append)
        large = await run(client, uri, "send", "orders", "@5000")
        # A client may see to the limit by itself, and tells of the link or of the message.
        assert "error" in large or large == ["rejected amqp:link:message-size-exceeded"]
        assert got == []


@asynccontextmanager
async def routed(handler: CircuitHandler, window: int) -> AsyncGenerator[str]:
    """A listener for clients, and another node with the container of a name of routed links."""
    async with listening() as (near, uri), Node("store") as node:
        far = await Dispatcher.attach(node)
        for each in (near, far):
            each.provision("stream", Semantics(mechanism=Mechanism.LINK))
        known = asyncio.Event()
        near.watch("stream", lambda _name, _paths: known.set())
        listener = await node.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        await near.neighbour(listener.uri)
        far.serve("stream", handler, window=window)
        await asyncio.wait_for(known.wait(), TIMEOUT)
        yield uri


async def test_a_client_sends_over_a_routed_link(client: tuple[str, ...]) -> None:
    async def settle(circuit: CircuitProducer | CircuitConsumer) -> None:
        assert isinstance(circuit, CircuitConsumer)
        for settle in ("accept", "reject", "release", "modify", "accept", "accept"):
            # The client has as much credit as is given here, to the unit.
            circuit.grant(1)
            delivery = await anext(circuit)
            if settle == "reject":
                delivery.reject("shop:closed", "come back tomorrow")
            else:
                getattr(delivery, settle)()
        with suppress(StopAsyncIteration):
            await anext(circuit)

    async with routed(settle, 0) as uri:
        assert await run(client, uri, "send", "stream", "a", "b", "c", "d", "@300000", "f") == [
            "accepted",
            "rejected shop:closed",
            "released",
            "modified",
            "accepted",
            "accepted",
        ]


async def test_a_client_receives_over_a_routed_link(client: tuple[str, ...]) -> None:
    proton: Any = importlib.import_module("proton")
    outcomes: list[str] = []
    bodies = ["a", "b", "c", "d", "x" * 300_000]

    async def send(circuit: CircuitProducer | CircuitConsumer) -> None:
        assert isinstance(circuit, CircuitProducer)
        for body in bodies:
            message = bytes(proton.Message(body).encode())
            outcomes.append(type(await circuit.send(message)).__name__)

    async with routed(send, 0) as uri:
        hows = ("accept", "reject", "modify", "release", "accept")
        got = await run(client, uri, "receive", "stream", *hows)
        assert got == ["a", "b", "c", "d", "@300000"]
        assert outcomes == ["Accepted", "Rejected", "Modified", "Released", "Accepted"]


async def test_a_client_drains_a_routed_link(client: tuple[str, ...]) -> None:
    if "amqp_go" in client[0]:
        pytest.skip("go-amqp drains with a credit of 0, which Proton's engine does not answer")
    proton: Any = importlib.import_module("proton")

    async def send(circuit: CircuitProducer | CircuitConsumer) -> None:
        assert isinstance(circuit, CircuitProducer)
        messages = [bytes(proton.Message(body).encode()) for body in ("a", "b", "c")]
        await asyncio.gather(*map(circuit.send, messages))
        with suppress(CircuitClosed):
            await circuit.send(b"for which there is no credit")

    async with routed(send, 0) as uri:
        assert await run(client, uri, "drain", "stream", "20") == ["a", "b", "c", 0]


def shopper(name: str) -> list[str]:
    """Return the command of the program of the page in a language."""
    place = Path() if name == "proton" else place_of(name)
    if name == "rhea":
        # Its module is looked for beside it.
        shutil.copy(EXAMPLES / "shopper.mjs", place)
    elif name == "go-amqp":
        (place / "shopper").mkdir(exist_ok=True)
        shutil.copy(EXAMPLES / "shopper.go", place / "shopper")
        build = ["go", "build", "-mod=mod", "-o", "shop", "./shopper"]
        subprocess.run(build, cwd=place, check=True, timeout=BUILD_TIMEOUT)
    return [each.format(place=place, examples=EXAMPLES) for each in SHOPPERS[name]]


@pytest.mark.parametrize("name", SHOPPERS)
async def test_the_program_of_the_page_sends_asks_and_receives(name: str) -> None:
    needs_proton()
    command = await asyncio.to_thread(shopper, name)
    node = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", str(EXAMPLES / "node.py"), "amqp://127.0.0.1:0"),
        stdout=PIPE,
    )
    try:
        assert node.stdout is not None
        line = await asyncio.wait_for(node.stdout.readline(), TIMEOUT)
        uri = line.decode().split()[1]
        assert await printed(*command, uri) == "order: accepted\nprice: 3 each\nbill: 36\n"
        assert await node.stdout.readline() == b"ordered: 12 apples\n"
        node.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(node.wait(), TIMEOUT) == 0
    finally:
        if node.returncode is None:
            node.kill()
            await node.wait()
