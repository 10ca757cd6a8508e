"""Requests that name a route instead of tags."""

from __future__ import annotations

import pytest

from onward.actors import Node, NodeLimits, Pending, Worker
from onward.actors.broker import Broker, BrokerOptions, Handlers, Request, WaitingOptions
from onward.protocol import Address, Message, UnknownAddress
from onward.transports.client import RequestRejected, connect
from tests.support.rsocket_peer import *
from tests.support.workers import Echo, Failing, Forwarder, Recorder

ROUTE = b"message/x.onward.route.v0"
REJECTED, CANCELED, INVALID = 0x202, 0x203, 0x204


def to(route: str | bytes) -> bytes:
    """Return metadata that name a route."""
    return composite((ROUTE, route.encode() if isinstance(route, str) else route))


async def answered(peer: Peer, frame: bytes) -> tuple[int, str]:
    """Send a request that is answered with an error."""
    ((_, code, text),) = errors(await peer.ask(frame))
    return code, text


async def with_workers(w: World) -> Recorder:
    recorder = Recorder()
    await w.node.start(Echo, address="echo")
    await w.node.start(Forwarder, address="relay")
    await w.node.start(Failing, address="failing")
    await w.node.start(lambda: recorder, address="recorder")
    return recorder


@pytest.mark.parametrize("route", ["echo", "0#echo", "relay => echo", "relay => 0#relay => echo"])
@pytest.mark.parametrize("fragments", [False, True])
@in_world(expose=("echo", "relay"))
async def test_a_worker_is_asked_by_its_name(w: World, route: str, fragments: bool) -> None:
    await with_workers(w)
    requester = await w.requester()
    asked = [request(RR, 1, to(route), b"data")]
    if fragments:
        asked = [request(RR, 1, to(route), b"da", flags=F), payload(1, b"ta")]
    assert await requester.ask(*asked) == [payload(1, b"data", N | C)]
    assert w.listener.statistics().refused == 0


@in_world(expose=("recorder",))
async def test_a_request_without_an_answer(w: World) -> None:
    recorder = await with_workers(w)
    requester = await w.requester()
    sent = request(FNF, 1, to("recorder"), b"once"), push(to("recorder"))
    assert await requester.ask(*sent) == []
    assert recorder.payloads == [b"once", b""]
    assert [each.return_route for each in recorder.messages] == [(), ()]


@pytest.mark.parametrize(
    ("route", "code", "text"),
    [
        ("recorder", REJECTED, "not delivered: the destination (not exposed)"),
        ("nobody", REJECTED, "not delivered: the destination (not exposed)"),
        ("broker", REJECTED, "not delivered: the destination (not exposed)"),
        ("1#10.0.0.9:1 => echo", REJECTED, "not delivered: the destination (not exposed)"),
        ("relay => recorder", REJECTED, "not delivered: the destination (not exposed)"),
        ("gone", REJECTED, "not delivered: the destination (no such worker)"),
        ("failing", CANCELED, ""),
        ("9#x", REJECTED, ""),
        ("0#", INVALID, ""),
        ("256#a", INVALID, ""),
        ("", INVALID, ""),
        (b"\xff", INVALID, "route: not UTF-8"),
        ("a" * 1025, INVALID, "route: over 1024 bytes"),
        (" => ".join("a" * 200), INVALID, ""),
    ],
)
@in_world(expose=("echo", "relay", "gone", "failing", "9#x"))
async def test_a_route_that_is_refused(w: World, route: str | bytes, code: int, text: str) -> None:
    recorder = await with_workers(w)
    requester = await w.requester()
    got_code, got_text = await answered(requester, request(RR, 1, to(route), b"!fail"))
    assert (got_code, recorder.messages) == (code, [])
    assert text in got_text
    assert "10.0.0.1" not in got_text


@in_world()
async def test_nothing_is_exposed_by_default(w: World) -> None:
    await with_workers(w)
    requester = await w.requester()
    code, _ = await answered(requester, request(RR, 1, to("echo")))
    assert code == REJECTED
    assert w.node.statistics().denied == 1
    w.node.expose(w.listener.address, "echo")
    assert await requester.ask(request(RR, 3, to("echo"), b"x")) == [payload(3, b"x", N | C)]
    assert w.node.hide(w.listener.address, "echo")
    code, _ = await answered(requester, request(RR, 5, to("echo")))
    assert code == REJECTED


