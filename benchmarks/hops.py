"""A forwarding hop between workers, against the bare operations and against Pykka's threads.

Every hop changes both routes: the worker removes its address from the onward route and puts it on
the return route. 100 messages are in transit at any time, each along ten workers. The worker at the
end sends it again until enough have arrived. The messages and their routes are the same in:

- *onward*: `Worker.forward`;
- *bare*: the operations that every router needs, in one loop: a dictionary look-up, a deque
  append and popleft, a method call, two tuple edits;
- *pykka*: `pykka.ThreadingActor`s that change the routes in the same way, look the next
  actor up in a dictionary of refs and `tell` it;
- *ockam*: ten workers of the Ockam Rust crates in a process of their own, the program of
  `tests/peers/rust` (`ONWARD_OCKAM_PEER` names it; else this is left out). Its threads
  share the work, so CPU time is compared, not wall time.

Targets: a hop costs at most 3 times the bare operations and at most a fifth of Pykka's, and no more
CPU time than Ockam's.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import pykka
from _harness import Report, parse_arguments, repeat

from onward.actors import Node, Worker, new_event_loop
from onward.protocol import Address, Message, Route

HOPS = 10
"""Workers that forward each message."""

IN_FLIGHT = 100
"""Messages in transit at any time."""

RING: Route = tuple(Address(0, b"w%d" % hop) for hop in range(HOPS))
END = Address(0, b"end")
ONWARD: Route = (*RING, END)


def bare(count: int) -> float:
    """Move `count` messages along without a router; return nanoseconds for each hop."""

    class Plain:
        def __init__(self) -> None:
            self.queue: deque[tuple[Route, Route, bytes]] = deque()

        def handle(self, message: tuple[Route, Route, bytes]) -> tuple[Route, Route, bytes]:
            onward, back, payload = message
            return onward[1:], (onward[0], *back), payload

    table = {address: Plain() for address in ONWARD}
    forwarders, end = [table[address] for address in RING], table[END]
    left = count
    began = time.perf_counter_ns()
    for _ in range(IN_FLIGHT):
        table[RING[0]].queue.append((ONWARD, (), b"payload"))
    while left > 0:
        for plain in forwarders:
            queue = plain.queue
            while queue:
                message = plain.handle(queue.popleft())
                table[message[0][0]].queue.append(message)
        while end.queue:
            end.queue.popleft()
            left -= 1
            table[RING[0]].queue.append((ONWARD, (), b"payload"))
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
        if self.left > 0:
            self.node.route(Message(ONWARD, (), b"payload"))
        elif not self.finished.done():
            self.finished.set_result(None)


async def onward(count: int) -> tuple[float, float]:
    """Send `count` messages along workers; return wall and CPU nanoseconds for each hop."""
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with Node() as node:
        for address in RING:
            node.spawn(Forwarder, address=address)
        node.spawn(lambda: End(count, finished), address=END)
        began, cpu = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(IN_FLIGHT):
            node.route(Message(ONWARD, (), b"payload"))
        await finished
        took, used = time.perf_counter_ns() - began, time.process_time_ns() - cpu
    return took / (count * HOPS), used / (count * HOPS)


def pykka_threads(count: int) -> float:
    """Send `count` messages along Pykka's actors; return nanoseconds for each hop."""
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
            if self.left > 0:
                table[RING[0]].tell(Message(ONWARD, (), b"payload"))
            else:
                finished.set()

    table.update((address, Forwarding.start()) for address in RING)
    table[END] = Ending.start()
    began = time.perf_counter_ns()
    for _ in range(IN_FLIGHT):
        table[RING[0]].tell(Message(ONWARD, (), b"payload"))
    finished.wait()
    took = time.perf_counter_ns() - began
    for address in ONWARD:
        # In order: each has handled the messages in transit before the next one stops.
        table[address].stop()
    return took / (count * HOPS)


def ockam(program: str, count: int) -> float:
    """Send `count` messages along Ockam's workers; return nanoseconds of CPU for each hop.

    The program's clock has a resolution of a hundredth of a second, so it gets more messages.
    """
    command = [program, "hops", str(count)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    hops, _, seconds, _ = printed.stdout.split()
    assert int(hops) == count * HOPS
    return float(seconds) * 1e9 / int(hops)


def main() -> None:
    """Run the benchmark."""
    arguments = parse_arguments(__doc__, runs=9)
    count = IN_FLIGHT if arguments.quick else 10_000
    program = os.environ.get("ONWARD_OCKAM_PEER", "")
    if not Path(program).is_file():
        program = ""
        print("Ockam is left out: ONWARD_OCKAM_PEER does not name the program of tests/peers/rust")

    def once() -> dict[str, float]:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            routed, used = runner.run(onward(count))
        figures = {
            "onward hop, ns": routed,
            "bare hop, ns": bare(count),
            "pykka hop, ns": pykka_threads(count),
        }
        if program:
            figures["onward hop, CPU ns"] = used
            figures["ockam hop, CPU ns"] = ockam(program, 10 * count)
        return figures

    measured = repeat(arguments.runs, once)
    report = Report("hops", arguments)
    report.add(measured)
    report.ratio("onward / bare", measured["onward hop, ns"], measured["bare hop, ns"])
    report.ratio("pykka / onward", measured["pykka hop, ns"], measured["onward hop, ns"])
    report.at_most("onward / bare", 3.0)
    report.at_least("pykka / onward", 5.0)
    if program:
        name = "ockam / onward, CPU"
        report.ratio(name, measured["ockam hop, CPU ns"], measured["onward hop, CPU ns"])
        report.at_least(name, 1.0)
    report.print()


if __name__ == "__main__":
    main()
