"""Links of nodes that know who their peer is before they read anything of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import pytest

from onward.actors import Node
from onward.actors.access import Access
from onward.actors.security import (
    AnonymousAuthenticator,
    Authentication,
    AuthenticationOptions,
    Authenticator,
    CertificateAuthenticator,
    UnixAuthenticator,
)
from onward.protocol import LinkDown, Message, route
from onward.protocol.ockam import WireConnection, write_header
from onward.protocol.security import (
    BearerToken,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    format_credentials,
)
from onward.transports import StreamListener, TlsOptions, from_principal, link_principals
from onward.transports.node import _stream_link
from onward.transports.streams._authenticating import AuthenticatedPeer, AuthenticatingConnection
from tests.support.certificates import Certificates
from tests.support.loops import on_both_loops
from tests.support.tcp import ended, raw
from tests.support.transports import Recorder, eventually
from tests.support.websocket_peer import BINARY, CLOSE, handshake, ws_frame

TOKEN = BearerToken(b"t0ken")
ANN = Principal("ann", "test", frozenset({"staff"}))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


class Deciding(Authenticator):
    """A method that waits to be told."""

    method = "test"

    def __init__(self) -> None:
        self.peers: list[PeerIdentity] = []
        self.credentials: Credentials | None = None
        self.decision: asyncio.Future[Principal | None] = asyncio.get_running_loop().create_future()

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        assert credentials == self.credentials
        self.peers.append(peer)
        return await self.decision


async def listening(
    node: Node, *methods: Authenticator, uri: str = "tcp://127.0.0.1:0", **more: Any
) -> StreamListener:
    options = more.pop("limits", AuthenticationOptions())
    authentication = Authentication(methods, options)
    listener = await node.listen(uri, authentication=authentication, **more)
    return cast(StreamListener, listener)


def first_bytes() -> bytes:
    """Return what a peer sends that greets, and has a message to `c1`."""
    wire = WireConnection()
    wire.send(Message(route("c1"), route("x"), b"at once"))
    return wire.data_to_send()


# --- who it is ----------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("scheme", ["tls", "wss", "uds"])
async def test_certificates_make_principals(
    scheme: str, certificates: Certificates, tmp_path: Path
) -> None:
    async with Node("a") as a, Node("c") as c:
        recorder = await Recorder.on(c, "c1")
        uri = f"uds://{tmp_path}/s" if scheme == "uds" else f"{scheme}://127.0.0.1:0"
        method = CertificateAuthenticator(roles=frozenset({"shop"}))
        listener = await listening(c, method, uri=uri, tls=certificates.lenient, expose=["c1"])

        def given(tls: TlsOptions) -> TlsOptions:
            return replace(tls, server_name="localhost")

        link = await a.connect(listener.uri, tls=given(certificates.named))
        a.send([link, "c1"], b"")
        message = await recorder.next()
        assert [
            from_principal(c, *names, roles=roles)(message)
            for names, roles in (
                (("DNS:client.example",), ()),
                ((), ("shop",)),
                (("other",), ("others",)),
            )
        ] == [True, True, False]
        assert message.source is not None
        principal = link_principals(c)(message.source)
        assert principal is not None
        assert (principal.name, set(principal.roles)) == ("DNS:client.example", {"shop"})
        (accepted,) = listener.statistics().links
        assert accepted.principal == "DNS:client.example"
        with contextlib.suppress(LinkDown):  # of TLS 1.3 the client's side may end before
            await a.connect(listener.uri, tls=given(certificates.anonymous), reconnect=False)
        await eventually(lambda: listener.statistics().refused == {"not authenticated": 1})
        figures = listener.statistics().authentication
        assert figures is not None
        assert (figures.accepted, figures.refused) == ({"certificate": 1}, {"no credentials": 1})
        await a.stop_worker(link)
        await eventually(lambda: not listener.statistics().links)
        assert not from_principal(c, "DNS:client.example")(message)
        assert link_principals(c)(message.source) is None


async def test_users_of_a_unix_socket_and_those_that_are_let_in(
    a: Node, c: Node, tmp_path: Path
) -> None:
    listener = await listening(c, UnixAuthenticator(), uri=f"uds://{tmp_path}/s")
    await a.connect(listener.uri)
    (accepted,) = listener.statistics().links
    assert accepted.principal == f"uid:{os.getuid()}"
    # The Ockam peers of before go on, where that is allowed.
    listener = await listening(c, UnixAuthenticator(), AnonymousAuthenticator())
    await a.connect(listener.uri)
    (accepted,) = listener.statistics().links
    assert accepted.principal == "anonymous"


def test_an_access_control_for_none() -> None:
    with pytest.raises(ValueError, match="needs names or roles"):
        from_principal(cast(Node, None))


async def test_messages_from_elsewhere_have_no_principal(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    listener = await c.listen("tcp://127.0.0.1:0", expose=["c1"])
    link = await a.connect(listener.uri)
    a.send([link, "c1"], b"")
    c.send("c1", b"")
    only = from_principal(c, "ann", roles=("staff",))
    assert [only(await recorder.next()) for _ in range(2)] == [False, False]
    assert not only(Message(route("c1"), route("x"), b""))


def test_a_peer_with_its_principal() -> None:
    peer = PeerIdentity("tls://h:1", "10.0.0.1", ("DNS:a",), b"d", 5.0, 7, "10.0.0.1:9")
    made = AuthenticatedPeer.of(peer, ANN)
    assert made.principal is ANN
    assert replace(made, principal=ANN) == made
    assert (made.listener, made.names, made.expires, made.user_id) == (
        *(peer.listener, peer.names),
        *(peer.expires, peer.user_id),
    )


# --- before the decision ------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("accepted", [True, False])
async def test_nothing_is_read_before_the_decision(accepted: bool) -> None:
    async with Node("c") as c:
        recorder = await Recorder.on(c, "c1")
        method = Deciding()
        listener = await listening(c, method, expose=["c1"])
        async with raw(listener, first_bytes()) as (reader, _):
            await eventually(lambda: method.peers)
            assert listener.statistics().handshakes == 1
            (peer,) = method.peers
            assert (peer.listener, peer.source) == (listener.uri, "127.0.0.1")
            for _ in range(20):
                await asyncio.sleep(0)
            assert (recorder.messages, listener.statistics().links) == ([], ())
            if accepted:
                method.decision.set_result(ANN)
                message = await recorder.next()
                assert message.payload == b"at once"
                assert from_principal(c, roles=("staff",))(message)
            else:
                method.decision.set_exception(NotAuthenticated("unknown"))
                # No greeting and no cause: the peer learns nothing.
                assert await ended(reader) == b""
                await eventually(lambda: listener.statistics().refused)
                assert listener.statistics().refused == {"not authenticated": 1}
                assert (recorder.messages, listener.statistics().accepted) == ([], 0)
        assert listener.statistics().handshakes == 0


LEAVING = {"tcp": False, "tls": True, "ws": False, "wss": True, "uds": False}
HEADER = write_header(b"\x81tok")


@on_both_loops
@pytest.mark.parametrize("header", [b"", HEADER])
@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("scheme", LEAVING)
async def test_what_a_peer_that_has_left_has_sent_is_handled_after_the_decision(
    scheme: str, accepted: bool, header: bytes, certificates: Certificates, tmp_path: Path
) -> None:
    async with Node("c") as c:
        recorder = Recorder()
        only = Access(incoming=from_principal(c, "ann"))
        await c.start(lambda: recorder, address="c1", access=only)
        method = Deciding()
        method.credentials = BearerToken(b"tok") if header else None
        uri = f"uds://{tmp_path}/s" if scheme == "uds" else f"{scheme}://127.0.0.1:0"
        tls = certificates.lenient if LEAVING[scheme] else None
        more = {} if tls is None else {"tls": tls}
        listener = await listening(c, method, uri=uri, expose=["c1"], **more)
        await leave_at_once(listener, header, certificates if LEAVING[scheme] else None)
        await eventually(lambda: method.peers)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (recorder.messages, listener.statistics().handshakes) == ([], 1)
        if accepted:
            method.decision.set_result(ANN)
        else:
            method.decision.set_exception(NotAuthenticated("unknown"))
        await eventually(lambda: listener._worker.acceptor.places.taken == 0)
        await eventually(lambda: not listener.statistics().links)
        figures = listener.statistics()
        assert figures.handshakes == 0
        assert figures.accepted == accepted
        assert figures.refused == ({} if accepted else {"not authenticated": 1})
        came = [int(message.payload) for message in recorder.messages]
        assert came == (list(range(100)) if accepted else [])


async def leave_at_once(
    listener: StreamListener, header: bytes, certificates: Certificates | None
) -> None:
    """Send messages to a listener and close the connection, in the same moment."""
    scheme, _, where = listener.uri.partition("://")
    wire = WireConnection()
    for number in range(100):
        wire.send(Message(route("c1"), route("x"), b"%d" % number))
    data = header + wire.data_to_send()
    context = None
    if certificates is not None:
        context = ssl.create_default_context(cafile=str(certificates.authority))
    if scheme == "uds":
        _, writer = await asyncio.open_unix_connection(where)
    else:
        port = int(where.partition("/")[0].rpartition(":")[2])
        named = "localhost" if context else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=named
        )
        if scheme in ("ws", "wss"):
            asked = handshake("/", "Sec-WebSocket-Protocol: onward", host=where.partition("/")[0])
            writer.write(asked)
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            data = ws_frame(BINARY, data) + ws_frame(CLOSE, (1000).to_bytes(2))
    writer.write(data)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class Plain(asyncio.Protocol):
    """A protocol that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(b"an answer")
        self.told.append(data)

    def eof_received(self) -> None:
        self.told.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(exc)


