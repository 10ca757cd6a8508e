"""Links over UDP: what is kept for one, where it leads to, and whose socket it uses."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, cast

import pytest

from onward.actors import Node, Worker
from onward.protocol import Address, LinkDown, Message, RequestTimeout
from onward.protocol.ockam import DatagramLimits
from onward.transports import UdpListener, UdpOptions, UdpTransport, parse_uri
from onward.transports.node._udp_link import DialledUdpLink, _literal, _look_up, _reported
from onward.transports.node._udp_socket import UdpSocket
from tests.support.transports import Echo, Recorder, eventually

LARGE = DatagramLimits(max_message=200_000)


def udp_of(node: Node) -> UdpTransport:
    return cast(UdpTransport, node.transport("udp"))


async def listening(node: Node, uri: str, *expose: str, **options: Any) -> UdpListener:
    return cast(UdpListener, await node.listen(uri, expose=expose, **options))


class Slow:
    """A socket that takes one message, and the next when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = 0
        self.go_on = asyncio.Event()
        monkeypatch.setattr(UdpSocket, "send", self.send)

    def send(self, datagrams: list[bytes], _: object) -> Any:
        self.sent += 1
        return None if self.go_on.is_set() else asyncio.ensure_future(self.go_on.wait())


async def test_what_was_kept_is_sent_as_the_system_takes_it(
    a: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    udp_of(a).options = UdpOptions(heartbeat=None)
    for _ in range(10):
        a.send("2#127.0.0.1:9 => x", b"")
    await eventually(lambda: slow.sent == 1)
    a.send("2#127.0.0.1:9 => x", b"")  # after those before
    await asyncio.sleep(0)
    (link,) = udp_of(a).statistics()
    assert (slow.sent, link.queued) == (1, 9)
    slow.go_on.set()
    await eventually(lambda: slow.sent == 11)


async def test_what_waits_for_its_turn_waits_for_the_system_too(
    a: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    a.send("2#127.0.0.1:9 => x", b"")
    await eventually(lambda: slow.sent == 1)
    a.send("2#127.0.0.1:9 => x", b"")
    await asyncio.sleep(0)
    real, slow.go_on = slow.go_on, asyncio.Event()
    real.set()
    await eventually(lambda: slow.sent == 2)
    a.send("2#127.0.0.1:9 => x", b"")
    await asyncio.sleep(0)
    assert slow.sent == 2
    slow.go_on.set()
    await eventually(lambda: slow.sent == 3)


async def test_what_was_not_sent_when_the_link_ends_becomes_dead_letters(
    a: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    for _ in range(10):
        a.send("2#127.0.0.1:9 => x", b"")
    await eventually(lambda: slow.sent == 1)
    (link,) = udp_of(a).statistics()
    await a.stop_worker(link.address)
    assert dict(a.dead_letters.by_reason) == {"link down": 9}


async def test_what_is_kept_is_bounded_in_bytes(a: Node, b: Node) -> None:
    recorder = await Recorder.on(b, "c")
    listener = await listening(b, "udp://127.0.0.1:0", "c")
    udp_of(a).options = UdpOptions(max_queue_bytes=250, heartbeat=None)
    peer = Address(2, listener.uri.partition("://")[2].encode())
    for _ in range(5):
        a.send([peer, "c"], bytes(100))
    await eventually(lambda: len(recorder.messages) == 2)
    assert dict(a.dead_letters.by_reason) == {"link down": 3}


async def test_an_error_nobody_foresaw_ends_the_link(
    a: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    async def find(_: object) -> None:
        raise RuntimeError("nobody foresaw it")

    monkeypatch.setattr(DialledUdpLink, "_find", find)
    with caplog.at_level(logging.ERROR), pytest.raises(LinkDown, match="RuntimeError: nobody"):
        async with asyncio.timeout(5):
            await a.connect("udp://127.0.0.1:9")
    assert not udp_of(a).statistics()
    assert "RuntimeError: nobody" in caplog.text


@pytest.mark.parametrize(
    ("bound", "hosts"),
    [
        ("udp://[::1]:0", ["[::1]", "[0:0:0:0:0:0:0:1]", "[0::1]", "[::]"]),
        ("udp://0.0.0.0:0", ["0.0.0.0", "127.0.0.1", "localhost", "[::ffff:127.0.0.1]"]),
    ],
)
async def test_a_peer_is_known_however_its_address_is_written(
    a: Node, b: Node, monkeypatch: pytest.MonkeyPatch, bound: str, hosts: list[str]
) -> None:
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo

    async def of_version_4(*where: object, **more: object) -> object:
        return await look_up(*where, **{**more, "family": socket.AF_INET})  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "getaddrinfo", of_version_4)
    await b.start(Echo, address="echo")
    listener = await listening(b, bound, "echo")
    port = listener.uri.rpartition(":")[2]
    for host in hosts:
        link = await a.connect(f"udp://{host}:{port}")
        assert (await a.request([link, "echo"], host.encode(), timeout=5)).payload == host.encode()


async def test_what_a_listener_says_of_itself_can_be_connected_to(a: Node, b: Node) -> None:
    await b.start(Echo, address="echo")
    for uri in ("udp://0.0.0.0:0", "udp://[::]:0"):
        listener = await listening(b, uri, "echo")
        link = await a.connect(listener.uri)
        assert (await a.request([link, "echo"], b"hi", timeout=5)).payload == b"hi"


async def test_addresses_are_written_as_the_system_does() -> None:
    assert _literal("fe80::1%lo", 1) is None
    assert _literal("localhost", 1) is None
    assert _literal("10.0.0.1", 1) == (socket.AF_INET, ("10.0.0.1", 1))
    assert _literal("FE80:0::0001", 1) == (socket.AF_INET6, ("fe80::1", 1, 0, 0))
    assert _literal("0:0::", 1) == (socket.AF_INET6, ("::1", 1, 0, 0))
    assert _literal("0.0.0.0", 1) == (socket.AF_INET, ("127.0.0.1", 1))
    scoped = ("fe80::1%lo", 1, 0, 1)
    assert _reported(socket.AF_INET6, scoped) == scoped
    found = await _look_up(asyncio.get_running_loop(), "0", 1)
    assert found == (socket.AF_INET, ("127.0.0.1", 1))


class Large(Worker):
    """Answers with more than the usual limit."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, bytes(100_000))


async def test_the_limits_of_a_link_are_those_of_what_comes_too(a: Node, b: Node) -> None:
    await b.start(Large, address="large")
    listener = await listening(b, "udp://127.0.0.1:0", "large", datagrams=LARGE)
    usual = await a.connect(listener.uri)
    large = await a.connect(listener.uri, datagrams=LARGE)
    answer = await a.request([large, "large"], b"", timeout=5)
    assert len(answer.payload) == 100_000
    with pytest.raises(RequestTimeout):
        await a.request([usual, "large"], b"", timeout=0.05)
    await eventually(lambda: udp_of(a).dropped.get("too big", 0) > 0)


async def test_links_that_want_the_same_share_a_socket(a: Node, b: Node) -> None:
    listeners = [await listening(b, "udp://127.0.0.1:0") for _ in range(4)]
    transport = udp_of(a)
    usual = await a.connect(listeners[0].uri)
    await a.connect(listeners[1].uri, idle_timeout=1.0)
    await a.connect(listeners[2].uri, high_water=1000)
    transport.options = UdpOptions(receive_buffer=100_000)
    a.send([Address(2, listeners[3].uri.partition("://")[2].encode()), "x"], b"")
    await eventually(lambda: all(each.sent or each.queued == 0 for each in transport.statistics()))
    (shared,) = transport._sockets.values()
    ports = {parse_uri(each.uri, "udp")[1] for each in listeners[:2]}
    assert {where[1] for where in shared.links} == ports
    assert a.has(usual)


async def test_what_came_to_sockets_that_are_closed_stays_counted(a: Node, b: Node) -> None:
    await b.start(Large, address="large")
    listener = await listening(b, "udp://127.0.0.1:0", "large", datagrams=LARGE)
    small = DatagramLimits(max_message=1000)
    link = await a.connect(listener.uri, datagrams=small)
    with pytest.raises(RequestTimeout):
        await a.request([link, "large"], b"", timeout=0.05)
    before = udp_of(a).dropped
    assert before["too big"] > 0
    await a.stop_worker(link)
    assert udp_of(a).dropped["too big"] >= before["too big"]
