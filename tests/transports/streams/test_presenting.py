"""Links that show credentials before the wire begins, and listeners that ask for them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from onward.actors import Node
from onward.actors.security import (
    AnonymousAuthenticator,
    Authentication,
    AuthenticationOptions,
    CertificateAuthenticator,
)
from onward.protocol import LinkDown, Message, route
from onward.protocol.ockam import WireConnection, write_header
from onward.protocol.security import (
    BadCredentials,
    BearerToken,
    Credentials,
    Principal,
    UserPassword,
    format_credentials,
)
from onward.transports import LinkState, StreamListener, TcpTransport, from_principal
from onward.transports.node import _stream_link
from tests.support.certificates import Certificates
from tests.support.loops import on_both_loops
from tests.support.security import Gate
from tests.support.tcp import ended, raw
from tests.support.transports import Recorder, eventually

SHOP = Principal("shop-1", "test", frozenset({"shop"}))
ANN = Principal("ann", "test", frozenset({"staff"}))
TOKEN, USER = BearerToken(b"tok"), UserPassword("user", "password")
ACCEPTED: dict[Credentials | None, Principal] = {TOKEN: SHOP, USER: ANN}
REFUSED = bytes.fromhex("c0 0011") + b"not authenticated"
HEADER = write_header(format_credentials(TOKEN))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


async def listening(
    node: Node, *methods: Any, uri: str = "tcp://127.0.0.1:0", **more: Any
) -> StreamListener:
    options = more.pop("limits", AuthenticationOptions())
    authentication = Authentication(methods or (Gate(ACCEPTED),), options)
    listener = await node.listen(uri, authentication=authentication, **more)
    return cast(StreamListener, listener)


def wire(*payloads: bytes) -> bytes:
    """Return the wire of a peer that sends messages to `c1` with its greeting."""
    connection = WireConnection()
    for payload in payloads:
        connection.send(Message(route("c1"), route("x"), payload))
    return connection.data_to_send()


# --- links ----------------------------------------------------------------------------------
@on_both_loops
@pytest.mark.parametrize("scheme", ["tcp", "tls", "ws", "wss", "uds"])
@pytest.mark.parametrize("credentials", [TOKEN, USER])
async def test_credentials_make_the_principal_of_a_link(
    scheme: str, credentials: Credentials, certificates: Certificates, tmp_path: Path
) -> None:
    async with Node("a") as a, Node("c") as c:
        recorder = await Recorder.on(c, "c1")
        uri = f"uds://{tmp_path}/s" if scheme == "uds" else f"{scheme}://127.0.0.1:0"
        secure = scheme in ("tls", "wss")
        more = {"tls": certificates.lenient} if secure else {}
        listener = await listening(c, uri=uri, expose=["c1"], **more)
        tls = replace(certificates.anonymous, server_name="localhost") if secure else None
        link = await a.connect(listener.uri, credentials=credentials, tls=tls)
        for number in range(3):
            a.send([link, "c1"], b"%d" % number)
        messages = [await recorder.next() for _ in range(3)]
        assert [message.payload for message in messages] == [b"0", b"1", b"2"]
        principal = ACCEPTED[credentials]
        assert from_principal(c, principal.name)(messages[0])
        assert not from_principal(c, "other", roles=["other"])(messages[0])
        (accepted,) = listener.statistics().links
        assert accepted.principal == principal.name
        with pytest.raises(LinkDown, match="refuses the credentials: not authenticated"):
            await a.connect(listener.uri, credentials=BearerToken(b"guess"), tls=tls)
        with pytest.raises(LinkDown):
            await a.connect(listener.uri, tls=tls)
        figures = listener.statistics()
        assert figures.accepted == 1
        assert figures.authentication is not None
        assert figures.authentication.refused == {"unknown": 1, "no credentials": 1}
        assert figures.refused["not authenticated"] == 2


async def test_peers_without_credentials_go_on_where_that_is_allowed(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, Gate({TOKEN: SHOP}), AnonymousAuthenticator(), expose=["c1"])
    await a.connect(listener.uri)
    async with raw(listener, wire(b"as Ockam")):
        assert (await recorder.next()).payload == b"as Ockam"
    names = {link.principal for link in listener.statistics().links}
    assert names == {"anonymous"}


async def test_a_listener_that_asks_for_none(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    listener = await c.listen("tcp://127.0.0.1:0", expose=["c1"])
    with pytest.raises(LinkDown, match="the peer asks for no credentials"):
        await a.connect(listener.uri, credentials=TOKEN)
    assert recorder.messages == []
    assert c.dead_letters.total == 0  # nothing of the credentials became a message


async def test_credentials_that_cannot_be_shown(a: Node, c: Node) -> None:
    listener = await listening(c)
    with pytest.raises(BadCredentials, match="the token is empty"):
        await a.connect(listener.uri, credentials=BearerToken(b""))
    with pytest.raises(ValueError, match="credentials= takes"):
        await a.connect(listener.uri, credentials="token")

    async def fails() -> Credentials:
        raise OSError("secret")

    with pytest.raises(LinkDown, match="there are no credentials: OSError") as caught:
        await a.connect(listener.uri, credentials=fails)
    assert "secret" not in str(caught.value)


async def test_udp_has_none(a: Node) -> None:
    with pytest.raises(ValueError, match="udp takes no credentials"):
        await a.connect("udp://127.0.0.1:1", credentials=TOKEN)
    with pytest.raises(ValueError, match="udp takes no authentication"):
        await listening(a, uri="udp://127.0.0.1:0")


async def test_a_reconnect_shows_new_credentials(a: Node, c: Node) -> None:
    gate = Gate(ACCEPTED)
    listener = await listening(c, gate)
    shown: list[Credentials] = []

    async def source() -> Credentials:
        shown.append((TOKEN, USER)[len(shown) % 2])
        return shown[-1]

    link = await a.connect(listener.uri, credentials=source)
    (accepted,) = listener.statistics().links
    await c.stop_worker(accepted.address)

    def again() -> bool:
        return [each.principal for each in listener.statistics().links] == ["ann"]

    await eventually(again)
    assert shown == [TOKEN, USER]
    transport = a.transport("tcp")
    assert isinstance(transport, TcpTransport)
    # The listener has accepted a link before the other end counts it.
    await eventually(lambda: transport.statistics()[0].connects == 2)
    assert transport.statistics()[0].address == link


async def test_a_link_is_down_while_its_credentials_are_refused(a: Node, c: Node) -> None:
    gate = Gate(ACCEPTED)
    listener = await listening(c, gate)
    await a.connect(listener.uri, credentials=TOKEN)
    transport = a.transport("tcp")
    assert isinstance(transport, TcpTransport)
    gate.accepted.clear()
    (accepted,) = listener.statistics().links
    await c.stop_worker(accepted.address)
    await eventually(lambda: transport.statistics()[0].failures)
    (statistics,) = transport.statistics()
    assert statistics.state is not LinkState.UP
    assert statistics.reason == "the peer refuses the credentials: not authenticated"
    gate.accepted[TOKEN] = SHOP
    await eventually(lambda: transport.statistics()[0].state is LinkState.UP)


async def test_expired_credentials_are_followed_by_new_ones(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stream_link, "GRACE", 0.05)
    gate = Gate({TOKEN: replace(SHOP, expires=time.time() + 0.3), USER: ANN})
    listener = await listening(c, gate)
    left: list[Credentials] = [TOKEN, USER]

    async def source() -> Credentials:
        return left.pop(0)

    await a.connect(listener.uri, credentials=source)
    await eventually(lambda: [each.principal for each in listener.statistics().links] == ["ann"])
    assert listener.statistics().closed == {"credentials expired": 1}


# --- raw bytes ------------------------------------------------------------------------------
@on_both_loops
async def test_a_header_cut_at_each_byte() -> None:
    async with Node("c") as c:
        recorder = await Recorder.on(c, "c1")
        limits = AuthenticationOptions(max_undecided=1000)
        listener = await listening(c, limits=limits, expose=["c1"])
        whole = HEADER + wire(b"x")
        for at in range(1, len(HEADER) + 2):
            async with raw(listener, whole[:at]) as (reader, writer):
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(whole[at:])
                assert (await recorder.next()).payload == b"x"
                assert await reader.readexactly(4) == bytes.fromhex("c0 0000 01")


@pytest.mark.parametrize(
    "sent",
    [
        write_header(format_credentials(BearerToken(b"guess"))),
        write_header(format_credentials(UserPassword("user", "wrong"))),
        write_header(b""),
        write_header(b"\x82x"),
        write_header(b"\x81" + bytes(8193)),
        bytes.fromhex("c0 ffff"),
    ],
)
async def test_one_text_for_all_that_are_refused(sent: bytes, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, expose=["c1"])
    async with raw(listener, sent + wire(b"behind")) as (reader, _):
        with contextlib.suppress(ConnectionError):
            assert await reader.readexactly(len(REFUSED)) == REFUSED
        assert await ended(reader) == b""
    await eventually(lambda: listener.statistics().refused == {"not authenticated": 1})
    assert recorder.messages == []
    assert listener.statistics().links == ()
    await eventually(lambda: not listener.statistics().handshakes)


async def test_nothing_behind_a_header_is_read_before_the_decision(c: Node) -> None:
    gate = Gate(ACCEPTED)
    gate.open.clear()
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, gate, expose=["c1"])
    async with raw(listener, HEADER + wire(b"a", b"b")) as (reader, _):
        await eventually(lambda: gate.seen)
        assert [credentials for credentials, _ in gate.seen] == [TOKEN]
        assert (recorder.messages, listener.statistics().links) == ([], ())
        gate.open.set()
        assert [(await recorder.next()).payload for _ in range(2)] == [b"a", b"b"]
        assert await reader.readexactly(4) == bytes.fromhex("c0 0000 01")


@pytest.mark.parametrize("sent", [b"", HEADER[:5]])
async def test_a_peer_that_does_not_finish_its_header(sent: bytes, c: Node) -> None:
    listener = await listening(c, limits=AuthenticationOptions(timeout=0.1))
    async with raw(listener, sent) as (reader, _):
        assert await ended(reader) == b""
    await eventually(lambda: listener.statistics().refused == {"not authenticated": 1})


async def test_guesses_ban_their_source(c: Node, a: Node) -> None:
    listener = await listening(c, limits=AuthenticationOptions(max_failures=2))
    for _ in range(2):
        with pytest.raises(LinkDown, match="not authenticated"):
            await a.connect(listener.uri, credentials=BearerToken(b"guess"))
    with pytest.raises(LinkDown):
        await a.connect(listener.uri, credentials=TOKEN)
    assert listener.statistics().refused == {"not authenticated": 2, "banned": 1}


async def test_a_certificate_needs_no_header(a: Node, c: Node, certificates: Certificates) -> None:
    method = CertificateAuthenticator()
    listener = await listening(c, method, uri="tls://127.0.0.1:0", tls=certificates.lenient)
    tls = replace(certificates.named, server_name="localhost")
    await a.connect(listener.uri, tls=tls)
    # The methods are tried in their order, with credentials or without.
    await a.connect(listener.uri, tls=tls, credentials=TOKEN)
    names = [link.principal for link in listener.statistics().links]
    assert names == ["DNS:client.example"] * 2


# --- the connecting side ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "without an answer to the credentials"),
        (b"\x01", "the peer asks for no credentials"),
        (b"HTTP/1.1 400", "the peer asks for no credentials"),
        (b"\xc0\xff\xff", "does not speak this protocol"),
        (b"\xc0\x00\x04n\x1b[0", r"refuses the credentials: .n"),
        (b"\xc0\x00\x04no", "without an answer to the credentials"),
    ],
)
async def test_answers_that_are_no_acceptance(answer: bytes, text: str, a: Node) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(HEADER)) == HEADER
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(LinkDown, match=text) as caught:
            await a.connect(f"tcp://127.0.0.1:{port}", credentials=TOKEN)
        assert "\x1b" not in str(caught.value)


async def test_a_peer_that_does_not_answer(a: Node) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(LinkDown):
            await a.connect(f"tcp://127.0.0.1:{port}", credentials=TOKEN, connect_timeout=0.1)
    assert len(writers) == 1
