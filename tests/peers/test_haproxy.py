"""A broker behind HAProxy, which passes TLS on and tells the client's address by PROXY v2."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onward.protocol.security import BearerToken, make_token, token_digest
from onward.transports import TlsOptions
from onward.transports.client import ClientOptions, connect
from tests.peers.programs import TIMEOUT, running_broker
from tests.support.certificates import Certificates
from tests.support.rsocket_peer import composite, setup
from tests.support.security import AUTHENTICATION

pytestmark = [
    pytest.mark.peer(requester="onward", destination="onward", transport="tls behind haproxy"),
]

TOKEN = make_token(bytes(32))
CLIENT = "127.0.0.77"
"""The address that clients of the tests connect from. HAProxy connects from 127.0.0.1."""
FAILURES = 10
"""Refusals in a minute after which a source is banned."""

CONFIGURATION = """
defaults
    mode tcp
    timeout connect 10s
    timeout client 60s
    timeout server 60s

frontend clients
    bind 127.0.0.1:{front}
    default_backend brokers

backend brokers
    server broker 127.0.0.1:{broker} send-proxy-v2
"""


def free_port() -> int:
    """Return a port that is free now. HAProxy cannot tell which one it took of its own choice."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def haproxy(port: int, folder: Path) -> Generator[int]:
    """Run HAProxy in front of a port of this machine; yields its own."""
    program = shutil.which("haproxy")
    if program is None:
        pytest.skip("haproxy is not installed")
    front = free_port()
    file = folder / "haproxy.cfg"
    file.write_text(CONFIGURATION.format(front=front, broker=port))
    # In the foreground; it says when its workers are up.
    command = [program, "-W", "-db", "-f", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            lines = iter(process.stderr.readline, "")
            assert any("Loading success" in line for line in lines), "haproxy ended"
            yield front
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT)


@pytest.fixture
def behind(tmp_path: Path) -> Generator[tuple[int, Certificates]]:
    """The port of HAProxy, with a broker behind it, and certificates."""
    certificates = Certificates.make(tmp_path)
    digest = token_digest(TOKEN.encode()).hex()
    principals = tmp_path / "principals.toml"
    principals.write_text(f'[[tokens]]\nname = "shop"\nsha256 = "{digest}"\n')
    options = ["--certificate", str(certificates.server), "--principals", str(principals)]
    options += ["--proxy", "127.0.0.1", "--proxy-protocol", "--log", "error"]
    with running_broker(*options, transports=["tls"]) as uris:
        port = int(uris["tls"].rpartition(":")[2])
        with haproxy(port, tmp_path) as front:
            yield front, certificates


async def dial(
    port: int, certificates: Certificates, token: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect from the client's address with a token."""
    context = ssl.create_default_context(cafile=certificates.authority)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, local_addr=(CLIENT, 0)
    )
    entry = b"\x81" + token.encode()
    writer.write(setup(composite((AUTHENTICATION, entry))))
    return reader, writer


async def rows(port: int, certificates: Certificates) -> list[dict[str, Any]]:
    """Return the connections of the broker, as a client of 127.0.0.1 is told."""
    options = ClientOptions(tls=TlsOptions(authority=certificates.authority))
    uri, credentials = f"rsocket+tls://127.0.0.1:{port}", BearerToken(TOKEN.encode())
    async with connect(uri, credentials=credentials, options=options) as client:
        answer = await client.request("service=onward.management", b"/api/v1/connections")
        found: list[dict[str, Any]] = json.loads(answer.data)["rows"]
        return found


async def test_the_principal_has_the_address_of_the_client(
    behind: tuple[int, Certificates],
) -> None:
    _, writer = await dial(*behind, TOKEN)
    async with asyncio.timeout(TIMEOUT):
        while len(found := await rows(*behind)) < 2:
            pass
    peers = {row["peer"].rpartition(":")[0]: row["principal"] for row in found}
    assert peers == {CLIENT: "shop", "127.0.0.1": "shop"}
    writer.close()


async def test_a_client_that_guesses_is_banned_and_others_are_not(
    behind: tuple[int, Certificates],
) -> None:
    for _ in range(FAILURES):
        reader, writer = await dial(*behind, "onw_guess")
        async with asyncio.timeout(TIMEOUT):
            assert (await reader.read()).endswith(b"not authenticated")
        writer.close()
    # Before TLS now, and with the right token too.
    with pytest.raises(ConnectionError):
        await dial(*behind, TOKEN)
    assert [row["principal"] for row in await rows(*behind)] == ["shop"]
