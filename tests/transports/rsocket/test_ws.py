"""The listener for WebSockets: its URIs and options, and real sockets on both event loops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from onward.actors import Node
from onward.actors.broker import Broker
from onward.protocol import LinkDown
from onward.transports.rsocket import LinkOptions, RSocketListener, UnixOptions, WebSocketOptions
from onward.transports.rsocket._ws_socket import FrameSocket
from onward.transports.streams._options import parse_websocket_uri
from tests.support.loops import on_both_loops
from tests.support.rsocket_peer import *
from tests.support.transports import eventually

URI = "rsocket+ws://127.0.0.1:0"
ASKED = asked_for("a")


@pytest.mark.parametrize(
    "uri",
    [
        "ws://h:1/",
        "rsocket+ws://h",
        "rsocket+ws://[::1:80/",
        "rsocket+ws://h:1/?q=1",
        "rsocket+ws://h:1/#x",
        "rsocket+ws://me@h:1/",
        "rsocket+ws:///path",
    ],
)
def test_what_is_no_uri_of_it(uri: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_websocket_uri(uri, "rsocket+ws")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"origins": "https://a.example"}, "origins must be a tuple, of which each is a text"),
        ({"origins": ("a.example",)}, "must be like https"),
        ({"origins": ("https://a.example/",)}, "must be like https"),
        ({"origins": ("https://A.example",)}, "must be like https"),
        ({"max_handshake": 0}, "max_handshake"),
        ({"handshake_timeout": 0}, "handshake_timeout"),
    ],
)
def test_options_out_of_range(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        WebSocketOptions(**wrong)


async def test_what_it_is_told_wrong() -> None:
    async with Node() as node:
        broker = await Broker.attach(node)
        text = r"websocket must be None or WebSocketOptions, not UnixOptions\("
        with pytest.raises(ValueError, match=text):
            await node.listen(URI, broker=broker, websocket=UnixOptions())
        with pytest.raises(
            ValueError,
            match=r"'unix'; rsocket.ws takes broker=, options=, tls=, authentication=, peers=, "
            "siblings=, shared=, websocket=$",
        ):
            await node.listen(URI, broker=broker, unix=UnixOptions())
        with pytest.raises(LinkDown, match="only listens"):
            await node.connect(URI)


class Edge:
    """A broker, and clients of the `websockets` package."""

    def __init__(self, node: Node, broker: Broker, listener: RSocketListener) -> None:
        self.node = node
        self.broker = broker
        self.listener = listener
        self.uri = listener.uri.removeprefix("rsocket+")
        self._ids = 0

    async def client(self, *first: bytes, **options: Any) -> ClientConnection:
        client = await connect(self.uri, proxy=None, **options)
        for each in first:
            await client.send(each[3:])
        return client

    async def destination(self) -> ClientConnection:
        before = len(self.broker.routes())
        self._ids += 1
        route = route_setup(UUID(int=self._ids), "a")
        client = await self.client(setup(composite((BROKER_FRAME, route))))
        await eventually(lambda: len(self.broker.routes()) == before + 1)
        return client

    def connections(self) -> int:
        return self.listener.statistics().connections


@asynccontextmanager
async def edge(
    options: LinkOptions | None = None, web: WebSocketOptions | None = None, uri: str = URI
) -> AsyncGenerator[Edge]:
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen(uri, broker=broker, options=options, websocket=web)
        assert isinstance(listener, RSocketListener)
        yield Edge(node, broker, listener)


async def next_of(client: ClientConnection) -> bytes:
    async with asyncio.timeout(20):
        message = await client.recv()
    assert isinstance(message, bytes)
    return len(message).to_bytes(3) + message


@on_both_loops
async def test_requests_and_answers() -> None:
    async with edge() as e:
        destination = await e.destination()
        requester = await e.client(setup(), subprotocols=[Subprotocol("rsocket")])
        assert requester.subprotocol == "rsocket"
        for n, size in enumerate((0, 100, 300, 70_000, 1_000_000)):
            asked = request(RR, 2 * n + 1, ASKED, b"q" * size)
            answer = payload(2 * n + 2, b"a" * size, C | N)
            await requester.send([asked[3:60], asked[60:]])
            assert await next_of(destination) == restamped(asked, 2 * n + 2)
            await destination.send(answer[3:])
            assert await next_of(requester) == restamped(answer, 2 * n + 1)
        pong = await requester.ping()
        await pong
        # A requester that closes has what it asked for cancelled.
        await requester.send(request(RR, 21, ASKED)[3:])
        await next_of(destination)
        await requester.close()
        assert await next_of(destination) == cancel(12)
        await eventually(lambda: e.connections() == 1)
        await destination.close()
        assert destination.close_code == 1000


@on_both_loops
async def test_the_broker_closes() -> None:
    async with edge() as e:
        clients = [await e.client(setup()) for _ in range(3)]
        await eventually(lambda: e.connections() == 3)
        began = asyncio.get_running_loop().time()
        await e.listener.close()
        for client in clients:
            assert b"the broker stops" in await next_of(client)
            with pytest.raises(ConnectionClosed):
                await client.recv()
            assert client.close_code == 1001
        assert asyncio.get_running_loop().time() - began < 1.5
        assert e.listener.statistics().closed == {"stopped": 3}


@on_both_loops
async def test_nothing_is_left_to_the_cycle_collector() -> None:
    def alive() -> int:
        return sum(type(each) is FrameSocket for each in gc.get_objects())

    async with edge() as e:
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                client = await e.client(setup())
                await client.close()
            await eventually(lambda: e.connections() == 0)
            await asyncio.sleep(0)
            assert alive() == 0
        finally:
            gc.enable()