class Socket(asyncio.Transport):
    """A transport that the test ends, and that keeps what is written."""

    def __init__(self) -> None:
        super().__init__(ENDS)
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self.written = b""
        self.closing = False

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        assert not self.closing

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closing
        self.written += data

    def close(self) -> None:
        self.lose(None)

    def abort(self) -> None:
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """Lose the connection, soon, as the sockets of event loops do."""
        if not self.closing:
            self.closing = True
            protocol = cast(asyncio.Protocol, self.protocol)
            asyncio.get_running_loop().call_soon(protocol.connection_lost, error)


class Alone:
    """An authenticating connection on a transport that the test ends."""

    def __init__(self, timeout: float = 60.0) -> None:
        self.method = Deciding()
        self.after = Plain()
        self.outcomes: list[str] = []
        options = AuthenticationOptions(timeout=timeout)
        self.connection = AuthenticatingConnection(
            Authentication([self.method], options),
            PeerIdentity(source="10.0.0.1", peer="10.0.0.1:1"),
            lambda _: self.after,
            lambda _, outcome: self.outcomes.append(outcome),
        )
        self.transport = Socket()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


ENDS = {"sockname": ("127.0.0.1", 1), "peername": ("10.0.0.1", 1)}
RESET = ConnectionResetError("reset")


