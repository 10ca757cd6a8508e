"""Dispatch by name: three nodes in a row, a consumer that moves under load, and a client of AMQP.

The nodes are in this process, and joined over TCP. Each producer counts the outcomes that it saw;
the table says how often its messages waited on hold or were redirected meanwhile, and the consumers
count what they were handed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from onward.actors import Node
from onward.actors.dispatch import DISPATCH, Consumer, Dispatcher, Producer, Received
from onward.protocol.dispatch import Hold, Last, Outcome, Redirect, Retry, Semantics

from .processes import WAIT
from .stage import Record, Table, check, heading, say

LOAD = 600
"""Messages while the consumer moves."""

FEW = 20
"""Messages without a consumer, and those of the client of AMQP."""

AT_A_TIME = 20
"""Messages of the producer that have no outcome yet."""

OUTCOMES = ("accepted", "rejected", "released", "modified")
MISSING = "needs the package python-qpid-proton: pip install 'onward[amqp]'"


class Market:
    """The nodes, what producers saw, and what consumers were handed."""

    def __init__(self, at: Sequence[Dispatcher]) -> None:
        self.at = {each.node_name: each for each in at}
        self.handed: Counter[str] = Counter()
        self.table = Table(
            "PRODUCER SENDS", "SENT", *map(str.upper, OUTCOMES), "HELD", "REDIRECTED"
        )
        self.sent = 0
        self.ended: Counter[str] = Counter()
        self._paths: dict[str, int] = {}
        for name in ("orders", "late"):
            self.at["a"].watch(name, self._paths.__setitem__)

    async def consume(self, at: str, name: str) -> Consumer:
        def handle(_: Received) -> None:
            self.handed[f"{name} at {at}"] += 1

        return await self.at[at].consume(name, handle)

    async def known(self, name: str, paths: int) -> None:
        """Wait until node a knows so many consumers."""
        await until(lambda: self._paths.get(name, 0) == paths, f"{paths} consumers of {name}")

    async def handed_over(self, messages: int) -> None:
        """Wait until consumers were handed so many messages."""
        await until(lambda: self.handed.total() >= messages, f"{messages} messages handed over")

    def tell(
        self, what: str, saw: Counter[str], sent: int, *, held: int = 0, redirected: int = 0
    ) -> None:
        """Add a row to the table; each message has one outcome."""
        check(saw.total() == sent, f"{what}: {saw.total()} outcomes of {sent} messages")
        self.table.add(what, sent, *(saw[each] for each in OUTCOMES), held, redirected)
        self.sent += sent
        self.ended += saw

    def redirected(self) -> int:
        return self.at["a"].statistics().counts.get("redirected", 0)


async def until(holds: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(WAIT):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
    check(holds(), what)


def word(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()


async def send(producer: Producer, messages: int) -> Counter[str]:
    """Send messages, some at a time, and count their outcomes."""
    saw: Counter[str] = Counter()
    numbers = iter(range(messages))

    async def some() -> None:
        for number in numbers:
            saw[word(await producer.send(b"%d" % number))] += 1

    await asyncio.gather(*(some() for _ in range(AT_A_TIME)))
    return saw


async def moving(market: Market, producer: Producer) -> None:
    """Move the consumer from c to a to b while the producer sends."""
    consumer = await market.consume("c", "orders")
    await market.known("orders", 1)
    sending = asyncio.create_task(send(producer, LOAD))
    part = LOAD // 3
    for number, to in enumerate("ab", start=1):
        await market.handed_over(number * part)
        joined = await market.consume(to, "orders")
        await market.known("orders", 2)
        consumer.close()
        await market.known("orders", 1)
        consumer = joined
        say("orders", f"the consumer is at {to} now")
    saw = await sending
    handed = sum(count for name, count in market.handed.items() if name.startswith("orders"))
    # What is in doubt may have been handed over, or not.
    least, most = saw["accepted"], saw["accepted"] + saw["modified"]
    check(least <= handed <= most, f"{handed} handed over, {saw}")
    market.tell("orders, consumer moves", saw, LOAD)
    consumer.close()
    await market.known("orders", 0)


async def without_consumer(market: Market) -> None:
    """Send while there is no consumer: one comes back in time, and another time none does."""
    held = market.at["a"]
    sending = asyncio.create_task(send_all(market, "orders"))
    await until(lambda: holding(held) == FEW, "messages on hold")
    say("orders", f"no consumer: {FEW} messages on hold")
    consumer = await market.consume("c", "orders")
    market.tell("orders, on hold at first", await sending, FEW, held=FEW)
    await market.known("orders", 1)
    consumer.close()
    await market.known("orders", 0)
    late = await market.consume("b", "late")
    await market.known("late", 1)
    before = market.redirected()
    saw = await send_all(market, "orders")
    went = market.redirected() - before
    say("orders", f"no consumer in time: {went} messages went to `late`")
    check(went == FEW and market.handed["late at b"] == FEW, f"{went} redirected, {market.handed}")
    market.tell("orders, redirected", saw, FEW, held=FEW, redirected=went)
    late.close()
    market.tell("quotes, no consumer", await send_all(market, "quotes"), FEW)


def holding(dispatcher: Dispatcher) -> int:
    return sum(row.held for row in dispatcher.names())


async def send_all(market: Market, name: str) -> Counter[str]:
    """Send a few messages to a name at once, by a producer that does not wait for a consumer."""
    producer = await market.at["a"].produce_any()
    outcomes = await asyncio.gather(*(producer.send(name, b"?") for _ in range(FEW)))
    producer.close()
    return Counter(map(word, outcomes))


def amqp_client(uri: str) -> tuple[Counter[str], int]:
    """Send messages as a client of AMQP, and receive others; in a thread of its own."""
    proton: Any = import_module("proton")
    connection: Any = import_module("proton.utils").BlockingConnection(uri, timeout=WAIT)
    sent: Counter[str] = Counter()
    try:
        sender = connection.create_sender("orders")
        for number in range(FEW):
            delivery = sender.send(proton.Message(f"order {number}"))
            sent[delivery.remote_state.name.lower()] += 1
        receiver = connection.create_receiver("bills", credit=FEW)
        for _ in range(FEW):
            receiver.receive()
            receiver.accept()
    finally:
        connection.close()
    return sent, FEW


async def by_amqp(market: Market) -> None:
    """Run a client of AMQP that sends to a consumer two nodes away, and receives from node a."""
    if find_spec("proton") is None:
        say("client", f"no client of AMQP: it {MISSING}")
        market.table.add("orders, AMQP client at c", "no Proton", *("" for _ in range(6)))
        return
    node = market.at["c"].node
    listener = await node.listen("amqp://127.0.0.1:0", dispatcher=market.at["c"])
    consumer = await market.consume("a", "orders")
    await market.known("orders", 1)
    bills = await market.at["a"].produce("bills")
    sending = asyncio.create_task(send(bills, FEW))
    saw, received = await asyncio.to_thread(amqp_client, listener.uri)
    market.tell("orders, AMQP client at c", saw, FEW)
    market.tell("bills, to the AMQP client", await sending, FEW)
    say("client", f"{saw['accepted']} orders accepted at a, {received} bills received")
    check(saw["accepted"] == received == FEW, f"the client of AMQP saw {saw}")
    consumer.close()


async def run(record: Record) -> None:
    """Run this part; it needs no broker.

    Args:
        record: Gets what was done.
    """
    heading("Three nodes dispatch by name, and the consumer moves under load")
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(name)) for name in "abc"]
        at = [await Dispatcher.attach(node) for node in nodes]
        hold = Retry(hold=Hold(messages=FEW, age=0.5), first=0.1)
        at[0].provision(
            "orders", Semantics(undeliverable=(hold, Redirect("34#late"), Last.RELEASE))
        )
        for here, there in pairwise(at):
            listener = await here.node.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
            await there.neighbour(listener.uri)
        market = Market(at)
        producer = await at[0].produce("orders")
        await at[0].produce("late")
        await moving(market, producer)
        await without_consumer(market)
        await by_amqp(market)
        heading("What producers saw of it")
        market.table.print()
        shown = ", ".join(f"{count} {each}" for each, count in sorted(market.ended.items()))
        check(market.ended.total() == market.sent, "the outcomes do not add up")
        record.done.add("messages by name", market.sent, shown, "consumers at a, b and c")
