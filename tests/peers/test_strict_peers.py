"""Frames that RSocket forbids, on their way to destinations that close their connection over them.

Whoever sends them harms no one else: each destination answers the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.peers.clients import Destination, Java, ProgramDestination, start_destination
from tests.peers.libraries import words
from tests.peers.programs import TIMEOUT, running_broker
from tests.support.rsocket_peer import (
    BROKER_FRAME,
    CANCEL,
    CHANNEL,
    PAYLOAD,
    REQUEST_N,
    RR,
    STREAM,
    C,
    F,
    N,
    address,
    composite,
    frame,
    kind_of,
    payload,
    request,
    setup,
    split,
    stream_of,
)

pytestmark = [pytest.mark.peer(requester="raw frames"), pytest.mark.asyncio(loop_scope="module")]

LONG = b"x" * 100


class RawRequester:
    """A connection that sends what a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""
        self._frames: list[bytes] = []

    @classmethod
    async def start(cls, uri: str, stack: AsyncExitStack) -> RawRequester:
        """Connect it; the stack closes it."""
        host, _, port = uri.removeprefix("tcp://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        stack.callback(writer.close)
        writer.write(setup())
        return cls(reader, writer)

    def send(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))

    async def next(self, stream: int, kind: int) -> bytes:
        """Wait for the next frame of a kind on a stream; return what follows its header."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                for raw in self._frames:
                    if (stream_of(raw), kind_of(raw)) == (stream, kind):
                        self._frames.remove(raw)
                        return raw[9:]
                data = await self._reader.read(65_536)
                assert data, "the broker has closed the connection"
                more, self._rest = split(self._rest + data)
                self._frames += more


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncGenerator[str]:
    with running_broker() as uris:
        yield uris["tcp"]


@pytest_asyncio.fixture(loop_scope="module")
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.parametrize("name", ["java", "go", "js-alpha"])
@pytest.mark.parametrize(
    "odd", ["fragments without N", "bytes after CANCEL", "bytes after REQUEST_N", "F beside C"]
)
async def test_what_one_sends_harms_nobody_else(
    destinations: Java, broker: str, service: str, stack: AsyncExitStack, name: str, odd: str
) -> None:
    destination: Destination
    if name == "java":
        destination = await start_destination(name, destinations, broker, service, stack)
    else:
        command = words(name, "destination", broker, service, fragments=False)
        destination = await ProgramDestination.run(command, stack)
    metadata = composite((BROKER_FRAME, address(service)))
    requester = await RawRequester.start(broker, stack)
    match odd:
        case "fragments without N":
            # None is under 64 bytes, which Java takes for an error whoever sends it.
            requester.send(
                request(RR, 1, metadata, LONG, flags=F), payload(1, LONG, F), payload(1, b"end", 0)
            )
            text = f"{LONG.decode()}{LONG.decode()}end"
            assert (await destination.received()).data == text
            assert await requester.next(1, PAYLOAD) == f"{text} from {name}".encode()
        case "bytes after CANCEL":
            requester.send(request(RR, 1, metadata, b"hold"))
            assert (await destination.received()).data == "hold"
            requester.send(frame(1, CANCEL, 0, b"and more"))
        case "bytes after REQUEST_N":
            requester.send(request(STREAM, 1, metadata, b"3", n=1))
            assert (await destination.received()).data == "3"
            assert await requester.next(1, PAYLOAD) == f"1 from {name}".encode()
            requester.send(frame(1, REQUEST_N, 0, (2).to_bytes(4) + b"and more"))
            assert await requester.next(1, PAYLOAD) == f"2 from {name}".encode()
        case _:
            requester.send(request(CHANNEL, 1, metadata, b"a", n=9))
            assert (await destination.received()).data == "a"
            assert await requester.next(1, PAYLOAD) == f"a from {name}".encode()
            await requester.next(1, REQUEST_N)
            requester.send(payload(1, b"b", N | C | F))
            assert await requester.next(1, PAYLOAD) == f"b from {name}".encode()
    requester.send(request(RR, 3, metadata, b"next"))
    assert await requester.next(3, PAYLOAD) == f"next from {name}".encode()