@pytest.mark.parametrize("order", list(permutations(("decide", "eof", "lost"))))
@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("settles", [True, False])
async def test_each_order_of_the_decision_and_the_end(
    order: tuple[str, ...], accepted: bool, settles: bool
) -> None:
    s = Alone()
    s.connection.data_received(b"w1")
    await s.settle()
    for step in order:
        protocol = cast(asyncio.Protocol, s.transport.get_protocol())
        if step == "decide":
            if accepted:
                s.method.decision.set_result(ANN)
            else:
                s.method.decision.set_exception(NotAuthenticated("unknown"))
        elif step == "eof":
            protocol.eof_received()
        else:
            s.transport.lose(RESET)
        if settles:
            await s.settle()
    await s.settle()
    if accepted:
        # An end of the data that comes after the loss is none.
        told = [each for each in s.after.told if each != "eof"]
        assert told == ["made", b"w1", RESET]
        assert s.after.told.count("eof") <= 1
        assert s.outcomes == [""]
    else:
        assert s.after.told == []
        assert s.outcomes == ["not authenticated"]


async def test_what_is_known_of_a_lost_connection() -> None:
    s = Alone()
    s.connection.data_received(b"w1")
    await s.settle()
    s.transport.lose(RESET)
    await s.settle()
    s.method.decision.set_result(ANN)
    await s.settle()
    assert s.after.transport is not None
    assert s.after.transport is not s.transport
    assert {name: s.after.transport.get_extra_info(name) for name in ENDS} == ENDS
    assert s.after.transport.get_extra_info("socket") is None


@pytest.mark.parametrize("lost", [True, False])
async def test_a_listener_that_stops_while_a_lost_connection_is_undecided(lost: bool) -> None:
    s = Alone()
    s.connection.data_received(b"w1")
    await s.settle()
    if lost:
        s.transport.lose(RESET)
        await s.settle()
    s.connection.abort("stopped")
    await s.settle()
    assert (s.outcomes, s.after.told) == (["stopped"], [])
    assert s.method.decision.cancelled()


async def test_a_lost_connection_with_a_decision_that_is_late() -> None:
    s = Alone(timeout=0.05)
    s.connection.data_received(b"w1")
    await s.settle()
    s.transport.lose(RESET)
    await eventually(lambda: s.outcomes)
    assert (s.outcomes, s.after.told) == (["not authenticated"], [])
    assert s.connection.detail == "10.0.0.1:1 is not authenticated: timeout"


