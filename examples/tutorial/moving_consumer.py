"""A consumer that moves from node to node under load, and what its producer is told."""

from __future__ import annotations

# --8<-- [start:nodes]
import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from onward.actors.dispatch import DISPATCH, Dispatcher, Producer, Received
from onward.protocol.dispatch import Hold, Last, Retry, Semantics
from onward.transports.simulated import Faults, SimulatedNetwork, simulate


async def three_nodes(network: SimulatedNetwork) -> list[Dispatcher]:
    a, b, c = [await Dispatcher.attach(await network.node(name)) for name in "abc"]
    await a.node.listen("sim://a", expose=[DISPATCH])
    await b.node.listen("sim://b", expose=[DISPATCH])
    await b.neighbour("sim://a")
    await c.neighbour("sim://b")
    return [a, b, c]


# --8<-- [end:nodes]


# --8<-- [start:first]
async def first(network: SimulatedNetwork) -> None:
    a, _, c = await three_nodes(network)

    def handle(delivery: Received) -> None:
        print("c has", delivery.payload.decode())
        delivery.accept(b"3 each")

    await c.consume("orders", handle)
    producer = await a.produce("orders")
    outcome, answer = await producer.exchange(b"12 apples")
    print("a is told", outcome, "and", answer.payload if answer else None)


LATENCY = Faults(latency=(0.02, 0.03))


def one_message() -> None:
    simulate(first, seed=7, faults=LATENCY)


# --8<-- [end:first]


# --8<-- [start:load]
async def work(_: Received) -> None:
    await asyncio.sleep(0.015)


async def load(producer: Producer, halfway: Callable[[], Awaitable[None]]) -> None:
    """Send 100 messages, one each 20 ms, and print how many had which outcome."""
    await producer.send(b"first")  # waits for credit: until a consumer is known
    sending: list[asyncio.Task[object]] = []
    for number in range(100):
        if number == 50:
            await halfway()
        sending.append(asyncio.create_task(producer.send(b"%d" % number)))
        await asyncio.sleep(0.02)
    outcomes = Counter(type(each).__name__ for each in await asyncio.gather(*sending))
    print(", ".join(f"{outcomes[name]} {name}" for name in sorted(outcomes)))


# --8<-- [end:load]


# --8<-- [start:moves]
async def moves(network: SimulatedNetwork) -> None:
    a, b, c = await three_nodes(network)
    consumer = await c.consume("orders", work)

    async def move() -> None:
        consumer.close()
        await b.consume("orders", work)

    await load(await a.produce("orders"), move)


# --8<-- [end:moves]


# --8<-- [start:gap]
async def gap(network: SimulatedNetwork, semantics: Semantics) -> None:
    a, b, c = await three_nodes(network)
    a.provision("orders", semantics)
    consumer = await c.consume("orders", work)

    async def close() -> None:
        consumer.close()
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, lambda: asyncio.create_task(b.consume("orders", work)))

    await load(await a.produce("orders"), close)


HOLD = Semantics(undeliverable=(Retry(hold=Hold(messages=1000, age=60.0)), Last.RELEASE))


def without_and_with_a_hold() -> None:
    simulate(lambda network: gap(network, Semantics()), seed=7, faults=LATENCY)
    simulate(lambda network: gap(network, HOLD), seed=7, faults=LATENCY)


# --8<-- [end:gap]


# --8<-- [start:crashes]
async def crashes(network: SimulatedNetwork) -> None:
    a, b, c = await three_nodes(network)
    await c.consume("orders", work)

    async def crash() -> None:
        await network.crash("c")
        await b.consume("orders", work)

    await load(await a.produce("orders"), crash)


# --8<-- [end:crashes]


# --8<-- [start:leaves]
async def leaves(network: SimulatedNetwork) -> None:
    a, b, c = await three_nodes(network)
    leaving = False

    async def work_or_release(delivery: Received) -> None:
        if leaving:
            delivery.release()
        else:
            await work(delivery)

    consumer = await c.consume("orders", work_or_release)

    async def leave() -> None:
        nonlocal leaving
        await b.consume("orders", work)
        leaving = True
        while consumer.unsettled:
            print("c still has", consumer.unsettled)
            await asyncio.sleep(0.01)
        consumer.close()

    await load(await a.produce("orders"), leave)


# --8<-- [end:leaves]


if __name__ == "__main__":
    one_message()
    simulate(moves, seed=7, faults=LATENCY)
    without_and_with_a_hold()
    simulate(crashes, seed=7, faults=LATENCY)
    simulate(leaves, seed=7, faults=LATENCY)
