"""Certificates that are replaced while connections come and go."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from onward.actors import Node
from onward.actors.testing import run_virtual
from onward.protocol import OnwardError
from onward.transports import (
    Backoff,
    LinkState,
    StreamListener,
    StreamTransport,
    TlsOptions,
    parse_uri,
)
from onward.transports.streams._certificate_end import read_not_after
from onward.transports.streams._tls import client_context, server_context
from onward.transports.streams._tls_context import TlsContext
from tests.support.authority import put_authorities, put_certificate
from tests.support.fixtures import Caplog
from tests.support.loops import on_both_loops
from tests.support.transports import Echo, eventually

OURS = trustme.CA()
OTHER = trustme.CA()


@pytest.fixture
def files(tmp_path: Path) -> TlsOptions:
    """The files of a listener that wants certificates."""
    put_certificate(tmp_path / "server.pem", OURS)
    put_authorities(tmp_path / "authority.pem", OURS)
    return TlsOptions(
        certificate=tmp_path / "server.pem", authority=tmp_path / "authority.pem", client="optional"
    )


def path_of(tls: TlsOptions, name: str) -> Path:
    return Path(cast("Path", getattr(tls, name)))


def reloads(context: TlsContext) -> tuple[int, int]:
    figures = context.statistics({})
    return figures.reloads, figures.failed_reloads


# --- the files ----------------------------------------------------------------------------


def test_a_context_stays_until_a_file_changes(files: TlsOptions) -> None:
    context = TlsContext(files, server_context)
    first = context.current
    context.refresh()
    assert context.current is first
    put_certificate(path_of(files, "certificate"), OURS)
    context.refresh()
    assert context.current is not first
    put_authorities(path_of(files, "authority"), OURS, OTHER)
    context.refresh()
    context.refresh()
    assert reloads(context) == (2, 0)
    assert context.statistics({}).not_after == read_not_after(path_of(files, "certificate"))


def test_a_link_that_leads_elsewhere(tmp_path: Path) -> None:
    # As Kubernetes mounts secrets: a link into `..data`, which is a link to a folder of files.
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        put_certificate(tmp_path / version / "tls.pem", OURS)
    data, new = tmp_path / "..data", tmp_path / "..data_new"
    data.symlink_to("one")
    (tmp_path / "tls.pem").symlink_to("..data/tls.pem")
    context = TlsContext(TlsOptions(certificate=tmp_path / "tls.pem"), server_context)
    new.symlink_to("two")
    new.replace(data)
    context.refresh()
    assert reloads(context) == (1, 0)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("certificate", b"nothing of the kind", "no usable certificate or key"),
        ("certificate", OURS.cert_pem.bytes(), "no usable certificate or key"),
        ("authority", b"", "no usable authority"),
        ("authority", None, "the file of the authority cannot be read"),
        ("key", OTHER.private_key_pem.bytes(), "no usable certificate or key"),
    ],
)
def test_files_of_no_use_change_nothing(
    files: TlsOptions, name: str, content: bytes | None, text: str, caplog: Caplog
) -> None:
    key = path_of(files, "authority").with_name("key.pem")
    key.write_bytes(path_of(files, "certificate").read_bytes())
    files = replace(files, key=key)
    context = TlsContext(files, server_context)
    before, kept = context.current, path_of(files, name).read_bytes()
    if content is None:
        path_of(files, name).unlink()
    else:
        path_of(files, name).write_bytes(content)
    with caplog.at_level(logging.ERROR, "onward.transports"):
        context.refresh()
    assert (context.current, reloads(context)) == (before, (0, 1))
    assert text in caplog.text
    with pytest.raises((OSError, ValueError), match=text):
        context.reload()
    # It is tried again until it succeeds.
    context.refresh()
    assert (context.current, reloads(context)) == (before, (0, 3))
    path_of(files, name).write_bytes(kept)
    context.refresh()
    assert reloads(context) == (1, 3)


def test_half_a_file(files: TlsOptions) -> None:
    context = TlsContext(files, server_context)
    path = path_of(files, "certificate")
    whole = path.read_bytes()
    for size in range(0, len(whole), 41):
        path.write_bytes(whole[:size])
        context.refresh()
    # What is cut in the chain behind our certificate is of use.
    path.write_bytes(whole)
    context.refresh()
    good, failed = reloads(context)
    assert good >= 1
    assert failed >= whole.find(b"-----END CERTIFICATE") // 41


def test_a_context_of_ones_own_is_never_replaced(files: TlsOptions) -> None:
    own = server_context(files)
    context = TlsContext(own, server_context)
    context.refresh()
    context.reload()
    assert context.current is own
    figures = context.statistics({"completed": 1})
    assert (figures.not_after, figures.reloads, figures.handshakes) == (None, 0, {"completed": 1})


def test_reloads_leave_nothing(files: TlsOptions) -> None:
    context = TlsContext(files, server_context)
    made: weakref.WeakSet[ssl.SSLContext] = weakref.WeakSet()
    for _ in range(100):
        context.reload()
        made.add(context.current)
    gc.collect()
    assert [*made] == [context.current]
    assert reloads(context) == (100, 0)


@pytest.mark.parametrize("interval", [1.0, 60.0, None])
def test_the_time_between_two_looks(files: TlsOptions, interval: float | None) -> None:
    async def main() -> list[int]:
        context = TlsContext(replace(files, reload_interval=interval), server_context)
        loop = asyncio.get_running_loop()
        context.watch(loop)
        seen: list[int] = []
        for wait in (0.9 * (interval or 3600), 0.2 * (interval or 3600)):
            put_certificate(path_of(files, "certificate"), OURS)
            await asyncio.sleep(wait)
            seen.append(reloads(context)[0])
        context.unwatch()
        put_certificate(path_of(files, "certificate"), OURS)
        await asyncio.sleep(10_000)
        return [*seen, reloads(context)[0]]

    assert run_virtual(main()) == ([0, 0, 0] if interval is None else [0, 1, 1])


@pytest.mark.parametrize("interval", [0.5, 86_401])
def test_the_bounds_of_that_time(interval: float) -> None:
    with pytest.raises(ValueError, match=r"reload_interval must be .* from 1 to 86400"):
        TlsOptions(reload_interval=interval)


# --- links --------------------------------------------------------------------------------


async def listening(node: Node, tls: TlsOptions, uri: str = "tls://127.0.0.1:0") -> StreamListener:
    await node.start(Echo, address="echo")
    return cast(StreamListener, await node.listen(uri, tls=tls, expose=["echo"]))


def dialled_digest(node: Node) -> bytes:
    """The digest of the certificate that the other end of a node's last link has."""
    transport: Any = node.transport("tcp")
    link = [*cast(StreamTransport, transport)._dialled][-1]
    digest: bytes = link.identity.digest
    return digest


