"""The admin interface of `onward broker`."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import ssl
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from onward.actors.security import AnonymousAuthenticator, Authentication, Authorization
from onward.cli import main
from onward.cli._admin import Admin, admin_of, permits_of
from onward.cli._broker_serve import serve
from onward.cli._node import add_commands, serve as serve_node
from onward.cli._run import StopRequest
from onward.cli._service import Service
from onward.cli._status import CommandError
from onward.protocol.security import Principal, read_rules
from tests.support.certificates import Certificates
from tests.support.commands import TIMEOUT, printed
from tests.support.fixtures import Capsys, Patch

ANY = "rsocket+tcp://127.0.0.1:0"
ADMIN = "http://127.0.0.1:0"


@asynccontextmanager
async def serving(admin: Admin) -> AsyncGenerator[int]:
    """Run a broker with an admin interface; yield the interface's port."""
    stop = StopRequest()
    with printed() as output:
        task = asyncio.create_task(serve(stop, [ANY], quiet=True, admin=admin))
        lines = [await output.line() for _ in range(2)]
        yield int(lines[1].removeprefix("admin http://127.0.0.1:"))
        stop.wish()
        await asyncio.wait_for(task, TIMEOUT)


def ask(port: int, method: str, path: str, body: str | None = None) -> tuple[int, str]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    headers = {} if body is None else {"Content-Type": "application/json"}
    client.request(method, path, body, headers)
    answer = client.getresponse()
    text = answer.read().decode()
    client.close()
    return answer.status, text


async def test_a_broker_is_watched_and_drained() -> None:
    stop = StopRequest()
    with printed() as output:
        task = asyncio.create_task(serve(stop, [ANY], quiet=True, admin=Admin(ADMIN)))
        await output.line()
        port = int((await output.line()).removeprefix("admin http://127.0.0.1:"))
        assert await output.line() == f"console http://127.0.0.1:{port}/"
        status, text = await asyncio.to_thread(ask, port, "GET", "/")
        assert (status, text[:15]) == (200, "<!doctype html>")
        assert await asyncio.to_thread(ask, port, "GET", "/readyz") == (200, "ok\n")
        status, text = await asyncio.to_thread(ask, port, "GET", "/metrics")
        assert status == 200
        assert "onward_config_last_reload_successful 1\n" in text
        assert "onward_draining 0\n" in text
        status, text = await asyncio.to_thread(ask, port, "POST", "/api/v1/reload", "{}")
        assert status == 200
        assert "reloaded" in json.loads(text)
        refused = await asyncio.to_thread(ask, port, "POST", "/api/v1/drain", '{"undo":true}')
        assert refused == (400, "drain has no arguments\n")
        status, text = await asyncio.to_thread(ask, port, "POST", "/api/v1/drain", "{}")
        assert (status, json.loads(text)) == (200, {"draining": True})
        await asyncio.wait_for(task, TIMEOUT)


async def test_operators_are_the_principals_of_the_broker() -> None:
    anyone = Authentication([AnonymousAuthenticator()])
    async with serving(Admin(ADMIN, authentication=anyone)) as port:
        assert await asyncio.to_thread(ask, port, "GET", "/livez") == (200, "ok\n")
        status, text = await asyncio.to_thread(ask, port, "GET", "/metrics")
        assert (status, text) == (403, "not allowed: read\n")
    async with serving(Admin(ADMIN, authentication=anyone, open_metrics=True)) as port:
        assert (await asyncio.to_thread(ask, port, "GET", "/metrics"))[0] == 200
        assert (await asyncio.to_thread(ask, port, "GET", "/api/v1/status"))[0] == 403


async def test_rules_hold_without_authentication() -> None:
    rules = Authorization(read_rules(b'[[rule]]\nnames = ["anonymous"]\nread = true\n'))
    async with serving(Admin(ADMIN, authorization=rules)) as port:
        assert (await asyncio.to_thread(ask, port, "GET", "/api/v1/status"))[0] == 200
        refused = await asyncio.to_thread(ask, port, "POST", "/api/v1/drain", "{}")
        assert refused == (403, "not allowed: operate\n")


