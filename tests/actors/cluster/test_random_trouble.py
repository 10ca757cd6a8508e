"""Clusters in random trouble: after it, each broker knows what there is and nothing else."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from dataclasses import replace
from itertools import combinations
from uuid import UUID

import pytest

from onward.actors.broker import Registration
from onward.actors.cluster import ClusterOptions
from onward.protocol.cluster import ClusterLimits
from tests.support.clusters import Clusters, Site, clusters
from tests.support.counts import runs

NAMES = ("one", "two", "three", "four")
LIMITS = ClusterLimits(
    peer_hold=5, log_changes=20, flap_hold=1, longest_flap_hold=4, longest_retry=4, compare=10
)
OPTIONS = ClusterOptions(allowed_peers=("test://*",), limits=LIMITS, load_slice=3, ahead=2)
STEPS = 60


class Trouble:
    """A random walk of a cluster, from a seed.

    Attributes:
        made: The cluster.
        own: The destinations that are connected, by broker.
        evicted: The connections that were closed.
    """

    def __init__(self, made: Clusters, seed: int) -> None:
        self.made = made
        self.random = random.Random(seed)
        self.own: dict[str, list[Registration]] = {}
        self.ids = [UUID(int=number) for number in range(1, 4)]
        self._steps = (
            *(self.serve,) * 4,
            *(self.connect,) * 2,
            *(self.withdraw,) * 3,
            self.cut,
            self.heal,
            self.delay,
            self.restart,
            self.wait,
        )

    async def start(self, name: str) -> None:
        options = replace(OPTIONS, name=name)
        await self.made.start(name, [each for each in NAMES if each != name][:2], options=options)
        self.own[name] = []

    @property
    def sites(self) -> dict[str, Site]:
        return self.made.sites

    async def step(self) -> None:
        await self.random.choice(self._steps)()
        await asyncio.sleep(self.random.choice((0, 0, 0.01, 0.5)))

    async def serve(self) -> None:
        name = self.random.choice(NAMES)
        self.own[name].append(await self.sites[name].serve("orders"))

    async def connect(self) -> None:
        name, route_id = self.random.choice(NAMES), self.random.choice(self.ids)
        # A clock that does not stand still between two registrations.
        await asyncio.sleep(0.01)
        self.own[name].append(await self.sites[name].connect("prices", route_id))

    async def withdraw(self) -> None:
        own = self.own[self.random.choice(NAMES)]
        if own:
            own.pop(self.random.randrange(len(own))).withdraw()

    async def cut(self) -> None:
        one, other = self.random.sample(NAMES, 2)
        silently = self.random.random() < 0.3
        self.made.network.cut(self.sites[one].uri, self.sites[other].uri, silently=silently)

    async def heal(self) -> None:
        self.made.network.heal()

    async def delay(self) -> None:
        self.made.network.delay = self.random.choice((0.001, 0.05, 1.0))

    async def restart(self) -> None:
        name = self.random.choice(NAMES)
        await self.made.kill(self.sites[name])
        await asyncio.sleep(self.random.choice((0, 2, 10)))
        await self.start(name)

    async def wait(self) -> None:
        await asyncio.sleep(self.random.choice((1, 6, 20)))

    async def settle(self) -> None:
        """Heal everything, and wait until nothing is hidden any more."""
        self.made.network.delay = 0.001
        self.made.network.heal()
        await asyncio.sleep(60)

    def check(self) -> None:
        """Check that each broker knows all that is connected, and nothing else."""
        there = {
            registration.route_id.bytes: self.sites[name].id
            for name, own in self.own.items()
            for registration in own
            if registration.current
        }
        wanted = Counter(there.values())
        for name, site in self.sites.items():
            found = Counter(site.found("orders")) + Counter(site.found("prices"))
            assert found == wanted, name
            table = {entry.route_id: entry.broker_id for entry in site.broker.index.entries()}
            assert table == there
            for peer in site.cluster.peers():
                assert (peer.state, peer.reason if peer.state != "up" else "") == ("up", "")
            assert len(site.cluster.log) == wanted[site.id]
            assert site.cluster.log.statistics().changes <= LIMITS.log_changes
            assert site.broker.index.table.statistics().hidden == 0
        for one, other in combinations(self.sites.values(), 2):
            assert len(self.made.network.between(one.uri, other.uri)) == 1


@pytest.mark.parametrize("seed", runs(8, 300))
async def test_after_trouble_all_brokers_know_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The ids of brokers decide which of two links stays, and which of two routes is seen.
    ids = random.Random(~seed)
    monkeypatch.setattr(uuid, "uuid4", lambda: UUID(int=ids.getrandbits(128)))
    async with clusters() as made:
        trouble = Trouble(made, seed)
        for name in NAMES:
            await trouble.start(name)
        for _ in range(STEPS):
            await trouble.step()
        await trouble.settle()
        trouble.check()
        sent = sum(len(end.sent) for link in made.network.links for end in (link, link.far))
        await asyncio.sleep(100)
        # After rest there are marks, and comparisons of the lists of brokers.
        links = len(made.network.links)
        more = sum(len(end.sent) for link in made.network.links for end in (link, link.far)) - sent
        assert more <= links * (2 * 11 + 2 * 11)
        trouble.check()
