"""RSocket over TLS: a broker and its clients, with certificates that are right and wrong."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import time
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.actors.security import AnonymousAuthenticator, Authentication
from onward.protocol import LinkDown
from onward.transports import TlsOptions, WebSocketOptions, parse_uri
from onward.transports.client import ClientOptions, connect
from onward.transports.rsocket import LinkOptions, RSocketListener
from tests.support.authority import put_authorities, put_certificate
from tests.support.certificates import Certificates
from tests.support.counts import times
from tests.support.loops import on_both_loops
from tests.support.transports import eventually

SCHEMES = ("rsocket+tls", "rsocket+wss", "rsocket+unix")
RELOADS = times(200, 1000)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=SCHEMES)
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "rsocket+unix":
        return f"rsocket+unix://{tmp_path_factory.mktemp('s')}/s"
    return f"{request.param}://127.0.0.1:0"


@asynccontextmanager
async def listening(
    uri: str,
    tls: TlsOptions | ssl.SSLContext | None,
    options: LinkOptions | None = None,
    **more: Any,
) -> AsyncGenerator[RSocketListener]:
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen(uri, broker=broker, tls=tls, options=options, **more)
        assert isinstance(listener, RSocketListener)
        yield listener


def client_options(tls: TlsOptions | None, uri: str = "") -> ClientOptions:
    """Options of a client that tries once."""
    if tls is not None and uri.startswith("rsocket+unix"):
        tls = replace(tls, server_name="localhost")
    return ClientOptions(tls=tls, reconnect=False, drain_timeout=0.1)


def echo() -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return request.data

    return handlers


async def refusal(uri: str, tls: TlsOptions | None) -> str:
    """Connect in vain, and return why."""
    with pytest.raises(LinkDown) as caught:
        await connect(uri, options=client_options(tls, uri)).__aenter__()
    return caught.value.detail


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait for the end of a connection that has sent nothing."""
    async with asyncio.timeout(20):
        with suppress(ConnectionError):
            assert await reader.read() == b""


def port_of(listener: RSocketListener) -> int:
    return int(listener.uri.rpartition(":")[2])


@on_both_loops
async def test_requests_over_each_kind_of_socket(uri: str, certificates: Certificates) -> None:
    async with listening(uri, certificates.strict) as listener:
        assert listener.uri.partition(":")[0] == uri.partition(":")[0]
        options = client_options(certificates.named, uri)
        async with (
            connect(listener.uri, service="echo", handlers=echo(), options=options),
            connect(listener.uri, options=options) as client,
        ):
            for size in (1, 1000, 3_000_000):
                answer = await client.request("service=echo", bytes(size))
                assert answer.data == bytes(size)
            statistics = listener.statistics()
            assert (statistics.connections, statistics.handshakes) == (2, 0)
            identity, other = (each.identity for each in listener._links)
            assert (identity.listener, identity.names) == (listener.uri, ("DNS:client.example",))
            assert identity.digest == other.digest == certificates.digest(certificates.client)
            assert identity.user_id == (os.getuid() if "unix" in uri else None)
        await eventually(lambda: listener.statistics().connections == 0)
        assert listener.statistics().refused_handshakes == {}


