"""What all transports that lose nothing do alike: the same tests over each."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias

import pytest

from onward.actors import MailboxOptions, Node, Worker
from onward.protocol import (
    Context,
    DeliveryError,
    LinkLost,
    Message,
    NodeStopped,
    NotDelivered,
    RequestTimeout,
    address,
    route,
)
from onward.transports import Transport
from tests.support.transports import Echo, Recorder, Relay, Stuck, eventually

Nodes: TypeAlias = tuple[Node, Node, Node]
_names = count()


@pytest.fixture(params=["memory", "tcp", "uds", "ws"])
def uri(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """Makes URIs to listen on."""
    if request.param in {"tcp", "ws"}:
        return lambda: f"{request.param}://127.0.0.1:0"
    if request.param == "uds":
        folder = tmp_path_factory.mktemp("s")  # short: there are 107 bytes for a path
        return lambda: f"uds://{folder}/{next(_names)}"
    return lambda: f"memory://links-{next(_names)}"


def reasons(node: Node) -> dict[str, int]:
    return dict(node.dead_letters.by_reason)


async def test_the_session_example_message_by_message(nodes: Nodes, uri: Callable[[], str]) -> None:
    # The specification's "Session establishment", messages 2 to 7, from A1 to C1 and back.
    a, _, c = nodes
    a1 = await Recorder.on(a, "A1")
    c1 = await Recorder.on(c, "C1")
    listener = await c.listen(uri(), expose=["C1"])
    link_a = await a.connect(listener.uri)

    a1.send([link_a, "C1"], b"there")  # 2: onward [LinkA, C1], return [A1]
    fourth = await c1.next()
    link_c = fourth.return_route[0]
    assert fourth.onward_route == route("C1")
    assert fourth.return_route == (link_c, address("A1"))
    assert fourth.source == link_c
    assert link_c not in {link_a, address("A1")}
    assert c.has(link_c)

    c1.reply(fourth, b"back")  # 5: onward [LinkC, A1], return [C1]
    seventh = await a1.next()
    assert seventh.onward_route == route("A1")
    assert seventh.return_route == (link_a, address("C1"))
    assert seventh.source == link_a
    assert seventh.payload == b"back"

    a1.reply(seventh, b"again")  # the session goes on over the same two links
    assert (await c1.next()).return_route == (link_c, address("A1"))


async def test_requests_of_both_sides_over_one_connection(
    nodes: Nodes, uri: Callable[[], str]
) -> None:
    a, _, c = nodes
    await a.start(Echo, address="echo-a")
    recorder = await Recorder.on(c, "c1")
    listener = await c.listen(uri(), expose=["c1"])
    link_a = await a.connect(listener.uri, expose=["echo-a"])
    a.send([link_a, "c1"], b"hello", return_route="somebody")
    link_c = (await recorder.next()).return_route[0]
    answer = await c.request([link_c, "echo-a"], b"and you?")
    assert answer.payload == b"and you?"
    assert answer.return_route == (link_c, address("echo-a"))


async def test_order_is_kept(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, _, c = nodes
    listener = await c.listen(uri(), expose=["c1"])
    recorder = await Recorder.on(c, "c1")
    link = await a.connect(listener.uri)
    for number in range(900):
        a.send([link, "c1"], str(number).encode())
    await eventually(lambda: len(recorder.messages) == 900)
    assert [int(each.payload) for each in recorder.messages] == list(range(900))


async def test_a_route_over_two_links_and_a_relay(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, b, c = nodes
    await b.start(Relay, address="relay")
    await c.start(Echo, address="echo")
    to_c = await c.listen(uri(), expose=["echo"])
    link_b = await b.connect(to_c.uri)
    to_b = await b.listen(uri(), expose=["relay"], allow=[link_b])
    link_a = await a.connect(to_b.uri)
    answer = await a.request([link_a, "relay", link_b, "echo"], b"far")
    assert answer.payload == b"far"
    assert answer.return_route == (link_a, address("relay"), link_b, address("echo"))


async def test_nothing_is_reachable_unless_exposed(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, _, c = nodes
    inner = await Recorder.on(c, "inner")
    await c.start(Echo, address="echo")
    listener = await c.listen(uri())
    link = await a.connect(listener.uri)
    for target in ("inner", "nobody", "1#127.0.0.1:1", str(listener.address)):
        a.send([link, target, "x"], b"let me in", return_route="x")
    await eventually(lambda: reasons(c) == {"not exposed": 4})
    assert not inner.messages
    refused = c.dead_letters.recent[0].message
    assert refused.onward_route == route("inner", "x")
    assert refused.source == refused.return_route[0]
    # The refused side keeps the connection, and gets no answer.
    with pytest.raises(RequestTimeout):
        await a.request([link, "echo"], b"hello?", timeout=0.05)
    assert a.has(link)


async def test_an_exposed_address_nobody_has(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, _, c = nodes
    listener = await c.listen(uri(), expose=["gone"])
    link = await a.connect(listener.uri)
    a.send([link, "gone"], b"")
    await eventually(lambda: reasons(c) == {"no such worker": 1})


async def test_the_way_back_is_open_only_after_a_message_went_out(
    nodes: Nodes, uri: Callable[[], str]
) -> None:
    a, _, c = nodes
    a1 = await Recorder.on(a, "a1")
    c1 = await Recorder.on(c, "c1")
    listener = await c.listen(uri(), expose=["c1"])
    link_a = await a.connect(listener.uri)
    a.send([link_a, "c1"], b"", return_route="elsewhere")
    link_c = (await c1.next()).return_route[0]
    c.send([link_c, "a1"], b"unasked")
    await eventually(lambda: reasons(a) == {"not exposed": 1})
    a1.send([link_a, "c1"], b"question")
    await c1.next()
    c.send([link_c, "a1"], b"answer")
    c.send([link_c, "a1"], b"another")
    assert [(await a1.next()).payload for _ in range(2)] == [b"answer", b"another"]


async def test_the_way_back_leads_no_further_than_it_was_said(
    nodes: Nodes, uri: Callable[[], str]
) -> None:
    # `a` exposes nothing. That its relay sent something out lets nobody use the relay.
    a, _, c = nodes
    a1, secret = await Recorder.on(a, "a1"), await Recorder.on(a, "secret")
    await a.start(Relay, address="relay")
    c1 = await Recorder.on(c, "c1")
    listener = await c.listen(uri(), expose=["c1"])
    link_a = await a.connect(listener.uri)
    a1.send(["relay", link_a, "c1"], b"question")
    question = await c1.next()
    link_c = question.return_route[0]
    for onward in ("relay => secret", "relay", "a1", "relay => a1 => secret"):
        c.send([link_c, *route(onward)], b"let me in")
    await eventually(lambda: reasons(a) == {"not exposed": 4})
    c1.reply(question, b"answer")
    assert (await a1.next()).payload == b"answer"
    assert not secret.messages


async def test_a_request_takes_one_answer(nodes: Nodes, uri: Callable[[], str]) -> None:
    class Twice(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, b"1")
            self.reply(message, b"2")

    a, _, c = nodes
    await c.start(Twice, address="twice")
    listener = await c.listen(uri(), expose=["twice"])
    link = await a.connect(listener.uri)
    assert (await a.request([link, "twice"], b"")).payload == b"1"
    await eventually(lambda: reasons(a) == {"not exposed": 1})


async def test_only_the_tracing_text_of_the_context_crosses(
    nodes: Nodes, uri: Callable[[], str]
) -> None:
    a, _, c = nodes
    listener = await c.listen(uri(), expose=["c1"])
    recorder = await Recorder.on(c, "c1")
    link = await a.connect(listener.uri)
    later = a.loop.time() + 60.0
    a.send([link, "c1"], b"", context=Context(later, "span", "here"))
    a.send([link, "c1"], b"", context=Context(later, None, "here"))
    for trace in ("span", None):
        context = (await recorder.next()).context
        assert context is not None
        assert context._replace(outside=None) == Context(trace=trace)


async def test_a_message_for_the_link_itself(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, _, c = nodes
    link = await a.connect((await c.listen(uri())).uri)
    with pytest.raises(Exception, match="the onward route is empty"):
        await a.request(link, b"who are you?")


async def test_routes_that_grew_too_long_are_dropped_on_arrival(
    nodes: Nodes, uri: Callable[[], str]
) -> None:
    a, _, c = nodes
    listener = await c.listen(uri(), expose=["c1"])
    link = await a.connect(listener.uri)
    a.send([link, "c1"], b"", return_route=["x"] * 64)
    await eventually(lambda: sum(reasons(c).values()) == 1)
    assert len(c.dead_letters.recent[0].message.return_route) == 65


async def test_closing_the_listener_ends_its_links(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, _, c = nodes
    listener = await c.listen(uri(), expose=["stuck"])
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck")
    link = await a.connect(listener.uri, **no_reconnect(listener.uri))
    waiting = asyncio.create_task(a.request([link, "stuck"], b""))
    await eventually(lambda: c.statistics().workers and _busy(c, "stuck"))
    await listener.close()
    await listener.close()  # again is nothing
    with pytest.raises(LinkLost):
        await waiting
    await eventually(lambda: not a.has(link))
    assert not c.has(listener.address)
    with pytest.raises(NotDelivered):
        await a.connect(listener.uri)
    stuck.go_on.set()


async def test_stopping_a_link_ends_the_other(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, _, c = nodes
    recorder = await Recorder.on(c, "c1")
    listener = await c.listen(uri(), expose=["c1"])
    link = await a.connect(listener.uri)
    a.send([link, "c1"], b"first")
    link_c = (await recorder.next()).return_route[0]
    a.send([link, "c1"], b"last")
    await a.stop_worker(link)
    assert (await recorder.next()).payload == b"last"
    await eventually(lambda: not c.has(link_c))
    with pytest.raises(DeliveryError):
        a.send([link, "c1"], b"")


async def test_a_full_mailbox_holds_the_link_up_and_loses_nothing(
    nodes: Nodes, uri: Callable[[], str]
) -> None:
    a, _, c = nodes
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=10))
    listener = await c.listen(uri(), expose=["stuck"])
    link = await a.connect(listener.uri)
    for number in range(500):
        a.send([link, "stuck"], str(number).encode())
    await eventually(lambda: _waiting(c, "stuck") == 10)
    stuck.go_on.set()
    await eventually(lambda: len(stuck.messages) == 500)
    assert [int(each.payload) for each in stuck.messages] == list(range(500))
    assert reasons(c) == {}


async def test_nobody_listens(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, _, c = nodes
    listener = await c.listen(uri())
    await listener.close()
    with pytest.raises(NotDelivered, match="link down"):
        await a.connect(listener.uri)


async def test_an_address_in_use(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, _, c = nodes
    listener = await c.listen(uri())
    workers = a.statistics().worker_count
    with pytest.raises(OSError, match=r"in use|is there already"):
        await a.listen(listener.uri)
    assert a.statistics().worker_count == workers


@pytest.mark.parametrize("ticks", range(12))
async def test_a_node_that_stops_while_it_begins_to_listen(
    uri: Callable[[], str], ticks: int
) -> None:
    where = uri()
    if where.endswith(":0"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            where = where[:-1] + str(free.getsockname()[1])
    node = Node("brief")
    await node.__aenter__()
    listening = asyncio.create_task(node.listen(where))
    for _ in range(ticks):
        await asyncio.sleep(0)
    await node.stop()
    try:
        listener = await listening
    except NodeStopped:
        pass
    else:
        assert not node.has(listener.address)
    async with Node("later") as later:
        with pytest.raises(NotDelivered, match="link down"):
            await later.connect(where)


@pytest.mark.parametrize("ticks", range(8))
async def test_listening_that_is_given_up_leaves_nothing(
    nodes: Nodes, uri: Callable[[], str], ticks: int
) -> None:
    a, *_ = nodes
    listening = asyncio.create_task(a.listen(uri()))
    for _ in range(ticks):
        await asyncio.sleep(0)
    if listening.cancel():
        await asyncio.wait([listening])
        await eventually(lambda: a.statistics().worker_count == 0)


async def test_a_closed_listener_is_forgotten(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, *_ = nodes
    closed = weakref.WeakSet[object]()

    async def listen(by_its_worker: bool) -> None:
        listener = await a.listen(uri())
        closed.add(listener)
        await (a.stop_worker(listener.address) if by_its_worker else listener.close())

    for by_its_worker in (False, True) * 5:
        await listen(by_its_worker)
    await eventually(lambda: gc.collect() or not closed)


async def test_what_is_not_an_option(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, *_ = nodes
    with pytest.raises(TypeError):
        await a.listen(uri(), no_such_option=1)
    with pytest.raises(TypeError):
        await a.connect(uri().replace(":0", ":1"), no_such_option=1)


async def test_what_is_not_a_uri(nodes: Nodes, uri: Callable[[], str]) -> None:
    a, *_ = nodes
    scheme = uri().partition(":")[0]
    for bad in (f"{scheme}://", f"{scheme}://x/path?query"):
        with pytest.raises(ValueError, match="not"):
            await a.listen(bad)


def test_the_nodes_may_be_on_different_loops(uri: Callable[[], str]) -> None:
    async def near(where: str) -> None:
        async with Node("near") as node:
            link = await node.connect(where)
            for number in range(20):
                answer = await node.request([link, "echo"], str(number).encode())
                assert answer.payload == str(number).encode()

    with Node.in_background("far") as far:
        far.start(Echo, address="echo")
        listener = far.listen(uri(), expose=["echo"])
        asyncio.run(near(listener.uri))


def no_reconnect(uri: str) -> dict[str, Any]:
    return {} if uri.startswith("memory:") else {"reconnect": False}


def _waiting(node: Node, name: str) -> int:
    return next(each.waiting for each in node.statistics().workers if each.address == address(name))


def _busy(node: Node, name: str) -> bool:
    return any(
        each.address == address(name) and each.state == "busy" for each in node.statistics().workers
    )


def test_both_are_transports() -> None:
    from onward.transports import MemoryTransport, TcpTransport

    assert issubclass(MemoryTransport, Transport)
    assert issubclass(TcpTransport, Transport)
