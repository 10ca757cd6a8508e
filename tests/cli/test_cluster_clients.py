"""Clients that know one broker of a cluster, while its brokers are killed, drain and come."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import pytest

from onward.actors.broker import Handlers, Request
from onward.protocol import InDoubt, LinkLost, NotDelivered
from onward.transports import Backoff
from onward.transports.client import (
    BrokersOptions,
    Client,
    ClientOptions,
    KeepaliveOptions,
    connect,
)
from tests.support.commands import TIMEOUT, onward

TCP = "rsocket+tcp://127.0.0.1:0"
ALL = "rsocket+tcp://127.0.0.1:*"
OPTIONS = ClientOptions(
    backoff=Backoff(0.05, 1.0),
    keepalive=KeepaliveOptions(interval=0.5, lifetime=3.0),
    brokers=BrokersOptions(allowed=(ALL,), refresh=0.5, rebalance=0.5),
    request_timeout=TIMEOUT,
)


class Cluster:
    """Brokers as processes of their own, which tell clients of each other.

    Attributes:
        uris: The URIs of those that were started and not stopped.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.uris: dict[str, Any] = {}
        self._stack = stack

    async def start(self, at: str = TCP) -> str:
        """Start a broker that joins the others; return its URI.

        The clients go on meanwhile: it may take longer than their lifetime on a busy machine.
        """
        seeds = [word for uri in self.uris for word in ("--cluster-seed", uri)]
        told = ("--cluster-advertise", at, "--cluster-clients", at, "--cluster-allow", ALL)
        times = ("--drain-grace", "0.2", "--drain-spread", "0.5", "--drain-timeout", "10")
        process = self._stack.enter_context(onward("broker", "--listen", at, *told, *times, *seeds))
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        uri = line.removeprefix("listening ").strip()
        self.uris[uri] = process
        return uri

    def stop(self, uri: str, number: signal.Signals) -> None:
        """Send a signal to a broker for the last time."""
        self.uris.pop(uri).send_signal(number)