@on_both_loops
async def test_certificates_are_replaced_while_requests_go_on(
    uri: str, certificates: Certificates, tmp_path: Path
) -> None:
    ours = trustme.CA()
    put_certificate(tmp_path / "server.pem", ours)
    put_authorities(tmp_path / "authority.pem", ours)
    async with listening(uri, TlsOptions(certificate=tmp_path / "server.pem")) as listener:
        options = client_options(TlsOptions(authority=tmp_path / "authority.pem"), uri)
        async with (
            connect(listener.uri, service="echo", handlers=echo(), options=options),
            connect(listener.uri, options=options) as client,
        ):
            for number in range(10):
                put_certificate(tmp_path / "server.pem", ours)
                asked = asyncio.create_task(client.request("service=echo", bytes(300_000)))
                listener.reload()
                async with connect(listener.uri, options=options) as other:
                    assert (await other.request("service=echo", b"x")).data == b"x"
                assert len((await asked).data) == 300_000
                figures = listener.statistics().tls
                assert figures is not None
                assert (figures.reloads, figures.failed_reloads) == (number + 1, 0)
                assert figures.handshakes == {"completed": number + 3}
            before = listener.statistics().tls
            assert before is not None
            (tmp_path / "server.pem").write_bytes(certificates.authority.read_bytes())
            with pytest.raises(ValueError, match="no usable certificate"):
                listener.reload()
            async with connect(listener.uri, options=options):
                figures = listener.statistics().tls
                assert figures is not None
                assert (figures.failed_reloads, figures.not_after) == (1, before.not_after)


