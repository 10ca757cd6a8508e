"""Sessions of rsocket-java and rsocket-js that are resumed, cut after each byte of a recorded run.

A proxy between the client and the broker cuts the first connection after a number of bytes, both
directions counted. The client prints what its application has received. That is what it receives
without a cut; or the session had not begun, and the client was told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.transports.rsocket import LinkOptions, ResumeOptions, RSocketListener
from tests.peers.foreign import NPM, PeerMissing, built
from tests.peers.programs import Program
from tests.support.counts import times
from tests.support.proxy import CuttingProxy
from tests.support.rsocket_peer import asked_for

pytestmark = pytest.mark.peer

METADATA = asked_for("orders").hex()
WHOLE = "one! 0,1,2 a!,b!,c!"
"""What an application receives without a cut."""
STEP = times(23, 1)
"""Cuts are this many bytes apart."""


def command_of(make: str) -> list[str]:
    """Return the command of a client, which is built first.

    Raises:
        PeerMissing: It cannot be built here.
    """
    if make == "js":
        place = built("rsocket_js", [NPM], timeout=300)
        return ["node", str(place / "resume.js")]
    place = built("rsocket_java", [("mvn", "-q", "-B", "package")], timeout=600)
    path = f"{place}/target/classes:{place}/target/lib/*"
    return ["java", "-Xshare:auto", "-cp", path, "onward.peers.ResumedRequester"]


@asynccontextmanager
async def broker() -> AsyncGenerator[RSocketListener]:
    """A broker with a destination on its node, and sessions that can be resumed."""
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return request.data + b"!"

    @handlers.stream
    async def count(request: Request) -> AsyncIterator[bytes]:
        for number in range(int(request.data)):
            yield b"%d" % number

    @handlers.channel
    async def echo(_: Request, incoming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for element in incoming:
            yield element + b"!"

    async with Node("edge") as node:
        made = await Broker.attach(node)
        made.serve(handlers, service="orders")
        options = LinkOptions(resume=ResumeOptions())
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=made, options=options)
        assert isinstance(listener, RSocketListener)
        yield listener


async def run(client: Program, port: int, cut_at: int = -1) -> tuple[str, CuttingProxy]:
    """Have a client run once through a proxy; return what it prints."""
    async with CuttingProxy(port, cut_at).running() as proxy:
        await client.tell(f"{proxy.port} {METADATA}")
        return await client.line(), proxy


@pytest.mark.parametrize("make", ["js", "java"])
async def test_a_cut_after_every_byte(make: str) -> None:
    try:
        command = command_of(make)
    except PeerMissing as error:
        pytest.skip(f"{make} peer: {error}")
    async with broker() as listener, Program.running(*command) as client:
        assert await client.line() == "ready"
        port = int(listener.uri.rpartition(":")[2])
        answer, proxy = await run(client, port)
        assert answer == WHOLE
        total = proxy.passed
        resumed = 0
        for cut_at in range(1, total, STEP):
            before = listener.statistics().resumes.get("resumed", 0)
            answer, proxy = await run(client, port, cut_at)
            now = listener.statistics().resumes.get("resumed", 0)
            resumed += now - before
            if answer == WHOLE:
                continue
            # Before the broker had read the SETUP there was no session to resume.
            assert now == before, (cut_at, answer)
            assert cut_at < 200, (cut_at, answer, listener.statistics())
        print(f"{make}: {total} bytes, {len(range(1, total, STEP))} cuts, {resumed} resumed")
        assert resumed > 0.7 * len(range(1, total, STEP)) - 200 / STEP
        await asyncio.sleep(0)
