"""Nodes with identities, and what has to be true of their messages whatever the seed.

Three to six nodes, each with a router, joined at random over links of different delays, some of
them by way of a hostile node that alters, loses, delays and repeats frames. Workers have the
identity of their node, one that is derived of it, or a key of their own, with which they move from
node to node. They send each other requests and plain messages, in half of the runs some of them
sealed and over relays, of which one or two lie: they lose, delay, repeat, alter and mislead what
they are to pass on, and answer twice by one handle. In half of the runs two nodes serve a domain,
to which requests go as well. Links are cut, with and without a word, and become slow or unruly;
keys of links are made anew; nodes ban each other and their engines; nodes crash, and are started
again with the same key. In half of the runs there is a stranger: a node with a key that it has
proven, which repeats what it has sent or got, also to nodes that were started again and after it
had the windows of ids overflow by new engines, and what the relays that lie have passed on; alters
it; speaks for others; and answers what it was not asked. In half of the runs there is a topic
(`Topic`), and in half of them nodes reach others that they are not joined with: by look-ups at
those between, and then by a link that is opened for it, or by a relay with a reservation. Then all
is healed, and it has to hold, besides what `Ledger` says of each message and `Wire` of what nodes
say, that:

1. After a while all nodes that are joined reach each other and their engines, and what is sent to
   the topic comes to all that are subscribed.
2. No table or queue of a router has ever had more than it may.
3. All nodes stop, and no session, link, timer or task is left.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

from onward.actors.identity import ROUTER
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from tests.simulated.identity_ledger import Ledger, Taker
from tests.simulated.identity_liars import Liar, Middle
from tests.simulated.identity_limits import excesses, left_of
from tests.simulated.identity_places import Places
from tests.simulated.identity_plan import Plan
from tests.simulated.identity_strangers import Stranger
from tests.simulated.identity_topics import Topic
from tests.simulated.identity_traffic import Tasks, Traffic
from tests.simulated.identity_troubles import Troubles
from tests.simulated.identity_wire import Wire
from tests.simulated.pipes import Errors
from tests.support.identities import key_of

__all__ = ["Run", "checked_run", "run_identities"]

RECOVERY: Final = 130.0
"""Time after which all nodes reach each other once all is healed, in seconds: a node waits up to 30
for its next handshake, and learns by the next greeting, in up to 60, that it has missed some."""


@dataclass
class Run:
    """What has happened in a run.

    Attributes:
        nodes: Number of nodes with routers.
        pairs: Number of pairs of them that are joined.
        strange: Number of hostile nodes.
        happened: What has happened, and how often.
        refused: What routers have refused or dropped, by its reason.
        wrong: What is not as promised.
    """

    nodes: int
    pairs: int
    strange: int
    happened: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])


class World:
    """One run: nodes, what happens to them, and what is seen.

    Args:
        network: Where.
        seed: What the run is drawn from.
    """

    def __init__(self, network: SimulatedNetwork, seed: int) -> None:
        draw, more = random.Random(f"{seed}/identities"), random.Random(f"{seed}/more")
        self._seed: Final = seed
        self._network: Final = network
        self._draw: Final = draw
        self._ledger: Final = Ledger(random.Random(f"{seed}/payloads"))
        self._wire: Final = Wire(self._ledger)
        self._plan: Final = Plan(draw, more)
        self._liar: Final = Liar(random.Random(f"{seed}/liar"), self._ledger.counts)
        self._liar.of.update(key_of(each).identity for each in self._plan.liars)
        self._topic: Final = self._topic_of(more)
        self._run: Final = Run(len(self._plan.hosts), len(self._plan.pairs), 0)
        self._places: Final = Places(
            *(network, self._plan, draw, self._ledger, self._topic, self._run.refused)
        )
        self._tasks: Final = Tasks()
        self._traffic: Final = Traffic(self._plan, draw, self._ledger, self._places, self._tasks)
        self._troubles: Final = Troubles(
            *(network, self._plan, draw, self._places, self._traffic, self._tasks),
            *(self._topic, self._liar),
        )

    def _topic_of(self, more: random.Random) -> Topic | None:
        plan = self._plan
        return Topic(more, self._ledger, plan.hosts, plan.pairs) if more.random() < 0.5 else None

    async def play(self) -> Run:
        """Let things happen, heal them, and look."""
        before = asyncio.all_tasks()
        self._network.announce(*self._plan.hosts)
        for host in self._plan.hosts:
            await self._places.start(host)
        self._places.introduce()
        await self._start_strange()
        with self._liar.at_work(), self._wire.watched():
            return await self._play(before)

    async def _play(self, before: set[asyncio.Task[Any]]) -> Run:
        plan, places, topic, troubles = self._plan, self._places, self._topic, self._troubles
        keepers = [asyncio.create_task(troubles.keep(pair)) for pair in plan.pairs]
        if topic is not None:
            keepers += [asyncio.create_task(troubles.keep_reader(each)) for each in topic.hosts]
        await asyncio.sleep(1)
        await troubles.last(self._check_limits)
        await troubles.heal()
        await asyncio.sleep(RECOVERY)
        if plan.far == "reservations":
            for host in plan.hosts:
                await places.reserve(host)
        if plan.far:
            await self._traffic.look_again()
        await self._traffic.calm()
        self._check_limits()
        if topic is not None:
            await topic.calm({name: each.node for name, each in places.of.items()})
        for task in keepers:
            task.cancel()
        await self._end(before)
        self._run.happened.update(troubles.happened)
        self._run.happened.update(self._ledger.counts)
        self._run.wrong += self._ledger.violations()
        return self._run

    async def _start_strange(self) -> None:
        draw, counts = self._draw, self._ledger.counts
        if self._plan.by_middle is not None:
            node = await self._network.node("middle")
            to = f"sim://{self._plan.by_middle[1]}"
            middle = Middle(random.Random(f"{self._seed}/middle"), to, counts)
            await node.start(lambda: middle, address=ROUTER)
            await node.listen("sim://middle", expose=[ROUTER])
            self._troubles.middle, self._run.strange = middle, 1
        if draw.random() < 0.5:
            node = await self._network.node("strange")
            stranger = Stranger(
                *(random.Random(f"{self._seed}/stranger"), key_of("strange"), self._ledger),
                *(self._places.targets, self._liar.seen, self._wire.recent),
            )
            await node.start(lambda: stranger, address=ROUTER)
            await node.start(lambda: StrangeEngine(stranger), address="strange")
            self._troubles.stranger, self._traffic.stranger = stranger, stranger.key.identity
            self._run.strange += 1
            for host in self._plan.hosts:
                await stranger.dial(host)

    def _check_limits(self) -> None:
        """Check that no table or queue has more than it may."""
        for place in self._places:
            for each in excesses(place, self._plan.options):
                self._ledger.complain(each)

    async def _end(self, before: set[asyncio.Task[Any]]) -> None:
        """Stop all nodes, and check that nothing is left of them."""
        for name, node in self._network.nodes.items():
            await node.stop()
            place = self._places.of.get(name)
            if place is None:
                continue
            self._run.refused.update(place.identities.refused())
            left = left_of(place, self._network)
            if any(left.values()):
                self._ledger.complain(f"{name} has left {left}")
        await asyncio.sleep(10)
        tasks = asyncio.all_tasks() - before - {asyncio.current_task()}
        for task in tasks:
            self._ledger.complain(f"a task is left: {task.get_coro()}")


class StrangeEngine(Taker):
    """The worker of a stranger that answers are for."""

    def __init__(self, stranger: Stranger) -> None:
        super().__init__(stranger._ledger, "strange", stranger.key.identity, {})


@contextmanager
def _drawn(seed: int) -> Generator[None]:
    """Draw secrets from a seed."""
    draw = random.Random(f"{seed}/tokens")
    with (
        mock.patch("secrets.token_bytes", draw.randbytes),
        mock.patch("secrets.randbits", draw.getrandbits),
    ):
        yield


def run_identities(seed: int) -> Run:
    """Do one run."""
    draw = random.Random(f"{seed}/faults")
    faults = Faults(latency=(0.001, draw.choice((0.001, 0.02))))
    with _drawn(seed):
        return simulate(lambda network: World(network, seed).play(), seed=seed, faults=faults)


def checked_run(seed: int) -> tuple[int, Run | None, list[str]]:
    """Do one run; an error in it, or one that is logged, is a violation too."""
    with Errors() as errors:
        try:
            run = run_identities(seed)
        except Exception as error:
            return seed, None, [f"{type(error).__name__}: {error}", *errors]
    return seed, run, run.wrong + errors
