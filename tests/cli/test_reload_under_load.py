"""Reloads and the rotation of certificates under load, through real sockets."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from onward.actors.broker import Handlers, Request
from onward.protocol.security import BearerToken, make_token, token_digest
from onward.transports import TlsOptions
from onward.transports.client import Client, ClientOptions, connect
from tests.support.commands import TIMEOUT
from tests.support.configured import broker_of
from tests.support.counts import UNMEASURED, times
from tests.support.fixtures import Caplog

REQUESTERS = 4
TOKEN = make_token(b"t" * 32)
DIGEST = token_digest(TOKEN.encode()).hex()

handlers = Handlers()


@handlers.response
async def echo(request: Request) -> bytes:
    return request.data


class Load:
    """Requesters that go on until the end.

    Args:
        client: Makes the client of a requester.
        requests: Requests before it connects anew; 0: it keeps its connection.

    Attributes:
        answered: Requests answered.
        rounds: The connections that each requester has made and closed.
    """

    def __init__(self, client: Callable[[], Client], requests: int) -> None:
        self._client = client
        self._requests = requests
        self._ends = False
        self._moved = asyncio.Condition()
        self.answered = 0
        self.rounds = [0] * REQUESTERS

    async def _run(self, number: int) -> None:
        while not self._ends:
            async with self._client() as client:
                left = self._requests
                while not self._ends and (left or not self._requests):
                    answer = await client.request("service=echo", b"%d" % self.answered)
                    assert answer.data.isdigit()
                    left -= 1
                    async with self._moved:
                        self.answered += 1
                        self._moved.notify_all()
            async with self._moved:
                self.rounds[number] += 1
                self._moved.notify_all()

    async def answers(self, more: int) -> None:
        """Wait for further answers."""
        wanted = self.answered + more
        async with asyncio.timeout(TIMEOUT), self._moved:
            await self._moved.wait_for(lambda: self.answered >= wanted)

    async def connects(self) -> None:
        """Wait until each requester has made a connection that it begins from now on."""
        wanted = [each + 2 for each in self.rounds]
        async with asyncio.timeout(TIMEOUT), self._moved:
            await self._moved.wait_for(
                lambda: all(is_ >= to_be for is_, to_be in zip(self.rounds, wanted, strict=True))
            )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the requesters; a request that fails is an error of the test."""
        async with asyncio.TaskGroup() as group:
            for number in range(REQUESTERS):
                group.create_task(self._run(number))
            await self.answers(REQUESTERS)
            yield
            self._ends = True


def resident() -> int:
    """Return the resident memory of the process in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


COUNTS = 8
"""Counts of objects in a row, of which the least is taken."""


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@UNMEASURED
async def test_reloads_under_load_fail_no_request_and_nothing_grows(
    tmp_path: Path, caplog: Caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL)  # its records would grow
    # The samples of the monitor grow until they are as many as are kept: here within a second.
    monkeypatch.setattr("onward.actors.monitoring._window.INTERVAL", 0.02)
    monkeypatch.setattr("onward.actors.monitoring._window.MAX_POINTS", 15)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    server = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    server.write_to_path(str(tmp_path / "server.pem"))
    texts = [
        f"""\
[broker]
max_wait = {30 + turn}
[connections]
max_connections = {100 + turn}
lease_requests = {1000 + turn}
[drain]
timeout = {60 + turn}
[[listener]]
uri = "rsocket+tls://127.0.0.1:0"
tls = {{ certificate = "server.pem" }}
[[rule]]
roles = ["app"]
register = "service=echo"
request = ["service=echo", "service=other{turn}"]
[[principals.tokens]]
name = "app"
roles = ["app", "turn{turn}"]
sha256 = "{DIGEST}"
"""
        for turn in range(2)
    ]
    tls = TlsOptions(authority=tmp_path / "authority.pem")
    options, app = ClientOptions(tls=tls), BearerToken(TOKEN.encode())
    reloads = times(40, 1000)
    early, late = list[tuple[int, int]](), list[tuple[int, int]]()
    async with broker_of(tmp_path / "onward.toml", texts[0]) as broker:
        uri = broker.uris[0]
        load = Load(lambda: connect(uri, credentials=app, options=options), 0)
        async with (
            connect(uri, service="echo", handlers=handlers, credentials=app, options=options),
            load.running(),
        ):
            began = time.perf_counter()
            for number in range(reloads):
                await broker.reload(texts[number % 2])
                await load.answers(1)
                if 0 <= number - reloads // 4 < COUNTS:
                    early.append((objects(), resident()))
                elif number >= reloads - COUNTS:
                    late.append((objects(), resident()))
            took = time.perf_counter() - began
            (listener,) = broker.running._listeners
            assert listener.statistics().connections == REQUESTERS + 1
            assert listener.statistics().closed == {}
        figures = broker.service.reloads.statistics()
        assert (figures.done, figures.failed) == (reloads, 0)
    # The least of several counts: objects of requests in progress come and go.
    grown, memory = (
        min(lasts) - min(firsts)
        for firsts, lasts in zip(zip(*early, strict=True), zip(*late, strict=True), strict=True)
    )
    print(
        f"{reloads} reloads in {took:.1f} s, {load.answered} requests, none failed; in the last "
        f"three quarters {grown} objects and {memory} KiB more"
    )
    assert grown < 300
    assert memory < 8 * 1024


async def test_certificates_and_authorities_rotate_and_no_request_fails(tmp_path: Path) -> None:
    text = """\
[[listener]]
uri = "rsocket+tls://127.0.0.1:0"
tls = { certificate = "server.pem", authority = "clients.pem", client = "required" }
authenticate = "certificate"
[[principals.certificates]]
name = "app"
certified = "DNS:app.example"
"""

    def trust(*authorities: trustme.CA) -> None:
        """Have both sides trust some authorities; each file changes at once."""
        pem = b"".join(each.cert_pem.bytes() for each in authorities)
        for name in ("clients.pem", "servers.pem"):
            replaced(tmp_path / name, pem)

    def certify(name: str, authority: trustme.CA, identity: str) -> None:
        made = authority.issue_cert(identity).private_key_and_cert_chain_pem.bytes()
        replaced(tmp_path / name, made)

    rotations = times(2, 50)
    old = trustme.CA()
    trust(old)
    certify("server.pem", old, "127.0.0.1")
    certify("client.pem", old, "app.example")
    tls = TlsOptions(authority=tmp_path / "servers.pem", certificate=tmp_path / "client.pem")
    options = ClientOptions(tls=tls)
    async with broker_of(tmp_path / "onward.toml", text) as broker:
        uri = broker.uris[0]
        load = Load(lambda: connect(uri, options=options), 3)
        async with (
            connect(uri, service="echo", handlers=handlers, options=options),
            load.running(),
        ):
            for _ in range(rotations):
                new = trustme.CA()
                trust(old, new)
                await broker.reload()
                await load.connects()
                certify("server.pem", new, "127.0.0.1")
                certify("client.pem", new, "app.example")
                await broker.reload()
                await load.connects()
                trust(new)
                await broker.reload()
                await load.connects()
                old = new
        (listener,) = broker.running._listeners
        figures = listener.statistics()
        assert figures.tls is not None
        assert figures.tls.reloads == 3 * rotations
        assert dict(figures.tls.handshakes) == {"completed": figures.accepted}
        assert broker.service.reloads.statistics().failed == 0
    print(
        f"{rotations} rotations, {figures.accepted} connections, {load.answered} requests, "
        "none failed"
    )


def replaced(path: Path, content: bytes) -> None:
    """Replace a file in one step."""
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)
