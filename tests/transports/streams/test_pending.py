"""What comes before anybody is there to take it, and TLS as a step, without a network."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onward.transports.streams._pending import (
    PendingConnection,
    SecureTransport,
    TlsHandshake,
    secure,
)
from onward.transports.streams._tls import client_context, server_context
from tests.support.certificates import Certificates
from tests.support.loops import on_both_loops
from tests.support.transports import eventually


class Line(asyncio.Transport):
    """A connection that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol | None = None
        self.called: list[str] = []

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def __getattribute__(self, name: str) -> Any:
        plain = {"abort", "close", "pause_reading", "resume_reading", "is_closing", "write"}
        if name in plain:
            return partial(self._call, name)
        return super().__getattribute__(name)

    def _call(self, name: str, *_: object) -> None:
        self.called.append(name)

    def get_write_buffer_size(self) -> int:
        return 7

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.called.append(f"{high} {low}")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return name


class Teller(asyncio.Protocol):
    """Notes what it is told, and hands over to another when data comes."""

    def __init__(self, heir: Teller | None = None) -> None:
        self.told: list[object] = []
        self.heir = heir
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.told.append(data)
        if self.heir is not None:
            self.transport.set_protocol(self.heir)

    def eof_received(self) -> None:
        self.told.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(exc)


def test_what_came_is_told_in_order() -> None:
    early, teller, error = PendingConnection(), Teller(), OSError()
    with pytest.raises(AssertionError):
        _ = early.transport
    early.connection_made(Line())
    early.data_received(b"a")
    early.data_received(b"b")
    early.eof_received()
    early.connection_lost(error)
    early.hand_over(teller)
    assert teller.told == ["made", b"ab", "eof", error]
    assert early.take() == b""


def test_what_comes_after_it_was_handed_on_goes_to_who_has_it_then() -> None:
    early, last = PendingConnection(), Teller()
    early.connection_made(Line())
    early.data_received(b"a")
    early.eof_received()
    first = Teller(last)
    early.hand_over(first)
    early.connection_lost(None)
    assert (first.told, last.told) == (["made", b"a"], ["eof", None])


def test_who_is_told_the_end_if_the_connection_no_longer_knows() -> None:
    early, teller, line = PendingConnection(), Teller(), Line()
    early.connection_made(line)
    early.hand_over(teller)
    line.protocol = None
    early.connection_lost(None)
    assert teller.told == ["made", None]


def test_a_secure_connection_tells_of_all_that_waits() -> None:
    inner, plain = Line(), Line()
    secured = SecureTransport(inner, plain)
    assert secured.get_write_buffer_size() == 14
    secured.set_write_buffer_limits(5, 3)
    teller = Teller()
    secured.set_protocol(teller)
    assert secured.get_protocol() is teller
    secured.write(b"x")
    secured.is_closing()
    secured.pause_reading()
    secured.resume_reading()
    assert inner.called == ["5 3", "write", "is_closing", "pause_reading", "resume_reading"]
    inner.called.clear()
    secured.close()
    secured.abort()
    assert inner.called == ["is_closing", "close", "abort"]
    assert plain.called == []
    assert secured.get_extra_info("peername") == "peername"


@on_both_loops
async def test_a_secure_connection_that_is_closed_twice(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[PendingConnection] = loop.create_future()

    class Accepted(PendingConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            accepted.set_result(self)

    server = await loop.create_server(Accepted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, near = await loop.create_connection(PendingConnection, "127.0.0.1", port)
    far, near = await asyncio.gather(
        secure(await accepted, server_context(certificates.listener), 5.0, server_side=True),
        secure(near, client_context(certificates.anonymous), 5.0, host="localhost"),
    )
    near.transport.pause_reading()
    far.transport.write(bytes(10_000_000))
    for _ in range(3):
        far.transport.close()
    assert far.transport.get_write_buffer_size() > 0
    assert far.transport.get_extra_info("cipher")
    far.transport.abort()
    await eventually(lambda: far._lost is not None)
    assert far.transport.get_write_buffer_size() == 0
    near.transport.abort()
    await eventually(lambda: near._lost is not None)
    server.close()


def entrance() -> tuple[TlsHandshake, Line, list[str]]:
    outcomes: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made = TlsHandshake(
        context, 5.0, lambda _: Teller(), lambda _, outcome: outcomes.append(outcome)
    )
    return made, Line(), outcomes


async def test_an_entrance_that_is_over_before_it_began() -> None:
    made, line, outcomes = entrance()
    made.abort("stopped")
    made.connection_made(line)
    made.data_received(b"\x16")  # it is late
    made.connection_lost(None)
    assert (line.called, outcomes) == (["abort"], ["stopped"])


async def test_an_entrance_is_stopped_before_its_handshake_begins() -> None:
    made, line, outcomes = entrance()
    made.connection_made(line)
    made.data_received(b"\x16")
    made.data_received(b"\x03")
    made.abort("stopped")
    while not outcomes:  # noqa: ASYNC110 - a tick or two
        await asyncio.sleep(0)
    made.connection_lost(None)
    assert (line.called, outcomes) == (["pause_reading", "abort"], ["stopped"])


async def test_an_entrance_is_stopped_as_its_handshake_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, line, outcomes = entrance()
    done = PendingConnection()
    done.connection_made(line)

    async def at_once(*_: object, **__: object) -> PendingConnection:
        asyncio.get_running_loop().call_soon(made.abort, "stopped")
        return done

    monkeypatch.setattr("onward.transports.streams._pending.secure", at_once)
    made.connection_made(line)
    made.data_received(b"\x16")
    while not outcomes:  # noqa: ASYNC110 - a tick or two
        await asyncio.sleep(0)
    assert (line.called, outcomes) == (["pause_reading", "abort"], ["stopped"])


async def test_a_connection_that_is_lost_at_the_end_of_the_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def gone(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(asyncio.get_running_loop(), "start_tls", gone)
    early = PendingConnection()
    early.connection_made(Line())
    with pytest.raises(ConnectionError, match="closed the connection in the TLS handshake"):
        await secure(early, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), 1.0)


async def test_what_is_no_failure_of_tls_is_raised_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wrong(*_: object, **__: object) -> None:
        raise TypeError("not a transport")

    monkeypatch.setattr(asyncio.get_running_loop(), "start_tls", wrong)
    early, line = PendingConnection(), Line()
    early.connection_made(line)
    with pytest.raises(TypeError, match="not a transport"):
        await secure(early, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), 1.0)
    assert line.called == ["abort"]


def test_who_had_a_connection_is_known_when_it_is_closed() -> None:
    class Closed(Line):
        """As asyncio's with TLS, once it has been closed twice."""

        def get_protocol(self) -> Any:
            if "close" in self.called:
                raise AttributeError
            return super().get_protocol()

    secured, teller = Closed(), Teller()
    transport = SecureTransport(secured, Line())
    transport.set_protocol(teller)
    transport.close()
    assert transport.get_protocol() is teller
    assert secured.protocol is teller
