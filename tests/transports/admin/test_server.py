"""The admin interface as a worker: where it listens, and who may connect."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from pathlib import Path

import pytest

from onward.actors import Node, OnFailure, Supervision
from onward.actors.security import AnonymousAuthenticator, Authentication
from onward.protocol import Message
from onward.transports import TlsOptions
from onward.transports.admin import (
    AdminOptions,
    AdminPaths,
    AdminServer,
    HttpRequest,
    HttpResponse,
    json_response,
    text_response,
)
from tests.support.certificates import Certificates
from tests.support.http_peer import Served, serving
from tests.support.loops import on_both_loops
from tests.support.transports import eventually

ANYONE = Authentication([AnonymousAuthenticator()])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


async def name(request: HttpRequest) -> HttpResponse:
    return json_response(None if request.principal is None else request.principal.name)


async def alive(_: HttpRequest) -> HttpResponse:
    return text_response("ok")


def paths() -> AdminPaths:
    made = AdminPaths()
    made.add("/name", name)
    made.add("/livez", alive, needs="nothing")
    return made


@pytest.mark.parametrize(
    ("uri", "tls", "authentication", "text"),
    [
        ("http://0.0.0.0:1", False, False, "needs TLS and authentication"),
        ("http://0.0.0.0:1", False, True, "needs TLS"),
        ("https://10.0.0.1:1", True, False, "needs authentication"),
        ("http://[::]:1", False, False, "needs TLS and authentication"),
        ("http://broker.example:1", False, True, "needs TLS"),
        ("https://127.0.0.1:1", False, True, "needs a certificate"),
        ("http://127.0.0.1:1", True, True, "certificates go with https://"),
        ("unix:///s", True, True, "certificates go with https://"),
        ("ftp://127.0.0.1:1", False, False, "is not http://host:port"),
        ("http://127.0.0.1:1/x", False, False, "is not http://host:port"),
        ("http://127.0.0.1", False, False, "not host:port"),
        ("unix://s", False, False, "is not unix:///path"),
    ],
)
def test_an_interface_that_is_open_to_others_is_refused(
    uri: str, tls: bool, authentication: bool, text: str, certificates: Certificates
) -> None:
    given = certificates.listener if tls else None
    with pytest.raises(ValueError, match=text):
        AdminServer(uri, paths(), tls=given, authentication=ANYONE if authentication else None)


class Failing(AdminServer):
    """An interface that each message makes fail."""

    def handle_message(self, message: Message) -> None:
        raise RuntimeError(message.payload.decode())


async def test_an_interface_that_fails_is_closed_and_another_one_takes_its_place() -> None:
    made: list[Failing] = []

    def make() -> Failing:
        made.append(Failing(made[0].uri if made else "http://127.0.0.1:0", paths()))
        return made[-1]

    async with Node("served") as node:
        supervision = Supervision(OnFailure.RESTART, max_restarts=1)
        await node.start(make, address="admin", supervision=supervision)
        peer = await Served(node, made[0]).connect()
        node.send("admin", b"fails")
        assert await peer.reader.read() == b""
        peer.writer.close()
        await eventually(lambda: len(made) == 2 and made[1]._acceptor and made[1].uri)
        assert made[1].uri == made[0].uri
        assert [each.statistics().connections for each in made] == [0, 0]


def test_beyond_the_loopback_interface_it_has_tls_and_authentication(
    certificates: Certificates,
) -> None:
    tls = certificates.listener
    AdminServer("https://0.0.0.0:1", paths(), tls=tls, authentication=ANYONE)


@on_both_loops
async def test_a_client_of_the_standard_library() -> None:
    def ask(port: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for method, path in (("GET", "/name"), ("HEAD", "/name"), ("GET", "/no")):
            client.request(method, path)
            answer = client.getresponse()
            found.append((answer.status, answer.read()))
        client.close()
        return found

    async with serving(paths()) as served:
        found = await asyncio.to_thread(ask, served.port)
        assert found == [(200, b"null\n"), (200, b""), (404, b"there is no such path\n")]
        assert served.server.statistics().accepted == 1


@on_both_loops
async def test_tls_and_authentication(certificates: Certificates) -> None:
    tls = certificates.listener
    options = AdminOptions(hosts=("broker.example",))

    def ask(port: int, path: str, host: str) -> tuple[int, bytes]:
        context = ssl.create_default_context(cafile=str(certificates.authority))
        client = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
        client.request("GET", path, headers={"Host": host})
        answer = client.getresponse()
        body = answer.read()
        client.close()
        return answer.status, body

    async with serving(
        paths(), "https://127.0.0.1:0", options, tls=tls, authentication=ANYONE
    ) as served:
        port = int(served.server.uri.rpartition(":")[2])
        assert await asyncio.to_thread(ask, port, "/name", "localhost") == (200, b'"anonymous"\n')
        served.server.reload()
        assert await asyncio.to_thread(ask, port, "/name", "broker.example") == (
            200,
            b'"anonymous"\n',
        )
        assert (await asyncio.to_thread(ask, port, "/livez", "evil.example"))[0] == 421


@on_both_loops
async def test_a_client_without_tls_is_refused_by_a_listener_with_it(
    certificates: Certificates,
) -> None:
    tls = certificates.listener
    async with serving(paths(), "https://127.0.0.1:0", tls=tls) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        assert served.server.statistics().refused_handshakes == {"the peer does not speak TLS": 1}


@on_both_loops
async def test_a_unix_socket(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("s") / "admin"
    async with serving(paths(), f"unix://{path}") as served:
        assert served.server.uri == f"unix://{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        assert (await (await served.connect()).get("/livez")).body == b"ok\n"
    assert not path.exists()


async def test_an_endpoint_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with Node("served") as node:
            with pytest.raises(OSError):  # noqa: PT011 - the loop makes its text
                await node.start(lambda: AdminServer(f"http://127.0.0.1:{port}", paths()))


def test_a_missing_certificate_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"no certificate|cannot|No such"):
        AdminServer("https://127.0.0.1:1", paths(), tls=TlsOptions(tmp_path / "none.pem"))