@on_both_loops
@pytest.mark.parametrize("scheme", ["tls", "wss"])
async def test_traffic_goes_on_over_reloads(files: TlsOptions, scheme: str) -> None:
    async with Node("a") as a, Node("c") as c:
        listener = await listening(c, files, f"{scheme}://127.0.0.1:0")
        tls = TlsOptions(authority=files.authority)
        link = await a.connect(listener.uri, tls=tls)
        for number in range(20):
            put_certificate(path_of(files, "certificate"), OURS)
            asked = asyncio.create_task(a.request([link, "echo"], bytes(300_000)))
            listener.reload()
            other = await a.connect(listener.uri, tls=tls)
            assert (await a.request([other, "echo"], b"x")).payload == b"x"
            assert len((await asked).payload) == 300_000
            await a.stop_worker(other)
            figures = listener.statistics().tls
            assert figures is not None
            assert (figures.reloads, figures.handshakes) == (number + 1, {"completed": number + 2})
        assert (a.statistics().dead_letters, listener.statistics().refused) == (0, {})


async def test_new_connections_get_the_new_certificate(a: Node, c: Node, files: TlsOptions) -> None:
    listener = await listening(c, files)
    tls = TlsOptions(authority=files.authority)
    await a.connect(listener.uri, tls=tls)
    old = dialled_digest(a)
    put_certificate(path_of(files, "certificate"), OURS)
    await a.connect(listener.uri, tls=tls)
    assert dialled_digest(a) == old
    listener.reload()
    await a.connect(listener.uri, tls=tls)
    assert dialled_digest(a) != old
    path_of(files, "certificate").write_bytes(b"half of")
    with pytest.raises(ValueError, match="no usable certificate"):
        listener.reload()
    await a.connect(listener.uri, tls=tls)


