"""The nodes of a run with their routers and engines: started, filled, moved, banned, crashed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from onward.actors import Node, NodeLimits
from onward.actors.identity import ROUTER
from onward.protocol import OnwardError
from onward.protocol.identity import (
    AdvertSource,
    Identity,
    RelayLoadLimits,
    SigningKey,
    derived_engine,
)
from onward.transports.identity import Identities
from onward.transports.simulated import SimulatedNetwork
from tests.simulated.identity_ledger import Ledger, Taker
from tests.simulated.identity_plan import SKEW, Plan
from tests.simulated.identity_topics import Topic
from tests.support.domains import DOMAIN
from tests.support.identities import NOW, key_of

__all__ = ["HELD", "Place", "Places"]

HELD: Final = 8
"""Most messages that a node holds as a relay."""


class Place:
    """A node with a router, while it lives."""

    def __init__(self, node: Node, life: str, identities: Identities) -> None:
        self.node: Final = node
        self.life: Final = life
        self.identities: Final = identities
        self.takers: Final[dict[str, Taker]] = {}
        self.banned: Final[dict[Identity, float]] = {}

    def has(self, node: Identity) -> bool:
        """Whether it has a session with a node."""
        return node in self.identities._router.peers.sessions

    @property
    def engines(self) -> list[Identity]:
        """The identities of the engines."""
        others = "open", "domain"
        return [each.identity for name, each in self.takers.items() if name not in others]


class Places:
    """The nodes of a run that live.

    Args:
        network: Where they are.
        plan: What was drawn for the run.
        draw: What is drawn for it meanwhile.
        ledger: The messages.
        topic: The topic, if there is one.
        refused: Counts what routers have refused or dropped, by its reason.

    Attributes:
        of: The nodes, by their names.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        plan: Plan,
        draw: random.Random,
        ledger: Ledger,
        topic: Topic | None,
        refused: Counter[str],
    ) -> None:
        self.of: Final[dict[str, Place]] = {}
        self._network: Final = network
        self._plan: Final = plan
        self._draw: Final = draw
        self._ledger: Final = ledger
        self._topic: Final = topic
        self._refused: Final = refused
        self._loop: Final = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[Place]:
        return iter(self.of.values())

    def targets(self, host: str) -> tuple[Identity, list[Identity]] | None:
        """Return the identities of a node and of its engines; `None` if it does not live."""
        place = self.of.get(host)
        return None if place is None else (place.identities.own, place.engines)

    # --- nodes --------------------------------------------------------------------------------

    async def start(self, host: str) -> None:
        """Start a node, for the first time or again, with the same keys."""
        plan, network, loop = self._plan, self._network, self._loop
        if host in network.nodes:
            node = await network.restart(host)
        else:
            limits = NodeLimits(pending_timeout=4.0)
            node = await network.node(host, error_replies=plan.error_replies, limits=limits)
        skew = plan.skews[host]
        identities = await Identities.attach(
            *(node, plan.keys[host], plan.options),
            expose=["open"],
            addresses=[f"sim://{host}"] if plan.far == "dials" else [],
            clock=lambda: NOW + skew + loop.time(),
            relay=plan.policy,
            relay_limits=RelayLoadLimits(held_messages=HELD, peer_messages=4),
        )
        self.of[host] = Place(node, f"{host}/{loop.time():.0f}", identities)
        await self.fill(host)
        await node.listen(f"sim://{host}", expose=[ROUTER])

    async def crash(self, host: str) -> None:
        """Crash a node."""
        place = self.of.pop(host)
        if self._topic is not None:
            self._topic.crashed(host)
        self._refused.update(place.identities.refused())
        await self._network.crash(host)

    def introduce(self) -> None:
        """Have all nodes know the adverts of each other and of the domain, as by configuration.

        If they reach nodes that they are not joined with, they look them up instead.
        """
        plan = self._plan
        adverts = [each.identities._router.own_adverts.of_node() for each in self if not plan.far]
        founder = self.of.get(plan.members[0])
        if plan.domain and founder is not None:
            adverts += founder.identities.directory.adverts_for(DOMAIN.identity)
        for place in self:
            for advert in adverts:
                place.identities.directory.put(advert, AdvertSource.LOCAL)

    async def reserve(self, host: str) -> None:
        """Reserve a place at a node that a node is joined with."""
        place = self.of.get(host)
        peers = [] if place is None else sorted(place.identities.peers())
        if place is not None and peers:
            with suppress(OnwardError):
                await place.identities.reserve(self._draw.choice(peers))

    # --- workers ------------------------------------------------------------------------------

    async def fill(self, host: str) -> None:
        """Start the workers of a node that have ended."""
        place, plan = self.of[host], self._plan
        await self.start_engine(host)
        if self._topic is not None:
            await self._topic.fill(place.node, place.identities)
        if "open" not in place.takers:
            await self._start_taker(place, "open", place.identities.own)
        if not plan.domain or host not in plan.members or "domain" in place.takers:
            return
        await self._start_taker(place, "domain", DOMAIN.identity)
        place.identities.serve(DOMAIN.identity, "domain")
        if host == plan.members[0]:
            place.identities.found_domain(DOMAIN, [key_of(each).identity for each in plan.members])

    async def start_engine(self, host: str, key: SigningKey | None = None) -> None:
        """Start an engine, with the key of one that moves or without a key."""
        place = self.of[host]
        name = "engine" if key is None else self._plan.name_of(key)
        if name in place.takers:
            return
        own = place.identities.own
        identity = derived_engine(own, name.encode()) if key is None else key.identity
        await self._start_taker(place, name, identity)
        assert place.identities.engine(name, key) == identity

    async def _start_taker(self, place: Place, name: str, identity: Identity) -> None:
        taker = Taker(self._ledger, place.life, identity, place.banned)
        await place.node.start(lambda: taker, address=name)
        place.takers[name] = taker

    async def end_engine(self, place: Place, name: str) -> None:
        """End a worker of a node, if it is there."""
        if place.takers.pop(name, None) is not None:
            await place.node.stop_worker(name)

    async def move(self, key: SigningKey, host: str) -> None:
        """End an engine where it is, and start it at another node."""
        name = self._plan.name_of(key)
        for place in list(self):
            await self.end_engine(place, name)
        # The version of its advert is a time, and the clock of the new place may be behind.
        await asyncio.sleep(self._draw.choice((0.1, 1, 2 * SKEW + 1)))
        if host in self.of and not self._has_mover(name):
            await self.start_engine(host, key)

    async def fill_movers(self) -> None:
        """Start the engines that move which are nowhere."""
        for key in self._plan.movers:
            if not self._has_mover(self._plan.name_of(key)):
                await asyncio.sleep(2 * SKEW + 1)
                await self.start_engine(self._draw.choice(self._plan.hosts), key)

    def _has_mover(self, name: str) -> bool:
        return any(name in each.takers for each in self)

    # --- bans ---------------------------------------------------------------------------------

    def ban(self, place: Place) -> None:
        """Ban an identity at a node: that of another node, of an engine of it, or a hostile one."""
        others = [each for each in self if each is not place]
        identities = [each.identities.own for each in others]
        identities += [each for other in others for each in other.engines]
        identities += self._ledger.strange and [key_of("strange").identity]
        if identities:
            identity = self._draw.choice(identities)
            place.identities.ban(identity)
            if self._topic is not None:
                self._topic.banned(place.node.name)
            place.banned.setdefault(identity, self._loop.time())

    def unban(self, place: Place) -> None:
        """Ban nothing at a node any more."""
        for identity in list(place.banned):
            del place.banned[identity]
            place.identities.unban(identity)
        if self._topic is not None:
            self._topic.unbanned(place.node.name)
