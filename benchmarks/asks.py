"""An awaited request from one worker to another, against Pykka's `ask`.

- *onward*: a worker's coroutine handler awaits `self.request` repeatedly; the other
  worker replies. The request carries routes and a timeout, as always.
- *pykka*: an actor on a thread asks an actor on another thread repeatedly, blocking,
  with the same timeout, and passes the same message.

Target: at least 4 times as many requests a second.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pykka
from _harness import Report, parse_arguments, repeat

from onward.actors import Node, Worker, new_event_loop
from onward.protocol import Address, Message

ECHO = (Address(0, b"echo"),)
TIMEOUT = 30.0


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


class Asking(Worker):
    async def handle_message(self, message: Message) -> None:
        count = int(message.payload)
        began = time.perf_counter_ns()
        for _ in range(count):
            answer = await self.request(ECHO, b"payload", timeout=TIMEOUT)
            assert answer.payload == b"payload"
        took = time.perf_counter_ns() - began
        self.reply(message, b"%d" % took)


async def onward(count: int) -> float:
    """Return the microseconds of a request between workers."""
    async with Node() as node:
        node.spawn(Echo, address="echo")
        node.spawn(Asking, address="asking")
        answer = await node.request("asking", b"%d" % count)
    return int(answer.payload) / count / 1000


class PykkaEcho(pykka.ThreadingActor):
    def on_receive(self, message: Message) -> bytes:
        return message.payload


class PykkaAsking(pykka.ThreadingActor):
    def __init__(self, echo: pykka.ActorRef[Any]) -> None:
        super().__init__()
        self.echo = echo

    def on_receive(self, message: int) -> int:
        began = time.perf_counter_ns()
        for _ in range(message):
            answer = self.echo.ask(Message(ECHO, (), b"payload"), timeout=TIMEOUT)
            assert answer == b"payload"
        return time.perf_counter_ns() - began


def pykka_threads(count: int) -> float:
    """Return the microseconds of an `ask` between Pykka's actors."""
    asking = PykkaAsking.start(PykkaEcho.start())
    took: int = asking.ask(count, block=True)
    pykka.ActorRegistry.stop_all()
    return took / count / 1000


def main() -> None:
    """Run the benchmark."""
    arguments = parse_arguments(__doc__, runs=7)
    count = 100 if arguments.quick else 10_000

    def once() -> dict[str, float]:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            with_best = runner.run(onward(count))
        with asyncio.Runner() as runner:
            with_asyncio = runner.run(onward(count))
        return {
            "onward request, µs": with_best,
            "onward request on asyncio's loop, µs": with_asyncio,
            "pykka ask, µs": pykka_threads(count),
        }

    measured = repeat(arguments.runs, once)
    report = Report("asks", arguments)
    report.add(measured)
    report.ratio("pykka / onward", measured["pykka ask, µs"], measured["onward request, µs"])
    report.at_least("pykka / onward", 4.0)
    report.print()


if __name__ == "__main__":
    main()