class Load:
    """Services and requesters at all brokers of a cluster, and what became of each request.

    Attributes:
        handled: How often each request was handled.
        ends: How each request ended.
        in_doubt: The errors of the requests in doubt of each of the six that ask, which send one
            after another.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self.handled: Counter[bytes] = Counter()
        self.ends: dict[bytes, str] = {}
        self.in_doubt: dict[int, list[InDoubt]] = {name: [] for name in range(6)}
        self.clients: list[Client] = []
        self._stack = stack
        self._tasks: list[asyncio.Task[None]] = []
        self._over = False

    async def begin(self, uri: str) -> None:
        """Connect to all brokers by way of one, and send requests one after another."""
        handlers = Handlers(max_handling=1000)

        @handlers.response
        async def answer(request: Request) -> bytes:
            self.handled[request.data] += 1
            await asyncio.sleep(0.001)
            return request.data

        del answer
        for service in ("work", None):
            made = connect(
                uri,
                service=service,
                handlers=handlers if service else None,
                connections=3,
                options=OPTIONS,
            )
            self.clients.append(await self._stack.enter_async_context(made))
        requester = self.clients[-1]
        self._tasks = [asyncio.create_task(self._ask(requester, name)) for name in self.in_doubt]

    async def _ask(self, requester: Client, name: int) -> None:
        number = 0
        while not self._over:
            number += 1
            data = b"%d-%d" % (name, number)
            self.ends[data] = "open"
            try:
                answer = await requester.request("service=work", data)
                assert answer.data == data
                self.ends[data] = "answered"
            except NotDelivered:
                self.ends[data] = "refused"
                await asyncio.sleep(0.01)
            except InDoubt as error:
                self.ends[data] = "in doubt"
                self.in_doubt[name].append(error)

    async def end(self) -> Counter[str]:
        """Send no more requests; return how many ended in each way."""
        self._over = True
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(*self._tasks)
        ends = Counter(self.ends.values())
        # Each has ended once, and was handled as often as its end says.
        assert ends["open"] == 0
        assert max(self.handled.values()) == 1
        for data, end in self.ends.items():
            times = {"answered": {1}, "refused": {0}, "in doubt": {0, 1}}[end]
            assert self.handled[data] in times, (data, end)
        return ends

    def stop(self) -> None:
        """End the requests at once."""
        for task in self._tasks:
            task.cancel()

    async def until_at(self, *uris: str) -> None:
        """Wait until both clients are connected to exactly these brokers, by all connections."""
        async with asyncio.timeout(TIMEOUT):
            while any(places(each) != set(uris) for each in self.clients):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def until_away(self) -> None:
        """Wait until neither client has a connection."""
        async with asyncio.timeout(TIMEOUT):
            while any(each.statistics().connected for each in self.clients):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def until_more(self, more: int) -> None:
        """Wait until more requests were answered."""
        before = Counter(self.ends.values())["answered"]
        async with asyncio.timeout(TIMEOUT):
            while Counter(self.ends.values())["answered"] < before + more:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def places(client: Client) -> set[str]:
    """Return the brokers that a client is connected to; empty while a connection is missing."""
    assert client._pool is not None
    links = client._pool.alive()
    return {link.name for link in links} if len(links) == 3 else set()


@asynccontextmanager
async def loaded() -> AsyncGenerator[tuple[Cluster, Load]]:
    """Three brokers, and clients that are connected to all of them."""
    with ExitStack() as processes:
        cluster = Cluster(processes)
        first = await cluster.start()
        await cluster.start()
        await cluster.start()
        async with AsyncExitStack() as stack:
            load = Load(stack)
            await load.begin(first)
            await load.until_at(*cluster.uris)
            await load.until_more(100)
            try:
                yield cluster, load
            finally:
                load.stop()


async def test_the_only_named_broker_is_killed_under_load() -> None:
    """What was not handed over is answered by others; a new broker gets its part."""
    async with loaded() as (cluster, load):
        first = next(iter(cluster.uris))
        cluster.stop(first, signal.SIGKILL)
        await load.until_at(*cluster.uris)
        await load.until_more(100)
        await cluster.start()
        await load.until_at(*cluster.uris)
        await load.until_more(100)
        ends = await load.end()
        assert ends["refused"] == 0
        # What was in flight by the connection of the client to it, at most one for each that asks.
        # By those to the others nothing is lost: these have a destination of their own each, and
        # forward nothing to it.
        for errors in load.in_doubt.values():
            assert len(errors) <= 1, errors
            assert all(isinstance(each, LinkLost) and each.target == first for each in errors)
        assert ends.total() == len(load.ends)


@pytest.mark.exhaustive
async def test_all_brokers_are_killed_and_come_back() -> None:
    """The same clients go on, at the same places, and are spread over them again."""
    async with loaded() as (cluster, load):
        uris = list(cluster.uris)
        for uri in uris:
            cluster.stop(uri, signal.SIGKILL)
        await load.until_away()
        for uri in uris:
            assert await cluster.start(uri) == uri
        await load.until_at(*uris)
        await load.until_more(100)
        ends = await load.end()
        # One that asks may lose one by its own connection to each of the three, and one by each
        # link that a survivor still takes for whole: 3 + (2 + 1 + 0), for each of the six.
        assert ends["in doubt"] <= 36
        assert ends.total() == len(load.ends)


@pytest.mark.exhaustive
async def test_a_broker_hangs_under_load_and_goes_on() -> None:
    """Requests that it has are in doubt, and all others answered; then it gets its part again."""
    async with loaded() as (cluster, load):
        first, *others = cluster.uris
        cluster.uris[first].send_signal(signal.SIGSTOP)
        try:
            await load.until_at(*others)
            await load.until_more(100)
        finally:
            cluster.uris[first].send_signal(signal.SIGCONT)
        await load.until_at(*cluster.uris)
        await load.until_more(100)
        # It stays so.
        moves = [each.statistics().moves for each in load.clients]
        await asyncio.sleep(3 * OPTIONS.brokers.rebalance)
        assert [each.statistics().moves for each in load.clients] == moves
        ends = await load.end()
        assert ends["refused"] == 0
        assert ends["answered"] + ends["in doubt"] == ends.total() == len(load.ends)
        # Each that asks may lose two to it: its own, and one that another broker has forwarded.
        assert ends["in doubt"] <= 12


async def test_a_broker_that_drains_costs_no_request() -> None:
    async with loaded() as (cluster, load):
        first = next(iter(cluster.uris))
        cluster.stop(first, signal.SIGTERM)
        await load.until_at(*cluster.uris)
        await load.until_more(100)
        ends = await load.end()
        assert {end for end, count in ends.items() if count} == {"answered"}, ends