def resumed(uri: str, context: ssl.SSLContext, session: ssl.SSLSession | None) -> Any:
    """Connect with an earlier session; return whether it was resumed, and a session for later."""
    with (
        socket.create_connection(parse_uri(uri, "tls"), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as secured,
    ):
        if not secured.recv(1):  # the greeting, behind the tickets
            raise ConnectionError("closed")
        return secured.session_reused, secured.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_does_not_outlive_its_context(
    c: Node, files: TlsOptions, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    listener = await listening(c, files)
    put_certificate(tmp_path / "client.pem", OURS, "client.example")
    context = client_context(
        TlsOptions(authority=files.authority, certificate=tmp_path / "client.pem")
    )
    context.maximum_version = version
    reused, session = await asyncio.to_thread(resumed, listener.uri, context, None)
    assert not reused
    reused, session = await asyncio.to_thread(resumed, listener.uri, context, session)
    assert reused
    # Its authority is trusted no more: the ticket is no way around that.
    put_authorities(path_of(files, "authority"), OTHER)
    listener.reload()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.to_thread(resumed, listener.uri, context, session)
    await eventually(lambda: listener.statistics().refused)
    (reason,) = listener.statistics().refused
    assert reason.startswith("the peer's certificate is not accepted")


async def test_a_reconnect_takes_new_files(
    a: Node, c: Node, files: TlsOptions, tmp_path: Path
) -> None:
    listener = await listening(c, files)
    put_certificate(tmp_path / "client.pem", OURS, "one.example")
    tls = TlsOptions(authority=files.authority, certificate=tmp_path / "client.pem")
    await a.connect(listener.uri, tls=tls, backoff=Backoff(0.001, 0.001))

    async def joins_again() -> tuple[str, ...]:
        (link,) = listener._worker._links
        await c.stop_worker(link.address)
        await eventually(lambda: [each for each in listener._worker._links if each is not link])
        (link,) = listener._worker._links
        await eventually(lambda: link.state is LinkState.UP)
        return link.identity.names

    (tmp_path / "client.pem").write_bytes(b"half of")
    assert await joins_again() == ("DNS:one.example",)
    put_certificate(tmp_path / "client.pem", OURS, "two.example")
    assert await joins_again() == ("DNS:two.example",)


@pytest.mark.parametrize("side", ["clients", "listener"])
async def test_another_authority_step_by_step(
    a: Node, c: Node, files: TlsOptions, tmp_path: Path, side: str
) -> None:
    """First both are trusted, then certificates are replaced, then only the new one is."""
    files = replace(files, client="required", authority=tmp_path / "of-clients.pem")
    of_clients, of_listener = tmp_path / "of-clients.pem", tmp_path / "of-listener.pem"
    certificate = tmp_path / "client.pem"
    for path in (of_clients, of_listener):
        put_authorities(path, OURS)
    put_certificate(certificate, OURS, "client.example")
    listener = await listening(c, files)
    tls = TlsOptions(authority=of_listener, certificate=certificate)
    trusted = of_clients if side == "clients" else of_listener

    def replaced(authority: trustme.CA) -> None:
        if side == "clients":
            put_certificate(certificate, authority, "client.example")
        else:
            put_certificate(path_of(files, "certificate"), authority)

    async def joins() -> bool:
        listener.reload()
        try:
            link = await a.connect(listener.uri, tls=tls, reconnect=False)
            await a.request([link, "echo"], b"", timeout=5)
        except OnwardError:
            return False
        await a.stop_worker(link)
        return True

    seen = [await joins()]
    put_authorities(trusted, OURS, OTHER)
    seen.append(await joins())
    replaced(OTHER)
    seen.append(await joins())
    put_authorities(trusted, OTHER)
    seen.append(await joins())
    replaced(OURS)
    seen.append(await joins())
    assert seen == [True, True, True, True, False]
