"""The listener for clients of AMQP, on real sockets: who is let in, what ends a connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, cast

import pytest

from onward.actors import Node, OnFailure, Supervision
from onward.actors.dispatch import ConsumerRefused
from onward.actors.security import AnonymousAuthenticator, Authentication
from onward.protocol import Message
from onward.protocol.dispatch import ACCEPTED, Refusal
from onward.protocol.security import ANONYMOUS, PeerIdentity, Principal, UserPassword
from onward.transports.amqp._connection import _mechanisms
from onward.transports.amqp._options import AmqpOptions
from onward.transports.amqp._sasl import AMQP_HEADER, SASL_HEADER
from onward.transports.amqp._server import AmqpServer
from tests.support.amqp import (
    AmqpClient,
    described,
    disposition_frame,
    frame_of,
    needs_proton,
    nested,
)
from tests.support.certificates import Certificates
from tests.support.loops import on_both_loops
from tests.support.memory_port import MemoryPort
from tests.support.security import gated
from tests.support.transports import eventually

pytestmark = [pytest.mark.peer, pytest.mark.real_time]
proton = needs_proton()

ANN = Principal("ann", "test")
URI = "amqp://127.0.0.1:0"


DENIED = bytes.fromhex("00000010 02010000 005344 c003015001")


def plain(response: bytes) -> bytes:
    """Return the frame by which a client chooses PLAIN."""
    content = b"\xa3\x05PLAIN\xb0" + len(response).to_bytes(4) + response
    body = b"\x00\x53\x41\xd0" + (len(content) + 4).to_bytes(4) + (2).to_bytes(4) + content
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


class Socket(asyncio.Protocol):
    """A client of Proton's engine on a socket."""

    def __init__(self, client: AmqpClient) -> None:
        self.client = client
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        with contextlib.suppress(proton.ProtonException):
            self.client.receive(data)
        self.flush()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._changed.set()

    def flush(self) -> None:
        assert self.transport is not None
        while data := self.client.take():
            self.transport.write(data)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for what a client sees."""
        self.flush()
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    @property
    def condition(self) -> Any:
        return self.client.connection.remote_condition


class Served:
    """A node with a listener, and its clients."""

    def __init__(self, node: Node, server: AmqpServer, port: MemoryPort) -> None:
        self.node = node
        self.server = server
        self.port = port
        self.sockets: list[Socket] = []
        self.number = int(server.uri.rpartition(":")[2])

    async def connect(
        self, mechanism: str = "ANONYMOUS", context: ssl.SSLContext | None = None, **more: Any
    ) -> Socket:
        loop = asyncio.get_running_loop()
        client = AmqpClient(mechanism, **more)
        _, made = await loop.create_connection(
            lambda: Socket(client), "127.0.0.1", self.number, ssl=context
        )
        self.sockets.append(made)
        return made

    async def opened(self, *args: Any, **more: Any) -> Socket:
        made = await self.connect(*args, **more)
        await made.until(lambda: "connection_remote_open" in made.client.events or made.lost)
        assert not made.lost
        return made

    async def raw(self, *sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        for each in sent:
            writer.write(each)
        return reader, writer

    async def ended(self, reason: str) -> None:
        """Wait until a connection has ended for a reason."""
        await eventually(lambda: self.server.statistics().closed.get(reason))


@contextlib.asynccontextmanager
async def serving(
    uri: str = URI, options: AmqpOptions | None = None, **more: Any
) -> AsyncGenerator[Served]:
    port = MemoryPort()
    async with Node("served") as node:
        server = AmqpServer(uri, port, options or AmqpOptions(), **more)
        await node.start(lambda: server, address="amqp")
        served = Served(node, server, port)
        try:
            yield served
        finally:
            for each in served.sockets:
                if each.transport is not None:
                    each.transport.abort()
    for each in served.sockets:
        each.client.release()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("uri", "tls", "text"),
    [
        ("amqps://127.0.0.1:1", False, "needs a certificate"),
        ("amqp://127.0.0.1:1", True, "certificates go with amqps://"),
        ("tcp://127.0.0.1:1", False, "is not amqp://host:port or amqps://host:port"),
        ("amqp://127.0.0.1", False, "not host:port"),
    ],
)
def test_a_wrong_uri_is_refused(uri: str, tls: bool, text: str, certificates: Certificates) -> None:
    with pytest.raises(ValueError, match=text):
        AmqpServer(uri, MemoryPort(), tls=certificates.listener if tls else None)


def test_before_its_start_it_has_no_socket() -> None:
    with pytest.raises(AssertionError, match="has not started"):
        AmqpServer(URI, MemoryPort()).uri  # noqa: B018 - the property raises


@on_both_loops
async def test_messages_go_from_one_client_to_another() -> None:
    async with serving() as served:
        one, two = await served.opened(), await served.opened()
        assert one.client.connection.remote_container == "served"
        two.client.receiver("orders", credit=1000)
        two.flush()
        link = one.client.sender("orders")
        await one.until(lambda: link.credit)
        body = b"x" * 100_000
        made = [one.client.send(link, one.client.message(body)) for _ in range(30)]
        await one.until(lambda: all(each.settled for each in made))
        assert {each.remote_state for each in made} == {proton.Delivery.ACCEPTED}
        assert two.client.bodies == [body] * 30
        one.client.connection.close()
        await one.until(lambda: one.lost)
        assert "connection_remote_close" in one.client.events
        await served.ended("closed")
        statistics = served.server.statistics()
        assert (statistics.accepted, statistics.connections) == (2, 1)
        assert statistics.dropped == {}
        assert served.port.principals == [ANONYMOUS, ANONYMOUS]


async def test_the_listener_tells_its_clients_that_it_stops() -> None:
    async with serving() as served:
        made = await served.opened()
        waiting = await served.connect()
        await served.node.stop_worker("amqp")
        assert (made.condition.name, made.condition.description) == (
            "amqp:connection:forced",
            "the listener stops",
        )
        await waiting.until(lambda: waiting.lost)
        assert (served.port.consumers, served.port.producers) == ([], [])


# --- who is let in ------------------------------------------------------------------------------


async def test_passwords_are_checked() -> None:
    gate, authentication = gated({UserPassword("ann", "secret"): ANN})
    async with serving(authentication=authentication) as served:
        made = await served.opened("PLAIN", user="ann", password="secret")
        made.client.receiver("orders")
        await made.until(lambda: "link_remote_open" in made.client.events)
        assert served.port.principals == [ANN]
        assert gate.seen[0][1].source == "127.0.0.1"
        wrong = await served.connect("PLAIN", user="ann", password="wrong")
        await wrong.until(lambda: wrong.lost)
        assert wrong.client.transport.sasl().outcome == proton.SASL.AUTH
        anonymous = await served.connect("ANONYMOUS")
        await anonymous.until(lambda: anonymous.lost)
        assert served.port.principals == [ANN]
        await served.ended("not authenticated")


@pytest.mark.parametrize(
    ("name", "password", "boss"),
    [("ann", "secret", "boss"), ("n" * 300, "secret", ""), ("ann", "secret", "ann ")],
)
async def test_what_cannot_be_checked_is_refused(name: str, password: str, boss: str) -> None:
    gate, authentication = gated({UserPassword("ann", "secret"): ANN})
    response = f"{boss}\0{name}\0{password}".encode()
    async with serving(authentication=authentication) as served:
        reader, writer = await served.raw(SASL_HEADER, plain(response))
        assert (await asyncio.wait_for(reader.read(), 20)).endswith(DENIED)
        assert gate.seen == []
        writer.close()


@pytest.mark.parametrize(
    ("private", "digest", "offered"),
    [
        (False, b"", ["ANONYMOUS"]),
        (False, b"d", ["EXTERNAL", "ANONYMOUS"]),
        (True, b"", ["PLAIN", "ANONYMOUS"]),
        (True, b"d", ["EXTERNAL", "PLAIN", "ANONYMOUS"]),
    ],
)
def test_passwords_are_not_asked_for_where_others_may_read_them(
    private: bool, digest: bytes, offered: list[str]
) -> None:
    _, authentication = gated({})
    made = _mechanisms(authentication, PeerIdentity(digest=digest), private=private)
    assert [each.name for each in made] == offered


async def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    async with serving() as served:
        reader, writer = await served.raw(SASL_HEADER, plain(b"\0ann\0secret"))
        assert (await asyncio.wait_for(reader.read(), 20)).endswith(DENIED)
        # What a refused client sends is read and ignored until it goes.
        writer.write(b"more")
        writer.close()
        await served.ended("not authenticated")


async def test_a_certificate_is_a_mechanism(certificates: Certificates) -> None:
    gate, authentication = gated({None: ANN})
    context = ssl.create_default_context(cafile=str(certificates.authority))
    context.load_cert_chain(certificates.client)
    async with serving(
        "amqps://127.0.0.1:0", tls=certificates.lenient, authentication=authentication
    ) as served:
        made = await served.opened("EXTERNAL", context)
        made.client.receiver("orders")
        await made.until(lambda: "link_remote_open" in made.client.events)
        assert served.port.principals == [ANN]
        ((credentials, peer),) = gate.seen
        assert credentials is None
        assert peer.digest == certificates.digest(certificates.client)
        served.server.prepare_reload()()
        made.client.connection.close()
        await made.until(lambda: made.lost)


async def test_a_client_with_tls_that_is_refused_is_cut(certificates: Certificates) -> None:
    _, authentication = gated({UserPassword("ann", "secret"): ANN})
    context = ssl.create_default_context(cafile=str(certificates.authority))
    async with serving(
        "amqps://127.0.0.1:0", tls=certificates.listener, authentication=authentication
    ) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.number, ssl=context)
        writer.write(SASL_HEADER + plain(b"\0ann\0wrong"))
        # It would stay for as long as it likes.
        assert (await asyncio.wait_for(reader.read(), 20)).endswith(DENIED)
        await served.ended("not authenticated")
        writer.close()


async def test_without_a_certificate_that_is_none(certificates: Certificates) -> None:
    _, authentication = gated({None: ANN})
    context = ssl.create_default_context(cafile=str(certificates.authority))
    options = AmqpOptions(open_timeout=0.2)
    async with serving(
        "amqps://127.0.0.1:0", options, tls=certificates.lenient, authentication=authentication
    ) as served:
        # Proton's client finds none of its mechanisms, and says nothing more.
        made = await served.connect("EXTERNAL", context)
        await made.until(lambda: made.lost)
        assert "connection_remote_open" not in made.client.events


async def test_a_client_waits_while_it_is_decided() -> None:
    gate, authentication = gated({UserPassword("ann", "secret"): ANN}, timeout=20)
    gate.open.clear()
    async with serving(authentication=authentication) as served:
        made = await served.connect("PLAIN", user="ann", password="secret")
        gone = await served.connect("PLAIN", user="ann", password="secret")
        await eventually(lambda: len(gate.seen) == 2)
        assert gone.transport is not None
        gone.transport.abort()
        gate.open.set()
        await made.until(lambda: "connection_remote_open" in made.client.events)


async def test_a_client_whose_credentials_expire_is_told() -> None:
    expiring = Principal("ann", "test", expires=time.time() + 0.3)
    _, authentication = gated({UserPassword("ann", "secret"): expiring})
    async with serving(authentication=authentication) as served:
        made = await served.opened("PLAIN", user="ann", password="secret")
        await made.until(lambda: made.lost)
        assert made.condition.name == "amqp:unauthorized-access"
        assert made.condition.description == "the credentials expired"


async def test_a_reload_ends_clients_that_are_not_admitted_any_more() -> None:
    gate, authentication = gated({UserPassword("ann", "secret"): ANN})
    async with serving(authentication=authentication) as served:
        made = await served.opened("PLAIN", user="ann", password="secret")
        early = await served.raw()
        gate.readmit = lambda principal, peer: principal  # type: ignore[method-assign]
        (await authentication.prepare_reload())()
        assert served.server.statistics().connections == 2
        gate.readmit = lambda principal, peer: None  # type: ignore[method-assign]
        (await authentication.prepare_reload())()
        await made.until(lambda: made.lost)
        assert made.condition.description == "the credentials were withdrawn"
        early[1].close()


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (Principal("ann", "test", frozenset({"till"})), "the roles have changed"),
        (Principal("bob", "test", frozenset({"shop"})), "the roles have changed"),
        (Principal("ann", "test", frozenset({"shop"}), expires=0.0), "the credentials expired"),
    ],
)
async def test_a_reload_of_other_roles_ends_a_client_and_another_expiry_is_heeded(
    now: Principal, reason: str
) -> None:
    was = Principal("ann", "test", frozenset({"shop"}), expires=time.time() + 1000)
    gate, authentication = gated({UserPassword("ann", "secret"): was})
    async with serving(authentication=authentication) as served:
        made = await served.opened("PLAIN", user="ann", password="secret")
        made.client.receiver("orders")
        await made.until(lambda: "link_remote_open" in made.client.events)
        gate.readmit = lambda principal, peer: was  # type: ignore[method-assign]
        (await authentication.prepare_reload())()
        assert served.server.statistics().connections == 1
        gate.readmit = lambda principal, peer: now  # type: ignore[method-assign]
        (await authentication.prepare_reload())()
        await made.until(lambda: made.lost)
        assert (made.condition.name, made.condition.description) == (
            "amqp:unauthorized-access",
            reason,
        )
        assert served.port.consumers == []


async def test_anybody_is_let_in_without_authentication() -> None:
    async with serving(authentication=Authentication([AnonymousAuthenticator()])) as served:
        await served.opened()


# --- what ends a connection ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "answer", "reason"),
    [
        (AMQP_HEADER, SASL_HEADER, "amqp:connection:policy-error"),
        (b"GET / HTTP/1.1\r\n\r\n", SASL_HEADER, "amqp:connection:framing-error"),
        (SASL_HEADER + b"\xff" * 8, SASL_HEADER, "amqp:connection:framing-error"),
    ],
)
async def test_another_protocol_is_answered_and_closed(
    sent: bytes, answer: bytes, reason: str
) -> None:
    async with serving() as served:
        reader, writer = await served.raw(sent)
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(answer)
        writer.write(b"more")
        writer.close()
        await served.ended(reason)


async def test_a_client_that_does_not_open_is_cut() -> None:
    async with serving(options=AmqpOptions(open_timeout=0.05)) as served:
        reader, writer = await served.raw(SASL_HEADER)
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(SASL_HEADER)
        await served.ended("not opened")
        writer.close()


async def test_a_silent_client_is_told_and_closed() -> None:
    async with serving(options=AmqpOptions(idle_timeout=0.2)) as served:
        made = await served.opened()
        # Nothing is sent from here on: Proton's client needs a tick for that.
        await made.until(lambda: made.lost)
        assert made.condition.name == "amqp:resource-limit-exceeded"
        await served.ended("amqp:resource-limit-exceeded")


async def test_a_client_that_does_not_read_is_cut() -> None:
    options = AmqpOptions(write_timeout=0.1, max_message=1 << 24, max_unsent=1 << 26)
    async with serving(options=options) as served:
        made = await served.opened()
        made.client.receiver("orders", credit=100)
        made.flush()
        await eventually(lambda: served.port.consumers and served.port.consumers[0].left)
        assert made.transport is not None
        made.transport.pause_reading()
        for _ in range(4):
            served.port.consumers[0].end.deliver(bytes(1 << 23), None)
        await served.ended("not read")
        assert served.port.consumers == []


async def test_a_client_that_reads_late_gets_all_the_same() -> None:
    options = AmqpOptions(max_message=1 << 24, max_unsent=1 << 25)
    async with serving(options=options) as served:
        made = await served.opened()
        made.client.receiver("orders", credit=5)
        made.flush()
        await eventually(lambda: served.port.consumers and served.port.consumers[0].left)
        (consumer,) = served.port.consumers
        assert made.transport is not None
        made.transport.pause_reading()
        body, states = bytes(1 << 23), list[object]()
        for _ in range(5):
            consumer.left -= 1
            consumer.end.deliver(body, states.append)
        # Four would fill what may wait, with their heads: so the fourth and the fifth wait longer.
        assert (consumer.drains, states) == (1, [])
        made.transport.resume_reading()
        await made.until(lambda: len(made.client.received) == 5)
        assert made.client.bodies == [body] * 5
        await eventually(lambda: len(states) == 5)
        assert set(states) == {ACCEPTED}


async def test_a_state_that_is_nested_too_deep_ends_its_connection_alone() -> None:
    options = AmqpOptions(max_frame=1 << 16)
    async with serving(options=options) as served:
        made, other = await served.opened(), await served.opened()
        made.client.accepts = False
        made.client.receiver("orders", credit=5)
        made.flush()
        await eventually(lambda: served.port.consumers and served.port.consumers[0].left)
        (consumer,), states = served.port.consumers, list[object]()
        consumer.left -= 1
        consumer.end.deliver(b"x", states.append)
        await made.until(lambda: made.client.received)
        error = described(0x1D, [b"\xa3\x01x", b"\xa1\x01x", nested(3000)])
        rejected = described(0x25, [error])
        assert made.transport is not None
        made.transport.write(frame_of(0x15, [b"\x41", b"\x43", b"\x43", b"\x41", rejected]))
        await made.until(lambda: made.lost)
        assert made.condition.name == "amqp:decode-error"
        await served.ended("amqp:decode-error")
        assert (served.port.consumers, states) == ([], [])
        other.client.sender("orders")
        await other.until(lambda: "link_remote_open" in other.client.events)


async def test_a_connection_that_was_reset_keeps_no_other_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as served:
        made = [await served.opened() for _ in range(3)]
        reset = next(iter(served.server._connections))

        def fail() -> None:
            raise OSError(107, "Transport endpoint is not connected")

        # The peer has reset it, and the loop has not seen that yet.
        monkeypatch.setattr(reset.transport, "write_eof", fail)
        await served.node.stop_worker("amqp")
        for each in made:
            await each.until(partial(_is_lost, each))
        told = [each.condition.name for each in made if each.condition is not None]
        assert told.count("amqp:connection:forced") >= 2


def _is_lost(made: Socket) -> bool:
    return made.lost


async def test_the_end_of_the_input_is_the_end_of_the_connection() -> None:
    async with serving() as served:
        made = await served.opened()
        made.client.receiver("orders")
        await made.until(lambda: "link_remote_open" in made.client.events)
        assert made.transport is not None
        made.transport.write_eof()
        await made.until(lambda: made.lost)
        await served.ended("lost")
        assert served.port.consumers == []


async def test_a_client_that_vanishes_in_mid_message_has_sent_none() -> None:
    async with serving() as served:
        one, two = await served.opened(), await served.opened()
        two.client.receiver("orders")
        two.flush()
        link = one.client.sender("orders")
        await one.until(lambda: link.credit)
        one.client.begin(link, b"x" * 50_000)
        one.flush()
        assert one.transport is not None
        one.transport.abort()
        await served.ended("lost")
        assert served.port.sent == []
        assert served.port.producers == []


class Bad:
    """Clients that misbehave, one way each; see `test_a_client_is_measured_beside_bad_ones`."""

    def __init__(self, served: Served) -> None:
        self.served = served

    async def garbage(self) -> None:
        made = await self.served.opened()
        assert made.transport is not None
        made.transport.write(b"\xff" * 1000)
        await made.until(lambda: made.lost)

    async def oversize(self) -> None:
        made = await self.served.opened()
        assert made.transport is not None
        made.transport.write(b"\x7f\xff\xff\xff\x02\x00\x00\x00" + b"x" * 100_000)
        await made.until(lambda: made.lost)

    async def links(self) -> None:
        made = await self.served.opened()
        for each in range(40):
            made.client.sender(f"mine-{each}")
        await made.until(lambda: made.lost)
        assert made.condition.name == "amqp:resource-limit-exceeded"

    async def dispositions(self) -> None:
        made = await self.served.opened()
        assert made.transport is not None
        for _ in range(200):
            made.transport.write(disposition_frame(0, 0x7FFFFFFF, by_receiver=True))
        made.client.connection.close()
        await made.until(lambda: made.lost)

    async def vanish(self) -> None:
        made = await self.served.opened()
        made.client.receiver("bad")
        link = made.client.sender("bad")
        await made.until(lambda: link.credit)
        made.client.begin(link, b"x" * 50_000)
        made.flush()
        assert made.transport is not None
        made.transport.abort()

    async def flood(self) -> None:
        made = await self.served.opened()
        made.client.accepts = False
        made.client.receiver("bad", credit=1000)
        link = made.client.sender("bad")
        await made.until(lambda: link.credit)
        while link.credit > 0:
            made.client.send(link, made.client.message(b"x" * 10_000))
            made.flush()
        assert made.transport is not None
        made.transport.pause_reading()


@pytest.mark.parametrize("how", ["garbage", "oversize", "links", "dispositions", "vanish", "flood"])
async def test_a_client_is_measured_beside_bad_ones(how: str) -> None:
    async with serving(options=AmqpOptions(max_links=32, write_timeout=0.5)) as served:
        good = await served.opened()
        good.client.receiver("orders", credit=1000)
        link = good.client.sender("orders")
        await good.until(lambda: link.credit)
        bad = Bad(served)
        for _ in range(8):
            going = asyncio.create_task(getattr(bad, how)())
            # Each message of the good one is accepted while the bad one does what it does.
            for _ in range(5):
                sent = good.client.send(link, good.client.message("a"))
                await good.until(partial(getattr, sent, "settled"))
                assert sent.remote_state == proton.Delivery.ACCEPTED
            await asyncio.wait_for(going, 20)
        assert not good.lost
        assert len(good.client.received) == 40
        for each in served.sockets[1:]:
            if each.transport is not None:
                each.transport.abort()
        await eventually(lambda: served.server.statistics().connections == 1)
        # Nothing of the bad ones is left.
        assert {each.name for each in served.port.consumers} == {"orders"}
        assert {each.name for each in served.port.producers} == {"orders"}


async def test_a_failing_dispatcher_ends_the_connection_and_shows_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "onward.transports.amqp")
    async with serving() as served:
        made = await served.opened()
        served.port.failing = RuntimeError("SECRET")
        made.client.receiver("orders")
        await made.until(lambda: made.lost)
        assert (made.condition.name, made.condition.description) == ("amqp:internal-error", None)
        assert "a connection of AMQP has failed: RuntimeError" in caplog.text
        served.port.failing = None
        await served.opened()


async def test_a_name_that_is_no_text_ends_the_connection() -> None:
    async with serving() as served:
        made = await served.opened()
        # Proton's client has no way to write such a name, so the bytes are changed.
        made.client.receiver("XXXX")
        assert made.transport is not None
        data = made.client.take()
        assert b"XXXX" in data
        made.transport.write(data.replace(b"XXXX", b"\xff\xfe\xff\xfe"))
        await made.until(lambda: made.lost)
        assert made.condition.name.startswith("amqp:")
        await served.opened()


async def test_a_link_is_refused_and_the_connection_goes_on() -> None:
    async with serving() as served:
        served.port.refusals["secret"] = ConsumerRefused("secret", Refusal.UNAVAILABLE)
        made = await served.opened()
        link = made.client.receiver("secret")
        await made.until(lambda: link.remote_condition)
        assert link.remote_condition.name == "amqp:not-found"
        # A call of the dispatcher is sent without a call of the client.
        good = made.client.receiver("orders")
        await made.until(lambda: good.state & good.REMOTE_ACTIVE)
        served.port.consumers[0].end.deliver(b"hello", None)
        await made.until(lambda: made.client.received)
        assert made.client.bodies == [b"hello"]


async def test_there_are_places_for_so_many() -> None:
    async with serving(options=AmqpOptions(max_connections=1)) as served:
        await served.opened()
        turned = await served.connect()
        await turned.until(lambda: turned.lost)
        assert served.server.statistics().turned_away == 1


async def test_a_port_in_use_is_an_error() -> None:
    async with serving() as served:
        _, authentication = gated({None: ANN})
        server = AmqpServer(served.server.uri, MemoryPort(), authentication=authentication)
        with pytest.raises(OSError, match="in use"):
            await served.node.start(lambda: server, address="second")


class Failing(AmqpServer):
    """A listener that each message makes fail."""

    def handle_message(self, message: Message) -> None:
        raise RuntimeError(message.payload.decode())


async def test_a_listener_that_fails_ends_its_connections_and_another_one_takes_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: list[Failing] = []

    def make() -> Failing:
        made.append(Failing(made[0].uri if made else URI, MemoryPort()))
        return made[-1]

    async with Node("served") as node:
        supervision = Supervision(OnFailure.RESTART, max_restarts=1)
        await node.start(make, address="amqp", supervision=supervision)
        sockets: list[Socket] = []
        for text in (b"fails", b"fails again"):
            served = Served(node, made[-1], MemoryPort())
            sockets.append(await served.opened())
            node.send("amqp", text)
            await sockets[-1].until(lambda: sockets[-1].lost)
            if text == b"fails":
                await eventually(lambda: len(made) == 2 and made[1]._acceptor and made[1].uri)
        await eventually(lambda: not node.has("amqp"))
        assert [each.statistics().connections for each in made] == [0, 0]
        assert made[0].uri == made[1].uri
        with pytest.raises(ConnectionRefusedError):
            await served.connect()
    assert [each.condition.name for each in sockets] == ["amqp:connection:forced"] * 2
    for each in sockets:
        each.client.release()
    assert "fails again" in caplog.text
