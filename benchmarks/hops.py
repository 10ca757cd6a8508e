"""A forwarding hop between workers, against the bare operations and against Pykka's threads.

Every hop rewrites both routes: the worker takes itself off the onward route and puts itself
on the return route. Messages are pipelined: all of them are on their way through a ring
of workers at the same time. Three versions take the same messages round the same ring in
every run, and each is timed from the first message sent to the last one arrived:

- *onward*: `Worker.forward`;
- *bare*: what no router can do without, in one loop with nothing around it: a dictionary
  look-up, a deque append and popleft, a method call, two tuple edits;
- *pykka*: `pykka.ThreadingActor`s that rewrite the routes in the same way, look the next
  actor up in a dictionary of refs and `tell` it.

Targets: a hop costs at most 3 times the bare operations and at most a fifth of Pykka's.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import pykka

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._harness import Report, parse_arguments, repeat

from onward.actors import Mailbox, Node, Worker, new_event_loop
from onward.protocol import Address, Message, Route

RING = 10
"""Workers in the ring."""

HOPS = 50
"""Hops of one message: five times round. The route limit is 64."""

ONWARD: Route = tuple(Address(0, b"w%d" % (hop % RING)) for hop in range(HOPS))
END = Address(0, b"end")


def bare(count: int) -> float:
    """Take the messages round without a router; return nanoseconds for each hop."""

    class Plain:
        def __init__(self) -> None:
            self.queue: deque[tuple[Route, Route, bytes]] = deque()

        def handle(self, message: tuple[Route, Route, bytes]) -> tuple[Route, Route, bytes]:
            onward, back, payload = message
            return onward[1:], (onward[0], *back), payload

    table = {address: Plain() for address in {*ONWARD, END}}
    first, end = table[ONWARD[0]], table[END]
    ring = [table[address] for address in ONWARD[:RING]]
    began = time.perf_counter_ns()
    for _ in range(count):
        first.queue.append(((*ONWARD, END), (), b"payload"))
    while len(end.queue) < count:
        for plain in ring:
            queue = plain.queue
            while queue:
                onward = plain.handle(queue.popleft())
                table[onward[0][0]].queue.append(onward)
    return (time.perf_counter_ns() - began) / (count * HOPS)


class Forwarder(Worker):
    def handle_message(self, message: Message) -> None:
        self.forward(message)


class End(Worker):
    def __init__(self, expected: int, finished: asyncio.Future[None]) -> None:
        super().__init__()
        self.left = expected
        self.finished = finished

    def handle_message(self, message: Message) -> None:
        assert len(message.return_route) == HOPS
        self.left -= 1
        if not self.left:
            self.finished.set_result(None)


async def onward(count: int) -> float:
    """Take the messages round a ring of workers; return nanoseconds for each hop."""
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    mailbox = Mailbox(limit=count)
    async with Node() as node:
        for address in ONWARD[:RING]:
            node.spawn(Forwarder, address=address, mailbox=mailbox)
        node.spawn(lambda: End(count, finished), address=END, mailbox=mailbox)
        began = time.perf_counter_ns()
        for _ in range(count):
            node.send((*ONWARD, END), b"payload")
        await finished
        took = time.perf_counter_ns() - began
    return took / (count * HOPS)


def pykka_threads(count: int) -> float:
    """Take the messages round a ring of Pykka's actors; return nanoseconds for each hop."""
    table: dict[Address, pykka.ActorRef[Any]] = {}
    finished = threading.Event()

    class Forwarding(pykka.ThreadingActor):
        def on_receive(self, message: Message) -> None:
            forwarded = message.forward()
            table[forwarded.onward_route[0]].tell(forwarded)

    class Ending(pykka.ThreadingActor):
        left = count

        def on_receive(self, message: Message) -> None:
            assert len(message.return_route) == HOPS
            self.left -= 1
            if not self.left:
                finished.set()

    refs = [Forwarding.start() for _ in range(RING)]
    table.update(zip(ONWARD[:RING], refs, strict=True))
    table[END] = Ending.start()
    began = time.perf_counter_ns()
    for _ in range(count):
        table[ONWARD[0]].tell(Message((*ONWARD, END), (), b"payload"))
    finished.wait()
    took = time.perf_counter_ns() - began
    pykka.ActorRegistry.stop_all()
    return took / (count * HOPS)


def main() -> None:
    """Run the benchmark."""
    arguments = parse_arguments(__doc__, runs=7)
    count = 20 if arguments.quick else 1000

    def once() -> dict[str, float]:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            routed = runner.run(onward(count))
        return {
            "onward hop, ns": routed,
            "bare hop, ns": bare(count),
            "pykka hop, ns": pykka_threads(count),
        }

    measured = repeat(arguments.runs, once)
    report = Report("hops", arguments)
    report.add(measured)
    report.ratio("onward / bare", measured["onward hop, ns"], measured["bare hop, ns"])
    report.ratio("pykka / onward", measured["pykka hop, ns"], measured["onward hop, ns"])
    report.at_most("onward / bare", 3.0)
    report.at_least("pykka / onward", 5.0)
    report.print()


if __name__ == "__main__":
    main()
