"""Streams and channels of many elements through a cluster in trouble: all end, and in order."""

from __future__ import annotations

import asyncio
import random
from itertools import combinations, count
from typing import Final
from uuid import UUID

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, MulticastOptions
from onward.actors.cluster import Cluster, ClusterOptions
from onward.transports.rsocket import PeerOptions
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from onward.transports.simulated._rsocket import SimulatedRSocketTransport
from onward.transports.simulated._streams import SimulatedEndpoint
from tests.support.counts import runs
from tests.support.flowing_cluster import *
from tests.support.rsocket_peer import CHANNEL, STREAM

BROKERS: Final = ("north", "south", "west")
CALLERS: Final = 5
FAST: Final = Faults(latency=(0.001, 0.01))
SLOW: Final = Faults(latency=(0.2, 1.0), loss=0.05)
LOST: Final = PeerOptions().lifetime + PeerOptions().keepalive
"""Most seconds until a broker takes a silent link for lost."""
PATIENCE: Final = MulticastOptions().patience
WAIT: Final = max(LOST, BrokerOptions().waiting.no_route_timeout or 0) + 5.0
"""Seconds without a frame after which a call is stuck: those until a broker gives the link up, or
the wait for a route, and a round trip over two slow links, with a few parts that are sent again."""
BATCHES: Final = DESTINATIONS * ELEMENTS // (CREDIT // 2)
"""Most REQUEST_N frames of a call."""
LONGEST: Final = LOST + WAIT + BATCHES * 2.5
"""Seconds that a call may take: for each REQUEST_N a round trip over two slow links as well."""

LASTING: Final = 60.0
"""Seconds of trouble; then all is mended, and what is open has to end."""
BETWEEN: Final = 0.4
"""Mean seconds between two calls."""


class Trouble:
    """Three brokers in a cluster, links that are cut or slow, and clients that come and go.

    Attributes:
        network: The network.
        chance: The source of everything random.
        tally: How calls have ended.
        brokers: The brokers that run, by name.
        callers: The requesters.
        destinations: The destinations of all calls.
    """

    def __init__(self, network: SimulatedNetwork, chance: random.Random) -> None:
        self.network = network
        self.chance = chance
        self.tally = Tally()
        self.brokers: dict[str, Broker] = {}
        self.callers: list[Caller] = []
        self.destinations: list[Destination] = []
        self._numbers = count(1)
        self._clients: Node

    async def start(self) -> None:
        self._clients = await self.network.node("clients")
        for name in BROKERS:
            await self.start_broker(await self.network.node(name))
        await asyncio.sleep(3)
        await self.fill()

    async def start_broker(self, node: Node) -> None:
        broker_id = UUID(int=self.chance.getrandbits(128), version=4)
        broker = await Broker.attach(node, broker_id=broker_id)
        transport = node.parts.transports.use("rsocket+sim://")
        assert isinstance(transport, SimulatedRSocketTransport)
        seeds = tuple(f"rsocket+sim://{each}" for each in BROKERS if each != node.name)
        options = ClusterOptions(name=node.name, seeds=seeds)
        dial = transport.peer_dialler(broker)
        cluster = await Cluster.attach(node, broker, options, connect=dial)
        uri = f"rsocket+sim://{node.name}"
        await node.listen(uri, broker=broker, peers=cluster)
        cluster.join(uri)
        self.brokers[node.name] = broker

    async def fill(self) -> None:
        """Have as many clients as there are to be."""
        self.callers = [each for each in self.callers if not each.lost]
        self.destinations = [each for each in self.destinations if not each.lost]
        while len(self.destinations) < DESTINATIONS:
            destination = Destination(next(self._numbers))
            await self._dial(destination)
            self.destinations.append(destination)
        while len(self.callers) < CALLERS:
            caller = Caller(next(self._numbers), self.tally)
            await self._dial(caller)
            self.callers.append(caller)

    async def _dial(self, client: Client) -> None:
        """Connect a client to any broker that runs."""
        host = self.chance.choice(sorted(self.brokers))
        place = self.network.place(self._clients)
        pending = await SimulatedEndpoint(place, host).open(client.loop)
        pending.hand_over(client)
        await client.ready

    async def ended(self) -> None:
        """Wait until all calls have ended, as long as each goes on."""
        while any(each.calls for each in self.callers):
            self.look()
            await asyncio.sleep(0.5)

    def look(self) -> None:
        """Check that no call is stuck."""
        now = asyncio.get_running_loop().time()
        for caller in self.callers:
            for call in caller.calls.values():
                assert now - call.last < WAIT, call
                assert now - call.began < LONGEST, call

    async def run(self) -> None:
        """Begin calls in the midst of trouble, mend all, and wait until each call has ended."""
        trouble = asyncio.create_task(self.trouble())
        loop = asyncio.get_running_loop()
        until = loop.time() + LASTING
        while loop.time() < until:
            there = [each for each in self.callers if not each.lost]
            if there:
                self.chance.choice(there).ask_any(self.chance)
            self.look()
            await asyncio.sleep(self.chance.expovariate(1 / BETWEEN))
            if trouble.done():
                trouble.result()
        trouble.cancel()
        self.network.heal()
        self.network.set_all_faults(FAST)
        await self.ended()

    async def trouble(self) -> None:
        steps = (
            *(self.cut, self.cut, self.isolate, self.slow, self.slow_clients, self.kill),
            *(self.lose_destination, self.lose_destination, self.lose_caller),
        )
        while True:
            await asyncio.sleep(self.chance.uniform(1, 4))
            await self.chance.choice(steps)()
            await self.fill()

    def _pair(self) -> tuple[str, str]:
        return self.chance.choice(tuple(combinations(BROKERS, 2)))

    async def cut(self) -> None:
        one, other = self._pair()
        self.network.partition({one}, {other})
        await asyncio.sleep(self.chance.uniform(0.5, 12))
        self.network.heal({one}, {other})

    async def isolate(self) -> None:
        one = self.chance.choice(BROKERS)
        others = set(BROKERS) - {one}
        self.network.partition({one}, others)
        await asyncio.sleep(8)
        self.network.heal({one}, others)

    async def slow(self) -> None:
        one, other = self._pair()
        self.network.set_faults(one, other, SLOW)
        await asyncio.sleep(self.chance.uniform(2, 15))
        self.network.set_faults(one, other, FAST)

    async def slow_clients(self) -> None:
        broker = self.chance.choice(BROKERS)
        self.network.set_faults("clients", broker, SLOW)
        await asyncio.sleep(self.chance.uniform(2, 8))
        self.network.set_faults("clients", broker, FAST)

    async def kill(self) -> None:
        name = self.chance.choice(BROKERS)
        del self.brokers[name]
        await self.network.crash(name)
        await asyncio.sleep(self.chance.uniform(1, 10))
        await self.start_broker(await self.network.restart(name))

    async def lose_destination(self) -> None:
        self.chance.choice(self.destinations).leave()

    async def lose_caller(self) -> None:
        self.chance.choice(self.callers).leave()


