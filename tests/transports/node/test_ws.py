"""WebSockets alone: handshakes, pings, closing, what browsers may do. Real sockets throughout."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from websockets.asyncio.client import ClientConnection, connect as dial
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from onward.actors import Node
from onward.protocol import LinkDown, LinkLost, Message, UnreadableAddress, route
from onward.protocol.ockam import PREAMBLE, WireConnection
from onward.transports import StreamListener, WebSocketOptions, WsOptions, WsTransport
from onward.transports.streams._ws_stream import MAX_HANDSHAKE
from tests.support.loops import on_both_loops
from tests.support.transports import Echo, Recorder, eventually
from tests.support.websocket_peer import handshake

ANY = "ws://127.0.0.1:0"


async def listening(node: Node, uri: str = ANY, *expose: str, **options: Any) -> StreamListener:
    return cast(StreamListener, await node.listen(uri, expose=expose, **options))


def ws_of(node: Node) -> WsTransport:
    return cast(WsTransport, node.transport("ws://"))


@on_both_loops
async def test_requests_of_any_size_on_each_loop() -> None:
    async with Node("a") as a, Node("c") as c:
        await c.start(Echo, address="echo")
        listener = await listening(c, ANY, "echo")
        link = await a.connect(listener.uri)
        for size in (0, 1, 125, 126, 65_535, 65_536, 3_000_000):
            answer = await a.request([link, "echo"], bytes(size))
            assert answer.payload == bytes(size)
        await a.stop_worker(link)
        await eventually(lambda: not listener.statistics().links)
        assert listener.statistics().closed == {"the peer closed the connection": 1}


async def test_an_address_of_type_3_connects(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    root = await listening(c, ANY, "echo")
    deep = await listening(c, f"{ANY}/deep/er", "echo")
    assert deep.uri.endswith("/deep/er")
    for listener in (root, deep):
        where = listener.uri.removeprefix("ws://")
        first = await a.request(f"3#{where} => echo", b"")
        again = await a.request(f"3#{where} => echo", b"")
        assert first.return_route == again.return_route
        assert listener.statistics().accepted == 1
    # A slash alone asks for what none at all asks for.
    slash = await a.request(f"3#{root.uri.removeprefix('ws://')}/ => echo", b"")
    assert slash.return_route[0] in {link.address for link in ws_of(a).statistics()}
    assert root.statistics().accepted == 1


@pytest.mark.parametrize("value", ["nonsense", "host:port/", "h:1/a?b", "h:1/%20", "%ff:1"])
async def test_an_address_of_type_3_that_is_none(a: Node, value: str) -> None:
    with pytest.raises(UnreadableAddress):
        a.send(f"3#{value} => x", b"")


async def test_the_path_that_has_to_be_asked_for(a: Node, c: Node) -> None:
    listener = await listening(c, f"{ANY}/right")
    with pytest.raises(LinkDown, match=r"no WebSocket: it answers 'HTTP/1.1 404"):
        await a.connect(listener.uri.replace("right", "wrong"))
    assert listener.statistics().refused == {"path": 1}
    await a.connect(f"{listener.uri}")


@contextlib.asynccontextmanager
async def dialled(listener: StreamListener, **options: object) -> AsyncGenerator[ClientConnection]:
    async with dial(listener.uri, compression=None, **options) as client:  # type: ignore[arg-type]
        yield client


async def test_a_foreign_client_speaks_the_wire_in_messages_cut_anywhere(c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, ANY, "echo")
    wire = WireConnection()
    wire.send(Message(route("echo"), route("app"), b"hello"))
    data = wire.data_to_send()
    async with dialled(listener, subprotocols=[Subprotocol("onward")]) as client:
        assert client.subprotocol == "onward"
        assert await client.recv() == PREAMBLE
        wire.receive_data(PREAMBLE)
        for byte in data[:10]:
            await client.send(bytes([byte]))
        await client.send([data[10:20], data[20:25], data[25:]])  # one message in parts
        answer = await client.recv()
        assert wire.receive_data(cast(bytes, answer)) == [
            Message(route("app"), route("echo"), b"hello")
        ]
        await (await client.ping(b"there?"))
        (link,) = listener.statistics().links
        assert (link.received, link.sent, link.bytes_in) == (1, 1, len(data))
        assert link.peer == "{}:{}".format(*client.local_address)
    await eventually(lambda: not listener.statistics().links)
    assert listener.statistics().closed == {"the peer closed the connection": 1}
    assert client.close_code == 1000


async def test_a_client_that_speaks_something_else_inside(c: Node) -> None:
    listener = await listening(c)
    async with dialled(listener) as client:
        await client.send(b"\x07")
        assert await client.recv() == PREAMBLE
        await client.wait_closed()
    await eventually(lambda: listener.statistics().closed)
    (reason,) = listener.statistics().closed
    assert reason.startswith("the peer starts with 0x07")


async def test_pages_of_browsers_need_an_origin_that_may(
    c: Node, caplog: pytest.LogCaptureFixture
) -> None:
    web = WebSocketOptions(origins=("https://shop.example",))
    listener = await listening(c, ANY, websocket=web)
    async with dialled(listener, origin=Origin("https://shop.example")):
        pass
    with pytest.raises(InvalidStatus, match="403"):
        async with dialled(listener, origin=Origin("https://evil.example")):
            pass
    assert listener.statistics().refused == {"origin": 1}
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "the origin https://evil.example may not connect unless" in record.getMessage()


async def test_a_listener_that_closes_ends_handshakes_and_links(c: Node) -> None:
    listener = await listening(c)
    host, _, port = listener.uri.removeprefix("ws://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with dialled(listener) as client:
        await client.recv()
        await eventually(lambda: listener.statistics().handshakes == 1)
        await listener.close()
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1000
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    await eventually(lambda: listener.statistics().refused == {"stopped": 1})


async def test_a_client_that_does_not_answer_close_is_cut(c: Node) -> None:
    listener = await listening(c, ANY, drain_timeout=0.02)
    host, _, port = listener.uri.removeprefix("ws://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    writer.write(handshake())
    await reader.readuntil(b"\r\n\r\n")
    await listener.close()
    with contextlib.suppress(ConnectionError):
        rest = await reader.read()
        assert rest == b"\x82\x01" + PREAMBLE + b"\x88\x02" + (1000).to_bytes(2)
    writer.close()


async def test_a_foreign_server(a: Node) -> None:
    recorder = await Recorder.on(a, "back")
    asked: list[ServerConnection] = []

    async def served(server: ServerConnection) -> None:
        asked.append(server)
        wire = WireConnection()
        await server.send(wire.data_to_send())
        await (await server.ping(b"there?"))
        async for data in server:
            for message in wire.receive_data(cast(bytes, data)):
                wire.send(message.reply(message.payload))
                await server.send(wire.data_to_send())

    async with serve(served, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        link = await a.connect(f"ws://127.0.0.1:{port}/path", reconnect=False)
        a.send([link, "x"], b"hello", return_route="back")
        assert (await recorder.next()).payload == b"hello"
        assert asked[0].request is not None
        assert asked[0].request.path == "/path"
        await a.stop_worker(link)
        await eventually(lambda: asked[0].close_code == 1000)


ANSWERS = {
    "no HTTP": (b"220 mail.example.org\r\n\r\n", r"it answers '220 mail\.example\.org'"),
    "another answer": (b"HTTP/1.1 200 OK\r\n\r\n", "it answers 'HTTP/1.1 200 OK'"),
    "no upgrade": (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "no WebSocket: "),
    "no end": (bytes(MAX_HANDSHAKE + 1), f"the answer has more than {MAX_HANDSHAKE} bytes"),
    "nothing": (b"", "the connection was closed in the handshake; it may want TLS"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_servers_that_are_none(a: Node, name: str) -> None:
    answer, text = ANSWERS[name]

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if not answer:
            writer.close()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(LinkDown, match=text):
            await a.connect(f"ws://127.0.0.1:{port}")


async def test_a_server_that_takes_its_time(a: Node) -> None:
    closed = asyncio.Event()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        closed.set()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(LinkDown, match="no connection in time"):
            await a.connect(f"ws://127.0.0.1:{port}", connect_timeout=0.02)
        await closed.wait()


async def test_a_server_that_breaks_the_rules(a: Node) -> None:
    closing: list[bytes] = []

    async def served(server: ServerConnection) -> None:
        await server.send(PREAMBLE)
        await server.recv()
        server.transport.write(b"\x82\x81" + bytes(5))  # masked, as no server's are
        await server.wait_closed()
        closing.append(str(server.close_code).encode())

    async with serve(served, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        link = await a.connect(f"ws://127.0.0.1:{port}", reconnect=False)
        with pytest.raises(LinkLost, match="broken WebSocket: a server must not mask"):
            await a.request([link, "x"], b"")
        await eventually(lambda: closing == [b"1002"])


@pytest.mark.parametrize("uri", ["ws://", "ws://host", "ws://h:1/?q", "ws://u@h:1", "ws://[::1"])
async def test_what_is_no_uri(a: Node, uri: str) -> None:
    with pytest.raises(ValueError, match="not"):
        await a.connect(uri)
    with pytest.raises(ValueError, match="is not ws://"):
        await ws_of(a).connect("tcp://127.0.0.1:1")


def test_options_are_those_of_all_streams_and_more() -> None:
    options = WsOptions(max_frame=1000)
    assert (options.max_frame, options.websocket) == (1000, WebSocketOptions())
