"""Three brokers that form a cluster: one is killed, one is cut off, and both come back.

Each broker has a shop and a customer of its own, which also know the other brokers, or one of them.
Each customer asks the shops in turn, whichever broker they are connected to.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count

from onward.actors.broker import MANAGEMENT_SERVICE, Handlers, Request
from onward.protocol import InDoubt, OnwardError
from onward.transports.client import Client, connect

from .processes import OFTEN, ONWARD, WAIT, Child, child
from .stage import DemoFailed, Record, Table, check, heading, say, shown

LOCAL = "rsocket+tcp://127.0.0.1"
EACH = 30
"""Requests of each customer in a phase."""


class Relay:
    """A relay to a broker, which can be cut.

    Args:
        port: The port of the broker.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self.cut = False
        self._to = port
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Relay]:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.part()
            await server.wait_closed()

    def part(self) -> None:
        """Cut all connections, and refuse others."""
        self.cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if not self.cut:
                far, to_far = await asyncio.open_connection("127.0.0.1", self._to)
                await asyncio.gather(self._copy(reader, to_far), self._copy(far, writer))
        writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.close()


def shop(name: str) -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def answer(_request: Request) -> bytes:
        return name.encode()

    del answer
    return handlers


class Customer:
    """A customer, with what it has seen.

    Args:
        name: Its name.
        client: Its connection.
    """

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.client = client
        self.seen: Counter[str] = Counter()

    async def ask(self, requests: int) -> None:
        """Send requests one after the other."""
        for _ in range(requests):
            try:
                answer = await self.client.request("service=stock", b"")
                self.seen[answer.data.decode()] += 1
            except InDoubt:
                self.seen["in doubt"] += 1
            except OnwardError as error:
                self.seen[type(error).__name__] += 1

    async def brokers(self) -> dict[str, str]:
        """Return the states of the other brokers, by name."""
        question = b"/api/v1/peers?kind=broker"
        answer = await self.client.request(f"service={MANAGEMENT_SERVICE}", question)
        return {row["peer"]: row["state"] for row in json.loads(answer.data)["rows"]}

    async def shops(self) -> set[str]:
        """Return the shops that its broker knows, and reaches."""
        answer = await self.client.request(f"service={MANAGEMENT_SERVICE}", b"routes")
        rows = json.loads(answer.data)
        reached = [row for row in rows if row["service"] == "stock" and not row["expected"]]
        return {row["tags"]["instance"] for row in reached}

    async def until(self, *, shops: set[str]) -> None:
        """Wait until its broker has these shops and no others."""
        found: set[str] = set()
        try:
            async with asyncio.timeout(WAIT):
                while True:
                    # Its broker may have been killed a moment ago.
                    with suppress(OnwardError):
                        found = await self.shops()
                        if found == shops:
                            return
                    await asyncio.sleep(OFTEN)
        except TimeoutError:
            raise DemoFailed(f"{self.name}: its broker has {found}, not {shops}") from None


class Market:
    """The brokers, shops and customers of the cluster.

    Args:
        stack: Stops the brokers at the end.
        clients: Closes shops and customers before that.
    """

    def __init__(self, stack: AsyncExitStack, clients: AsyncExitStack) -> None:
        self.customers: list[Customer] = []
        self.table = Table("WHAT HAPPENED", "CUSTOMER", "SENT", "ANSWERED BY", "ERRORS")
        self.sent = self.answered = self.failed = 0
        self._stack = stack
        self._clients = clients

    async def broker(self, name: str, *words: str, port: int = 0) -> tuple[Child, int]:
        """Start a broker; return its process and port."""
        command = (*ONWARD, "broker", "--listen", f"{LOCAL}:{port}", "--cluster-name", name)
        # The log has a warning for each broker that is lost; that is printed here anyhow.
        more = ("--cluster-locality", "even", "--log", "error")
        started = await self._stack.enter_async_context(child(name, *command, *words, *more))
        _, _, at = (await started.listening("rsocket+tcp")).rpartition(":")
        return started, int(at)

    async def open(self, name: str, customer: str, *ports: int) -> None:
        """Connect a shop and a customer to the first of some brokers; the others are for later."""
        uris = [f"{LOCAL}:{port}" for port in ports]
        tags = {"instance": name}
        serving = connect(uris, service="stock", tags=tags, handlers=shop(name))
        await self._clients.enter_async_context(serving)
        client = await self._clients.enter_async_context(connect(uris))
        self.customers.append(Customer(customer, client))

    async def known(self, *shops: set[str]) -> None:
        """Wait until the broker of each customer has its shops."""
        for customer, expected in zip(self.customers, shops, strict=True):
            await customer.until(shops=expected)

    async def phase(self, what: str, *shops: set[str], requests: int = EACH) -> None:
        """Send the requests of all customers, and check which shops have answered.

        Customers of one broker take turns, so each may have seen a part of the shops.
        """
        for customer in self.customers:
            customer.seen.clear()
        await asyncio.gather(*(customer.ask(requests) for customer in self.customers))
        self.note(what, requests)
        for customer, expected in zip(self.customers, shops, strict=True):
            seen = set(customer.seen)
            check(seen <= expected, f"{what}: {customer.name} saw {seen}, not {expected}")
        together = {name for customer in self.customers for name in customer.seen}
        check(together == set[str]().union(*shops), f"{what}: no request to some: {together}")

    def note(self, what: str, requests: int) -> None:
        """Add a phase to the table."""
        for customer in self.customers:
            by = Counter({each: n for each, n in customer.seen.items() if each in SHOPS})
            errors = customer.seen - by
            check(customer.seen.total() == requests, f"{what}: requests without an end")
            say(customer.name, f"{shown(by)}{'; ' if errors else ''}{shown(errors)}")
            self.table.add(what, customer.name, requests, shown(by), shown(errors) or "none")
            what = ""
            self.sent += requests
            self.answered += by.total()
            self.failed += errors.total()


