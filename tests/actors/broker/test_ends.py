"""An exchange in elements: a requester that knows no frames, and the destinations it can ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onward.actors import Node, Worker
from onward.actors.broker import (
    Answer,
    Broker,
    BrokerOptions,
    DestinationEnd,
    Exchange,
    Handlers,
    Incoming,
    Interaction,
    Request,
    StartEnd,
    WaitingOptions,
)
from onward.actors.broker._exchange import CANCELED, DELIVER, FAILED
from onward.protocol import Address, Context, Message, OnwardError, Route
from tests.support.compiled import COMPILED
from tests.support.transports import eventually
from tests.support.workers import Echo, start_worker

if COMPILED:
    pytest.skip("a compiled class has no interpreted subclass", allow_module_level=True)

HERE = Address(0, b"edge")


class Edge(Worker):
    """The worker of a requester of another protocol; it takes the answers of workers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[bytes, Elements] = {}

    def handle_message(self, message: Message) -> None:
        self.asked[message.onward_route[1].value].answer(message.payload)

    def ask(self, exchange: Elements, query: str) -> None:
        context = Context(meta=exchange)
        message = Message((Address(32, query.encode()),), (HERE,), b"", HERE, context)
        self.node.parts.router.dispatch_or_lose(message)


class Elements(Exchange):
    """A request in elements, and the requester's end of it: all that came is noted."""

    __module__ = "onward.edge"  # only the package itself may extend it

    def __init__(self, edge: Edge, interaction: Interaction, data: bytes = b"") -> None:
        self.size = len(data)
        self.ended = False
        self.began = edge.node.loop.time()
        self.route = self.withdraw = self.handed = self.log = None
        self.edge = edge
        self.interaction = interaction
        self.sent = data
        self.got: list[object] = []
        self.there: DestinationEnd | None = None
        self.outcomes: list[int] = []

    # --- the request --------------------------------------------------------------------------

    def wait(self) -> None:
        """Hold nothing but the request."""

    def fail(self, error: OnwardError) -> None:
        self.got.append(str(error))
        self.end(0.0, FAILED)

    def data(self) -> bytes:
        return self.sent

    def request(self) -> Request:
        return Request(self.sent)

    def whole(self, then: Callable[[], object]) -> bool:
        del then
        return True

    def answered_once(self) -> bool:
        return self.interaction is Interaction.RESPONSE

    def return_route(self) -> Route:
        token = str(id(self)).encode()
        self.edge.asked[token] = self
        return (HERE, Address(0, token))

    def answer(self, payload: bytes) -> None:
        self.element(payload, None, complete=True)

    def start(self, start: StartEnd) -> DestinationEnd:
        self.there = there = start(self.interaction, self.request(), self, HERE)
        self.withdraw = there.cancel
        self.forwarded()
        return there

    def end(self, now: float = 0.0, outcome: int = DELIVER) -> None:
        if not self.ended:
            self.outcomes.append(outcome)
        super().end(now, outcome)

    # --- the requester's end ------------------------------------------------------------------

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        self.got.append(data if metadata is None else (data, metadata))
        if complete:
            self.end(self.edge.node.loop.time())

    def complete(self) -> None:
        self.got.append("complete")
        self.end()

    def error(self, code: int, text: str) -> None:
        self.got.append((code, text))
        self.end(0.0, FAILED)

    def request_n(self, n: int) -> None:
        self.got.append(n)

    def cancel_input(self) -> None:
        self.got.append("no more")


def handlers() -> Handlers:
    made = Handlers(channel_window=2)

    @made.response
    async def double(request: Request) -> Answer:
        return Answer(2 * request.data, b"doubled")

    @made.stream
    async def count(request: Request):  # type: ignore[no-untyped-def]
        for number in range(int(request.data)):
            yield b"%d" % number

    @made.channel
    async def each(request: Request, incoming: Incoming):  # type: ignore[no-untyped-def]
        del request
        async for element in incoming:
            yield element.upper()

    return made


async def edge_of(node: Node) -> tuple[Broker, Edge]:
    broker = await Broker.attach(node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0)))
    edge = await start_worker(node, Edge(), HERE)
    broker.serve(handlers(), service="maths")
    return broker, edge


async def test_handlers_answer_in_elements(node: Node) -> None:
    broker, edge = await edge_of(node)
    asked = Elements(edge, Interaction.RESPONSE, b"ab")
    edge.ask(asked, "service=maths")
    await eventually(lambda: asked.ended)
    assert asked.got == [(b"abab", b"doubled")]
    assert asked.outcomes == [DELIVER]
    row = broker.routes()[-1]
    assert (row.requests, row.outstanding) == (1, 0)


async def test_a_worker_answers_a_message(node: Node) -> None:
    broker, edge = await edge_of(node)
    await node.start(Echo, address="echo")
    broker.register("echo", service="echo")
    asked = Elements(edge, Interaction.RESPONSE, b"hi")
    edge.ask(asked, "service=echo")
    await eventually(lambda: asked.ended)
    assert asked.got == [b"hi"]
    refused = Elements(edge, Interaction.STREAM, b"hi")
    edge.ask(refused, "service=echo")
    await eventually(lambda: refused.ended)
    assert "request/response and fire-and-forget only" in str(refused.got)
    assert broker.routes()[-1].outstanding == 0


async def test_a_stream_sends_what_there_is_credit_for(node: Node) -> None:
    _, edge = await edge_of(node)
    asked = Elements(edge, Interaction.STREAM, b"4")
    edge.ask(asked, "service=maths")
    await eventually(lambda: asked.there is not None)
    there = asked.there
    assert there is not None
    there.credit(2)
    await eventually(lambda: len(asked.got) == 2)
    assert not there.over
    there.credit(9)
    await eventually(lambda: asked.ended)
    assert asked.got == [b"0", b"1", b"2", b"3", "complete"]


async def test_a_channel_has_elements_and_credit_both_ways(node: Node) -> None:
    _, edge = await edge_of(node)
    asked = Elements(edge, Interaction.CHANNEL, b"a")
    edge.ask(asked, "service=maths")
    await eventually(lambda: asked.there is not None)
    there = asked.there
    assert there is not None
    there.credit(9)
    await eventually(lambda: asked.got == [b"A", 2])
    there.element(b"b", None)
    there.input_complete()
    await eventually(lambda: asked.ended)
    assert asked.got == [b"A", 2, b"B", "complete"]
    assert there.held == 0


@pytest.mark.parametrize("by", ["requester", "nothing"])
async def test_how_an_exchange_ends_early(by: str, node: Node) -> None:
    broker, edge = await edge_of(node)
    asked = Elements(edge, Interaction.STREAM, b"4")
    edge.ask(asked, "service=maths" if by == "requester" else "service=none")
    if by == "requester":
        await eventually(lambda: asked.there is not None)
        asked.end(0.0, CANCELED)  # as when its connection is lost
        assert asked.there is not None
        assert asked.there.over
        assert (asked.got, asked.outcomes) == ([], [CANCELED])
    else:
        await eventually(lambda: asked.ended)
        assert asked.got == ["no route: service=none"]
    assert broker.routes()[-1].outstanding == 0
