"""Transports on real sockets: by the name of a host, there and back, disconnects, recovery."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from onward.actors import Node, Worker
from onward.actors.testing import Probe
from onward.protocol import Address, LinkDown, Message, RequestTimeout, UnknownAddress, address
from tests.support.transports import eventually
from tests.support.workers import start_worker

Nodes = tuple[Node, Node]
ROUNDS = 50


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    async with Node("a") as a, Node("b") as b:
        yield a, b


def echo(message: Message) -> bytes:
    return message.payload


def port_of(uri: str) -> int:
    return int(uri.rpartition(":")[2])


class Player(Worker):
    """Sends a ball back until it has been hit often enough."""

    def __init__(self) -> None:
        super().__init__()
        self.hits = 0

    def handle_message(self, message: Message) -> None:
        self.hits += 1
        if self.hits < ROUNDS:
            self.reply(message, message.payload)


async def test_tcp_by_the_name_of_a_host(nodes: Nodes) -> None:
    a, b = nodes
    await Probe.on(b, "echo", answer=echo)
    listener = await b.listen("tcp://127.0.0.1:0", expose=["echo"])
    port = port_of(listener.uri)
    assert (await a.request(f"1#localhost:{port} => echo", b"by name")).payload == b"by name"
    link = await a.connect(f"tcp://localhost:{port}")
    assert (await a.request([link, "echo"], b"by a link")).payload == b"by a link"


async def test_tcp_ping_pong(nodes: Nodes) -> None:
    a, b = nodes
    ping = await start_worker(a, Player(), "ping")
    pong = await start_worker(b, Player(), "pong")
    listener = await b.listen("tcp://127.0.0.1:0", expose=["pong"])
    a.send(f"1#127.0.0.1:{port_of(listener.uri)} => pong", b"ball", return_route="ping")
    await eventually(lambda: (ping.hits, pong.hits) == (ROUNDS - 1, ROUNDS))


async def test_two_tcp_connections_to_one_listener_are_kept_apart(nodes: Nodes) -> None:
    a, b = nodes
    seen = await Probe.on(b, "echo", answer=echo)
    listener = await b.listen("tcp://127.0.0.1:0", expose=["echo"])
    links = [await a.connect(listener.uri) for _ in range(2)]
    for link in links:
        answer = await a.request([link, "echo"], link.value)
        assert answer.payload == link.value
        assert answer.return_route == (link, address("echo"))
    assert len({message.return_route[0] for message in seen.messages}) == 2
    await a.stop_worker(links[0])
    assert (await a.request([links[1], "echo"], b"still")).payload == b"still"


async def test_after_a_disconnect_the_workers_are_gone_and_sending_fails(nodes: Nodes) -> None:
    a, b = nodes
    seen = await Probe.on(b, "echo", answer=echo)
    listener = await b.listen("tcp://127.0.0.1:0", expose=["echo"])
    link = await a.connect(listener.uri)
    await a.request([link, "echo"], b"hi")
    other = seen.messages[0].return_route[0]
    await a.stop_worker(link)
    await eventually(lambda: not b.has(other))
    with pytest.raises(UnknownAddress):
        a.send([link, "echo"], b"too late")
    with pytest.raises(UnknownAddress):
        b.send([other, "whoever"], b"too late")


async def test_a_tcp_listener_that_was_stopped_refuses(nodes: Nodes) -> None:
    a, b = nodes
    listener = await b.listen("tcp://127.0.0.1:0", expose=["echo"])
    await b.stop_worker(listener.address)
    with pytest.raises(LinkDown):
        await a.connect(listener.uri)


async def test_udp_works_again_when_the_other_side_is_back(nodes: Nodes) -> None:
    a, b = nodes
    await Probe.on(b, "echo", answer=echo)
    listener = await b.listen("udp://127.0.0.1:0", expose=["echo"])
    link = await a.connect(listener.uri)
    assert (await a.request([link, "echo"], b"before")).payload == b"before"
    await b.stop_worker(listener.address)
    with pytest.raises(RequestTimeout):
        await a.request([link, "echo"], b"meanwhile", timeout=0.05)
    await b.listen(listener.uri, expose=["echo"])
    assert (await a.request([link, "echo"], b"after")).payload == b"after"


async def test_a_large_message_over_udp(nodes: Nodes) -> None:
    a, b = nodes
    await Probe.on(b, "echo", answer=echo)
    listener = await b.listen("udp://127.0.0.1:0", expose=["echo"])
    payload = bytes(range(256)) * 200
    answer = await a.request([Address.parse(f"2#{listener.uri[6:]}"), "echo"], payload)
    assert answer.payload == payload