@pytest.mark.slow
async def test_many_reloads_under_load_lose_nothing_and_leave_nothing(
    tmp_path: Path,
) -> None:
    authorities = [trustme.CA(), trustme.CA()]
    put_certificate(tmp_path / "server.pem", authorities[0])
    put_authorities(tmp_path / "authority.pem", *authorities)
    over = asyncio.Event()

    async def requests(uri: str, options: ClientOptions) -> int:
        answered = 0
        async with connect(uri, options=options) as client:
            while not over.is_set():
                assert (await client.request("service=echo", bytes(1000))).data == bytes(1000)
                answered += 1
        return answered

    async def connections(uri: str, options: ClientOptions) -> int:
        opened = 0
        while not over.is_set():
            async with connect(uri, options=options) as client:
                await client.request("service=echo", b"x")
            opened += 1
        return opened

    tls = TlsOptions(certificate=tmp_path / "server.pem")
    async with listening("rsocket+tls://127.0.0.1:0", tls) as listener:
        holder = listener._acceptor._context
        assert holder is not None
        contexts: weakref.WeakSet[ssl.SSLContext] = weakref.WeakSet()
        options = client_options(TlsOptions(authority=tmp_path / "authority.pem"))
        async with connect(listener.uri, service="echo", handlers=echo(), options=options):
            async with asyncio.TaskGroup() as group:
                work = [
                    group.create_task(each(listener.uri, options))
                    for each in (requests, requests, connections)
                ]
                for number in range(RELOADS):
                    if number % 10 == 0:  # another certificate, by the other authority
                        put_certificate(tmp_path / "server.pem", authorities[number // 10 % 2])
                    listener.reload()
                    contexts.add(holder.current)
                    await asyncio.sleep(0)
                over.set()
            assert all(each.result() > 0 for each in work)
            await eventually(lambda: listener.statistics().connections == 1)
            gc.collect()
            assert [*contexts] == [holder.current]
            figures = listener.statistics()
            assert figures.tls is not None
            assert (figures.tls.reloads, figures.tls.failed_reloads) == (RELOADS, 0)
            assert (figures.refused_handshakes, figures.refused, figures.dropped) == ({}, 0, {})


async def test_tls_can_be_an_option_of_a_scheme_without(certificates: Certificates) -> None:
    async with listening("rsocket+tcp://127.0.0.1:0", certificates.listener) as listener:
        assert listener.uri.startswith("rsocket+tls://")
        plain = listener.uri.replace("+tls", "+tcp")
        async with connect(plain, options=client_options(certificates.anonymous)):
            assert listener.statistics().connections == 1


@pytest.mark.parametrize("scheme", ["rsocket+tls", "rsocket+wss"])
async def test_a_listener_needs_a_certificate(scheme: str) -> None:
    with pytest.raises(ValueError, match="needs a certificate"):
        async with listening(f"{scheme}://127.0.0.1:0", None):
            pass


async def test_a_client_without_a_certificate_is_refused(
    uri: str, certificates: Certificates
) -> None:
    async with listening(uri, certificates.strict) as listener:
        text = await refusal(listener.uri, certificates.anonymous)
        # With TLS 1.3 a client learns it after its handshake, by an alert or a closed connection.
        assert "certificate" in text.lower(), text
        await eventually(lambda: listener.statistics().handshakes == 0)
        assert listener.statistics().refused_handshakes == {"the peer has no certificate": 1}
        assert listener.statistics().accepted == 0


async def test_a_plain_client_at_a_listener_with_tls(uri: str, certificates: Certificates) -> None:
    async with listening(uri, certificates.listener) as listener:
        plain = listener.uri.replace("+tls", "+tcp").replace("+wss", "+ws")
        text = await refusal(plain, None)
        assert text.endswith("; it may want TLS"), text
        await eventually(lambda: listener.statistics().handshakes == 0)
        assert listener.statistics().refused_handshakes == {"the peer does not speak TLS": 1}


async def test_a_client_with_tls_at_a_plain_listener(uri: str, certificates: Certificates) -> None:
    plain = uri.replace("+tls", "+tcp").replace("+wss", "+ws")
    # Bytes that are no opening request are not answered: the listener waits for the rest of one.
    web = WebSocketOptions(handshake_timeout=0.2)
    more: dict[str, Any] = {"websocket": web} if "+ws:" in plain else {}
    async with listening(plain, None, **more) as listener:
        secure = listener.uri.replace("+tcp", "+tls").replace("+ws:", "+wss:")
        text = await refusal(secure, certificates.anonymous)
        assert "TLS" in text, text
        await eventually(lambda: listener.statistics().connections == 0)


async def test_a_websocket_handshake_that_hangs_inside_tls_is_ended(
    certificates: Certificates,
) -> None:
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        web = WebSocketOptions(handshake_timeout=0.2)
        listener = await node.listen(
            "rsocket+wss://127.0.0.1:0", broker=broker, tls=certificates.listener, websocket=web
        )
        assert isinstance(listener, RSocketListener)
        context = ssl.create_default_context(cafile=str(certificates.authority))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port_of(listener), ssl=context, server_hostname="localhost"
        )
        await ended(reader)
        await eventually(lambda: listener.statistics().handshakes == 0)
        assert listener.statistics().refused_handshakes == {"too late": 1}
        writer.close()


async def test_a_listener_of_the_wrong_side_is_refused(certificates: Certificates) -> None:
    with pytest.raises(ValueError, match="context for clients"):
        async with listening("rsocket+tls://127.0.0.1:0", ssl.create_default_context()):
            pass
    with pytest.raises(OSError, match="cannot be read"):
        connect("rsocket+tls://h:1", options=client_options(TlsOptions(authority="/none.pem")))


async def test_a_path_of_any_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with (
        listening(f"rsocket+unix://{tmp_path}/50%25 s", None) as listener,
        connect(listener.uri, options=client_options(None)),
    ):
        assert listener.statistics().connections == 1


# --- sources that are banned ----------------------------------------------------------------------
@on_both_loops
async def test_a_banned_source_is_closed_before_tls(certificates: Certificates) -> None:
    authentication = Authentication([AnonymousAuthenticator()])
    for _ in range(10):
        assert authentication._attempts.begin("127.0.0.1", time.monotonic())
        authentication._attempts.end("127.0.0.1", time.monotonic(), failed=True)
    async with listening(
        "rsocket+tls://127.0.0.1:0", certificates.lenient, authentication=authentication
    ) as listener:
        reader, writer = await asyncio.open_connection(*parse_uri(listener.uri, "rsocket+tls"))
        async with asyncio.timeout(20):
            assert await reader.read() == b""  # without a byte of this side
        writer.close()
        figures = listener.statistics()
        assert (figures.accepted, figures.handshakes) == (0, 0)
        assert figures.authentication is not None
        assert figures.authentication.banned == 1
        assert figures.tls is not None
        assert not figures.tls.handshakes
