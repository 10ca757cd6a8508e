from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from onward.actors import Listener, Node, UnknownScheme, Worker, WouldDeadlock
from onward.protocol import Address, Message, NodeStopped, UnknownAddressType
from tests.support.compiled import interpreted
from tests.support.loops import on_both_loops
from tests.support.workers import Echo, Recorder, spawn_worker


class FakeListener:
    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.address = Address(0, b"listener")

    async def close(self) -> None: ...


class FakeTransport:
    """A transport to nowhere that says what it was asked for."""

    scheme: ClassVar[str] = "fake"
    address_type: ClassVar[int | None] = 201
    calls: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, node: Node) -> None:
        self.node = node
        self.calls.append(("made",))

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        self.calls.append(("listen", uri, expose, options))
        return FakeListener(uri)

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        self.calls.append(("connect", uri, expose, options))
        return Address(0, b"connection")

    def resolve(self, message: Message) -> Message:
        return message.redirect(Address(0, message.to.value))

    async def stop(self) -> None:
        self.calls.append(("stop",))


class NoType(FakeTransport):
    scheme: ClassVar[str] = "no-type"
    address_type: ClassVar[int | None] = None


class BrokenStop(FakeTransport):
    scheme: ClassVar[str] = "broken-stop"
    address_type: ClassVar[int | None] = None

    async def stop(self) -> None:
        raise ValueError("stop")


class HangingStop(FakeTransport):
    scheme: ClassVar[str] = "hanging-stop"
    address_type: ClassVar[int | None] = None

    async def stop(self) -> None:
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def no_calls() -> None:
    FakeTransport.calls.clear()


@on_both_loops
async def test_a_conversation() -> None:

    async with Node("home") as node:
        assert repr(node) == "<Node 'home'>"
        node.spawn(Echo, address="echo")
        assert (await node.request("echo", b"hi")).payload == b"hi"
    assert node.statistics().worker_count == 0


async def test_stop_is_idempotent() -> None:
    node = Node()
    await node.stop()
    with pytest.raises(NodeStopped):
        await node.__aenter__()

    async with Node() as other:
        await other.stop()
        await other.stop()


async def test_a_second_stop_waits_for_the_first() -> None:
    class Slow(Worker):
        async def on_stop(self) -> None:
            await asyncio.sleep(1)

    node = Node()
    await node.__aenter__()
    await node.start(Slow, address="slow")
    first = asyncio.create_task(node.stop())
    await asyncio.sleep(0.1)
    with pytest.raises(NodeStopped):
        node.spawn(Echo)
    await node.stop()
    assert not node.has("slow")
    await first


async def test_messages_can_still_be_sent_while_the_node_stops() -> None:
    class Leaving(Worker):
        async def on_stop(self) -> None:
            self.answer = await self.request("echo", b"bye")

    leaving = Leaving()
    async with Node() as node:
        node.spawn(Echo, address="echo")
        node.spawn(lambda: leaving, address="leaving")
    assert leaving.answer.payload == b"bye"


async def test_a_handler_cannot_wait_for_its_own_end(node: Node) -> None:
    errors: list[BaseException] = []

    class Suicidal(Worker):
        async def handle_message(self, message: Message) -> None:
            for stop in (self.node.stop(), self.node.stop_worker(self.address)):
                try:
                    await stop
                except WouldDeadlock as error:
                    errors.append(error)

    node.spawn(Suicidal, address="w")
    node.send("w", b"")
    await asyncio.sleep(1)
    assert len(errors) == 2
    assert node.has("w")


async def test_transports_are_made_once_and_stopped() -> None:
    async with Node() as node:
        node.add_transport(FakeTransport)
        assert FakeTransport.calls == []
        listener = await node.listen("fake://here", expose=["a", b"b"], option=1)
        assert listener.uri == "fake://here"
        address = await node.connect("fake://there")
        assert address == Address(0, b"connection")
    assert FakeTransport.calls == [
        ("made",),
        ("listen", "fake://here", frozenset({Address(0, b"a"), Address(0, b"b")}), {"option": 1}),
        ("connect", "fake://there", frozenset(), {}),
        ("stop",),
    ]
    with pytest.raises(NodeStopped):
        await node.listen("fake://here")


async def test_the_type_of_an_address_loads_its_transport(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "w")
    node.add_transport(NoType)
    node.add_transport(FakeTransport)
    node.send("201#w", b"1")
    node.send("201#w", b"2")
    await asyncio.sleep(0.1)
    assert recorder.payloads == [b"1", b"2"]
    assert FakeTransport.calls == [("made",)]
    with pytest.raises(UnknownAddressType):
        node.send("202#w", b"")
    await node.listen("no-type://x")


async def test_one_address_to_expose_is_not_taken_for_its_letters(node: Node) -> None:
    node.add_transport(FakeTransport)
    ones: tuple[Any, ...] = ("echo", b"echo", Address(0, b"echo"))
    for one in ones:
        with pytest.raises(TypeError, match="several addresses: expose="):
            await node.listen("fake://here", expose=one)
        with pytest.raises(TypeError, match="several addresses: expose="):
            await node.connect("fake://there", expose=one)


async def test_an_unknown_scheme(node: Node) -> None:
    node.add_transport(FakeTransport)
    with pytest.raises(UnknownScheme, match=r"no transport for 'x://y'.*fake.*tcp"):
        await node.listen("x://y")


async def test_transports_that_do_not_stop_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with Node() as node:
        for kind in (FakeTransport, BrokenStop, HangingStop):
            node.add_transport(kind)
            await node.connect(f"{kind.scheme}://x")
        began = node.loop.time()
        await node.stop(timeout=2)
        assert node.loop.time() - began < 3
    assert [record.getMessage() for record in caplog.records] == [
        "the transport 'hanging-stop' did not stop",
        "the transport 'broken-stop' did not stop",
    ]
    assert FakeTransport.calls[-1] == ("stop",)


@interpreted
def test_a_node_has_no_more_attributes_than_python_keeps_in_a_fast_way() -> None:
    # CPython 3.11 shares the keys of instances with fewer than 30 attributes; with more of them
    # each look at `node.parts.table.targets` is slower, and a hop by a twentieth.
    assert len(vars(Node())) < 30
