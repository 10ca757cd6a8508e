"""Clients of the Rust crate `rsocket_rust` through the broker, both roles.

This library has no credit: its requesters ask for all elements at once, and send all elements of
a channel before anyone has asked for them; its destinations send all they have.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.peers.clients import (
    APPLICATION_ERROR,
    REJECTED,
    Destination,
    Java,
    JavaRequester,
    ProgramDestination,
    ProgramRequester,
    start_destination,
)
from tests.peers.foreign import PeerMissing
from tests.peers.libraries import rust_program
from tests.peers.programs import running_broker
from tests.peers.rsocket_client import Outcome, Received

pytestmark = [pytest.mark.peer(requester="rust"), pytest.mark.asyncio(loop_scope="module")]

LONG = "x" * 500
MANY = 300
"""More elements than the broker asks of a destination at a time."""

on_the_loop = pytest_asyncio.fixture(loop_scope="module")


@pytest.fixture(scope="session")
def program() -> Path:
    """The program of `rsocket_rust/`."""
    try:
        return rust_program()
    except PeerMissing as error:
        pytest.skip(f"rsocket_rust peer: {error}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(program: Path) -> AsyncGenerator[str]:
    """The URI of a broker. The tests share it, each with a service of its own."""
    assert program
    with running_broker() as uris:
        yield uris["tcp"]


@on_the_loop
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def start_rust_destination(
    program: Path, broker: str, service: str, stack: AsyncExitStack
) -> ProgramDestination:
    """Start one that sends its answers whole.

    If it is to cut one into fragments, it says with the first that it is the last.
    """
    command = [str(program), "destination", broker.removeprefix("tcp://"), service]
    return await ProgramDestination.run(command, stack)


@pytest_asyncio.fixture(loop_scope="module", params=[[], ["64"]], ids=["whole", "fragments"])
async def requester(
    request: pytest.FixtureRequest, program: Path, broker: str, service: str, stack: AsyncExitStack
) -> ProgramRequester:
    """A requester that sends its requests whole, or in fragments of 64 bytes."""
    command = [str(program), "requester", broker.removeprefix("tcp://"), service, *request.param]
    return await ProgramRequester.run(command, stack)


@pytest.fixture(params=["rust", "java", "onward"])
def answerer(request: pytest.FixtureRequest) -> str:
    """The language of the destination, which its answers name."""
    name: str = request.param
    return name


@on_the_loop
async def destination(
    answerer: str,
    destinations: Java,
    program: Path,
    broker: str,
    service: str,
    stack: AsyncExitStack,
) -> Destination:
    if answerer == "rust":
        return await start_rust_destination(program, broker, service, stack)
    return await start_destination(answerer, destinations, broker, service, stack)


async def test_request_response(
    requester: ProgramRequester, destination: Destination, answerer: str
) -> None:
    # The second finds the destination still there, whatever was in the frames of the first.
    for text in ("hello", LONG, "again"):
        assert await requester.ask("request_response", text) == Outcome([f"{text} from {answerer}"])
        assert await destination.received() == Received("request_response", text, "echo")


async def test_fire_and_forget(requester: ProgramRequester, destination: Destination) -> None:
    assert await requester.ask("fire_and_forget", LONG) == Outcome([])
    assert await destination.received() == Received("fire_and_forget", LONG, "echo")


async def test_request_stream(
    requester: ProgramRequester, destination: Destination, answerer: str
) -> None:
    outcome = await requester.ask("request_stream", str(MANY))
    assert outcome == Outcome([f"{n} from {answerer}" for n in range(1, MANY + 1)])
    assert (await destination.received()).data == str(MANY)


async def test_request_channel(
    requester: ProgramRequester, destination: Destination, answerer: str
) -> None:
    # It sends further elements before the destination asks for them, which is an error.
    assert await requester.ask("request_channel", LONG) == Outcome([f"{LONG} from {answerer}"])
    assert await destination.received() == Received("request_channel", LONG, "echo")


async def test_an_error_of_the_destination(
    requester: ProgramRequester, destination: Destination, answerer: str
) -> None:
    outcome = await requester.ask("request_response", "fail")
    assert (outcome.elements, outcome.code) == ([], APPLICATION_ERROR)
    assert f"refused by {answerer}" in (outcome.message or "")
    await destination.received()


@pytest.mark.peer(destination="nobody")
async def test_an_unroutable_request_is_rejected(
    program: Path, service: str, stack: AsyncExitStack
) -> None:
    with running_broker("--no-route-timeout", "0") as uris:
        place = uris["tcp"].removeprefix("tcp://")
        requester = await ProgramRequester.run([str(program), "requester", place, service], stack)
        outcome = await requester.ask("request_response", "hello")
        await stack.aclose()
    assert (outcome.elements, outcome.code) == ([], REJECTED)


@pytest.mark.peer(requester="java", destination="rust")
async def test_a_java_requester_asks_it(
    requesters: Java, program: Path, broker: str, service: str, stack: AsyncExitStack
) -> None:
    destination = await start_rust_destination(program, broker, service, stack)
    java = await JavaRequester.start(requesters, broker, fragment=64)
    stack.push_async_callback(java.close)
    assert await java.ask(service, "request_response", LONG) == Outcome([f"{LONG} from rust"])
    assert await destination.received() == Received("request_response", LONG, "echo")
    await java.ask(service, "metadata_push", "news")
    assert await destination.received() == Received("metadata_push", "", "news")
    # As many as the requester asks for at once.
    outcome = await java.ask(service, "request_stream", "5")
    assert outcome == Outcome([f"{n} from rust" for n in range(1, 6)])