async def test_it_is_served_by_https_and_its_certificate_read_anew(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    certificates = Certificates.make(tmp_path_factory.mktemp("tls"))
    anyone = Authentication([AnonymousAuthenticator()])
    rules = Authorization(read_rules(b'[[rule]]\nnames = ["anonymous"]\nread = true\n'))
    admin = Admin(
        "https://127.0.0.1:0",
        tls=certificates.listener,
        authentication=anyone,
        authorization=rules,
    )
    stop, service = StopRequest(), Service()

    def ask_securely(port: int) -> bytes:
        context = ssl.create_default_context(cafile=str(certificates.authority))
        client = http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT, context=context)
        client.request("GET", "/api/v1/limits")
        body = client.getresponse().read()
        client.close()
        return body

    with printed() as output:
        task = asyncio.create_task(serve(stop, [ANY], quiet=True, admin=admin, service=service))
        await output.line()
        port = int((await output.line()).removeprefix("admin https://127.0.0.1:"))
        assert b"max_routes" in await asyncio.to_thread(ask_securely, port)
        assert f"certificates of https://127.0.0.1:{port}" in await service.reloads.reload()
        assert b"max_routes" in await asyncio.to_thread(ask_securely, port)
        stop.wish()
        await asyncio.wait_for(task, TIMEOUT)


def test_without_its_extra_it_is_not_served(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setitem(sys.modules, "onward.transports.admin._connection", None)
    assert main(["broker", "--listen", ANY, "--admin", ADMIN]) == 1
    assert "--admin needs the extra onward[admin]" in capsys.readouterr().err


async def test_a_node_is_watched_too() -> None:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    given = parser.parse_args(["node", "--listen", "tcp://127.0.0.1:0", "--admin", ADMIN])
    stop = StopRequest()
    with printed() as output:
        task = asyncio.create_task(serve_node(stop, given))
        await output.line()
        port = int((await output.line()).removeprefix("admin http://127.0.0.1:"))
        assert await asyncio.to_thread(ask, port, "GET", "/readyz") == (200, "ok\n")
        assert (await asyncio.to_thread(ask, port, "GET", "/api/v1/workers"))[0] == 200
        drained = await asyncio.to_thread(ask, port, "POST", "/api/v1/drain", "{}")
        assert drained == (404, "this program has no drain\n")
        stop.wish()
        await asyncio.wait_for(task, TIMEOUT)


def test_without_rules_an_authenticated_client_may_read() -> None:
    permits = permits_of(None)
    known, unknown = Principal("ann", "token"), Principal("anonymous", "anonymous")
    assert permits(known, "read")
    assert not permits(known, "operate")
    assert not permits(unknown, "read")


def test_with_rules_they_decide() -> None:
    text = b'[[rule]]\nroles = ["ops"]\nread = true\noperate = true\n'
    permits = permits_of(Authorization(read_rules(text, "rules.toml")))
    assert permits(Principal("ann", "token", frozenset({"ops"})), "operate")
    assert not permits(Principal("bob", "token"), "read")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--admin", "http://0.0.0.0:0"), "needs TLS and authentication"),
        (("--admin", "https://127.0.0.1:0"), "needs a certificate"),
        (("--admin", "ftp://127.0.0.1:0"), "is not http://host:port"),
        (("--admin-host", "a"), "--admin-host and --admin-open-metrics go with --admin"),
        (("--admin-open-metrics",), "--admin-host and --admin-open-metrics go with --admin"),
    ],
)
def test_an_interface_that_cannot_be_served_is_a_usage_error(
    words: tuple[str, ...], text: str, capsys: Capsys
) -> None:
    assert main(["broker", "--listen", ANY, *words]) == 2
    assert text in capsys.readouterr().err


def test_a_taken_place_is_an_error(capsys: Capsys, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no socket")
    assert main(["broker", "--listen", ANY, "--admin", f"unix://{tmp_path}/file"]) == 1
    assert "cannot listen at unix://" in capsys.readouterr().err


def test_certificates_are_for_https() -> None:
    arguments = argparse.Namespace(admin=ADMIN, admin_host=["a"], admin_open_metrics=False)
    assert admin_of(arguments, None, None, None) == Admin(ADMIN, ("a",))
    arguments.admin = None
    with pytest.raises(CommandError, match="go with --admin"):
        admin_of(arguments, None, None, None)
