"""What happens to the nodes of a run: one thing after another, at random."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from onward.protocol import OnwardError
from onward.transports.simulated import Faults, SimulatedNetwork
from tests.simulated.identity_liars import Liar, Middle
from tests.simulated.identity_places import Place, Places
from tests.simulated.identity_plan import Plan
from tests.simulated.identity_strangers import Stranger
from tests.simulated.identity_topics import Topic
from tests.simulated.identity_traffic import Tasks, Traffic
from tests.support.identities import key_of

__all__ = ["WEIGHTS", "Troubles"]

TROUBLE: Final = 25.0
"""Time for which something happens, in seconds."""
WEIGHTS: Final = {
    "send": 60,
    "cut": 4,
    "silent cut": 4,
    "heal": 8,
    "slow": 3,
    "unruly": 2,
    "lies": 4,
    "crash": 3,
    "start": 6,
    "move": 3,
    "end": 4,
    "engine": 3,
    "ban": 3,
    "unban": 6,
    "new keys": 4,
    "deed": 25,
    "dial": 8,
    "publish": 12,
    "end reader": 2,
    "reserve": 4,
}
"""How often each thing happens, relative to the others."""


class Troubles:
    """What happens to the nodes of a run, and what keeps them joined meanwhile.

    Args:
        network: Where they are.
        plan: What was drawn for the run.
        draw: What is drawn for it meanwhile.
        places: The nodes.
        traffic: Their messages.
        tasks: Where things go on that take time.
        topic: The topic, if there is one.
        liar: The relay that lies.

    Attributes:
        middle: The hostile node on the route between two others, if there is one.
        stranger: The hostile node with a key, if there is one.
        happened: What has happened, and how often.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        plan: Plan,
        draw: random.Random,
        places: Places,
        traffic: Traffic,
        tasks: Tasks,
        topic: Topic | None,
        liar: Liar,
    ) -> None:
        self.middle: Middle | None = None
        self.stranger: Stranger | None = None
        self.happened: Final = Counter[str]()
        self._network: Final = network
        self._plan: Final = plan
        self._draw: Final = draw
        self._places: Final = places
        self._traffic: Final = traffic
        self._tasks: Final = tasks
        self._topic: Final = topic
        self._liar: Final = liar
        self._cut: Final[set[tuple[str, str]]] = set()
        self._loop: Final = asyncio.get_running_loop()

    # --- what keeps them joined ---------------------------------------------------------------

    async def keep(self, pair: tuple[str, str]) -> None:
        """Join two nodes whenever they live and are not joined."""
        one, other = pair
        to = "middle" if pair == self._plan.by_middle else other
        while True:
            place, identity = self._places.of.get(one), key_of(other).identity
            wanted = other in self._places.of and pair not in self._cut
            if place is None or not wanted or place.has(identity):
                await asyncio.sleep(0.5)
                continue
            with suppress(OnwardError, TimeoutError):
                joined = place.identities.join(f"sim://{to}", identity=identity)
                await asyncio.wait_for(joined, 12)
            await asyncio.sleep(0.5)

    async def keep_reader(self, host: str) -> None:
        """Subscribe the reader at a node whenever there is one that is not."""
        while self._topic is not None:
            place = self._places.of.get(host)
            if place is not None:
                self._topic.subscribe(place.identities, host)
            await asyncio.sleep(1)

    # --- what happens -------------------------------------------------------------------------

    async def last(self, look: Callable[[], None]) -> None:
        """Let one thing happen after another for a while.

        Args:
            look: Looks at the nodes after each.
        """
        until = self._loop.time() + TROUBLE
        self._liar.lies = 0.5
        while self._loop.time() < until:
            await self._happen()
            look()
            await asyncio.sleep(self._draw.choice((0.0, 0.02, 0.1, 0.5)))

    async def _happen(self) -> None:  # noqa: C901 - one of twenty
        draw, network, places = self._draw, self._network, self._places
        what = draw.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        pair, host = draw.choice(self._plan.pairs), draw.choice(self._plan.hosts)
        one, other = pair
        place = places.of.get(host)
        self.happened[what] += 1
        match what:
            case "send" if place is not None:
                for _ in range(draw.choice((1, 1, 2, 5))):
                    self._traffic.send(place)
            case "cut":
                self._cut.add(pair)
                await self._cut_link(pair)
            case "silent cut":
                network.partition({one}, {other})
            case "heal":
                self._cut.discard(pair)
                network.heal()
            case "slow":
                network.set_faults(one, other, Faults(latency=(0.05, 0.4)))
            case "unruly":
                faults = Faults((0.001, 0.05), duplicate=0.02, reorder=0.05, loss=0.02)
                network.set_faults(one, other, faults)
            case "lies":
                self._liar.lies = draw.choice((0.2, 0.6))
                if self.middle is not None:
                    self.middle.lies = draw.choice((0.0, 0.02, 0.2))
            case "crash" if place is not None:
                await places.crash(host)
            case "start" if place is None:
                await places.start(host)
                if self.stranger is not None:
                    self._tasks.do(self.stranger.come_back(host))
            case "move":
                self._tasks.do(places.move(draw.choice(self._plan.movers), host))
            case "end" if place is not None:
                await places.end_engine(place, draw.choice(("open", "engine", "domain")))
            case "engine" if place is not None:
                await places.fill(host)
            case "ban" if place is not None:
                places.ban(place)
            case "unban" if place is not None:
                places.unban(place)
            case "new keys" if place is not None:
                renew(place)
            case "deed" if self.stranger is not None:
                self.stranger.act()
            case "dial" if self.stranger is not None:
                self._tasks.do(self.stranger.dial(host))
            case "publish" if self._topic is not None and place is not None:
                for _ in range(draw.choice((1, 1, 3))):
                    self._topic.publish(place.node)
            case "reserve" if self._plan.far == "reservations" and place is not None:
                self._tasks.do(places.reserve(host))
            case "end reader" if self._topic is not None and place is not None:
                await self._topic.end_reader(place.node)
            case _:
                self.happened[what] -= 1

    async def _cut_link(self, pair: tuple[str, str]) -> None:
        place = self._places.of.get(pair[0])
        if place is None:
            return
        session = place.identities._router.peers.sessions.get(key_of(pair[1]).identity)
        if session is not None and place.node.has(session._route[0]):
            await place.node.stop_worker(session._route[0])

    # --- and how it ends ----------------------------------------------------------------------

    async def heal(self) -> None:
        """End all of it: no fault, lie, ban or hostile node is left, and all nodes live."""
        places = self._places
        self._network.heal()
        self._network.set_all_faults(Faults())
        self._cut.clear()
        self._liar.lies = 0.0
        if self.middle is not None:
            self.middle.lies = 0.0
        if self.stranger is not None:
            await self._network.crash("strange")
        for host in self._plan.hosts:
            if host not in places.of:
                await places.start(host)
        for host, place in places.of.items():
            places.unban(place)
            await places.fill(host)
        places.introduce()
        await self._tasks.settle()
        await places.fill_movers()


def renew(place: Place) -> None:
    """Begin handshakes for new keys at a node."""
    peers = place.identities._router.peers
    for session in list(peers.sessions.values()):
        way = peers._way_of[session]
        if way.dialled and way.handshake is None:
            peers._dial(way)
