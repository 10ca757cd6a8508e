"""How long one turn of the loop takes when all names of a node are concerned by a change.

    python benchmarks/dispatch_lag.py --names 10000,100000

Two nodes in one process and on one loop: one has a consumer of each name, the other a producer.
What is measured is the longest turn of the loop in CPU time, so that what other programs do does
not count, without collections of garbage:

- *told*: the names come to the other node, as the two join.
- *lost*: the link is lost, with 500 messages in flight.
- *again*: the two are joined again.
- *pattern*: one provision of the node with the consumers changes what all names mean.
- *patterns*: a thousand provisions follow each other.

Names are brought up to date in slices of `DispatchOptions.name_slice`. The list of a node is
written and read as a whole, so with 100,000 names *told* and *again* are times of that.
"""

from __future__ import annotations

import asyncio
import gc
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Final

from _report import Report

from onward.actors import Node, Worker
from onward.actors.dispatch import DISPATCH, Accept, Dispatcher, Producer
from onward.protocol import Message
from onward.protocol.dispatch import Semantics

FLIGHT: Final = 500
PATIENCE: Final = 300.0
SOME: Final = 100
"""Names that are made in one turn."""


class Turns:
    """The longest turn of the loop since the last look, in CPU time."""

    def __init__(self) -> None:
        self._worst = 0.0
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self._worst, before = max(self._worst, now - before), now

    def taken(self) -> float:
        """Return it in milliseconds, and begin anew."""
        worst, self._worst = self._worst, 0.0
        return 1000 * worst

    def stop(self) -> None:
        """End to measure."""
        self._task.cancel()


class Sink(Worker):
    """A worker that answers nothing."""

    def handle_message(self, message: Message) -> None:
        del message


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - it is asked, and tells nothing
            await asyncio.sleep(0.05)


def ends(producers: list[Producer]) -> tuple[int, ...]:
    """Return how many other nodes the first and the last name have."""
    return tuple(each.state.nodes for each in (producers[0], producers[-1]))


async def measured(names: int) -> dict[str, float]:
    """Return the longest turn of each part, in milliseconds."""
    async with Node("near") as near, Node("far") as far:
        here, there = await Dispatcher.attach(near), await Dispatcher.attach(far)
        await far.start(Sink, address="sink")
        for number in range(names):
            await there.consume(f"orders/{number}", "sink", accept=Accept.REPLY)
            if not number % SOME:
                await asyncio.sleep(0)
        listener = await far.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        turns, found = Turns(), dict[str, float]()
        link = await here.neighbour(listener.uri)
        core = here._core
        await until(lambda: len(list(core.topology.network.names())) == names)
        found["told"] = turns.taken()
        producers = list[Producer]()
        for number in range(names):
            producers.append(await here.produce(f"orders/{number}"))
            if not number % SOME:
                await asyncio.sleep(0)
        sends = [asyncio.create_task(each.send(b"x")) for each in producers[:FLIGHT]]
        await until(lambda: here.statistics().unsettled == len(sends))
        turns.taken()
        await near.stop_worker(link)
        await asyncio.gather(*sends)
        await until(lambda: ends(producers) == (0, 0))
        found["lost"] = turns.taken()
        await here.neighbour(listener.uri)
        await until(lambda: ends(producers) == (1, 1))
        found["again"] = turns.taken()
        there.provision("orders/#", Semantics(window=9))
        await until(lambda: producers[0].state.semantics.window == 9)
        await until(lambda: not core.provisioning.late)
        found["pattern"] = turns.taken()
        for number in range(1000):
            there.provision(f"orders.{number}", Semantics(window=7))
            await asyncio.sleep(0)
        last = producers[min(999, names - 1)]
        await until(lambda: last.state.semantics.window == 7)
        found["patterns"] = turns.taken()
        turns.stop()
    return found


def main() -> None:
    """Run the benchmark."""
    parser = ArgumentParser(description="The longest turn of the loop with many names.")
    parser.add_argument("--names", default="10000", help="numbers of names (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--quick", action="store_true", help="with 500 names")
    given = parser.parse_args()
    report = Report("dispatch_lag")
    gc.disable()
    for names in [500] if given.quick else map(int, given.names.split(",")):
        for part, worst in asyncio.run(measured(names)).items():
            report.figure(f"{names:,} names: {part}", worst, "ms")
    report.print(as_json=given.json)


if __name__ == "__main__":
    main()
