"""Clients in Python through the Java broker: what they send is what the reference expects.

With the `rsocket` package, whose broker frames these tests put together byte by byte, and with
Onward's own client in the reference dialect; each with Java as the other end, and with itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress

import pytest
import pytest_asyncio

from onward.protocol import LinkDown
from onward.protocol.broker import Dialect
from onward.transports.client import ClientOptions, connect
from tests.peers.clients import (
    APPLICATION_ERROR,
    Ask,
    Destination,
    Java,
    start_asking,
    start_destination,
)
from tests.peers.interactions import Interactions, MetadataPush
from tests.peers.jvm import FAST_START, JavaMissing, java_broker
from tests.peers.programs import TRANSPORTS

pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]

CONNECTION_CLOSE = 0x102

ATTEMPTS = 10
PATIENCE = 2.0
"""Seconds that a new destination has to answer, each time it is asked."""

PAIRS = [
    ("python", "java"),
    ("java", "python"),
    ("python", "python"),
    ("onward", "java"),
    ("java", "onward"),
    ("onward", "onward"),
]

on_the_loop = pytest_asyncio.fixture(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncGenerator[dict[str, str]]:
    """The URIs of a Java broker. The tests share it, each with a service of its own."""
    listeners = [f"{transport}://127.0.0.1:0" for transport in TRANSPORTS]
    try:
        with java_broker(*listeners, options=FAST_START) as java:
            yield dict(zip(TRANSPORTS, java.uris, strict=True))
    except JavaMissing as error:
        pytest.skip(f"Java broker: {error}")


@pytest.fixture
def lost() -> set[int | None]:
    """What the code of the error can be when a destination is lost.

    The Java broker passes on what ended the connection: an error of its own, or the ERROR frame
    of the connection, if the destination said goodbye with one. That has no place on a stream,
    and the Java client gives it no code.
    """
    return {APPLICATION_ERROR, CONNECTION_CLOSE, None}


@pytest.fixture(params=PAIRS, ids="-".join)
def languages(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The languages of the requester and of the destination."""
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture
def answerer(languages: tuple[str, str]) -> str:
    """The language of the destination, which its answers name."""
    return languages[1]


@on_the_loop
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@on_the_loop
async def ask(
    requesters: Java,
    broker: dict[str, str],
    transport: str,
    service: str,
    languages: tuple[str, str],
    stack: AsyncExitStack,
) -> Ask:
    return await start_asking(languages[0], requesters, broker[transport], service, stack)


@on_the_loop
async def destination(
    destinations: Java,
    broker: dict[str, str],
    transport: str,
    service: str,
    answerer: str,
    ask: Ask,
    stack: AsyncExitStack,
) -> Destination:
    """A destination that the broker has registered.

    Nothing tells when it has, and a request that comes while it is doing so can wait for ever.
    So it is asked until it answers.
    """
    started = await start_destination(answerer, destinations, broker[transport], service, stack)
    for attempt in range(ATTEMPTS):
        text = f"up {attempt}"
        with suppress(TimeoutError):
            await asyncio.wait_for(ask("request_response", text), PATIENCE)
            while (await started.received()).data != text:
                pass
            return started
    raise AssertionError("the destination was never reached")


class TestInteractions(Interactions, MetadataPush):
    """Each interaction."""


@pytest.mark.peer(requester="onward", destination="nobody")
@pytest.mark.parametrize("dialect", Dialect)
async def test_a_client_that_is_refused_hears_what_the_broker_wants(
    broker: dict[str, str], transport: str, dialect: Dialect
) -> None:
    options = ClientOptions(dialect=dialect, reconnect=False)
    with pytest.raises(LinkDown, match=r"dialect=Dialect\.REFERENCE.*service="):
        async with connect(f"rsocket+{broker[transport]}", options=options):
            raise AssertionError("it was taken")
