"""Listeners of nodes and of the broker behind a proxy that says for which peer it connects."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, cast

import pytest

from onward.actors import Node
from onward.actors.broker import Broker
from onward.protocol import LinkDown
from onward.protocol.ockam import PREAMBLE
from onward.protocol.security import PeerIdentity
from onward.transports import LinkState, StreamListener, StreamOptions
from onward.transports.client import ClientOptions, connect
from onward.transports.rsocket import LinkOptions, RSocketListener
from onward.transports.streams import _proxy_entrance
from onward.transports.streams._proxy_entrance import behind_proxy
from onward.transports.streams._proxy_protocol import SIGNATURE, ProxyHeader
from tests.support.certificates import Certificates
from tests.support.fixtures import Caplog
from tests.support.loops import on_both_loops
from tests.support.proxy import LOCAL, UNKNOWN, header, header_of, proxy_to
from tests.support.tcp import ended, raw
from tests.support.transports import Echo, eventually

HERE = ("127.0.0.1",)
ONE = header_of("203.0.113.7", 4711)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


async def listening(node: Node, uri: str = "tcp://127.0.0.1:0", **options: Any) -> StreamListener:
    await node.start(Echo, address="echo")
    given: dict[str, Any] = {"proxies": HERE, "proxy_protocol": True, "expose": ["echo"], **options}
    return cast(StreamListener, await node.listen(uri, **given))


def port_of(listener: StreamListener | RSocketListener) -> int:
    return int(listener.uri.rpartition(":")[2])


# --- the peer -----------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("scheme", ["tcp", "tls", "ws", "wss"])
async def test_a_link_has_the_peer_of_the_header(scheme: str, certificates: Certificates) -> None:
    secure = scheme in {"tls", "wss"}
    async with Node("a") as a, Node("c") as c:
        uri = f"{scheme}://127.0.0.1:0"
        listener = await listening(c, uri, tls=certificates.strict if secure else None)
        async with proxy_to(port_of(listener), ONE) as port:
            tls = certificates.named if secure else None
            link = await a.connect(f"{scheme}://127.0.0.1:{port}", tls=tls)
            assert (await a.request([link, "echo"], b"x")).payload == b"x"
            (accepted,) = listener._worker._links
            identity = accepted.identity
            assert (identity.source, identity.peer) == ("203.0.113.7", "203.0.113.7:4711")
            assert identity.names == (("DNS:client.example",) if secure else ())
            assert accepted.peer == identity.peer
            assert listener._worker.acceptor.places._by_source == {"203.0.113.7": 1}
            await a.stop_worker(link)
            await eventually(lambda: not listener.statistics().links)
        assert (listener._worker.acceptor.places.taken, listener.statistics().refused) == (0, {})


@on_both_loops
@pytest.mark.parametrize("scheme", ["rsocket+tcp", "rsocket+tls", "rsocket+ws", "rsocket+wss"])
async def test_a_client_has_the_address_of_the_header(
    scheme: str, certificates: Certificates
) -> None:
    secure = scheme.endswith(("tls", "wss"))
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen(
            f"{scheme}://127.0.0.1:0",
            broker=broker,
            tls=certificates.strict if secure else None,
            options=LinkOptions(proxies=HERE, proxy_protocol=True),
        )
        assert isinstance(listener, RSocketListener)
        head = header_of("2001:db8::7", 4711)
        options = ClientOptions(tls=certificates.named if secure else None, drain_timeout=0.1)
        async with proxy_to(port_of(listener), head) as port:
            uri = f"{scheme}://127.0.0.1:{port}"
            async with connect(uri, service="a", options=options):
                (link,) = listener._links
                assert (link.source, link.identity.peer) == ("2001:db8::/64", "[2001:db8::7]:4711")
                await eventually(lambda: [each for each in broker.routes() if each.service == "a"])
                (row,) = (each for each in broker.routes() if each.service == "a")
                assert row.peer == "[2001:db8::7]:4711"


@pytest.mark.parametrize("head", [LOCAL, UNKNOWN, ONE])
async def test_the_user_of_a_proxy_is_not_that_of_its_peer(
    a: Node, c: Node, tmp_path: Path, head: bytes
) -> None:
    path = tmp_path / "s"
    listener = await listening(c, f"uds://{path}", proxies=("unix",))
    async with proxy_to(str(path), head) as port:
        link = await a.connect(f"tcp://127.0.0.1:{port}")
        await a.request([link, "echo"], b"x")
        ((accepted, source),) = listener._worker._links.items()
        identity = accepted.identity
        assert identity.user_id == (os.getuid() if head is LOCAL else None)
        assert source == ("203.0.113.7" if head is ONE else f"uid={os.getuid()} #1")
        await a.stop_worker(link)
        await eventually(lambda: not listener.statistics().links)


def test_the_peer_of_a_unix_socket() -> None:
    proxy = PeerIdentity("tcp://here:1", "10.0.0.5 #1", user_id=7, peer="10.0.0.5:3")
    found = behind_proxy(proxy, ProxyHeader(232, False, "/run/a\nb"))
    assert (found.source, found.user_id) == ("10.0.0.5 #1", None)
    assert found.peer == repr("unix:/run/a\nb")
    assert behind_proxy(proxy, None) == proxy


async def test_places_are_shared_by_the_source_of_the_header(a: Node, c: Node) -> None:
    listener = await listening(c, max_connections_per_source=1)
    async with (
        proxy_to(port_of(listener), ONE) as first,
        proxy_to(port_of(listener), header_of("203.0.113.8", 1)) as second,
    ):
        await a.connect(f"tcp://127.0.0.1:{first}")
        with pytest.raises(LinkDown):
            await a.connect(f"tcp://127.0.0.1:{first}", reconnect=False)
        await a.connect(f"tcp://127.0.0.1:{second}")
        listener._worker.acceptor.admits = lambda source: source != "203.0.113.8"
        with pytest.raises(LinkDown):
            await a.connect(f"tcp://127.0.0.1:{second}", reconnect=False)
        assert listener.statistics().turned_away == 2
        assert listener.statistics().refused == {"banned": 1}
        await listener.close()


# --- what is refused ----------------------------------------------------------------------

REFUSED = {
    "none": (PREAMBLE, "there is no PROXY header"),
    "version 1": (b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n", "the PROXY header is of version 1"),
    "version 3": (header(0x31, 0x11, bytes(12)), "the version of the PROXY header is unknown"),
    "too long": (header(0x21, 0x11, size=60_000), "the PROXY header is too long"),
}


@pytest.mark.parametrize(("sent", "reason"), REFUSED.values(), ids=REFUSED)
async def test_a_proxy_without_a_right_header(c: Node, sent: bytes, reason: str) -> None:
    listener = await listening(c)
    async with raw(listener) as (reader, writer):
        writer.write(sent)
        assert await ended(reader) == b""
    await eventually(lambda: listener.statistics().refused)
    ((found, count),) = listener.statistics().refused.items()
    assert found.startswith(reason)
    assert (count, listener.statistics().accepted) == (1, 0)
    assert listener._worker.acceptor.places.taken == 0


async def test_a_header_that_is_not_whole_in_time(c: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_proxy_entrance, "HEADER_TIMEOUT", 0.05)
    listener = await listening(c)
    async with raw(listener) as (reader, writer):
        writer.write(ONE[:-1])
        assert await ended(reader) == b""
    await eventually(lambda: listener.statistics().refused)
    assert listener.statistics().refused == {"no PROXY header within 0.05 s": 1}


async def test_a_peer_that_goes_and_a_listener_that_stops_meanwhile(c: Node) -> None:
    listener = await listening(c)
    async with raw(listener) as (_, writer):
        writer.write(ONE[:20])
        await eventually(lambda: listener.statistics().handshakes == 1)
    await eventually(lambda: listener.statistics().refused)
    assert listener.statistics().refused == {"the peer closed the connection": 1}
    async with raw(listener) as (reader, _):
        await eventually(lambda: listener.statistics().handshakes == 1)
        acceptor = listener._worker.acceptor
        await listener.close()
        assert await ended(reader) == b""
        assert acceptor.refused["stopped"] == 1


async def test_a_header_in_pieces_and_what_comes_with_it(c: Node) -> None:
    listener = await listening(c)
    async with raw(listener) as (reader, writer):
        for at in range(len(ONE)):
            writer.write(ONE[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(PREAMBLE)
        assert await reader.readexactly(1) == PREAMBLE
        await eventually(lambda: listener.statistics().links[0].state is LinkState.UP)
    async with raw(listener) as (_, writer):
        writer.write(ONE + PREAMBLE)
        await eventually(lambda: listener.statistics().accepted == 2)
        await eventually(lambda: listener.statistics().links[-1].state is LinkState.UP)


# --- from elsewhere -----------------------------------------------------------------------


async def test_a_header_from_elsewhere_is_a_claim_and_is_refused(a: Node, c: Node) -> None:
    listener = await listening(c, proxies=("10.0.0.1",))
    async with raw(listener) as (reader, writer):
        writer.write(ONE)
        assert await ended(reader) == b""
    await eventually(lambda: listener.statistics().refused)
    assert listener.statistics().refused == {"a PROXY header from outside of the proxies": 1}
    # Without one it is as usual.
    link = await a.connect(listener.uri)
    assert (await a.request([link, "echo"], b"x")).payload == b"x"
    (accepted,) = listener._worker._links
    assert accepted.identity.source == "127.0.0.1"


@pytest.mark.parametrize("head", [ONE, b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 1\r\n"])
@pytest.mark.parametrize("scheme", ["tcp", "tls", "ws", "wss"])
async def test_a_header_that_a_listener_does_not_expect(
    c: Node, scheme: str, head: bytes, certificates: Certificates, caplog: Caplog
) -> None:
    """The clients of a proxy that is not declared would be taken for the proxy itself."""
    broker = await Broker.attach(c)
    tls = certificates.listener if scheme in {"tls", "wss"} else None
    listener = await c.listen(f"rsocket+{scheme}://127.0.0.1:0", broker=broker, tls=tls)
    port = port_of(cast(RSocketListener, listener))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"GET / HTTP/1.1\r\n\r\n")
    await ended(reader)
    writer.close()
    await eventually(lambda: "a PROXY header, which is not expected" in caplog.text)
    first = next(each for each in caplog.records if "PROXY" in each.getMessage())
    assert first.levelname == "WARNING"


async def test_what_begins_like_a_header_from_elsewhere_is_handed_on(c: Node) -> None:
    listener = await listening(c, proxies=("10.0.0.1",))
    async with raw(listener) as (reader, writer):
        writer.write(SIGNATURE[:5])
        await eventually(lambda: listener.statistics().handshakes == 1)
        writer.write(b"x")
        await ended(reader)  # it is no greeting
    await eventually(lambda: listener.statistics().closed)
    assert listener.statistics().refused == {}


@pytest.mark.parametrize("made", [StreamOptions, LinkOptions])
def test_the_protocol_needs_proxies(made: type[Any]) -> None:
    with pytest.raises(ValueError, match="proxy_protocol needs proxies"):
        made(proxy_protocol=True)