def in_trouble(seed: int) -> Tally:
    """Run the calls and the trouble of a seed."""

    async def scenario(network: SimulatedNetwork) -> Tally:
        town = Trouble(network, random.Random(seed))
        await town.start()
        await town.run()
        return town.tally

    return simulate(scenario, seed=seed, faults=FAST, max_time=1000)


@pytest.mark.parametrize("seed", [*runs(2, 12), 217])  # one with a part that is due early
def test_all_flows_end_in_time_and_in_order(seed: int) -> None:
    tally = in_trouble(seed)
    for kind in ("stream", "channel", "multicast stream", "multicast channel"):
        assert tally.ends[f"{kind}: complete"]
    if not seed:
        assert in_trouble(seed) == tally


def test_each_destination_sends_all_elements_through_slow_links() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        town = Trouble(network, random.Random(1))
        await town.start()
        network.set_all_faults(SLOW)
        for kind in (STREAM, CHANNEL):
            town.callers[0].ask(kind, ELEMENTS, merged=True)
        await town.ended()
        whole = [ELEMENTS] * DESTINATIONS
        assert sorted(town.tally.whole) == [
            ("multicast channel: complete", whole),
            ("multicast stream: complete", whole),
        ]
        # A call of many elements is slow then, though no frame of it is.
        assert town.tally.gap < WAIT
        assert town.tally.longest > 4 * WAIT

    simulate(scenario, seed=1, faults=FAST)


@pytest.mark.parametrize("mute", range(1, DESTINATIONS + 1))
def test_one_that_says_nothing_takes_no_credit_of_the_others(mute: int) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        town = Trouble(network, random.Random(2))
        await town.start()
        (caller, *_) = town.callers
        stream_id = caller.ask(STREAM, ELEMENTS, merged=True, mute=mute)
        caller.ask(CHANNEL, ELEMENTS, merged=True, mute=mute)
        await asyncio.sleep(3 * PATIENCE)
        # A destination that takes nothing of a channel is given up.
        others = [ELEMENTS] * (DESTINATIONS - 1)
        assert town.tally.whole == [("multicast channel: complete", others)]
        assert sorted(caller.calls[stream_id].came.values()) == others
        caller.cancel(stream_id)

    simulate(scenario, seed=2, faults=FAST)
