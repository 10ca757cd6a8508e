"""The engine of a connection, byte by byte, against the client of Proton in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onward.transports.amqp._deliveries import Delivery
from onward.transports.amqp._engine import (
    AmqpEngine,
    DeliveryChanged,
    EngineEvent,
    Flowed,
    LinkAttached,
    LinkDetached,
    Opened,
)
from onward.transports.amqp._options import AmqpOptions
from onward.transports.amqp._proton import load_proton
from onward.transports.amqp._sasl import AMQP_HEADER
from tests.support.amqp import AmqpClient, needs_proton

pytestmark = pytest.mark.peer
needs_proton()

LIMITS = AmqpOptions(max_frame=4096, max_sessions=3, max_links=2, idle_timeout=60.0)
FRAMING = "amqp:connection:framing-error"


@pytest.fixture
def engine() -> Iterator[AmqpEngine]:
    made = AmqpEngine(load_proton(), "server", LIMITS)
    yield made
    list(made.events())
    made.release()


@pytest.fixture
def client() -> Iterator[AmqpClient]:
    made = AmqpClient()
    yield made
    made.release()


def pumped(engine: AmqpEngine, client: AmqpClient, part: int = 65536) -> list[EngineEvent]:
    """Carry bytes until there are none, and return the events; open and answer what is attached."""
    found: list[EngineEvent] = []
    while True:
        data, answer = client.take(), b""
        for at in range(0, len(data), part):
            engine.receive(data[at : at + part])
        for event in engine.events():
            found.append(event)
            if isinstance(event, Opened):
                engine.open()
            elif isinstance(event, LinkAttached):
                event.link.open()
        while more := engine.data_to_send(part):
            answer += more
        client.receive(answer)
        if not data and not answer:
            return found


def kinds(events: list[EngineEvent]) -> list[type[EngineEvent]]:
    return [type(each) for each in events]


@pytest.mark.parametrize("part", [1, 7, 65536])
def test_a_connection_is_opened_and_closed(
    engine: AmqpEngine, client: AmqpClient, part: int
) -> None:
    link = client.sender("orders")
    found = pumped(engine, client, part)
    assert kinds(found) == [Opened, LinkAttached]
    assert engine.opened
    assert client.connection.remote_container == "server"
    assert isinstance(found[1], LinkAttached)
    assert found[1].link.remote_target.address == "orders"
    found[1].link.flow(1)
    pumped(engine, client)
    assert link.credit == 1
    client.send(link, b"x" * 10000)
    changed = pumped(engine, client, part)[-1]
    assert isinstance(changed, DeliveryChanged)
    assert Delivery(engine.binding, changed.delivery).pending == 10000
    client.connection.close()
    pumped(engine, client)
    assert engine.closed == "closed"
    assert "connection_remote_close" in client.events


@pytest.mark.parametrize(("how", "closed"), [("close", True), ("detach", False)])
def test_a_link_ends(engine: AmqpEngine, client: AmqpClient, how: str, closed: bool) -> None:
    link = client.receiver("orders", credit=3)
    *_, attached, flowed = pumped(engine, client)
    assert isinstance(attached, LinkAttached)
    assert flowed == Flowed(attached.link)
    getattr(link, how)()
    assert pumped(engine, client) == [LinkDetached(attached.link, closed)]
    attached.link.close()
    engine.free(attached.link)
    engine.free(attached.link)
    # Its place is free again.
    client.receiver("orders")
    client.receiver("orders")
    pumped(engine, client)
    assert engine.closed == ""


def test_a_session_ends_with_its_links(engine: AmqpEngine, client: AmqpClient) -> None:
    client.sender("a")
    client.receiver("b")
    attached = [each.link for each in pumped(engine, client) if isinstance(each, LinkAttached)]
    client.session.close()
    ended = [each.link for each in pumped(engine, client) if isinstance(each, LinkDetached)]
    assert set(ended) == set(attached)
    for each in ended:
        engine.free(each)
    assert engine.unsent() == 0
    assert "session_remote_close" in client.events


def test_one_link_too_many_ends_the_connection(engine: AmqpEngine, client: AmqpClient) -> None:
    for _ in range(3):
        client.sender("a")
    found = pumped(engine, client)
    assert kinds(found).count(LinkAttached) == 2
    assert engine.closed == "amqp:resource-limit-exceeded"
    condition = client.connection.remote_condition
    assert (condition.name, condition.description) == (engine.closed, "too many links")


def test_sessions_share_what_may_wait_to_be_read() -> None:
    client = AmqpClient()
    engine = AmqpEngine(load_proton(), "server", AmqpOptions(max_frame=32 * 1024, max_sessions=200))
    rooms: list[int] = []
    for number in (0, 1, 2, 126):
        for _ in range(number):
            client.connection.session().open()
        pumped(engine, client)
        found = {each.incoming_capacity for each in engine._sessions}
        assert len(found) == 1
        rooms.append(found.pop())
    # All of 4 MiB, and two frames at least.
    assert rooms == [4 << 20, 2 << 20, 1 << 20, 64 << 10]
    client.session.close()
    pumped(engine, client)
    assert len(engine._sessions) == 129
    engine.release()
    client.release()


def test_one_session_too_many_ends_the_connection(engine: AmqpEngine, client: AmqpClient) -> None:
    for _ in range(3):
        client.connection.session().open()
    pumped(engine, client)
    # Proton's client does not look at the channel that it may use at most before the answer.
    assert engine.closed == FRAMING
    assert client.connection.remote_condition.description is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x03\x01\x00\x00",
        b"\x16\x03\x01",
    ],
)
@pytest.mark.parametrize("part", [1, 100])
def test_another_protocol_is_answered_with_the_header_of_this_one(
    engine: AmqpEngine, data: bytes, part: int
) -> None:
    for at in range(0, len(data), part):
        engine.receive(data[at : at + part])
    assert list(engine.events()) == []
    assert engine.closed == FRAMING
    assert engine.data_to_send(100) == AMQP_HEADER
    assert engine.data_to_send(100) == b""


def test_nothing_is_sent_before_the_header(engine: AmqpEngine) -> None:
    engine.receive(AMQP_HEADER[:7])
    assert engine.data_to_send(100) == b""
    assert engine.closed == ""


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (bytes.fromhex("40000000 02000000"), True),
        (bytes.fromhex("00000003 02000000"), True),
        (b"SECRET-BYTES", True),
        (bytes.fromhex("00000014 02000000") + b"SECRET-BYTES", False),
        (bytes.fromhex("00000010 02070000 005310 45 00000000"), False),
    ],
)
def test_broken_frames_end_the_connection_without_a_copy_of_them(
    engine: AmqpEngine, data: bytes, told: bool
) -> None:
    engine.receive(AMQP_HEADER + data)
    list(engine.events())
    assert engine.closed.startswith("amqp:")
    answer = b""
    while part := engine.data_to_send(10000):
        answer += part
    assert (engine.closed.encode() in answer) is told
    assert b"SECRET" not in answer
    assert data[:4] not in answer
    # What follows is not read.
    engine.receive(b"x" * 10000)
    assert list(engine.events()) == []


def test_what_a_client_sends_is_not_written_to_the_error_output(
    engine: AmqpEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    # Its longest frame is of 96 bytes, of which Proton warns.
    body = bytes.fromhex("005310 c007 03 a10163 40 5260")
    engine.receive(AMQP_HEADER + (8 + len(body)).to_bytes(4) + bytes.fromhex("02000000") + body)
    assert list(engine.events()) == [Opened()]
    assert capfd.readouterr().err == ""


def test_a_silent_client_is_closed(engine: AmqpEngine, client: AmqpClient) -> None:
    pumped(engine, client)
    due = engine.tick(1000.0)
    assert 0 < due <= 1060.0
    due = engine.tick(1060.1)
    list(engine.events())
    assert engine.closed == "amqp:resource-limit-exceeded"
    assert b"resource-limit" in engine.data_to_send(10000)


def test_a_client_is_kept_alive_as_it_asks(engine: AmqpEngine) -> None:
    client = AmqpClient(idle=10)
    pumped(engine, client)
    due = engine.tick(1000.0)
    assert due <= 1010.0
    engine.tick(due)
    assert engine.data_to_send(100) == bytes.fromhex("00000008 02000000")
    client.release()


def test_texts_of_errors_are_cut(engine: AmqpEngine) -> None:
    made = engine.condition("c" * 300, "d" * 300)
    assert (made.name, made.description) == ("c" * 256, "d" * 256)
    made = engine.condition("x\N{BULLET}\0y", "a\0b")
    assert (made.name, made.description) == ("x??y", "a b")
    made = engine.condition("", "")
    assert (made.name, made.description) == ("amqp:internal-error", None)


def test_the_end_of_the_input_is_no_error(engine: AmqpEngine, client: AmqpClient) -> None:
    pumped(engine, client)
    engine.end_of_input()
    assert engine.closed == "lost"
    engine.close("amqp:not-found")
    engine.end_of_input()
    assert engine.closed == "lost"


def test_bytes_that_a_client_has_no_room_for_are_counted(
    engine: AmqpEngine, client: AmqpClient
) -> None:
    client.receiver("orders", credit=0)
    *_, attached = pumped(engine, client)
    assert isinstance(attached, LinkAttached)
    link: Any = attached.link
    delivery = link.delivery("1")
    assert link.stream(b"x" * 5000) == 5000
    link.advance()
    assert engine.unsent() >= 5000
    assert not delivery.settled
