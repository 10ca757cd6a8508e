"""Real sockets that are closed before their peer is admitted, with a method that takes its time."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.protocol.security import BearerToken, Principal
from onward.transports import parse_uri
from onward.transports.client import connect
from onward.transports.rsocket import RSocketListener
from tests.support.certificates import Certificates
from tests.support.counts import exhaustive
from tests.support.loops import on_both_loops
from tests.support.rsocket_peer import FNF, KEEPALIVE, asked_for, frame, push, request, setup
from tests.support.security import Gate, gated
from tests.support.transports import eventually
from tests.support.websocket_peer import CLOSE, handshake, messages, ws_frame

SCHEMES = ["rsocket+tcp", "rsocket+tls", "rsocket+ws", *exhaustive("rsocket+wss"), "rsocket+unix"]
ENTRY = bytes.fromhex("fc 000004 81746f6b")
WRONG = bytes.fromhex("fc 000004 81746f78")
ECHO = frame(0, KEEPALIVE, 0x80, bytes(8) + b"?")
BYE = ws_frame(CLOSE, (1000).to_bytes(2))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


class Scene:
    """A listener that waits for a decision, and a destination of the service `a`."""

    def __init__(self, listener: RSocketListener, gate: Gate, came: list[bytes]) -> None:
        self.listener = listener
        self.gate = gate
        self.came = came

    async def decided(self) -> None:
        """Let the method decide, and wait for the end of the connection."""
        self.gate.open.set()
        await eventually(lambda: self.listener.statistics().connections == 0)


@asynccontextmanager
async def scene(
    scheme: str, certificates: Certificates, folder: Path, *, authenticated: bool = True
) -> AsyncGenerator[Scene]:
    gate, authentication = gated({BearerToken(b"tok"): Principal("bot", "test")}, 30.0)
    gate.open.clear()
    uri = f"{scheme}://{folder}/s" if "unix" in scheme else f"{scheme}://127.0.0.1:0"
    tls = certificates.lenient if scheme in ("rsocket+tls", "rsocket+wss") else None
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        inner = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        methods = authentication if authenticated else None
        listener = await node.listen(uri, broker=broker, tls=tls, authentication=methods)
        assert isinstance(listener, RSocketListener)
        made = Scene(listener, gate, [])
        handlers = Handlers()

        @handlers.fire_and_forget
        async def take(asked: Request) -> None:
            made.came.append(asked.data)

        async with connect(inner.uri, service="a", handlers=handlers):
            await eventually(lambda: any(row.service == "a" for row in broker.routes()))
            yield made


async def opened(
    listener: RSocketListener, certificates: Certificates
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, with the handshakes of the listener's scheme."""
    scheme = listener.uri.partition(":")[0]
    if "unix" in scheme:
        return await asyncio.open_unix_connection(listener.uri.partition("://")[2])
    host, port = parse_uri(listener.uri.replace("127.0.0.1", "localhost"), scheme)[:2]
    context = None
    if scheme in ("rsocket+tls", "rsocket+wss"):
        context = ssl.create_default_context(cafile=str(certificates.authority))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost" if context else None
    )
    if scheme in ("rsocket+ws", "rsocket+wss"):
        writer.write(handshake(host=f"{host}:{port}"))
        await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def reset(writer: asyncio.StreamWriter) -> None:
    """Close the socket by a reset."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def fnf(number: int) -> bytes:
    return request(FNF, 1 + 2 * number, asked_for("a"), b"%04d" % number)


def bytes_of(scheme: str, *frames: bytes, end: bytes = BYE) -> bytes:
    if "ws" in scheme.partition("+")[2]:
        return messages(*frames) + end
    return b"".join(frames)


@on_both_loops
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_client_that_sends_and_closes_at_once(
    scheme: str, parts: int, certificates: Certificates, tmp_path: Path
) -> None:
    async with scene(scheme, certificates, tmp_path) as s:
        _, writer = await opened(s.listener, certificates)
        many = [fnf(at) for at in range(700)]
        data = bytes_of(scheme, setup(ENTRY), *many)
        at = len(data) if parts == 1 else len(data) - 9000
        writer.write(data[:at])
        if parts == 2:
            await eventually(lambda: s.gate.seen)
            writer.write(data[at:])
        writer.close()
        await eventually(lambda: s.gate.seen)
        for _ in range(20):
            await asyncio.sleep(0)
        assert s.came == []
        await s.decided()
        await eventually(lambda: len(s.came) == 700)
        assert s.came == [b"%04d" % at for at in range(700)]
        assert s.listener.statistics().closed == {"by the peer": 1}
        with suppress(OSError):
            await writer.wait_closed()


@on_both_loops
@pytest.mark.parametrize("admitted", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_client_that_is_admitted_already_or_at_once_and_closes(
    scheme: str, admitted: bool, certificates: Certificates, tmp_path: Path
) -> None:
    async with scene(scheme, certificates, tmp_path, authenticated=False) as s:
        reader, writer = await opened(s.listener, certificates)
        begin, many = [setup(ENTRY)], [fnf(at) for at in range(3000)]
        if admitted:
            writer.write(bytes_of(scheme, *begin, ECHO, end=b""))
            assert await reader.read(1)
            begin = []
        writer.write(bytes_of(scheme, *begin, *many))
        writer.close()
        await eventually(lambda: s.listener.statistics().closed)
        await eventually(lambda: s.listener.statistics().connections == 0)
        assert s.listener.statistics().requests == 3000
        await eventually(lambda: len(s.came) == 3000)
        assert s.came == [b"%04d" % at for at in range(3000)]
        assert s.listener.statistics().closed == {"by the peer": 1}
        with suppress(OSError):
            await writer.wait_closed()


@on_both_loops
@pytest.mark.parametrize("scheme", ["rsocket+tcp", "rsocket+ws"])
async def test_a_client_that_sends_and_resets(
    scheme: str, certificates: Certificates, tmp_path: Path
) -> None:
    async with scene(scheme, certificates, tmp_path) as s:
        _, writer = await opened(s.listener, certificates)
        writer.write(bytes_of(scheme, setup(ENTRY), request(FNF, 1, asked_for("a"), b"x")))
        await eventually(lambda: s.gate.seen)
        reset(writer)
        await s.decided()
        await eventually(lambda: s.came == [b"x"])
        assert s.listener.statistics().closed == {"by the peer": 1}


@on_both_loops
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_refused_client_that_sends_and_closes_at_once(
    scheme: str, certificates: Certificates, tmp_path: Path
) -> None:
    async with scene(scheme, certificates, tmp_path) as s:
        _, writer = await opened(s.listener, certificates)
        frames = request(FNF, 1, asked_for("a"), b"x"), push(asked_for("a"))
        writer.write(bytes_of(scheme, setup(WRONG), *frames))
        writer.close()
        await eventually(lambda: s.gate.seen)
        await s.decided()
        assert s.came == []
        figures = s.listener.statistics()
        assert (figures.closed, figures.requests) == ({"not authenticated": 1}, 0)
        with suppress(OSError):
            await writer.wait_closed()
