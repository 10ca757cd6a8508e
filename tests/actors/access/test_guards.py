from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from onward.actors import (
    Instrument,
    LimitReached,
    MailboxOptions,
    Node,
    NodeLimits,
    RoutingLoop,
    Worker,
)
from onward.protocol import (
    HANDLED,
    MAX_ROUTE_LENGTH,
    Address,
    Context,
    DeliveryError,
    EmptyRoute,
    MailboxFull,
    Message,
    Route,
    RouteTooLong,
    UnknownAddress,
    address,
    route,
)
from tests.actors.test_node import FakeTransport
from tests.support.workers import Echo, Forwarder, Gate, Recorder, spawn_worker, start_worker

A, B = Address(0, b"a"), Address(0, b"b")


# --- loops --------------------------------------------------------------------------------
class Hop(Worker):
    """Does something with each message, and counts them."""

    def __init__(self, does: Callable[[Hop, Message], object]) -> None:
        super().__init__()
        self._does = does
        self.count = 0

    def handle_message(self, message: Message) -> None:
        self.count += 1
        self._does(self, message)


def other(hop: Hop) -> Address:
    return B if hop.address == A else A


LOOPS: dict[str, tuple[Callable[[Hop, Message], object], int, str]] = {
    # what two workers do that point at each other, hops at most, and how it ends
    "relays": (lambda hop, m: hop.redirect(m, (other(hop),)), 65, "route too long"),
    "relays that lengthen the way": (
        lambda hop, m: hop.redirect(m, (other(hop), hop.address)),
        65,
        "route too long",
    ),
    "proxies that lengthen the way": (
        lambda hop, m: hop.route(m._replace(onward_route=(other(hop), *m.onward_route))),
        65,
        "route too long",
    ),
    "relays that forward": (
        lambda hop, m: hop.forward(m.redirect(hop.address, other(hop))),
        65,
        "route too long",
    ),
    "proxies without a trace": (
        lambda hop, m: hop.route(m.redirect(other(hop))),
        67,
        "rerouted too often",
    ),
    "steps": (
        lambda hop, m: hop.step(m.redirect(hop.address, other(hop))),
        67,
        "rerouted too often",
    ),
    "steps that lengthen the way": (
        lambda hop, m: hop.step(m.redirect(hop.address, other(hop), hop.address)),
        65,
        "route too long",
    ),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("context", [None, Context(meta="x")], ids=["plain", "context"])
async def test_workers_that_route_in_a_loop(loop: str, context: Context | None, node: Node) -> None:
    does, most, reason = LOOPS[loop]
    a = spawn_worker(node, Hop(does), "a")
    b = spawn_worker(node, Hop(does), "b")
    node.spawn(Echo, address="echo")
    node.send("a", b"round and round", context=context)
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {reason: 1}
    assert 60 <= a.count + b.count <= most
    statistics = node.statistics()
    assert statistics.failed == 0
    assert {each.state for each in statistics.workers} == {"idle"}
    assert (await node.request("echo", b"alive")).payload == b"alive"


@pytest.mark.parametrize("loop", LOOPS)
async def test_who_asked_hears_of_the_loop(loop: str, node: Node) -> None:
    does, _, reason = LOOPS[loop]
    node.spawn(lambda: Hop(does), address="a")
    node.spawn(lambda: Hop(does), address="b")
    expected = RoutingLoop if reason == RoutingLoop.reason else RouteTooLong
    with pytest.raises(expected):
        await node.request("a", b"")
    assert node.dead_letters.by_reason == {reason: 1}


@pytest.mark.parametrize("hops", [5, MAX_ROUTE_LENGTH + 6])
async def test_the_bound_on_hops_is_the_nodes(hops: int) -> None:
    does, _, _ = LOOPS["steps"]
    async with Node(limits=NodeLimits(hops=hops)) as node:
        a = spawn_worker(node, Hop(does), "a")
        b = spawn_worker(node, Hop(does), "b")
        with pytest.raises(RoutingLoop, match=f"passed on {hops} times without a trace"):
            await node.request("a", b"")
        assert a.count + b.count == hops + 1
        node.send("a", b"without a deadline")
        await asyncio.sleep(1)
        assert node.dead_letters.by_reason == {"rerouted too often": 2}
        assert a.count + b.count == 2 * hops + 3


async def test_steps_of_one_turn(node: Node) -> None:
    recorder = await start_worker(node, Recorder(), "b", mailbox=MailboxOptions(2))
    await node.start(lambda: Hop(lambda hop, m: hop.step(m)), address="a")
    for number in range(4):
        node.send("a => b" if number else "a", b"%d" % number, return_route="x")
    await asyncio.sleep(1)
    assert recorder.messages == [Message((B,), route("x"), each, A) for each in (b"1", b"2")]
    assert node.dead_letters.by_reason == {"empty route": 1, "mailbox full": 1}
    assert node.statistics().failed == 0


async def test_an_answer_begins_a_way_of_its_own(node: Node) -> None:
    seen: list[int] = []

    class Proxy(Worker):
        def handle_message(self, message: Message) -> None:
            self.step(message)

    class PingPong(Worker):
        def handle_message(self, message: Message) -> None:
            assert message.context is not None
            seen.append(message.context.hops)
            if len(seen) < 200:
                message = message._replace(return_route=(address("proxy"), *message.return_route))
                self.reply(message, b"")

    node.spawn(Proxy, address="proxy")
    node.spawn(PingPong, address="ping")
    node.spawn(PingPong, address="pong")
    node.send("proxy => ping", b"", return_route="pong", context=Context(meta="x"))
    await asyncio.sleep(1)
    assert seen == [1] * 200
    assert node.dead_letters.total == 0


async def test_two_rules_that_point_at_each_other(node: Node) -> None:
    seen: list[int] = []

    def to(kind: int) -> Callable[[Message], Message]:
        def rule(message: Message) -> Message:
            seen.append(kind)
            return message.redirect(Address(kind, b"x"))

        return rule

    node.add_rule(200, to(201))
    node.add_rule(201, to(200))
    node.spawn(Forwarder, address="relay")
    with pytest.raises(RoutingLoop):
        await node.request("relay => 200#x", b"")
    assert len(seen) == node.limits.reroutes + 1
    assert node.dead_letters.by_reason == {"rerouted too often": 1}


async def test_a_rule_and_a_worker_that_point_at_each_other(node: Node) -> None:
    hop = spawn_worker(node, Hop(lambda hop, m: hop.route(m.redirect(Address(200, b"x")))), "a")
    node.add_rule(200, lambda message: message.redirect(A))
    with pytest.raises(RoutingLoop):
        await node.request("a", b"")
    assert hop.count <= 67


async def test_two_relays_on_two_nodes() -> None:
    class Relay(Worker):
        def __init__(self, to: Route = ()) -> None:
            super().__init__()
            self.to = to
            self.count = 0

        def handle_message(self, message: Message) -> None:
            self.count += 1
            self.redirect(message, self.to)

    async with Node("a") as a, Node("b") as b:
        on_a = spawn_worker(a, Relay(), "relay")
        on_b = spawn_worker(b, Relay(), "relay")
        name = f"memory://{id(on_b):x}"
        listener = await b.listen(name, expose=["relay"])
        link = await a.connect(name, expose=["relay"])
        b.spawn(Echo, address="echo")
        on_a.to = (link, *route("relay"))
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        for node in (a, b):
            node.dead_letters.subscribe(lambda letter: lost.set_result(letter.reason))
        # From the other node, so that its link has a name there.
        [link_b] = [each.address for each in b.statistics().workers if each.kind == "MemoryLink"]
        on_b.to = (link_b, *route("relay"))
        a.send("relay", b"")
        assert await lost == "too much work"
        assert 2 <= on_a.count + on_b.count <= MAX_ROUTE_LENGTH
        assert a.dead_letters.total + b.dead_letters.total == 1
        assert (await b.request("echo", b"alive")).payload == b"alive"
        for node in (a, b):
            assert {each.state for each in node.statistics().workers} == {"idle"}
            assert node.statistics().failed == 0
        await listener.close()


# --- redirect -----------------------------------------------------------------------------
async def pair(node: Node) -> tuple[Recorder, Recorder]:
    first = await start_worker(node, Recorder(), "a")
    second = await start_worker(node, Recorder(), "b")
    return first, second


async def test_redirect(node: Node) -> None:
    sender, receiver = await pair(node)
    context = Context(meta="x")
    message = Message(route("in => c"), route("d"), b"payload", B, context)
    sender.redirect(message, "b => e")
    sender.redirect(message, "b", Address(0, b"own"))
    sender.redirect(Message(route("in => b"), (), b""), ())
    await asyncio.sleep(0)
    assert receiver.messages == [
        Message(route("b => e => c"), route("in => d"), b"payload", A, context),
        Message(route("b => c"), route("own => d"), b"payload", A, context),
        Message(route("b"), route("in"), b"", A),
    ]


async def test_what_cannot_be_redirected_or_routed(node: Node) -> None:
    sender, _ = await pair(node)
    long = (A,) * MAX_ROUTE_LENGTH
    with pytest.raises(Exception, match="the onward route is empty"):
        sender.redirect(Message((A,), (), b""), ())
    with pytest.raises(RouteTooLong):
        sender.redirect(Message((A, A), (), b""), long)
    with pytest.raises(RouteTooLong):
        sender.redirect(Message((A,), long, b""), "b")
    with pytest.raises(RouteTooLong):
        sender.route(Message((A, *long), (), b""))
    with pytest.raises(RouteTooLong):
        sender.route(Message((A,), (A, *long), b""))


# --- who looks on -------------------------------------------------------------------------
class Watching(Instrument):
    def __init__(self) -> None:
        self.asking: dict[Address, tuple[Address | None, Route]] = {}
        self.asked_for = 0
        self.long: list[int] = []

    def request_begun(self, source: Address | None, reply: Address, onward: Route) -> None:
        self.asking[reply] = (source, onward)
        self.asked_for += 1

    def request_ended(self, reply: Address) -> None:
        del self.asking[reply]

    def long_route(self, message: Message) -> None:
        self.long.append(len(message.return_route))


async def test_requests_that_wait_are_seen(node: Node) -> None:
    watching = Watching()
    node.add_instrument(watching)
    gate = Gate()
    asking, _ = await pair(node)
    await node.start(lambda: gate, address="gate")
    tasks = [
        asyncio.ensure_future(node.request("gate => x", b"")),
        asyncio.ensure_future(asking.request("gate", b"", timeout=1)),
    ]
    await asyncio.sleep(0.5)
    assert list(watching.asking.values()) == [(None, route("gate => x")), (A, route("gate"))]
    await asyncio.sleep(1)
    assert list(watching.asking.values()) == [(None, route("gate => x"))]
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    with pytest.raises(UnknownAddress):
        await node.request("nobody", b"")
    assert watching.asking == {}
    assert watching.asked_for == 3
    gate.opened.set()


async def test_long_routes_are_seen(node: Node) -> None:
    watching = Watching()
    node.add_instrument(watching)
    node.spawn(Forwarder, address="relay")
    await pair(node)
    for length in (1, 47, 48, 63, 64):
        node.send("relay => a", b"", return_route=(B,) * length)
    await asyncio.sleep(0)
    assert watching.long == [48, 63, 64]
    assert node.dead_letters.by_reason == {"route too long": 1}


# --- deadlines ----------------------------------------------------------------------------
def deadlines(recorder: Recorder) -> list[float]:
    found = [each.context.deadline for each in recorder.messages if each.context is not None]
    return [each for each in found if each is not None]


async def test_a_request_carries_its_deadline(node: Node) -> None:
    recorder, _ = await pair(node)
    now = node.loop.time()
    for timeout in (2.0, 2.0, 8.0):
        with pytest.raises(DeliveryError):
            await node.request("a", b"", timeout=timeout)
    early = Context(deadline=node.loop.time() + 1, trace="x")
    for context in (early, Context(meta="y")):
        with pytest.raises(DeliveryError):
            await node.request("a", b"", timeout=2, context=context)
    slack = 1 + 1 / 256
    assert deadlines(recorder) == [
        now + 2 * slack,
        now + 2 + 2 * slack,
        now + 4 + 8 * slack,
        now + 13,
        now + 16,
    ]


async def test_requests_of_one_moment_share_a_context(node: Node) -> None:
    recorder, _ = await pair(node)
    asked = [asyncio.ensure_future(node.request("a", b"", timeout=64)) for _ in range(3)]
    await asyncio.sleep(0.2)
    asked.append(asyncio.ensure_future(node.request("a", b"", timeout=64)))
    await asyncio.sleep(0.2)
    asked.append(asyncio.ensure_future(node.request("a", b"", timeout=64)))
    await asyncio.sleep(0)
    contexts = [each.context for each in recorder.messages]
    assert contexts[0] is contexts[3]
    assert contexts[3] is not contexts[4]
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


# --- exposed at run time ------------------------------------------------------------------
class Outside(Recorder):
    """As a link is."""

    leaves_node = True


async def test_what_can_be_exposed() -> None:
    async with Node(limits=NodeLimits(exposed=1)) as node:
        await pair(node)
        node.spawn(Outside, address=["link", "alias"])
        for at, exposed in (("link", "nobody"), ("nowhere", "a"), ("b", "a")):
            with pytest.raises(UnknownAddress):
                node.expose(at, exposed)
        node.expose("alias", "a")
        link = (address("link"),)
        assert node.parts.guards.is_exposed(A, link)
        assert not node.parts.guards.is_exposed(B, link)
        with pytest.raises(LimitReached):
            node.expose("link", "b")
        assert node.hide("link", "a")
        assert not node.hide("link", "a")
        assert not node.hide("nowhere", "a")
        node.expose("link", "b")
        await node.stop_worker("b")
        assert not node.parts.guards.is_exposed(B, link)
        node.add_address("a", "c")
        node.expose("link", "c")
        node.remove_address("c")
        assert not node.parts.guards.is_exposed(address("c"), link)
        node.expose("link", "a")
        await node.stop_worker("link")
        assert not node.parts.guards.is_exposed(A, link)


async def test_what_is_neither_a_link_nor_a_listener_exposes_nothing(node: Node) -> None:
    await pair(node)
    with pytest.raises(UnknownAddress, match="no such link or listener: 0#b"):
        node.expose("b", "a")
    listener = await node.listen("memory://exposes")
    node.expose(listener.address, "a")
    assert node.parts.guards.is_exposed(A, (listener.address,))
    await listener.close()
    assert not node.parts.guards.exposures.listeners


async def test_the_link_that_a_way_back_begins_with(node: Node) -> None:
    await pair(node)
    node.spawn(Outside, address="link")
    node.spawn(Outside, address="other")
    link = address("link")
    assert node.parts.table.link_on(route("a => b => link => other => a")) == link
    assert node.parts.table.link_on((HANDLED, *route("a => link"))) == link  # a chain's mark
    assert node.parts.table.link_on(route("a => nobody => link")) is None  # a claim, or a request
    assert node.parts.table.link_on(route("a => b")) is None


# --- what code outside of workers sends ---------------------------------------------------
async def test_what_is_routed_from_outside_has_no_source(node: Node) -> None:
    recorder = await start_worker(node, Recorder(), "a", mailbox=MailboxOptions(2))
    node.route(Message((A,), (B,), b"1", B))
    node.route(Message((A,), (B,), b"2"))
    with pytest.raises(MailboxFull):
        node.route(Message((A,), (B,), b"3"))
    with pytest.raises(EmptyRoute):
        node.route(Message((), (B,), b"4"))
    await asyncio.sleep(0)
    node.route(Message((A,), (B,), b"5"))
    await asyncio.sleep(0)
    node.add_rule(200, lambda message: message.redirect(A))
    await node.start(Recorder, address="b")
    node.route(Message((B,), (), b""))
    node.route(Message((A,), (B,), b"another in the same pass"))
    node.route(Message((Address(200, b"x"),), (B,), b"6"))
    await asyncio.sleep(0)
    payloads = (b"1", b"2", b"5", b"another in the same pass", b"6")
    assert recorder.messages == [Message((A,), (B,), each) for each in payloads]


async def test_a_link_that_was_gone_at_once_lets_nothing(node: Node) -> None:
    node.add_transport(FakeTransport)
    gone = await node.connect("fake://x", error_replies=True)
    listener = await node.listen("fake://x", error_replies=True)
    assert not node.parts.guards.lets_error_replies((gone, listener.address))
