"""Clients of the JavaScript package `rsocket-broker-client-js` through the broker, both roles.

Each test runs for three pairs of requester and destination: JavaScript and JavaScript, and
JavaScript with the `rsocket` package of Python both ways; and over TCP and over WebSocket. All of
them are other processes, or other people's code, on real sockets.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack

import pytest

from tests.peers import rsocket_client
from tests.peers.access import secured
from tests.peers.clients import (
    CANCELED,
    REJECTED,
    Ask,
    Destination,
    JavascriptDestination,
    PythonDestination,
    ask_from_javascript,
)
from tests.peers.interactions import Interactions
from tests.peers.programs import TIMEOUT, TRANSPORTS, running_broker
from tests.peers.rsocket_client import Outcome
from tests.support.certificates import Certificates

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def broker() -> Generator[dict[str, str]]:
    """The URIs of a broker. The tests share it, each with a service of its own."""
    with running_broker(transports=TRANSPORTS) as uris:
        yield uris


@pytest.fixture
def uri(broker: dict[str, str], transport: str) -> str:
    return broker[transport]


async def start_destination(
    language: str, node: str, uri: str, service: str, stack: AsyncExitStack
) -> Destination:
    """Start a destination; the stack stops it."""
    if language == "javascript":
        return await JavascriptDestination.start(node, uri, service, stack)
    return await PythonDestination.start(uri, service, stack)


PAIRS = [("javascript", "javascript"), ("javascript", "python"), ("python", "javascript")]


@pytest.fixture(params=PAIRS, ids="-".join)
def languages(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The languages of the requester and of the destination."""
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture
def answerer(languages: tuple[str, str]) -> str:
    """The language of the destination, which its answers name."""
    return languages[1]


@pytest.fixture
def lost() -> set[int | None]:
    """What the code of the error can be when a destination is lost."""
    return {CANCELED}


@pytest.fixture
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def destination(
    javascript: str, uri: str, service: str, languages: tuple[str, str], stack: AsyncExitStack
) -> Destination:
    return await start_destination(languages[1], javascript, uri, service, stack)


@pytest.fixture
async def ask(
    javascript: str, uri: str, service: str, languages: tuple[str, str], stack: AsyncExitStack
) -> Ask:
    if languages[0] == "javascript":
        return lambda interaction, argument: ask_from_javascript(
            javascript, uri, service, interaction, argument
        )
    rsocket = await stack.enter_async_context(rsocket_client.connect(uri, "python-requester"))
    return lambda interaction, argument: rsocket_client.ask(rsocket, service, interaction, argument)


class TestInteractions(Interactions):
    """Each interaction."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure_broker(certificates: Certificates) -> Generator[dict[str, str]]:
    """The URIs of a broker with TLS."""
    options = ("--certificate", str(certificates.server))
    with running_broker(*options, transports=("tls", "wss")) as uris:
        yield uris


@pytest.mark.parametrize("transport", ["tls", "wss"])
async def test_tls(
    javascript: str,
    secure_broker: dict[str, str],
    certificates: Certificates,
    transport: str,
    service: str,
    languages: tuple[str, str],
    stack: AsyncExitStack,
) -> None:
    uri = secured(secure_broker[transport], authority=certificates.authority)
    answerer = languages[1]
    await start_destination(answerer, javascript, uri, service, stack)
    for interaction, argument, answers in (
        ("request_response", "a" * 20_000, ["a" * 20_000]),
        ("request_stream", "12", [str(number) for number in range(1, 13)]),
        ("request_channel", "a,b,c", ["a", "b", "c"]),
    ):
        if languages[0] == "javascript":
            asked = await ask_from_javascript(javascript, uri, service, interaction, argument)
        else:
            async with rsocket_client.connect(uri, "python-requester") as rsocket:
                asked = await rsocket_client.ask(rsocket, service, interaction, argument)
        assert asked == Outcome([f"{each} from {answerer}" for each in answers])


@pytest.mark.peer(destination="nobody")
async def test_an_unroutable_request_is_rejected(
    javascript: str, transport: str, service: str
) -> None:
    with running_broker("--no-route-timeout", "0", transports=[transport]) as uris:
        uri = uris[transport]
        outcome = await ask_from_javascript(javascript, uri, service, "request_stream", "12")
    assert (outcome.elements, outcome.code) == ([], REJECTED)
    assert outcome.message
    assert service in outcome.message


async def test_a_list_of_tags(
    javascript: str, uri: str, service: str, stack: AsyncExitStack
) -> None:
    # Its lists of tags lack the bit that says that another one follows.
    region, version = "0x86=", "0x8f="
    for name in ("eu", "us"):
        destination = await JavascriptDestination.start(
            javascript, uri, service, stack, region + name, version + "2"
        )
        text = f"to {name}"
        outcome = await ask_from_javascript(
            javascript, uri, service, "request_response", text, region + name, version + "2"
        )
        assert outcome == Outcome([f"{text} from javascript"])
        assert (await destination.received()).data == text


@pytest.mark.parametrize("hint", ["0x9d=user", "0x9f=@sticky=user"])
async def test_a_sticky_user(
    javascript: str, uri: str, service: str, stack: AsyncExitStack, hint: str
) -> None:
    names = ("1", "2")
    destinations = [
        await JavascriptDestination.start(javascript, uri, service, stack, f"0x83={name}")
        for name in names
    ]
    asked = ("request_response", "note", "0x8a=7", hint)
    for _ in range(4):
        outcome = await ask_from_javascript(javascript, uri, service, *asked)
        assert outcome == Outcome(["note from javascript"])
    got: list[str] = []
    for name, destination in zip(names, destinations, strict=True):
        await ask_from_javascript(
            javascript, uri, service, "request_response", "last", f"0x83={name}"
        )
        while (data := (await destination.received()).data) != "last":
            got.append(f"{name} {data}")
    assert got in (["1 note"] * 4, ["2 note"] * 4)


@pytest.mark.peer(requester="python", destination="javascript, python")
async def test_destinations_of_a_service_take_turns(
    javascript: str, uri: str, service: str, stack: AsyncExitStack
) -> None:
    for language in ("javascript", "python"):
        await start_destination(language, javascript, uri, service, stack)
    rsocket = await stack.enter_async_context(rsocket_client.connect(uri, "python-requester"))

    async def answerers(count: int) -> Counter[str]:
        outcomes = [
            await rsocket_client.ask(rsocket, service, "request_response", "hello")
            for _ in range(count)
        ]
        return Counter(element for outcome in outcomes for element in outcome.elements)

    # Nothing tells a destination when the broker has registered it.
    async with asyncio.timeout(TIMEOUT):
        while len(await answerers(2)) < 2:
            pass
    assert await answerers(6) == {"hello from javascript": 3, "hello from python": 3}
