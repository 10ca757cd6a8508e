"""A client with a session on sockets; `test_resumable_link_in_time` has the waits and faults."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.protocol import InDoubt, LinkDown, LinkLost
from onward.protocol.rsocket import ResumeLimits
from onward.transports import Backoff
from onward.transports.client import Client, ClientOptions, KeepaliveOptions, connect
from onward.transports.client._resumable_link import ResumableClientLink
from onward.transports.rsocket import LinkOptions, ResumeOptions, RSocketListener
from tests.support.counts import times
from tests.support.proxy import CuttingProxy
from tests.support.transports import eventually

pytestmark = pytest.mark.real_time

RESUME = ResumeLimits(time=10.0)
STEP = times(47, 1)
"""Cuts are this many bytes apart."""


def options(resume: ResumeLimits | None = RESUME, **more: object) -> ClientOptions:
    return ClientOptions(
        resume=resume,
        backoff=Backoff(0.01, 0.05),
        keepalive=KeepaliveOptions(interval=0.5, lifetime=5.0),
        **more,  # type: ignore[arg-type]
    )


class Served:
    """A broker with handlers on its node.

    Attributes:
        listener: The listener.
        asked: What the handlers were asked.
        go: The event that `hold` waits for.
    """

    def __init__(self, node: Node, listener: RSocketListener, asked: list[bytes]) -> None:
        self.node = node
        self.listener = listener
        self.asked = asked
        self.go = asyncio.Event()

    @property
    def port(self) -> int:
        return int(self.listener.uri.rpartition(":")[2])


@asynccontextmanager
async def served(
    resume: ResumeOptions | None = None, scheme: str = "rsocket+tcp"
) -> AsyncGenerator[Served]:
    handlers = Handlers()
    asked: list[bytes] = []

    @handlers.response
    async def answer(request: Request) -> bytes:
        asked.append(request.data)
        if request.data == b"hold":
            await found.go.wait()
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
        broker = await Broker.attach(node)
        broker.serve(handlers, service="echo")
        links = LinkOptions(resume=resume)
        listener = await node.listen(f"{scheme}://127.0.0.1:0", broker=broker, options=links)
        assert isinstance(listener, RSocketListener)
        found = Served(node, listener, asked)
        yield found


def link_of(client: Client) -> ResumableClientLink:
    assert client._pool is not None
    link = client._pool.keepers[0].link
    assert isinstance(link, ResumableClientLink)
    return link


def cut(client: Client) -> None:
    """Cut the socket of a client."""
    transport = link_of(client)._transport
    assert transport is not None
    transport.abort()


async def source() -> AsyncIterator[bytes]:
    for each in (b"a", b"b", b"c"):
        yield each


async def story(client: Client) -> list[bytes]:
    """Return all that an application receives in three interactions."""
    found = [(await client.request("service=echo", b"one")).data]
    async with aclosing(client.stream("service=echo", b"3")) as elements:
        found += [each.data async for each in elements]
    async with aclosing(client.channel("service=echo", source())) as elements:
        found += [each.data async for each in elements]
    return found


WHOLE = [b"one!", b"0", b"1", b"2", b"a!", b"b!", b"c!"]


@pytest.mark.parametrize("scheme", ["rsocket+tcp", "rsocket+ws"])
async def test_a_request_in_flight_is_answered(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is handed over once, and the caller sees no difference."""
    caplog.set_level(logging.INFO, "onward.transports.client")
    async with served(ResumeOptions(), scheme) as s:
        uri = f"{scheme}://127.0.0.1:{s.port}"
        async with connect(uri, options=options()) as client:
            waiting = asyncio.create_task(client.request("service=echo", b"hold"))
            await eventually(lambda: s.asked == [b"hold"])
            before = link_of(client)
            cut(client)
            await eventually(lambda: s.listener.statistics().resumes == {"resumed": 1})
            s.go.set()
            assert (await waiting).data == b"hold!"
            assert link_of(client) is before
            assert s.asked == [b"hold"]
            assert await story(client) == WHOLE
            assert s.listener.statistics().resumes == {"resumed": 1}
    client_log = [each for each in caplog.records if each.name == "onward.transports.client"]
    events = [getattr(each, "event", "") for each in client_log]
    assert events == ["client.session_suspended", "client.session_resumed"]


async def test_a_cut_after_every_byte() -> None:
    """Each run through a proxy that cuts it is, to the application, the run without a cut."""
    async with served(ResumeOptions()) as s:
        async with (
            CuttingProxy(s.port).running() as proxy,
            connect(f"rsocket+tcp://127.0.0.1:{proxy.port}", options=options()) as client,
        ):
            assert await story(client) == WHOLE
        total = proxy.passed
        for cut_at in range(1, total, STEP):
            async with CuttingProxy(s.port, cut_at).running() as proxy:
                uri = f"rsocket+tcp://127.0.0.1:{proxy.port}"
                async with connect(uri, options=options()) as client:
                    assert await story(client) == WHOLE, cut_at
        assert s.listener.statistics().resumes["resumed"] > 0


async def test_the_broker_has_lost_the_session() -> None:
    """What was in flight is in doubt; the client begins anew, and further requests are served."""
    async with served(ResumeOptions()) as s, CuttingProxy(s.port).running() as proxy:
        uri = f"rsocket+tcp://127.0.0.1:{proxy.port}"
        async with connect(uri, options=options()) as client:
            waiting = asyncio.create_task(client.request("service=echo", b"hold"))
            await eventually(lambda: s.asked == [b"hold"])
            before = link_of(client)
            proxy.refuses = True
            cut(client)
            await eventually(lambda: s.listener.statistics().suspended == 1)
            (row,) = s.listener.connections()
            assert s.listener.close_connection(row["id"], "closed")
            proxy.refuses = False
            with pytest.raises(LinkLost, match="no such session") as caught:
                await waiting
            assert isinstance(caught.value, InDoubt)
            assert await story(client) == WHOLE
            assert link_of(client) is not before


async def test_a_broker_without_sessions_refuses_the_client() -> None:
    async with served() as s:
        with pytest.raises(LinkDown, match="sessions cannot be resumed here"):
            async with connect(f"rsocket+tcp://127.0.0.1:{s.port}", options=options()):
                pass
