"""Ordered, confirmed delivery over three TCP hops, one with losses, against raw sends.

Four nodes in one process are joined by three real loopback connections. A forwarder on the second
node loses one message in a hundred in each direction, from a seed. The same worker sends the same
messages to the same worker, as many at a time as there is room for:

- *raw*: directly along the route. Lost messages stay lost.
- *pipe*: through a `PipeSender`, along the same route, and out of a `PipeReceiver`. The benchmark
  checks that all arrive, in order, once. To the forwarder a frame is one message, so it loses whole
  frames of up to 128 messages, or 16 KiB. It loses confirmations too.
- *one a frame*: a pipe with one message in each frame, as when messages are sent one by one. Each
  message costs a frame and its share of a confirmation; a window of 512 messages keeps them from
  filling the links.

Messages have 64 bytes, 1 KiB and 4 KiB. A run is timed from the first send until the last message
has arrived (or, of raw ones, is lost). Target: with messages of 64 bytes a pipe has at least half
the messages per second of raw sends in the same run. The other figures have no target.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from _harness import Report, parse_arguments, repeat

from onward.actors import MailboxOptions, Node, Worker, new_event_loop
from onward.actors.pipes import PipeReceiver, PipeSender
from onward.protocol import Address, Message, Route, route
from onward.protocol.pipes import PipeOptions

LOSS = 0.01
SEED = 7
RAW_IN_FLIGHT = 800
"""Less than the mailbox of a link: raw sends beyond it would be refused."""
PIPE_IN_FLIGHT = 4096
"""More than a pipe's window: there is always a message to send."""
SIZES = {"64 B": (64, 60_000), "1 KiB": (1024, 20_000), "4 KiB": (4096, 10_000)}
"""The sizes of messages, and the number sent."""
SINGLE = PipeOptions(frame_messages=1, window=512)


BACK = Address(0, b"back")


class Progress:
    """The counts of messages that have arrived or are lost."""

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
        """Wait until `count` messages have arrived or are lost."""
        self.wakes_at = count
        while self.count + self.lost < count:
            self.awake.clear()
            await self.awake.wait()


class Lossy(Worker):
    """A worker that forwards to a link, and back from its other address, and loses some of both."""

    def __init__(self, onward: Address, progress: Progress | None, loss: float) -> None:
        super().__init__()
        self._onward = (onward,)
        self._progress = progress
        self._loss = loss
        self._random = random.Random(SEED).random

    def handle_message(self, message: Message) -> None:
        lost = self._random() < self._loss
        if message.onward_route[0] == BACK:
            if not lost:
                self.step(message)
        elif not lost:
            self.redirect(message, self._onward, own=BACK)
        elif self._progress is not None:
            self._progress.lost += 1
            if self._progress.count + self._progress.lost >= self._progress.wakes_at:
                self._progress.awake.set()


class Sink(Worker):
    """A worker that counts the messages."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def handle_message(self, message: Message) -> None:
        self._progress.came(int.from_bytes(message.payload[:4]))


@dataclass(frozen=True)
class Way:
    """The first node, the last node, and the route over three hops between them."""

    node: Node
    far: Node
    hops: Route


@asynccontextmanager
async def three_hops(progress: Progress | None) -> AsyncGenerator[Way]:
    """Join four nodes; the second one loses some messages."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(name)) for name in "abcd"]
        links: list[Address] = []
        for node, following in pairwise(nodes):
            listener = await following.listen("tcp://127.0.0.1:0", expose=["on", "sink", "pipe"])
            links.append(await node.connect(listener.uri, expose=[BACK]))
        second, third = nodes[1], nodes[2]
        for node, link, loss in ((second, links[1], LOSS), (third, links[2], 0.0)):
            losing = partial(Lossy, link, progress if loss else None, loss)
            await node.start(losing, address=["on", BACK])
        yield Way(nodes[0], nodes[3], (links[0], *route("on"), *route("on")))


async def send_all(
    node: Node, onward: Route, count: int, size: int, progress: Progress, most: int
) -> float:
    """Send `count` messages with at most `most` in flight; return the messages per second."""
    filling = bytes(size - 4)
    began = time.perf_counter()
    send, sent = node.route, 0
    while sent < count:
        await progress.until(sent - most // 2)
        for number in range(sent, min(count, sent + most // 2)):
            send(Message(onward, (), number.to_bytes(4) + filling))
        sent = min(count, sent + most // 2)
    await progress.until(count)
    return count / (time.perf_counter() - began)


async def raw(count: int, size: int) -> float:
    """Measure raw sends."""
    progress = Progress()
    async with three_hops(progress) as way:
        await way.far.start(lambda: Sink(progress), address="sink")
        onward = (*way.hops, *route("sink"))
        return await send_all(way.node, onward, count, size, progress, RAW_IN_FLIGHT)


async def piped(count: int, size: int, options: PipeOptions) -> tuple[float, float, float]:
    """Measure a pipe; return its messages per second, messages a frame, and % sent again."""
    progress = Progress()
    async with three_hops(None) as way:
        await way.far.start(lambda: Sink(progress), address="sink", mailbox=MailboxOptions(10_000))
        await way.far.start(PipeReceiver, address="pipe")
        sender = PipeSender((*way.hops, *route("pipe")), options)
        await way.node.start(
            lambda: sender, address="pipe", mailbox=MailboxOptions(2 * PIPE_IN_FLIGHT)
        )
        onward = route("pipe", "sink")
        rate = await send_all(way.node, onward, count, size, progress, PIPE_IN_FLIGHT)
        if progress.count != count or progress.disorder:
            raise AssertionError(f"{progress.count} of {count}, {progress.disorder} out of order")
        found = sender.statistics()
        await sender.end()
    return rate, count / found.frames, 100 * found.resent / found.frames


def once(part: int) -> dict[str, float]:
    """Measure all kinds, one after the other, with the number of messages divided by `part`."""
    measured: dict[str, float] = {}
    kinds = {f"pipe, {name}": (name, PipeOptions()) for name in SIZES}
    kinds["one a frame, 64 B"] = "64 B", SINGLE
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        for name, (size, count) in SIZES.items():
            measured[f"raw, {name}"] = runner.run(raw(count // part, size))
        for kind, (name, options) in kinds.items():
            size, count = SIZES[name]
            rate, together, again = runner.run(piped(count // part, size, options))
            measured[kind] = rate
            measured[f"{kind}, messages a frame"] = together
            measured[f"{kind}, frames sent again, %"] = again
    return measured


def main() -> None:
    arguments = parse_arguments(__doc__)
    measured = repeat(arguments.runs, lambda: once(30 if arguments.quick else 1))
    report = Report("pipes", arguments)
    for name, values in measured.items():
        whole = name.endswith((" B", "iB"))
        report.add({f"{name}, messages per second" if whole else name: values})
    for name in SIZES:
        report.ratio(f"pipe / raw, {name}", measured[f"pipe, {name}"], measured[f"raw, {name}"])
    single, plain = measured["one a frame, 64 B"], measured["raw, 64 B"]
    report.ratio("one a frame / raw, 64 B", single, plain)
    report.at_least("pipe / raw, 64 B", 0.5)
    report.note("Four nodes in one process; the forwarder on the second loses 1 % each way.")
    report.print()


if __name__ == "__main__":
    main()
