"""Messages to a balanced name beside plain ones, for `dispatch.py`: on one node, and over three.

All nodes are in this process, and their CPU time for a message is what counts. 64 messages are in
flight: the end of one makes the sender send the next.

- *plain, one node*: from the program to a worker, which forwards it to the worker at the end.
- *plain, three nodes*: by the addresses of the links between them, to the worker at the end.
- *pre-settled*: to a name, of which the worker at the end is the consumer.
- *unsettled*: likewise, and the consumer's reply is the outcome, which the sender waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from statistics import median
from time import process_time

from _report import Report

from onward.actors import Node, Worker, new_event_loop
from onward.actors.dispatch import DISPATCH, Accept, Dispatcher
from onward.protocol import NAME, Address, Message, Route

__all__ = ["add_native"]

IN_FLIGHT = 64
PAYLOAD = b"x" * 64
RELAY, END, ANSWER, BACK = (Address(0, each) for each in (b"relay", b"end", b"answer", b"back"))
SETTLED, UNSETTLED = Address(NAME, b"orders"), Address(NAME, b"questions")
NODES = ("a", "b", "c")


class Relay(Worker):
    """The worker of a forwarded hop."""

    def handle_message(self, message: Message) -> None:
        self.forward(message)


class End(Worker):
    """The worker at the end, or the one that gets the outcome: one message has ended.

    Args:
        ended: Called for each message.
    """

    def __init__(self, ended: Callable[[], object]) -> None:
        super().__init__()
        self._ended = ended

    def handle_message(self, message: Message) -> None:
        del message
        self._ended()


class Answer(Worker):
    """The consumer of unsettled messages, which accepts each by its reply."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, b"")


class Load:
    """A load of one kind at a time.

    Args:
        node: The node of the sender.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._message = Message((END,), (), PAYLOAD, None, None)
        self._left = self._open = 0
        self._over = asyncio.get_running_loop().create_future()

    def ended(self) -> None:
        """Send the next message, since one has ended."""
        if self._left:
            self._left -= 1
            self._node.route(self._message)
            return
        self._open -= 1
        if not self._open:
            self._over.set_result(None)

    async def run(self, route: Route, back: Route, messages: int) -> float:
        """Send messages; return the seconds of CPU for each."""
        self._message = Message(route, back, PAYLOAD, None, None)
        self._open, self._left = IN_FLIGHT, messages
        self._over = asyncio.get_running_loop().create_future()
        began = process_time()
        for _ in range(IN_FLIGHT):
            self._node.route(self._message)
        await self._over
        return (process_time() - began) / (messages + IN_FLIGHT)


@asynccontextmanager
async def one_node() -> AsyncGenerator[tuple[Load, Route]]:
    """Yield the load of a node with a dispatcher, and the plain route."""
    async with Node("a") as node:
        load = Load(node)
        dispatcher = await Dispatcher.attach(node)
        await start_ends(node, node, load)
        await attach_consumers(dispatcher)
        yield load, (RELAY, END)


@asynccontextmanager
async def three_nodes() -> AsyncGenerator[tuple[Load, Route]]:
    """Yield the load of the first of three nodes in a row, and the plain route to the third."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(name)) for name in NODES]
        first, second, third = nodes
        dispatchers = [await Dispatcher.attach(node) for node in nodes]
        load = Load(first)
        await start_ends(first, third, load)
        to_third = await listening(third, END)
        link = await second.connect(to_third)
        to_second = await listening(second, link)
        plain = await first.connect(to_second)
        await dispatchers[0].neighbour(to_second)
        await dispatchers[1].neighbour(to_third)
        await attach_consumers(dispatchers[2])
        await (await dispatchers[0].produce("questions")).send(b"")
        other = await dispatchers[0].produce("orders")
        for _ in range(1_000):
            if other.credit:
                break
            await asyncio.sleep(0.01)
        yield load, (plain, link, END)


async def listening(node: Node, *exposed: Address) -> str:
    """Return where a node listens for its neighbours."""
    return (await node.listen("tcp://127.0.0.1:0", expose=[DISPATCH, *exposed])).uri


async def start_ends(first: Node, last: Node, load: Load) -> None:
    """Start the workers of the sender's node and of the consumers' one."""
    await first.start(Relay, address=RELAY)
    await first.start(lambda: End(load.ended), address=BACK)
    await last.start(lambda: End(load.ended), address=END)
    await last.start(Answer, address=ANSWER)


async def attach_consumers(dispatcher: Dispatcher) -> None:
    await dispatcher.consume("orders", END, accept=Accept.HANDED)
    await dispatcher.consume("questions", ANSWER)


async def measure(rounds: int, messages: int) -> dict[str, list[list[float]]]:
    """Return for each number of nodes the seconds of plain, pre-settled and unsettled messages."""
    found: dict[str, list[list[float]]] = {}
    for name, place in (("one node", one_node), ("three nodes", three_nodes)):
        async with place() as (load, plain):
            runs = [
                partial(load.run, plain, ()),
                partial(load.run, (SETTLED,), ()),
                partial(load.run, (UNSETTLED,), (BACK,)),
            ]
            for run in runs:
                await run(messages // 4)
            found[name] = [[await run(messages) for run in runs] for _ in range(rounds)]
    return found


def add_native(report: Report, rounds: int, messages: int) -> None:
    """Add the figures of messages to names to a report.

    Args:
        report: The report.
        rounds: Number of repetitions.
        messages: Messages of a kind in each.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        found = runner.run(measure(rounds, messages))
    for name, times in found.items():
        plain, settled, unsettled = (median(each) * 1e6 for each in zip(*times, strict=True))
        report.figure(f"{name}: plain", plain, "µs")
        report.figure(f"{name}: pre-settled", settled, "µs")
        report.figure(f"{name}: unsettled", unsettled, "µs")
        for kind, at, most in (("pre-settled", 1, 2.0), ("unsettled", 2, 4.0)):
            ratio = median(each[at] / each[0] for each in times)
            report.target(f"{name}: {kind} / plain", ratio, "x", at_most=most)