SHOPS = {"rome", "oslo", "lima"}


async def run(record: Record) -> None:
    """Run this part, with brokers of its own.

    Args:
        record: Gets what was done.
    """
    heading("Three brokers form a cluster")
    async with AsyncExitStack() as stack:
        clients = await stack.enter_async_context(AsyncExitStack())
        market = Market(stack, clients)
        one, first = await market.broker("one", "--cluster-advertise", f"{LOCAL}:0")
        seed = ("--cluster-seed", f"{LOCAL}:{first}")
        two, second = await market.broker("two", *seed)
        # The third reaches the others by relays of the demo, which can be cut.
        relays = [await stack.enter_async_context(Relay(at).running()) for at in (first, second)]
        seeds = [word for each in relays for word in ("--cluster-seed", f"{LOCAL}:{each.port}")]
        three, third = await market.broker("three", *seeds)

        await market.open("rome", "ann", first)
        await market.open("oslo", "ben", second, first)
        await market.open("lima", "cid", third)
        await market.known(SHOPS, SHOPS, SHOPS)
        await market.phase("three brokers", SHOPS, SHOPS, SHOPS)

        heading("One broker is killed, its clients go to another")
        await killed(market, two)
        await market.known(SHOPS, SHOPS, SHOPS)
        await market.phase("... after that", SHOPS, SHOPS, SHOPS)

        heading("One broker is cut off from the others, each side goes on")
        for each in relays:
            each.part()
        here, there = {"rome", "oslo"}, {"lima"}
        await market.known(here, here, there)
        await market.phase("three is cut off", here, here, there)

        heading("Both come back")
        for each in relays:
            each.cut = False
        two, _ = await market.broker("two", *seed, port=second)
        await market.known(SHOPS, SHOPS, SHOPS)
        await market.phase("both are back", SHOPS, SHOPS, SHOPS)
        states = await market.customers[0].brokers()
        say("one", ", ".join(f"{name} is {state}" for name, state in sorted(states.items())))

        heading("What the clients of the cluster saw")
        market.table.print()
        await clients.aclose()
        for broker in (one, two, three):
            await broker.stop()
    errors = f"{market.answered} answers, {market.failed} in doubt"
    record.done.add("requests at three brokers", market.sent, errors, "the shops of all")
    for name, fate in (("one", ""), ("two", "killed, started anew"), ("three", "cut off, healed")):
        record.cast.add(name, "a broker", "onward broker", "peer links", fate or "stayed")


async def killed(market: Market, broker: Child) -> None:
    """Kill a broker while all customers ask."""
    numbers = count(1)
    for customer in market.customers:
        customer.seen.clear()
    requests = 10 * EACH
    asking = [asyncio.create_task(each.ask(requests)) for each in market.customers]
    while sum(each.seen.total() for each in market.customers) < requests:
        check(next(numbers) < WAIT / 0.001, "the customers got no answers")
        await asyncio.sleep(0.001)
    say(broker.name, "is killed, while all customers ask")
    broker.process.send_signal(signal.SIGKILL)
    await asyncio.gather(*asking)
    market.note("two is killed", requests)
    for each in market.customers:
        # A request that was certainly not handed over has gone to another shop.
        others = set(each.seen) - SHOPS - {"in doubt"}
        check(not others, f"{each.name} saw {others}")