@in_world(expose=("relay",), allow=("ec*",))
async def test_where_a_message_may_go_on_to(w: World) -> None:
    await with_workers(w)
    requester = await w.requester()
    sent = request(RR, 1, to("relay => echo"), b"x")
    assert await requester.ask(sent) == [payload(1, b"x", N | C)]
    code, _ = await answered(requester, request(RR, 3, to("relay => failing"), b"x"))
    assert code == REJECTED
    code, _ = await answered(requester, request(RR, 5, to("echo"), b"x"))
    assert code == REJECTED


@in_world(expose=("echo",))
async def test_a_stream_takes_no_route(w: World) -> None:
    await with_workers(w)
    requester = await w.requester()
    code, text = await answered(requester, request(STREAM, 1, to("echo"), n=1))
    assert (code, "request/response and fire-and-forget only" in text) == (REJECTED, True)


@in_world()
async def test_tags_as_a_route_are_an_address(w: World) -> None:
    requester, destination = await w.pair()
    sent = request(STREAM, 1, to("32#service=a"), b"x", n=3)
    assert await requester.ask(sent) == []
    assert await destination.received() == [restamped(sent, 2)]
    assert await destination.ask(payload(2, b"1", N), payload(2, b"", C)) == []
    assert await requester.received() == [payload(1, b"1", N), payload(1, b"", C)]


@in_world(expose=("relay",), allow=("32#*",))
async def test_handlers_get_a_request_by_a_route(w: World) -> None:
    handlers = Handlers()
    seen: list[Request] = []

    @handlers.response
    async def answer(request: Request) -> bytes:
        seen.append(request)
        return request.data

    await with_workers(w)
    w.broker.serve(handlers, service="h")
    requester = await w.requester()
    for stream, route in ((1, "32#service=h"), (3, "relay => 32#service=h")):
        sent = request(RR, stream, to(route), b"x")
        assert await requester.ask(sent) == [payload(stream, b"x", N | C)]
    assert [(each.data, each.tags, each.origin) for each in seen] == [(b"x", (), None)] * 2


class Cleans(Worker):
    """A gate: passes every message on with another payload."""

    def handle_message(self, message: Message) -> None:
        self.step(message, payload=b"clean")


class Asks(Worker):
    """A gateway: makes a request of its own, in the context of the one in hand, and answers."""

    async def handle_message(self, message: Message) -> None:
        onward = message.onward_route[1:]
        got = await self.request(onward, b"clean", context=message.context)
        self.node.route(message.reply(got.payload + b"!", self.address))


@pytest.mark.parametrize(("gate", "end"), [(Cleans, b""), (Asks, b"!")])
@in_world(expose=("gate",), allow=("32#*",))
async def test_a_destination_gets_what_a_gate_sends_on(
    w: World, gate: type[Worker], end: bytes
) -> None:
    await w.node.start(gate, address="gate")
    requester, destination = await w.pair()
    assert await requester.ask(request(RR, 1, to("gate => 32#service=a"), b"secret")) == []
    (got,) = await destination.received()
    assert (stream_of(got), got[-5:], b"secret" in got) == (2, b"clean", False)
    assert await destination.ask(payload(2, b"answer", N | C)) == []
    assert await requester.received() == [payload(1, b"answer" + end, N | C)]


@in_world(expose=("gate",), allow=("32#*",))
async def test_handlers_get_what_a_gate_sends_on(w: World) -> None:
    handlers = Handlers()
    seen: list[bytes] = []

    @handlers.response
    async def answer(request: Request) -> bytes:
        seen.append(request.data)
        return b"answer"

    @handlers.fire_and_forget
    async def take(request: Request) -> None:
        seen.append(request.data)

    await w.node.start(Cleans, address="gate")
    w.broker.serve(handlers, service="h")
    requester = await w.requester()
    asked = to("gate => 32#service=h")
    assert await requester.ask(request(RR, 1, asked, b"secret")) == [payload(1, b"answer", N | C)]
    assert await requester.ask(request(FNF, 3, asked, b"secret")) == []
    assert seen == [b"clean", b"clean"]


