"""Clients of libraries that know RSocket alone: they write the broker's frames themselves.

These are rsocket-go, and both lines of rsocket-js. Each meets itself, the Java client and Onward's
own, with its payloads sent whole and, where the library can, in fragments.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.peers.clients import (
    CANCELED,
    Ask,
    Destination,
    Java,
    ProgramDestination,
    ProgramRequester,
    start_asking,
    start_destination,
)
from tests.peers.interactions import Interactions
from tests.peers.libraries import LIBRARIES, words
from tests.peers.programs import running_broker
from tests.peers.rsocket_client import Outcome, Received

pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]

LONG = "x" * 500
MANY = 300
"""More elements than the broker asks of a destination at a time."""

on_the_loop = pytest_asyncio.fixture(loop_scope="module")


PAIRS = [
    pair
    for name in LIBRARIES
    for pair in ((name, name), (name, "java"), ("java", name), (name, "onward"), ("onward", name))
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncGenerator[str]:
    """The URI of a broker. The tests share it, each with a service of its own."""
    with running_broker() as uris:
        yield uris["tcp"]


@on_the_loop
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def cases() -> list[tuple[tuple[str, str], bool]]:
    """Return each pair, and whether those that can send fragments: also so if one can."""
    found = [(pair, False) for pair in PAIRS]
    for pair in PAIRS:
        roles = zip(pair, ("requester", "destination"), strict=True)
        if any(name in LIBRARIES and LIBRARIES[name].cuts(role) for name, role in roles):
            found.append((pair, True))
    return found


@pytest.fixture(
    params=cases(), ids=lambda case: "-".join((*case[0], "fragments" if case[1] else "whole"))
)
def case(request: pytest.FixtureRequest) -> tuple[tuple[str, str], bool]:
    """A pair, and whether its payloads are sent in fragments."""
    found: tuple[tuple[str, str], bool] = request.param
    return found


@pytest.fixture
def languages(case: tuple[tuple[str, str], bool]) -> tuple[str, str]:
    """The libraries of the requester and of the destination."""
    return case[0]


@pytest.fixture
def fragments(case: tuple[tuple[str, str], bool]) -> bool:
    """Whether payloads are sent in fragments, by those that can."""
    return case[1]


@pytest.fixture
def answerer(languages: tuple[str, str]) -> str:
    """The library of the destination, which its answers name."""
    return languages[1]


@pytest.fixture
def lost() -> set[int | None]:
    """What the code of the error can be when a destination is lost."""
    return {CANCELED}


@on_the_loop
async def destination(
    destinations: Java,
    broker: str,
    service: str,
    answerer: str,
    fragments: bool,
    stack: AsyncExitStack,
) -> Destination:
    if answerer in LIBRARIES:
        command = words(answerer, "destination", broker, service, fragments=fragments)
        return await ProgramDestination.run(command, stack)
    return await start_destination(answerer, destinations, broker, service, stack)


@on_the_loop
async def ask(
    requesters: Java,
    broker: str,
    service: str,
    languages: tuple[str, str],
    fragments: bool,
    stack: AsyncExitStack,
) -> Ask:
    name, _ = languages
    if name in LIBRARIES:
        command = words(name, "requester", broker, service, fragments=fragments)
        return (await ProgramRequester.run(command, stack)).ask
    return await start_asking(name, requesters, broker, service, stack)


class TestInteractions(Interactions):
    """Each interaction."""

    async def test_a_long_payload(self, ask: Ask, destination: Destination, answerer: str) -> None:
        # The second finds both still there, whatever was in the frames of the first.
        for text in (LONG, "again"):
            assert await ask("request_response", text) == Outcome([f"{text} from {answerer}"])
            assert await destination.received() == Received("request_response", text, "echo")

    async def test_a_long_stream(self, ask: Ask, destination: Destination, answerer: str) -> None:
        outcome = await ask("request_stream", str(MANY))
        assert outcome == Outcome([f"{n} from {answerer}" for n in range(1, MANY + 1)])
        assert (await destination.received()).data == str(MANY)

    async def test_metadata_push(
        self, ask: Ask, destination: Destination, languages: tuple[str, str]
    ) -> None:
        requester, answerer = map(LIBRARIES.get, languages)
        if requester and not requester.pushes:
            pytest.skip(f"{languages[0]} pushes no metadata that can be routed")
        if answerer and not answerer.takes_pushes:
            pytest.skip(f"{languages[1]} has no metadata push")
        assert await ask("metadata_push", "news") == Outcome([])
        assert await destination.received() == Received("metadata_push", "", "news")
