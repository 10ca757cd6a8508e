"""The drain of a broker under load, on real sockets, with clients that have a second broker."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from onward.actors import Node
from onward.actors.broker import Broker, DrainOptions, Handlers, Request
from onward.protocol import NotDelivered
from onward.protocol.rsocket import ErrorCode
from onward.transports.client import Client, connect
from tests.peers import rsocket_client as foreign
from tests.support.loops import on_both_loops
from tests.support.transports import eventually

TIMES = DrainOptions(grace=0.1, spread=0.6, timeout=20)


def echoing() -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def echo(request: Request) -> bytes:
        await asyncio.sleep(0.001)
        return request.data

    return handlers


class Load:
    """Requests in a loop, and how they ended."""

    def __init__(self) -> None:
        self.answered = 0
        self.refused = 0
        self.stop = False

    async def run(self, client: Client) -> None:
        """Send requests, one after another; fail on any end that is in doubt."""
        while not self.stop:
            data = b"%d" % self.answered
            try:
                answer = await client.request("service=echo", data)
                assert answer.data == data
                self.answered += 1
            except NotDelivered:  # certainly
                self.refused += 1
                await asyncio.sleep(0.01)


@on_both_loops
async def test_no_request_fails_where_there_is_another_broker() -> None:
    async with AsyncExitStack() as stack:
        uris, brokers = list[str](), list[Broker]()
        for name in ("one", "other"):
            node = await stack.enter_async_context(Node(name))
            brokers.append(await Broker.attach(node))
            uris.append((await node.listen("rsocket+tcp://127.0.0.1:0", broker=brokers[-1])).uri)
        for uri in (*uris, *uris):
            made = connect([uri], service="echo", handlers=echoing())
            await stack.enter_async_context(made)
        load = Load()
        tasks = list[asyncio.Task[None]]()
        for _ in range(8):
            client = await stack.enter_async_context(connect(uris))
            tasks += [asyncio.create_task(load.run(client)) for _ in range(4)]
        await eventually(lambda: load.answered > 500)
        assert await brokers[0].drain(TIMES)
        assert brokers[0].statistics().connections_left == 0
        before = load.answered
        await eventually(lambda: load.answered > before + 500)
        load.stop = True
        await asyncio.gather(*tasks)
        assert load.refused == 0
        assert brokers[0].statistics().lost == 0


@on_both_loops
async def test_no_request_is_in_doubt_without_another_broker() -> None:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(Node("only"))
        broker = await Broker.attach(node)
        uri = (await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)).uri
        for _ in range(2):
            made = connect([uri], service="echo", handlers=echoing())
            await stack.enter_async_context(made)
        load = Load()
        tasks = list[asyncio.Task[None]]()
        for _ in range(8):
            client = await stack.enter_async_context(connect(uri))
            tasks += [asyncio.create_task(load.run(client)) for _ in range(4)]
        await eventually(lambda: load.answered > 500)
        assert await broker.drain(TIMES)
        for task in tasks:
            task.cancel()  # they wait for a broker
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
        assert broker.statistics().lost == 0


@on_both_loops
async def test_a_client_of_others_gets_an_answer_or_a_refusal() -> None:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(Node("only"))
        broker = await Broker.attach(node)
        uri = (await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)).uri
        port = int(uri.rpartition(":")[2])
        await stack.enter_async_context(foreign.connect(port, "echo", foreign.Destination()))
        answered = 0

        async def ask_on(number: int) -> int | None:
            """Send requests until one is not answered, and return the code of its error."""
            nonlocal answered
            async with foreign.connect(port, f"asks {number}") as client:
                while True:
                    outcome = await foreign.ask(client, "echo", "request_response", "x")
                    if outcome.code is not None:
                        return outcome.code
                    answered += 1

        tasks = [asyncio.create_task(ask_on(number)) for number in range(4)]
        await eventually(lambda: answered > 100)
        draining = asyncio.create_task(broker.drain(TIMES))
        codes = await asyncio.gather(*tasks)
        assert codes == [ErrorCode.REJECTED] * 4
        assert await draining
        assert broker.statistics().lost == 0
