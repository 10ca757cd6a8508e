"""Ordered, confirmed delivery over three TCP hops of which one loses, against raw sends.

Four nodes of one process, joined by three real loopback connections; on the second node a forwarder
loses one message in a hundred, from a seed. The same worker sends the same messages of 64 bytes
to the same worker, as many at a time as there is room for:

- *raw*: straight along the route. What is lost is lost.
- *pipe*: through a `PipeSender`, along the same route, and out of a `PipeReceiver`. All arrive, in
  order, once: the benchmark checks it. To the forwarder a frame is one message, so it loses whole
  frames.
- *pipe, one a frame*: the same with one message in each frame, as when messages are large or come
  one by one: then nothing is gained by sending several together.

A run is timed from the first send until the last message has come (of raw ones, or is lost).
Target: a pipe has at least half the messages per second of raw sends in the same run.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

from _harness import Report, parse_arguments, repeat

from onward.actors import Mailbox, Node, Worker, new_event_loop
from onward.actors.pipes import PipeReceiver, PipeSender
from onward.protocol import Address, Message, Route, route
from onward.protocol.pipes import PipeOptions

LOSS = 0.01
SEED = 7
RAW_IN_FLIGHT = 800
"""Less than a link's mailbox holds: raw sends that come too fast would be refused."""
PIPE_IN_FLIGHT = 4096
"""More than a pipe's window: there is always something to send."""
FILLING = b"x" * 60


class Progress:
    """What has come, and what is known to be lost."""

    def __init__(self) -> None:
        self.count = 0
        self.last = -1
        self.lost = 0
        self.disorder = 0
        self.wakes_at = 0
        self.awake = asyncio.Event()

    def came(self, number: int) -> None:
        self.disorder += number != self.last + 1
        self.last = number
        self.count += 1
        if self.count + self.lost >= self.wakes_at:
            self.awake.set()

    async def until(self, count: int) -> None:
        """Wait until so many have come or are lost."""
        self.wakes_at = count
        while self.count + self.lost < count:
            self.awake.clear()
            await self.awake.wait()


class Lossy(Worker):
    """Forwards to a link, and loses some."""

    def __init__(self, onward: Address, progress: Progress | None, loss: float) -> None:
        super().__init__()
        self._onward = onward
        self._progress = progress
        self._loss = loss
        self._random = random.Random(SEED).random

    def handle_message(self, message: Message) -> None:
        if self._random() >= self._loss:
            self.route(message.redirect(self._onward))
            return
        if self._progress is not None:
            self._progress.lost += 1
            if self._progress.count + self._progress.lost >= self._progress.wakes_at:
                self._progress.awake.set()


class Sink(Worker):
    """Takes the messages."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def handle_message(self, message: Message) -> None:
        self._progress.came(int.from_bytes(message.payload[:4]))


@dataclass(frozen=True)
class Way:
    """A node to send from, and the route over three hops to the node that has the sink."""

    node: Node
    far: Node
    hops: Route


@asynccontextmanager
async def three_hops(progress: Progress | None) -> AsyncGenerator[Way]:
    """Join four nodes; the second one loses some of what goes on."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(name)) for name in "abcd"]
        links: list[Address] = []
        for node, following in pairwise(nodes):
            listener = await following.listen("tcp://127.0.0.1:0", expose=["on", "sink", "pipe"])
            links.append(await node.connect(listener.uri))
        second, third = nodes[1], nodes[2]
        await second.start(lambda: Lossy(links[1], progress, LOSS), address="on")
        await third.start(lambda: Lossy(links[2], None, 0.0), address="on")
        yield Way(nodes[0], nodes[3], (links[0], *route("on"), *route("on")))


async def send_all(node: Node, onward: Route, count: int, progress: Progress, most: int) -> float:
    """Send so many, with as many in flight as may be; return the messages per second."""
    began = time.perf_counter()
    send, sent = node.route, 0
    while sent < count:
        await progress.until(sent - most // 2)
        for number in range(sent, min(count, sent + most // 2)):
            send(Message(onward, (), number.to_bytes(4) + FILLING))
        sent = min(count, sent + most // 2)
    await progress.until(count)
    return count / (time.perf_counter() - began)


async def raw(count: int) -> float:
    """Measure raw sends."""
    progress = Progress()
    async with three_hops(progress) as way:
        await way.far.start(lambda: Sink(progress), address="sink")
        return await send_all(way.node, (*way.hops, *route("sink")), count, progress, RAW_IN_FLIGHT)


async def piped(count: int, options: PipeOptions) -> tuple[float, float]:
    """Measure a pipe; return its messages per second, and the frames sent again in percent."""
    progress = Progress()
    async with three_hops(None) as way:
        await way.far.start(lambda: Sink(progress), address="sink", mailbox=Mailbox(10_000))
        await way.far.start(PipeReceiver, address="pipe")
        sender = PipeSender((*way.hops, *route("pipe")), options)
        await way.node.start(lambda: sender, address="pipe", mailbox=Mailbox(2 * PIPE_IN_FLIGHT))
        rate = await send_all(way.node, route("pipe", "sink"), count, progress, PIPE_IN_FLIGHT)
        if progress.count != count or progress.disorder:
            raise AssertionError(f"{progress.count} of {count}, {progress.disorder} out of order")
        found = sender.statistics()
        await sender.end()
    return rate, 100 * found.resent / found.frames


def once(count: int) -> dict[str, float]:
    """Measure all three, one after the other."""
    loop = new_event_loop()
    try:
        rate = loop.run_until_complete(raw(count))
        several, again = loop.run_until_complete(piped(count, PipeOptions()))
        single, again_single = loop.run_until_complete(
            piped(count, PipeOptions(frame_messages=1, window=512))
        )
    finally:
        loop.close()
    return {
        "raw": rate,
        "pipe": several,
        "single": single,
        "again": again,
        "again single": again_single,
    }


def main() -> None:
    arguments = parse_arguments(__doc__)
    measured = repeat(arguments.runs, lambda: once(2_000 if arguments.quick else 60_000))
    report = Report("pipes", arguments)
    report.add({"raw, messages per second": measured["raw"]})
    report.add({"pipe, messages per second": measured["pipe"]})
    report.add({"pipe, one a frame, messages per second": measured["single"]})
    report.add({"pipe, frames sent again, %": measured["again"]})
    report.add({"pipe, one a frame, frames sent again, %": measured["again single"]})
    report.ratio("pipe / raw", measured["pipe"], measured["raw"])
    report.ratio("pipe, one a frame / raw", measured["single"], measured["raw"])
    report.at_least("pipe / raw", 0.5)
    report.note("Four nodes in one process; the forwarder on the second loses 1 % from a seed.")
    report.print()


if __name__ == "__main__":
    main()
