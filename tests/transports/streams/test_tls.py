"""TLS under all stream transports: certificates that are right and wrong, on both loops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from onward.actors import MailboxOptions, Node
from onward.protocol import LinkDown, LinkLost, Message, route
from onward.protocol.ockam import PREAMBLE, WireConnection
from onward.transports import (
    LinkState,
    StreamListener,
    StreamTransport,
    TlsOptions,
    from_certificate,
    parse_uri,
)
from onward.transports.streams._certificate_end import read_not_after
from onward.transports.streams._tls import (
    certified_names,
    client_context,
    reason_of,
    server_context,
)
from tests.support.certificates import Certificates
from tests.support.loops import on_both_loops
from tests.support.transports import Echo, Recorder, Stuck, eventually

SCHEMES = ("tls", "wss", "uds")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=SCHEMES)
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "uds":
        return f"uds://{tmp_path_factory.mktemp('s')}/s"
    return f"{request.param}://127.0.0.1:0"


def for_uri(uri: str, tls: TlsOptions) -> TlsOptions:
    """A Unix socket has no name that a certificate could be for."""
    return replace(tls, server_name="localhost") if uri.startswith("uds:") else tls


async def listening(node: Node, uri: str, tls: Any, **options: Any) -> StreamListener:
    return cast(StreamListener, await node.listen(uri, tls=tls, **options))


@contextlib.asynccontextmanager
async def two_nodes() -> AsyncGenerator[tuple[Node, Node]]:
    async with Node("a") as a, Node("c") as c:
        await c.start(Echo, address="echo")
        yield a, c


@on_both_loops
async def test_requests_both_ways_and_who_the_peer_is(uri: str, certificates: Certificates) -> None:
    async with two_nodes() as (a, c):
        listener = await listening(c, uri, certificates.strict, expose=["echo"])
        assert listener.uri.partition(":")[0] == uri.partition(":")[0]
        tls = for_uri(uri, certificates.named)
        link = await a.connect(listener.uri, tls=tls)
        for size in (1, 1000, 3_000_000):
            answer = await a.request([link, "echo"], bytes(size))
            assert answer.payload == bytes(size)
        (accepted,) = listener.statistics().links
        assert accepted.names == ("DNS:client.example",)
        assert accepted.state is LinkState.UP
        (identity,) = (each.identity for each in listener._worker._links)
        assert (identity.listener, identity.names) == (listener.uri, accepted.names)
        assert identity.digest == certificates.digest(certificates.client)
        assert identity.expires == read_not_after(certificates.client)
        assert identity.user_id == (os.getuid() if "uds" in uri else None)
        assert (identity.source, identity.peer) != ("", "")
        (dialled,) = cast(StreamTransport, a.transport(listener.uri)).statistics()
        assert set(dialled.names) == {"DNS:localhost", "IP:127.0.0.1", "IP:::1"} or "uds" in uri
        assert (listener.statistics().handshakes, listener.statistics().refused) == (0, {})
        await a.stop_worker(link)
        await eventually(lambda: not listener.statistics().links)
        assert listener.statistics().closed == {"the peer closed the connection": 1}


@on_both_loops
async def test_who_stops_says_so_to_the_other(uri: str, certificates: Certificates) -> None:
    async with two_nodes() as (a, c):
        stuck = Stuck()
        await c.start(lambda: stuck, address="stuck")
        listener = await listening(c, uri, certificates.listener, expose=["stuck"])
        tls = for_uri(uri, certificates.anonymous)
        link = await a.connect(listener.uri, tls=tls, reconnect=False)
        asked = asyncio.create_task(a.request([link, "stuck"], b""))
        await eventually(lambda: listener.statistics().links[0].received)
        await listener.close()
        with pytest.raises(LinkLost, match="the peer closed the connection"):
            await asked
        await eventually(lambda: not a.has(link))
        stuck.go_on.set()


@on_both_loops
async def test_a_full_mailbox_stops_the_reading_and_nothing_is_lost(
    uri: str, certificates: Certificates
) -> None:
    async with two_nodes() as (a, c):
        stuck = Stuck()
        await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=1))
        listener = await listening(c, uri, certificates.listener, expose=["stuck"])
        link = await a.connect(
            listener.uri,
            tls=for_uri(uri, certificates.anonymous),
            mailbox=MailboxOptions(limit=200),
            high_water=1 << 16,
        )
        for number in range(200):
            a.send([link, "stuck"], number.to_bytes(2) + bytes(100_000))
        transport = cast(StreamTransport, a.transport(listener.uri))

        def sent() -> int:
            return transport.statistics()[0].sent

        # The peer reads no more, so the sender is slowed down: the buffers of the system are
        # full, and ours at the mark.
        await eventually(lambda: listener.statistics().links[0].held)
        before = -1
        while sent() != before:
            before = sent()
            await asyncio.sleep(0.05)
        assert before < 200
        assert transport.statistics()[0].pending > 0
        stuck.go_on.set()
        await eventually(lambda: len(stuck.messages) == 200)
        assert [int.from_bytes(each.payload[:2]) for each in stuck.messages] == [*range(200)]


# --- what is wrong ------------------------------------------------------------------------


WRONG = {
    "no authority": (
        "listener",
        TlsOptions(),
        "the peer's certificate is not accepted: unable to get local issuer certificate",
        "the peer closed the connection in the TLS handshake",
    ),
    "expired": (
        "expired",
        "anonymous",
        "the peer's certificate is not accepted: certificate has expired",
        "the peer closed the connection in the TLS handshake",
    ),
    "another authority": (
        "stranger",
        "anonymous",
        "the peer's certificate is not accepted: unable to get local issuer certificate",
        "the peer closed the connection in the TLS handshake",
    ),
    "no certificate of ours": (
        "strict",
        "anonymous",
        "it may want a certificate of ours",
        "the peer has no certificate",
    ),
    "a certificate of a stranger": (
        "strict",
        "stranger",
        "link down",
        "the peer's certificate is not accepted: unable to get local issuer certificate",
    ),
}


def tls_of(certificates: Certificates, side: object, *, listens: bool) -> TlsOptions:
    if isinstance(side, TlsOptions):
        return side
    thing = getattr(certificates, str(side))
    if isinstance(thing, TlsOptions):
        return thing
    return TlsOptions(certificate=thing, authority=None if listens else certificates.authority)


@on_both_loops
@pytest.mark.parametrize("name", WRONG)
async def test_certificates_that_are_not_accepted(
    name: str,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "onward.transports")
    ours, theirs, told, logged = WRONG[name]

    async with two_nodes() as (a, c):
        tls = tls_of(certificates, ours, listens=True)
        listener = await listening(c, "tls://127.0.0.1:0", tls)
        for _ in range(2):
            with pytest.raises(LinkDown) as caught:
                await a.connect(listener.uri, tls=tls_of(certificates, theirs, listens=False))
            assert told in str(caught.value)
        await eventually(lambda: sum(listener.statistics().refused.values()) == 2)
        assert listener.statistics().refused == {logged: 2}
        assert listener.statistics().accepted == 0
    lines = [each.getMessage() for each in caplog.records if "handshake" in each.getMessage()]
    # One line for both.
    assert [line.partition("failed: ")[2] for line in lines if "failed: " in line] == [logged]


async def test_the_name_of_the_certificate_is_checked(
    a: Node, c: Node, certificates: Certificates
) -> None:
    listener = await listening(c, "tls://127.0.0.1:0", certificates.listener)
    other = replace(certificates.anonymous, server_name="other.example")
    with pytest.raises(LinkDown, match=r"not valid for 'other\.example'"):
        await a.connect(listener.uri, tls=other)
    right = replace(certificates.anonymous, server_name="localhost")
    await a.connect(listener.uri, tls=right)


@on_both_loops
async def test_a_plain_peer_at_a_tls_port(certificates: Certificates) -> None:
    async with two_nodes() as (a, c):
        listener = await listening(c, "tls://127.0.0.1:0", certificates.listener, tls_timeout=0.05)
        plain = listener.uri.replace("tls:", "tcp:")
        with pytest.raises(LinkDown, match="; it may want TLS"):
            await a.connect(plain)
        _, silent = await asyncio.open_connection(*parse_uri(plain, "tcp"))
        reader, writer = await asyncio.open_connection(*parse_uri(plain, "tcp"))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        await eventually(lambda: len(listener.statistics().refused) == 2)
        assert listener.statistics().refused == {
            "no TLS handshake within 0.05 s": 1,
            "the peer does not speak TLS": 2,
        }
        silent.close()


@on_both_loops
async def test_tls_at_a_plain_port(certificates: Certificates) -> None:
    async with two_nodes() as (a, c):
        listener = cast(StreamListener, await c.listen("tcp://127.0.0.1:0"))
        with pytest.raises(LinkDown, match="not speak TLS"):
            await a.connect(listener.uri.replace("tcp:", "tls:"), tls=certificates.anonymous)
        _, writer = await asyncio.open_connection(*parse_uri(listener.uri, "tcp"))
        writer.write(b"\x16\x03\x01")
        await eventually(lambda: len(listener.statistics().closed) == 2)
        reason = [*listener.statistics().closed][1]
        assert reason.endswith("it speaks TLS, and this is a connection without")
        writer.close()


async def test_handshakes_under_way_count_as_connections(
    a: Node, c: Node, certificates: Certificates
) -> None:
    listener = await listening(c, "tls://127.0.0.1:0", certificates.listener, max_connections=1)
    reader, writer = await asyncio.open_connection(*parse_uri(listener.uri, "tls"))
    await eventually(lambda: listener.statistics().handshakes == 1)
    with pytest.raises(LinkDown):
        await a.connect(listener.uri, tls=certificates.anonymous)
    assert listener.statistics().turned_away == 1
    # It is ended with the listener, and leaves nothing.
    await listener.close()
    assert await reader.read() == b""
    writer.close()
    await eventually(lambda: listener.statistics().refused == {"stopped": 1})


@on_both_loops
async def test_what_comes_with_the_end_of_the_handshake_is_not_lost(
    certificates: Certificates,
) -> None:
    async with Node("c") as c:
        recorder = await Recorder.on(c, "c1")
        listener = await listening(c, "tls://127.0.0.1:0", certificates.listener, expose=["c1"])
        _, writer = await asyncio.open_connection(
            *parse_uri(listener.uri, "tls"),
            ssl=client_context(certificates.anonymous),
            server_hostname="localhost",
        )
        wire = WireConnection()
        wire.send(Message(route("c1"), route("x"), b"at once"))
        writer.write(wire.data_to_send())
        writer.close()
        assert (await recorder.next()).payload == b"at once"
        await eventually(lambda: listener.statistics().closed)


async def test_a_link_with_tls_serves_addresses_of_type_1(
    a: Node, c: Node, certificates: Certificates
) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "tls://127.0.0.1:0", certificates.listener, expose=["echo"])
    link = await a.connect(listener.uri, tls=certificates.anonymous)
    answer = await a.request(f"1#{listener.uri[6:]} => echo", b"")
    assert answer.return_route[0] == link


async def test_a_worker_for_peers_of_a_name(
    a: Node, b: Node, c: Node, certificates: Certificates
) -> None:
    only = from_certificate(c, "DNS:client.example")
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "tls://127.0.0.1:0", certificates.strict, expose=["c1"])
    plain = await c.listen("tcp://127.0.0.1:0", expose=["c1"])
    near = await a.connect(listener.uri, tls=certificates.named)
    far = await b.connect(plain.uri)
    a.send([near, "c1"], b"")
    certified = await recorder.next()
    b.send([far, "c1"], b"")
    other = await recorder.next()
    c.send("c1", b"")
    local = await recorder.next()
    assert [only(each) for each in (certified, other, local)] == [True, False, False]
    assert not from_certificate(c, "URI:client.example", "CN:Client One")(certified)
    assert not from_certificate(a, "DNS:client.example")(certified)
    await a.stop_worker(near)
    await eventually(lambda: not listener.statistics().links)
    assert not only(certified)


async def test_a_certificate_may_be_missing_but_not_wrong(
    uri: str, a: Node, b: Node, c: Node, certificates: Certificates
) -> None:
    only = from_certificate(c, "DNS:client.example")
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, uri, certificates.lenient, expose=["c1"])
    admitted: list[bool] = []
    for node, tls in ((a, certificates.named), (b, certificates.anonymous)):
        link = await node.connect(listener.uri, tls=for_uri(uri, tls))
        node.send([link, "c1"], b"")
        admitted.append(only(await recorder.next()))
    assert admitted == [True, False]
    assert [each.names for each in listener.statistics().links] == [("DNS:client.example",), ()]
    stranger = replace(certificates.anonymous, certificate=certificates.stranger)
    with contextlib.suppress(LinkDown):  # with TLS 1.3 it may come up before the listener refuses
        await a.connect(listener.uri, tls=for_uri(uri, stranger), reconnect=False)
    await eventually(lambda: listener.statistics().refused)
    (refused,) = listener.statistics().refused
    assert refused.startswith("the peer's certificate is not accepted")


# --- options ------------------------------------------------------------------------------


async def test_a_listener_needs_a_certificate(a: Node) -> None:
    with pytest.raises(ValueError, match="needs a certificate"):
        await a.listen("tls://127.0.0.1:0")
    assert a.statistics().worker_count == 0


async def test_a_unix_socket_needs_the_name_of_its_certificate(
    a: Node, certificates: Certificates
) -> None:
    with pytest.raises(ValueError, match=r"needs TlsOptions\(server_name"):
        await a.connect("uds:///nowhere", tls=certificates.anonymous)


async def test_certificates_of_links_that_addresses_open(
    a: Node, c: Node, certificates: Certificates
) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "tls://127.0.0.1:0", certificates.listener, expose=["echo"])
    transport = cast(StreamTransport, a.transport("tcp://"))
    transport.options = replace(transport.options, tls=TlsOptions(authority="none.pem"))
    with pytest.raises(LinkDown, match="the file of the authority cannot be read"):
        await a.request(f"1#{listener.uri[6:]} => echo", b"")
    transport.options = replace(transport.options, tls=certificates.anonymous)
    assert (await a.request(f"1#{listener.uri[6:]} => echo", b"x")).payload == b"x"


async def test_contexts_of_ones_own(a: Node, c: Node, certificates: Certificates) -> None:
    server, client = server_context(certificates.listener), client_context(certificates.anonymous)
    assert (server.minimum_version, client.minimum_version) == (ssl.TLSVersion.TLSv1_2,) * 2
    assert client.check_hostname
    await c.start(Echo, address="echo")
    listener = await listening(c, "tcp://127.0.0.1:0", server, expose=["echo"])
    assert listener.uri.startswith("tls://")
    link = await a.connect(listener.uri, tls=client)
    assert (await a.request([link, "echo"], b"x")).payload == b"x"
    with pytest.raises(ValueError, match="this is a listener"):
        await c.listen("tls://127.0.0.1:0", tls=client)
    with pytest.raises(ValueError, match="this side connects"):
        await a.connect(listener.uri, tls=server)


@pytest.mark.parametrize(
    "wrong", [{"client": "required"}, {"client": "optional"}, {"key": "key.pem"}]
)
def test_options_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs"):
        TlsOptions(**wrong)


@pytest.mark.parametrize("field", ["certificate", "key", "authority"])
def test_a_file_that_is_missing_is_named(field: str, certificates: Certificates) -> None:
    changes: dict[str, Any] = {field: certificates.folder / "none.pem"}
    tls = replace(certificates.strict, **changes)
    with pytest.raises(FileNotFoundError, match=f"the file of the {field} cannot be read") as error:
        server_context(tls)
    assert str(error.value.filename).endswith("none.pem")


def test_a_file_with_something_else_in_it(certificates: Certificates, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text("nothing of the kind")
    with pytest.raises(ValueError, match=r"no usable certificate or key in '.*other\.pem'"):
        server_context(TlsOptions(certificate=other))
    with pytest.raises(ValueError, match=r"no usable authority in '.*other\.pem'"):
        client_context(TlsOptions(authority=other))
    with pytest.raises(ValueError, match="no usable certificate or key"):
        server_context(TlsOptions(certificate=certificates.authority))
    with pytest.raises(ValueError, match="no usable certificate or key"):
        server_context(TlsOptions(certificate=certificates.server, key=other))


def test_a_key_that_is_encrypted_asks_nobody_for_a_password(
    certificates: Certificates, tmp_path: Path
) -> None:
    # By hand, as a header is all that is looked at before a password is wanted.
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(certificates.server.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ValueError, match="no usable certificate or key"):
        server_context(TlsOptions(certificate=certificates.server, key=locked))


async def test_a_client_that_goes_away_before_it_begins(
    c: Node, certificates: Certificates
) -> None:
    listener = await listening(c, "tls://127.0.0.1:0", certificates.listener)
    _, writer = await asyncio.open_connection(*parse_uri(listener.uri, "tls"))
    writer.close()
    await eventually(lambda: listener.statistics().refused)
    assert listener.statistics().refused == {"the peer closed the connection": 1}


async def test_a_client_that_does_not_go_on(c: Node, certificates: Certificates) -> None:
    tls = certificates.listener
    listener = await listening(c, "tls://127.0.0.1:0", tls, tls_timeout=0.05)
    reader, writer = await asyncio.open_connection(*parse_uri(listener.uri, "tls"))
    writer.write(b"\x16\x03\x01\x02\x00")
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    await eventually(lambda: listener.statistics().refused)
    assert listener.statistics().refused == {"no TLS handshake within 0.05 s": 1}


@pytest.mark.parametrize("name", ["client.example", "dns:client.example", "", "spiffe://a/b"])
async def test_a_name_without_its_kind(a: Node, name: str) -> None:
    with pytest.raises(ValueError, match=r"a name is like DNS:…, with one of"):
        from_certificate(a, "URI:spiffe://a/b", name)


@pytest.mark.parametrize(("scheme", "expected"), [("https", 101), ("http", 403)])
async def test_programs_that_name_the_listener_as_origin(
    c: Node, certificates: Certificates, scheme: str, expected: int
) -> None:
    listener = await listening(c, "wss://127.0.0.1:0", certificates.listener)
    host, port = parse_uri(listener.uri, "wss")
    context = client_context(certificates.anonymous)
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    asked = (
        "GET / HTTP/1.1",
        f"Host: {host}:{port}",
        f"Origin: {scheme}://{host}:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    )
    writer.write("\r\n".join((*asked, "", "")).encode())
    assert int((await reader.readline()).split()[1]) == expected
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def test_names_of_a_certificate() -> None:
    certificate = {
        "subject": ((("countryName", "AQ"),), (("commonName", "one"),)),
        "subjectAltName": (
            ("DNS", "a.example"),
            ("URI", "spiffe://a/b"),
            ("IP Address", "10.0.0.1"),
            ("DNS", "one"),
            ("othername", "<unsupported>"),
            ("IP Address", "<invalid>"),
        ),
    }
    assert certified_names(certificate) == (
        "URI:spiffe://a/b",
        "DNS:a.example",
        "DNS:one",
        "IP:10.0.0.1",
        "IP:<invalid>",
    )
    assert certified_names(None) == ()
    assert certified_names({}) == ()
    many = {"subjectAltName": tuple(("DNS", str(number)) for number in range(100))}
    assert len(certified_names(many)) == 16


def test_the_common_name_counts_only_if_there_are_no_others() -> None:
    subject = ((("commonName", "spiffe://shop/admin"),),)
    assert certified_names({"subject": subject}) == ("CN:spiffe://shop/admin",)
    others = (("DNS", "user-7.example"),)
    assert certified_names({"subject": subject, "subjectAltName": others}) == (
        "DNS:user-7.example",
    )
    unread = (("othername", "<unsupported>"),)
    assert certified_names({"subject": subject, "subjectAltName": unread}) == ()


def ssl_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "[SSL] what OpenSSL says")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("no such host"), "no such host"),
        (ssl_error("WRONG_VERSION_NUMBER"), "the peer does not speak TLS"),
        (ssl_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "the peer refuses: certificate required"),
        (ssl_error("NO_SHARED_CIPHER"), "TLS: no shared cipher"),
        (ssl_error(""), "TLS: [SSL] what OpenSSL says"),
        (ssl.SSLCertVerificationError("bad"), "the peer's certificate is not accepted"),
    ],
)
def test_what_went_wrong_in_words(error: Exception, text: str) -> None:
    assert reason_of(error).startswith(text) or text in reason_of(error)


async def test_a_greeting_is_as_without(c: Node, certificates: Certificates) -> None:
    # What is inside is the wire of tcp, byte for byte.
    listener = await listening(c, "tls://127.0.0.1:0", certificates.listener)
    reader, writer = await asyncio.open_connection(
        *parse_uri(listener.uri, "tls"),
        ssl=client_context(certificates.anonymous),
        server_hostname="localhost",
    )
    assert await reader.readexactly(1) == PREAMBLE
    writer.write(PREAMBLE)
    await eventually(lambda: listener.statistics().links[0].state is LinkState.UP)
    writer.close()
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()
