"""Who gets a WebSocket, who does not, and that nobody waits for one for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from onward.actors import Node, NodeLimits
from onward.actors.broker import Broker
from onward.transports.rsocket import LinkOptions, RSocketListener, WebSocketOptions
from tests.support.rsocket_peer import KEEPALIVE, MemoryTransport, frame, in_memory, setup, world
from tests.support.websocket_peer import KEY, WebSocketPeer, accept_of, handshake, messages
from tests.support.workers import fill

URI = "rsocket+ws://127.0.0.1:0"


@asynccontextmanager
async def listening(
    web: WebSocketOptions | None = None,
    options: LinkOptions | None = None,
    path: str = "",
    uri: str = URI,
) -> AsyncGenerator[RSocketListener]:
    async with world() as w:
        listener = await w.node.listen(uri + path, broker=w.broker, options=options, websocket=web)
        assert isinstance(listener, RSocketListener)
        yield listener
        await listener.close()
        await w.loop.idle()
        statistics = listener.statistics()
        assert (statistics.connections, statistics.handshakes) == (0, 0)


async def status(peer: WebSocketPeer, *data: bytes) -> int:
    """Send, and return the status of the answer."""
    answer = await peer.raw(*data)
    assert answer.startswith(b"HTTP/1.1 ")
    return int(answer[9:12])


def test_the_example_of_the_specification() -> None:
    # RFC 6455 section 1.3: so that our own sum is right.
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@in_memory
async def test_a_handshake_in_pieces_and_messages_after_it() -> None:
    async with listening() as listener:
        peer = WebSocketPeer(listener)
        request = handshake("/any/path?and=more", "Sec-WebSocket-Extensions: permessage-deflate")
        for byte in request[:-1]:
            peer.send(bytes((byte,)))
        assert listener.statistics().handshakes == 1
        assert listener.statistics().accepted == 0
        # An eager client sends on without waiting.
        alive = frame(0, KEEPALIVE, 0x80, bytes(8))
        answer = await peer.raw(request[-1:], messages(setup(), alive))
        head, _, rest = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert f"Sec-WebSocket-Accept: {accept_of(KEY)}".encode() in head
        assert b"xtensions" not in head
        assert b"Sec-WebSocket-Protocol" not in head
        assert rest == b"\x82\x0e" + frame(0, KEEPALIVE, 0, bytes(8))[3:]
        statistics = listener.statistics()
        assert (statistics.handshakes, statistics.accepted, statistics.connections) == (0, 1, 1)
        assert statistics.refused_handshakes == {}
        peer.transport.lose(None)


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [("rsocket", True), ("chat, rsocket", True), ("chat", False), ("RSocket", False)],
)
@in_memory
async def test_the_subprotocol_is_agreed_if_offered(offered: str, agreed: bool) -> None:
    async with listening() as listener:
        peer = WebSocketPeer(listener)
        answer = await peer.raw(handshake("/", f"Sec-WebSocket-Protocol: {offered}"))
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert (b"Sec-WebSocket-Protocol: rsocket\r\n" in answer) is agreed
        peer.transport.lose(None)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("/rsocket", 101), ("/rsocket?token=1", 101), ("/", 404), ("/rsocket/", 404), ("/x", 404)],
)
@in_memory
async def test_the_path_of_the_uri_is_asked_of_clients(asked: str, expected: int) -> None:
    async with listening(path="/rsocket") as listener:
        assert listener.uri.endswith("/rsocket")
        peer = WebSocketPeer(listener)
        assert await status(peer, handshake(asked)) == expected
        assert peer.closed is (expected == 404)
        refused = listener.statistics().refused_handshakes
        assert refused == ({"path": 1} if expected == 404 else {})
        peer.transport.lose(None)


SHOP, EVIL = "https://shop.example", "https://evil.example"


@pytest.mark.parametrize(
    ("allowed", "told", "expected"),
    [
        ((), (), 101),
        ((), (SHOP,), 403),
        ((), ("null",), 403),
        ((SHOP,), (), 101),
        ((SHOP,), (SHOP,), 101),
        ((SHOP,), (EVIL,), 403),
        ((SHOP,), ("https://shop.example.evil.example",), 403),
        ((SHOP,), ("http://shop.example",), 403),
        ((SHOP,), ("https://shop.example:8443",), 403),
        ((SHOP,), ("null",), 403),
        ((SHOP,), (SHOP, EVIL), 403),
        ((SHOP, "null"), ("null",), 101),
        (("*",), (EVIL,), 101),
    ],
)
@in_memory
async def test_pages_of_which_origins_may_connect(
    allowed: tuple[str, ...], told: tuple[str, ...], expected: int
) -> None:
    async with listening(WebSocketOptions(origins=allowed)) as listener:
        peer = WebSocketPeer(listener)
        assert await status(peer, handshake("/", *(f"Origin: {each}" for each in told))) == expected
        assert listener.statistics().refused_handshakes.get("origin", 0) == (expected == 403)
        assert peer.closed is (expected == 403)
        peer.transport.lose(None)


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080", 101),
        ("127.0.0.1", "http://127.0.0.1", 101),
        ("[::1]:8080", "http://[::1]:8080", 101),
        ("localhost:8080", "http://localhost:8080", 101),
        # A name can be made to lead here by whoever owns it.
        ("evil.example:8080", "http://evil.example:8080", 403),
        ("127.0.0.1.evil.example", "http://127.0.0.1.evil.example", 403),
        # Another server of the same machine has pages.
        ("127.0.0.1:8080", "http://127.0.0.1:80", 403),
        ("127.0.0.1:8080", "https://127.0.0.1:8080", 403),
        ("127.0.0.1:8080", SHOP, 403),
    ],
)
@in_memory
async def test_programs_that_name_the_broker_as_origin(
    host: str, origin: str, expected: int
) -> None:
    async with listening() as listener:
        peer = WebSocketPeer(listener)
        assert await status(peer, handshake("/", f"Origin: {origin}", host=host)) == expected
        peer.transport.lose(None)


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("Broker.Example:8080", "http://broker.example:8080", 101),
        ("broker.example", "http://broker.example", 101),
        ("build-7.lan:8080", "http://build-7.lan:8080", 101),
        ("build-7:8080", "http://build-7:8080", 101),
        # Another port of this machine may have pages.
        ("broker.example:8080", "http://broker.example", 403),
        ("broker.example:8080", "https://broker.example:8080", 403),
        ("broker.example.evil.example", "http://broker.example.evil.example", 403),
        ("lan:8080", "http://lan:8080", 403),
        (":8080", "http://:8080", 403),
    ],
)
@in_memory
async def test_programs_that_name_the_broker_by_its_host_name(
    monkeypatch: pytest.MonkeyPatch, host: str, origin: str, expected: int
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Build-7.lan")
    async with listening(uri="rsocket+ws://broker.example:8080") as listener:
        peer = WebSocketPeer(listener)
        assert await status(peer, handshake("/", f"Origin: {origin}", host=host)) == expected
        peer.transport.lose(None)


@pytest.mark.parametrize(
    ("path", "origin", "said"),
    [
        ("/rsocket", "http://gate.example:8080", "the origin http://gate.example:8080 may not"),
        ("/rsocket", "x" * 2000, f"the origin {'x' * 80} may not connect unless"),
        ("/other", "http://gate.example:8080", "a client asks for /other and not for /rsocket"),
    ],
)
@in_memory
async def test_a_refusal_that_can_be_mended_is_logged_once(
    caplog: pytest.LogCaptureFixture, path: str, origin: str, said: str
) -> None:
    async with listening(path="/rsocket") as listener:
        for _ in range(3):
            peer = WebSocketPeer(listener)
            refused = handshake(path, f"Origin: {origin}", host="gate.example:8080")
            assert await status(peer, refused) in {403, 404}
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert said in record.getMessage()
        assert listener.uri in record.getMessage()
        assert len(record.getMessage()) < 300


def without(header: str) -> bytes:
    lines = handshake().decode().split("\r\n")
    return "\r\n".join(line for line in lines if not line.startswith(header)).encode()


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 426),
        (without("Upgrade"), 426),
        (without("Connection"), 426),
        (without("Sec-WebSocket-Key"), 400),
        (without("Sec-WebSocket-Version"), 400),
        (handshake(key="short"), 400),
        (handshake(key="!" * 24), 400),
        (handshake("/", f"Sec-WebSocket-Key: {KEY}"), 400),
        (handshake().replace(b"Version: 13", b"Version: 8"), 400),
    ],
)
@in_memory
async def test_requests_that_open_no_websocket(request_bytes: bytes, expected: int) -> None:
    async with listening() as listener:
        peer = WebSocketPeer(listener)
        assert await status(peer, request_bytes, b"and more") == expected
        assert peer.closed
        statistics = listener.statistics()
        assert statistics.refused_handshakes == {"not a WebSocket": 1}
        assert (statistics.accepted, statistics.turned_away) == (0, 0)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
    ],
)
@in_memory
async def test_nonsense(nonsense: bytes) -> None:
    async with listening() as listener:
        peer = WebSocketPeer(listener)
        answer = await peer.raw(nonsense)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
        assert peer.closed
        assert listener.statistics().refused_handshakes == {"not understood": 1}


@pytest.mark.parametrize(
    "wrong", [handshake().replace(b"GET", b"POST"), handshake().replace(b"HTTP/1.1", b"HTTP/1.0")]
)
@in_memory
async def test_what_some_releases_of_the_state_machine_answer_and_others_do_not(
    wrong: bytes,
) -> None:
    async with listening() as listener:
        peer = WebSocketPeer(listener)
        assert b" 101 " not in await peer.raw(wrong)
        assert peer.closed
        statistics = listener.statistics()
        assert statistics.accepted == 0
        assert sum(statistics.refused_handshakes.values()) == 1


@in_memory
async def test_an_rsocket_client_that_took_the_wrong_port() -> None:
    async with listening() as listener:
        peer = WebSocketPeer(listener)
        assert await peer.raw(setup()) == b""
        await asyncio.sleep(5.1)
        assert peer.closed
        assert listener.statistics().refused_handshakes == {"too late": 1}


@pytest.mark.parametrize("step", [1, 7, 64, 5000])
@in_memory
async def test_a_request_that_is_too_long(step: int) -> None:
    async with listening(WebSocketOptions(max_handshake=1000)) as listener:
        peer = WebSocketPeer(listener)
        long = handshake("/", "Cookie: " + "x" * 2000)
        for at in range(0, len(long), step):
            peer.send(long[at : at + step])
        assert await status(peer) == 431
        assert peer.closed
        assert listener.statistics().refused_handshakes == {"too long": 1}


@pytest.mark.parametrize("spare", [0, -1])
@in_memory
async def test_the_limit_of_a_request_is_exact(spare: int) -> None:
    request = handshake()
    web = WebSocketOptions(max_handshake=len(request) + spare)
    async with listening(web) as listener:
        peer = WebSocketPeer(listener)
        assert await status(peer, request, messages(setup())) == (101 if spare == 0 else 431)
        peer.transport.lose(None)


@in_memory
async def test_half_handshakes_do_not_last() -> None:
    async with listening(WebSocketOptions(handshake_timeout=3)) as listener:
        silent, slow = WebSocketPeer(listener), WebSocketPeer(listener)
        loop = silent.loop
        began = loop.time()
        for byte in handshake():
            slow.send(bytes((byte,)))
            await asyncio.sleep(0.2)
            if slow.closed:
                break
        assert loop.time() - began == pytest.approx(3, abs=0.3)
        assert silent.closed
        gone = WebSocketPeer(listener)
        gone.transport.lose(ConnectionResetError())
        await loop.idle()
        assert listener.statistics().refused_handshakes == {"too late": 2, "given up": 1}


@in_memory
async def test_a_client_that_does_not_read_its_refusal() -> None:
    async with listening(WebSocketOptions(handshake_timeout=3)) as listener:
        peer = WebSocketPeer(listener)
        peer.transport.peer_reads = False
        peer.send(handshake("/", f"Origin: {EVIL}"))
        await peer.loop.idle()
        assert not peer.closed
        # It is over: what else comes, if the socket gives it at all, is not looked at.
        peer.protocol.data_received(handshake())
        await asyncio.sleep(3)
        assert peer.closed
        assert listener.statistics().refused_handshakes == {"origin": 1}


@in_memory
async def test_handshakes_count_as_connections() -> None:
    async with listening(options=LinkOptions(max_connections=2)) as listener:
        half, whole = WebSocketPeer(listener), WebSocketPeer(listener)
        await whole.open()
        late = WebSocketPeer(listener)
        assert late.closed
        statistics = listener.statistics()
        assert (statistics.connections, statistics.handshakes) == (1, 1)
        assert statistics.turned_away == 1
        await half.open()
        assert WebSocketPeer(listener).closed
        for peer in (half, whole):
            peer.transport.lose(None)


@in_memory
async def test_closing_cuts_handshakes() -> None:
    async with listening() as listener:
        peer = WebSocketPeer(listener)
        peer.send(handshake()[:20])
        # The loop has accepted this one, but not told of it yet.
        port = int(listener.uri.rpartition(":")[2])
        accepted = peer.loop.servers[port]()
        await listener.close()
        await peer.loop.idle()
        late = MemoryTransport(peer.loop, cast(asyncio.Protocol, accepted), None)
        accepted.connection_made(late)
        await peer.loop.idle()
        assert peer.closed
        assert late.lost
        assert listener.statistics().refused_handshakes == {"stopped": 1}
        assert listener.statistics().turned_away == 1


@in_memory
async def test_a_node_without_room_says_so() -> None:
    async with Node(limits=NodeLimits(addresses=30)) as node:
        broker = await Broker.attach(node)
        listener = await node.listen(URI, broker=broker)
        assert isinstance(listener, RSocketListener)
        await fill(node)
        peer = WebSocketPeer(listener)
        assert await status(peer, handshake()) == 503
        statistics = listener.statistics()
        assert statistics.turned_away == 1
        assert statistics.refused_handshakes == {"no room": 1}
        await listener.close()