@pytest.mark.parametrize("lost", [True, False])
async def test_a_decision_that_is_cancelled_is_a_refusal(lost: bool) -> None:
    s = Alone()
    s.connection.data_received(b"w1")
    await s.settle()
    if lost:
        s.transport.lose(RESET)
        await s.settle()
    s.method.decision.cancel()
    await s.settle()
    assert s.outcomes == ["not authenticated"]


@on_both_loops
async def test_a_peer_that_goes_and_a_listener_that_stops_meanwhile() -> None:
    async with Node("c") as c:
        method = Deciding()
        listener = await listening(c, method)
        async with raw(listener, first_bytes()) as (_, writer):
            await eventually(lambda: method.peers)
            writer.transport.abort()
        # It is not read, so its end is seen when the decision is made.
        method.decision.set_result(ANN)
        await eventually(lambda: listener.statistics().handshakes == 0)
        await eventually(lambda: not listener.statistics().links)
        method.decision = asyncio.get_running_loop().create_future()
        async with raw(listener, first_bytes()) as (reader, _):
            await eventually(lambda: len(method.peers) == 2)
            acceptor = listener._worker.acceptor
            await listener.close()
            assert await ended(reader) == b""
            assert acceptor.refused["stopped"] == 1
        assert acceptor.places.taken == 0


async def test_a_decision_that_is_late(c: Node) -> None:
    limits = AuthenticationOptions(timeout=0.05)
    listener = await listening(c, Deciding(), limits=limits)
    async with raw(listener, first_bytes()) as (reader, _):
        assert await ended(reader) == b""
    figures = listener.statistics().authentication
    assert figures is not None
    assert figures.refused == {"timeout": 1}


async def test_a_source_that_fails_too_often_is_closed_at_once(c: Node) -> None:
    limits = AuthenticationOptions(max_failures=2)
    listener = await listening(c, UnixAuthenticator(), limits=limits)
    for _ in range(3):
        async with raw(listener, first_bytes()) as (reader, _):
            assert await ended(reader) == b""
    await eventually(lambda: listener.statistics().refused == {"not authenticated": 2, "banned": 1})


# --- afterwards ---------------------------------------------------------------------------


class Brief(Authenticator):
    """A method of which the credentials expire at once."""

    method = "test"

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        return replace(ANN, expires=time.time() + 0.05)


async def test_a_link_ends_with_the_credentials(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stream_link, "GRACE", 0.05)
    monkeypatch.setattr(_stream_link, "CHECK", 0.01)
    listener = await listening(c, Brief())
    await a.connect(listener.uri, reconnect=False)
    await eventually(lambda: listener.statistics().closed)
    assert listener.statistics().closed == {"credentials expired": 1}


# --- credentials in a header --------------------------------------------------------------------


def refusal() -> bytes:
    return write_header(b"not authenticated")


async def test_bad_credentials_are_answered_and_the_socket_closed() -> None:
    """What comes behind them is not looked at."""
    s = Alone()
    s.connection.data_received(write_header(b"\xff"))
    assert s.transport.written == refusal()
    s.connection.data_received(b"more")
    await s.settle()
    assert s.transport.written == refusal()
    assert s.outcomes == ["not authenticated"]
    assert "bad credentials" in s.connection.detail
    assert s.after.told == []


async def test_a_header_comes_byte_by_byte() -> None:
    s = Alone()
    s.method.credentials = TOKEN
    header = write_header(format_credentials(TOKEN))
    for at in range(len(header) - 1):
        s.connection.data_received(header[at : at + 1])
    await s.settle()
    assert s.method.peers == []
    s.connection.data_received(header[-1:])
    await s.settle()
    assert len(s.method.peers) == 1
    s.method.decision.set_result(ANN)
    await s.settle()
    assert s.transport.written == write_header(b"")
    assert s.after.told == ["made"]


async def test_one_that_was_shut_out_before_it_was_connected() -> None:
    """The listener stops between the acceptance and the first turn of the connection."""
    s = Alone.__new__(Alone)
    outcomes: list[str] = []
    connection = AuthenticatingConnection(
        Authentication([Deciding()]),
        PeerIdentity(source="10.0.0.1", peer="10.0.0.1:1"),
        lambda _: Plain(),
        lambda _, outcome: outcomes.append(outcome),
    )
    connection.abort("stopped")
    transport = Socket()
    transport.protocol = connection
    connection.connection_made(transport)
    await Alone.settle(s)
    assert transport.closing
    assert outcomes == ["stopped"]