@pytest.mark.parametrize("refusal", [error(2, 0x201, b"no"), None])
@in_world(
    BrokerOptions(waiting=WaitingOptions(no_route_timeout=0)), expose=("gate",), allow=("32#*",)
)
async def test_what_a_gate_has_sent_on_in_vain_fails_the_request(
    w: World, refusal: bytes | None
) -> None:
    await w.node.start(Cleans, address="gate")
    requester = await w.requester()
    sent = request(RR, 1, to("gate => 32#service=a"), b"secret")
    if refusal is None:  # no destination
        assert await answered(requester, sent) == (CANCELED, "worker failed: the destination")
    else:
        destination = await w.destination()
        assert await requester.ask(sent) == []
        assert len(await destination.received()) == 1
        assert await destination.ask(refusal) == []
        ((_, code, _),) = errors(await requester.received())
        assert code == CANCELED


@in_world(
    BrokerOptions(waiting=WaitingOptions(no_route_timeout=5, max_messages=8)),
    expose=("gate",),
    allow=("32#*",),
    settles=False,
)
async def test_what_a_gate_sends_on_waits_in_the_share_of_its_requester(w: World) -> None:
    await w.node.start(Cleans, address="gate")
    asked = [request(FNF, n, to("gate => 32#service=a"), b"x") for n in range(1, 20, 2)]
    for host, waiting in (("10.0.0.1", 5), ("10.0.0.1", 5), ("10.0.0.2", 6)):
        assert await (await w.requester(host)).ask(*asked) == []
        assert w.broker.index.waiting().messages == waiting


@pytest.mark.parametrize("kind", [RR, FNF])
@pytest.mark.parametrize("route", ["88#x", "relay => 88#x", "step => 88#x"])
@in_world(expose=("88#*", "relay", "step"), limits=NodeLimits(pending=8), settles=False)
async def test_one_connection_leaves_room_for_messages_that_wait_for_a_rule(
    w: World, kind: int, route: str
) -> None:
    await w.node.start(Forwarder, address="relay")
    await w.node.start(Cleans, address="step")
    w.node.add_rule(88, lambda _: Pending())
    pending = w.node.parts.router.pending
    for kept in (4, 6):  # half of the room each time
        requester = await w.requester()
        await requester.ask(*(request(kind, n, to(route), b"x") for n in range(1, 32, 2)))
        assert len(pending) == kept
    w.node.send("88#x", b"own")
    assert len(pending) == 7


@in_world(expose=("step",), allow=("nobody",), limits=NodeLimits(link_error_replies=2))
async def test_one_connection_leaves_error_replies_to_the_others(w: World) -> None:
    w.node.parts.undeliverable.error_replies.on = True
    await w.node.start(Cleans, address="step")
    sent = [request(RR, n, to("step => nobody"), b"x") for n in range(1, 12, 2)]
    for replies in (2, 4):
        await (await w.requester()).ask(*sent)
        assert w.node.statistics().error_replies == replies


@in_world(expose=("recorder",))
async def test_an_address_frame_counts_and_not_the_route(w: World) -> None:
    recorder = await with_workers(w)
    requester, destination = await w.pair()
    both = composite((ROUTE, b"recorder"), (BROKER_FRAME, address("a")))
    assert await requester.ask(request(FNF, 1, both)) == []
    assert len(await destination.received()) == 1
    assert recorder.messages == []


@in_world(expose=("recorder",))
async def test_a_worker_that_never_answers_leaves_the_requester_to_cancel(w: World) -> None:
    recorder = await with_workers(w)
    requester = await w.requester()
    assert await requester.ask(request(RR, 1, to("recorder"), b"x")) == []
    requester.die()
    await w.loop.idle()
    with pytest.raises(UnknownAddress):
        recorder.reply(recorder.messages[0], b"late")


class Blames(Worker):
    """Answers with an error reply."""

    def handle_message(self, message: Message) -> None:
        self.node.answer_error(message, "out of stock")


async def test_a_route_to_another_node() -> None:
    async with Node("far", error_replies=True) as far:
        await far.start(Echo, address="echo")
        await far.start(Blames, address="blames")
        listener = await far.listen(
            "tcp://127.0.0.1:0", expose=["echo", "blames"], error_replies=True
        )
        where = listener.uri.removeprefix("tcp://")
        async with Node("edge") as node:
            broker = await Broker.attach(node)
            edge = await node.listen(
                "rsocket+tcp://127.0.0.1:0", broker=broker, expose=["1#*"], allow=["*"]
            )
            async with connect(edge.uri) as client:
                route = (Address(1, where.encode()), Address(0, b"echo"))
                assert (await client.request(route, b"hi")).data == b"hi"
                blamed = (route[0], Address(0, b"blames"))
                with pytest.raises(RequestRejected, match="out of stock"):
                    await client.request(blamed, b"hi")
