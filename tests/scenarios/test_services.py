"""Services as the reference's tests have them: echo, a proxy and a watcher over TCP, an API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from onward.actors import Node, Worker
from onward.actors.access import Access, AccessDenied, local_only
from onward.actors.services import DiscoveryService
from onward.actors.testing import Probe
from onward.actors.workers import Echo, Proxy, Tap
from onward.protocol import Message, address, route
from onward.protocol.services import (
    ApiRequest,
    ApiResponse,
    Method,
    ResponseStatus,
    decode_response,
    decode_service,
    decode_services,
    encode_metadata,
    encode_request,
)
from tests.support.transports import eventually

Nodes = tuple[Node, Node]


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    async with Node("a") as a, Node("b") as b:
        yield a, b


async def listening(node: Node, *expose: str) -> str:
    """Have a node listen on TCP; return the address of type 1 that leads there."""
    listener = await node.listen("tcp://127.0.0.1:0", expose=expose)
    return listener.uri.replace("tcp://", "1#")


async def test_an_echo_swaps_the_routes_and_leaves_the_payload(nodes: Nodes) -> None:
    a, _ = nodes
    await a.start(Echo, address="echo")
    probe = await Probe.on(a, "me")
    probe.send("echo", b"\x00not even a text\xff", return_route=["me", "and", "more"])
    answer = await probe.next()
    assert answer.payload == b"\x00not even a text\xff"
    assert answer.onward_route == route("me => and => more")
    assert answer.return_route == route("echo")


async def test_a_proxy_to_a_worker_of_its_node(nodes: Nodes) -> None:
    a, _ = nodes
    await a.start(Echo, address="echo")
    await a.start(lambda: Proxy("echo"), address="proxy")
    answer = await a.request("proxy", b"hi")
    assert (answer.payload, answer.return_route) == (b"hi", route("proxy"))


async def test_a_proxy_to_a_worker_over_tcp(nodes: Nodes) -> None:
    """By a link there is; and by an address of type 1, which is connected to once."""
    a, b = nodes
    await b.start(Echo, address="echo")
    to_b = await listening(b, "echo")
    link = await a.connect(to_b.replace("1#", "tcp://"))
    await a.start(lambda: Proxy([link, "echo"]), address="by link")
    answer = await a.request("by link", b"hi")
    assert (answer.payload, answer.return_route) == (b"hi", route("by link"))

    before = a.statistics().worker_count
    await a.start(lambda: Proxy([to_b, "echo"]), address="by address")
    for number in range(10):
        answer = await a.request("by address", bytes([number]))
        assert answer.payload == bytes([number])
        assert answer.return_route[-1] == address("echo")
    assert a.statistics().worker_count <= before + 2  # the proxy, and at most one link


async def test_a_watcher_gets_a_copy_of_each_payload(nodes: Nodes) -> None:
    """A watcher on another node: it sees what passes, and takes no part in it."""
    a, b = nodes
    watcher = await Probe.on(b, "watcher")
    to_b = await listening(b, "watcher")
    await a.start(Echo, address="echo")
    await a.start(lambda: Tap([to_b, "watcher"]), address="watched")
    answer = await a.request("watched => echo", b"hi")
    assert (answer.payload, answer.return_route) == (b"hi", route("watched => echo"))
    copies = await watcher.count(2)  # there and back
    assert [copy.payload for copy in copies] == [b"hi", b"hi"]


class Asking:
    """A client of an API over TCP."""

    def __init__(self, node: Node, api: str) -> None:
        self.node = node
        self.api = api
        self.number = 0

    async def __call__(self, method: Method, path: str, body: bytes = b"") -> ApiResponse:
        self.number += 1
        request = encode_request(ApiRequest(self.number, path, method, body))
        answer = decode_response((await self.node.request(self.api, request)).payload)
        assert answer.to == self.number
        return answer


async def test_an_api_over_tcp(nodes: Nodes) -> None:
    a, b = nodes
    await b.start(DiscoveryService, address="discovery")
    ask = Asking(a, f"{await listening(b, 'discovery')} => discovery")
    assert (await ask(Method.GET, "printer")).status is ResponseStatus.NOT_FOUND
    assert decode_services((await ask(Method.GET, "")).body) == ()
    known = encode_metadata({"paper": b"A4"})
    assert (await ask(Method.PUT, "printer", known)).status is ResponseStatus.OK
    found = decode_service((await ask(Method.GET, "printer")).body)
    assert (found.name, dict(found.metadata)) == ("printer", {"paper": b"A4"})
    assert [each.name for each in decode_services((await ask(Method.GET, "")).body)] == ["printer"]
    assert (await ask(Method.DELETE, "printer")).status is ResponseStatus.OK
    assert (await ask(Method.GET, "printer")).status is ResponseStatus.NOT_FOUND
    assert (await ask(Method.PATCH, "printer")).status is ResponseStatus.METHOD_NOT_ALLOWED


async def test_a_worker_for_its_own_node_only(nodes: Nodes) -> None:
    """Though it is exposed: what comes over the link is denied, what comes from here is not."""
    a, b = nodes
    probe = Probe(answer=lambda message: message.payload)
    await b.start(lambda: probe, address="local", access=Access(incoming=local_only))
    to_b = await listening(b, "local")
    a.send(f"{to_b} => local", b"from elsewhere")
    await eventually(lambda: b.dead_letters.by_reason == {"denied": 1})

    class Neighbour(Worker):
        async def handle_message(self, message: Message) -> None:
            self.reply(message, (await self.request("local", message.payload)).payload)

    await b.start(Neighbour, address="neighbour")
    assert (await b.request("neighbour", b"from here")).payload == b"from here"
    assert probe.payloads == [b"from here"]


async def test_a_worker_for_some_sources_only(nodes: Nodes) -> None:
    a, _ = nodes
    friend, stranger = await Probe.on(a, "friend"), await Probe.on(a, "stranger")
    seen = Probe()
    await a.start(
        lambda: seen,
        address="door",
        access=Access(incoming=lambda message: message.source == friend.address),
    )
    friend.send("door", b"let me in")
    with pytest.raises(AccessDenied):  # whoever the return route says that it is
        stranger.send("door", b"me too", return_route=["friend"])
    assert (await seen.next()).payload == b"let me in"
    assert len(seen.messages) == 1
