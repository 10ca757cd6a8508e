"""The names of a node, each with a consumer, for `dispatch.py`: memory of each, and the look-up.

- *memory*: of a name and its consumer, with all that the node has for them, as `tracemalloc` counts
  it for a tenth of the names. The consumers are one worker, or a handler each, which has a worker
  of its own.
- *look-up*: from the bytes of an address to the state of the name, each name once, at random.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Sequence
from functools import partial
from random import Random
from statistics import median
from time import process_time

from _report import Report

from onward.actors import Node, Worker
from onward.actors.dispatch import Accept, Dispatcher, DispatchOptions
from onward.protocol import Message
from onward.protocol.dispatch import DeliveryLimits

__all__ = ["add_names"]


class Sink(Worker):
    """The worker that consumes all names."""

    def handle_message(self, message: Message) -> None:
        del message


def name(number: int) -> str:
    return f"region-{number % 16}/service-{number}/orders"


async def consume(dispatcher: Dispatcher, names: int, *, handlers: bool) -> None:
    """Attach a consumer to each of some names."""
    sink = await dispatcher.node.start(Sink)
    for number in range(names):
        if handlers:
            await dispatcher.consume(name(number), print)
        else:
            await dispatcher.consume(name(number), sink, accept=Accept.HANDED)


def options(names: int) -> DispatchOptions:
    most = names + 10
    return DispatchOptions(max_names=most, deliveries=DeliveryLimits(max_node_consumers=most))


async def memory(names: int, *, handlers: bool) -> float:
    """Return the bytes of a name with its consumer."""
    async with Node("names") as node:
        dispatcher = await Dispatcher.attach(node, options(names))
        gc.collect()
        tracemalloc.start()
        await consume(dispatcher, names, handlers=handlers)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return taken / names


async def look_ups(names: int, rounds: int, number: int) -> list[float]:
    """Return the seconds of CPU for a look-up, of each round."""
    random = Random(11)
    async with Node("names") as node:
        dispatcher = await Dispatcher.attach(node, options(names))
        await consume(dispatcher, names, handlers=False)
        found: list[float] = []
        for _ in range(rounds):
            # The bytes of each address are its own, as they come from a wire.
            values = [name(each).encode() for each in random.sample(range(names), number)]
            gc.collect()
            began = process_time()
            find(dispatcher, values)
            found.append((process_time() - began) / number)
        return found


def find(dispatcher: Dispatcher, values: Sequence[bytes]) -> None:
    core = dispatcher._core
    for value in values:
        if core.names.states.get(core.parse(value).text) is None:
            raise AssertionError("a name without a state")


def add_names(report: Report, names: int, rounds: int, number: int) -> None:
    """Add the figures of names with consumers to a report.

    Args:
        report: The report.
        names: Number of names.
        rounds: Number of repetitions of what is timed.
        number: Look-ups in each.
    """
    run = partial(asyncio.run, debug=False)
    report.target(
        "memory of a name with a consumer",
        run(memory(names // 10, handlers=False)),
        "bytes",
        at_most=2048.0,
    )
    report.figure(
        "memory of a name with a handler", run(memory(names // 10, handlers=True)), "bytes"
    )
    found = run(look_ups(names, rounds, number))
    report.target("look-up of a name, cold", median(found) * 1e6, "µs", at_most=5.0)
