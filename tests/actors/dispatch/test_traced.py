"""Reports of hops, on their way through names."""

from __future__ import annotations

from asyncio import sleep

from onward.actors import Worker
from onward.actors.dispatch import DISPATCH, CircuitConsumer, CircuitProducer, Dispatcher
from onward.actors.dispatch._arrival import PLAIN, Arrival, CopyPath, PlainPath, ProducerPath
from onward.actors.dispatch._traced import TracedPaths
from onward.actors.tracing import HopTracer, trace
from onward.protocol import Context, Message, NoRoute, route
from onward.protocol._tracing import tracing_of_report
from onward.protocol.dispatch import Mechanism, Semantics
from onward.transports.simulated import SimulatedNetwork
from tests.support.workers import Echo, start_worker

MARKED = Context(trace='{"some":"trace"}')
ID = "0" * 32


def arrival(way: PlainPath | CopyPath | ProducerPath | None, context: Context | None) -> Arrival:
    message = Message((), (), b"", None, context)
    return Arrival(message, False, ("a", b"1", b"2"), PLAIN, way)


def plain(back: str) -> PlainPath:
    return PlainPath(Message(route("x"), route(back), b"", None, None))


def test_the_way_of_a_marked_message_is_kept() -> None:
    sent: list[Message] = []
    ways = TracedPaths(sent.append)
    ways.note(b"1", arrival(plain("back"), MARKED))
    ways.note(b"2", arrival(CopyPath(b"1"), MARKED))
    ways.note(b"3", arrival(plain("other"), None))
    ways.note(b"4", arrival(ProducerPath(1, 1), MARKED))
    report = Message(route("x"), (), b"report", None, MARKED)
    assert [ways.pass_on(b"%d" % each, report) for each in range(1, 6)] == [True, True] + [
        False
    ] * 3
    assert [each.onward_route for each in sent] == [route("back")] * 2
    assert sent[0].payload == b"report"


def test_as_many_are_kept_as_the_limit_says() -> None:
    ways = TracedPaths(lambda _: None)
    for each in range(1001):
        ways.note(b"%d" % each, arrival(plain("back"), MARKED))
    report = Message(route("x"), (), b"", None, None)
    assert [ways.pass_on(each, report) for each in (b"0", b"1", b"1000")] == [False, True, True]


def test_a_report_that_has_no_way_any_more() -> None:
    def dispatch(message: Message) -> None:
        raise NoRoute(str(message.onward_route))

    ways = TracedPaths(dispatch)
    ways.note(b"1", arrival(plain("back"), MARKED))
    assert not ways.pass_on(b"1", Message(route("x"), (), b"", None, None))


def test_what_is_marked_as_a_report_has_to_be_one() -> None:
    ways = TracedPaths(lambda _: None)
    for context in (None, MARKED, Context(trace="nonsense"), Context(trace=tracing_of_report(ID))):
        assert not ways.is_report(Message(route("x"), (), b"no report", None, context))


async def test_a_message_is_followed_over_three_nodes(network: SimulatedNetwork) -> None:
    nodes = [await network.node(name) for name in "abc"]
    dispatchers = [await Dispatcher.attach(node) for node in nodes]
    for node in nodes:
        node.add_instrument(HopTracer(node))
        await node.listen(f"sim://{node.name}", expose=[DISPATCH])
    await dispatchers[0].neighbour("sim://b")
    await dispatchers[1].neighbour("sim://c")
    await start_worker(nodes[2], Echo(), "shop")
    await dispatchers[2].consume("orders", "shop")
    await sleep(10)
    found = await trace(nodes[0], "34#orders", b"12 apples")
    assert found.answer is not None
    assert found.answer.payload == b"12 apples"
    assert {"a", "b", "c"} <= {clock.name for clock in found.clocks}
    # Tokens of copies never report, nor do the links that the answer goes back over.
    assert found.gaps == ()
    assert "Echo" in {hop.report.kind for hop in found.hops}
    assert dispatchers[0].statistics().outcomes == {"accepted": 1}


async def test_a_trace_goes_over_no_circuit(network: SimulatedNetwork) -> None:
    nodes = [await network.node(name) for name in "ab"]
    dispatchers = [await Dispatcher.attach(node) for node in nodes]
    for node, dispatcher in zip(nodes, dispatchers, strict=True):
        node.add_instrument(HopTracer(node))
        await node.listen(f"sim://{node.name}", expose=[DISPATCH])
        dispatcher.provision("jobs", Semantics(mechanism=Mechanism.LINK))
    await dispatchers[0].neighbour("sim://b")
    got: list[bytes] = []

    async def keep(circuit: CircuitProducer | CircuitConsumer) -> None:
        assert isinstance(circuit, CircuitConsumer)
        async for delivery in circuit:
            got.append(delivery.payload)
            delivery.accept()

    dispatchers[1].serve("jobs", keep)
    await sleep(10)
    producer = await dispatchers[0].attach_producer("jobs")

    class Through(Worker):
        async def handle_message(self, message: Message) -> None:
            assert message.context is not None
            await producer.send(message.payload)
            self.reply(message, b"done")

    await start_worker(nodes[0], Through(), "through")
    # A message by name gets into none, and what a worker sends over one is another message.
    refused = await trace(nodes[0], "34#jobs", b"12 apples")
    assert (refused.answer, got) == (None, [])
    found = await trace(nodes[0], "through", b"12 apples")
    assert found.answer is not None
    assert got == [b"12 apples"]
    assert {hop.node for hop in (*refused.hops, *found.hops)} == {"a"}
