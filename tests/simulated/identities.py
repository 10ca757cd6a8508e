"""Nodes with identities, and what has to be true of their messages whatever the seed.

Three to six nodes, each with a router, joined at random over links of different delays, some of
them by way of a hostile node that alters, loses, delays and repeats frames. Workers have the
identity of their node, one that is derived of it, or a key of their own, with which they move from
node to node. They send each other requests and plain messages, in half of the runs some of them
sealed and over relays, of which one lies: it loses, delays, repeats, alters and misleads what it
is to pass on. In half of the runs two nodes serve a domain, to which requests go as well. Links
are cut, with and without a word, and become slow or unruly; keys of links are made anew; nodes ban
each other and their engines; nodes crash, and are started again with the same key. In half of the
runs there is a stranger: a node with a key that it has proven, which repeats what it has sent or
got, also to nodes that were started again and after floods of new engines, alters it, and speaks
for others. In half of the runs there is a topic (`Topic`), and in half of them nodes reach others
that they are not joined with: by look-ups at those between, and then by a link that is opened for
it, or by a relay with a reservation. Then all is healed, and it has to hold, besides what `Ledger`
says of each message, that:

1. After a while all nodes that are joined reach each other and their engines, and what is sent to
   the topic comes to all that are subscribed.
2. No table or queue of a router has ever had more than it may.
3. All nodes stop, and no session, link, timer or task is left.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

from onward.actors import Node, NodeLimits
from onward.actors.identity import ROUTER, IdentityKeys, IdentityOptions
from onward.actors.identity.links._session import MAX_WAITING
from onward.protocol import OnwardError
from onward.protocol.identity import (
    MAX_EXPECTED,
    AdvertSource,
    FreshnessRefusal,
    Identity,
    RelayLoadLimits,
    RelayPolicy,
    SigningKey,
    derived_engine,
    identity_text,
)
from onward.transports.identity import Identities
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from tests.simulated.identity_ledger import Ledger, Sent, Taker
from tests.simulated.identity_strangers import Liar, Middle, Stranger
from tests.simulated.identity_topics import Topic
from tests.simulated.pipes import Errors
from tests.support.domains import DOMAIN, domain_text
from tests.support.identities import NOW, engine_text, key_of, node_text

__all__ = ["WEIGHTS", "Run", "checked_run", "run_identities"]

TROUBLE: Final = 25.0
"""Time for which something happens, in seconds."""
RECOVERY: Final = 130.0
"""Time after which all nodes reach each other once all is healed, in seconds: a node waits up to 30
for its next handshake, and learns by the next greeting, in up to 60, that it has missed some."""
LONGEST: Final = 8.0
"""Longest time for which an answer is awaited, in seconds."""
SKEW: Final = 2.0
"""Most time by which a clock is ahead of that of the loop, or behind it, in seconds."""
OPEN_RELAY: Final = RelayPolicy(from_any=True, exits=True)
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


class World:
    """One run: nodes, what happens to them, and what is seen.

    Args:
        network: Where.
        seed: What the run is drawn from.
    """

    def __init__(self, network: SimulatedNetwork, seed: int) -> None:
        self.draw = draw = random.Random(f"{seed}/identities")
        self.ledger = Ledger(random.Random(f"{seed}/payloads"))
        self.places: dict[str, Place] = {}
        self.hosts = [f"n{number}" for number in range(draw.choice((3, 3, 3, 4, 4, 5, 6)))]
        pairs = [(one, other) for one in self.hosts for other in self.hosts if one < other]
        row = list(zip(self.hosts, self.hosts[1:], strict=False))
        self.pairs = row + [each for each in pairs if each not in row and draw.random() < 0.3]
        self.by_middle = draw.choice(self.pairs) if draw.random() < 0.5 else None
        self.keys = {host: keys_of(host) for host in self.hosts}
        self.skews = {host: draw.uniform(-SKEW, SKEW) for host in self.hosts}
        more = random.Random(f"{seed}/more")
        self.far = more.choice(("", "", "dials", "reservations"))
        self.options = IdentityOptions(
            message_time=draw.choice((5.0, 60.0, 600.0)),
            max_engines=8,
            max_correspondents=draw.choice((8, 20, 10_000)),
            max_peers=16,
            handshake_time=draw.choice((2.0, 10.0)),
            max_parked=draw.choice((2, 64)),
            anonymous=draw.random() < 0.5,
            dials=("sim",) if self.far == "dials" else (),
        )
        self.relays, self.domain = draw.random() < 0.5, draw.random() < 0.5
        self.members = draw.sample(self.hosts, 2)
        self.liar = Liar(random.Random(f"{seed}/liar"), self.ledger.counts)
        if self.relays:
            self.liar.of.add(key_of(draw.choice(self.hosts)).identity)
        self.topic: Topic | None = None
        if more.random() < 0.5:
            self.topic = Topic(more, self.ledger, self.hosts, self.pairs)
        self.movers = [SigningKey(draw.randbytes(32)) for _ in range(2)]
        self.run = Run(len(self.hosts), len(self.pairs), 0)
        self.stranger: Stranger | None = None
        self.middle: Middle | None = None
        self._seed = seed
        self._network = network
        self._error_replies = draw.random() < 0.5
        self._cut: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def play(self) -> Run:
        """Let things happen, heal them, and look."""
        before = asyncio.all_tasks()
        self._network.announce(*self.hosts)
        for host in self.hosts:
            await self._start(host)
        self._introduce()
        await self._start_strange()
        with self.liar.at_work():
            return await self._play(before)

    async def _play(self, before: set[asyncio.Task[Any]]) -> Run:
        keepers = [asyncio.create_task(self._keep(pair)) for pair in self.pairs]
        if self.topic is not None:
            keepers += [asyncio.create_task(self._keep_reader(each)) for each in self.topic.hosts]
        await asyncio.sleep(1)
        await self._trouble()
        await self._heal()
        await asyncio.sleep(RECOVERY)
        if self.far == "reservations":
            for host in self.hosts:
                await self._reserve(host)
        if self.far:
            await self._look_again()
        await self._calm_traffic()
        if self.topic is not None:
            await self.topic.calm({name: each.node for name, each in self.places.items()})
        for task in keepers:
            task.cancel()
        await self._end(before)
        self.run.happened.update(self.ledger.counts)
        self.run.wrong += self.ledger.violations()
        return self.run

    # --- nodes --------------------------------------------------------------------------------

    async def _start(self, host: str) -> None:
        known = host in self._network.nodes
        if known:
            node = await self._network.restart(host)
        else:
            limits = NodeLimits(pending_timeout=4.0)
            node = await self._network.node(host, error_replies=self._error_replies, limits=limits)
        skew, loop = self.skews[host], self._loop
        identities = await Identities.attach(
            *(node, self.keys[host], self.options),
            expose=["open"],
            addresses=[f"sim://{host}"] if self.far == "dials" else [],
            clock=lambda: NOW + skew + loop.time(),
            relay=OPEN_RELAY if self.relays else self._relay_of_reserved(),
            relay_limits=RelayLoadLimits(held_messages=8, peer_messages=4),
        )
        self.places[host] = Place(node, f"{host}/{loop.time():.0f}", identities)
        await self._fill(host)
        await node.listen(f"sim://{host}", expose=[ROUTER])

    def _relay_of_reserved(self) -> RelayPolicy | None:
        return RelayPolicy(to_reserved=True) if self.far == "reservations" else None

    async def _reserve(self, host: str) -> None:
        """Reserve a place at a node that a node is joined with."""
        place = self.places.get(host)
        peers = [] if place is None else sorted(place.identities.peers())
        if place is not None and peers:
            with suppress(OnwardError):
                await place.identities.reserve(self.draw.choice(peers))

    async def _start_taker(self, place: Place, name: str, identity: Identity) -> None:
        taker = Taker(self.ledger, place.life, identity, place.banned)
        await place.node.start(lambda: taker, address=name)
        place.takers[name] = taker

    def _introduce(self) -> None:
        """Have all nodes know the adverts of each other and of the domain, as by configuration.

        If they reach nodes that they are not joined with, they look them up instead.
        """
        places = self.places.values()
        adverts = [each.identities._router.own_adverts.of_node() for each in places if not self.far]
        founder = self.places.get(self.members[0])
        if self.domain and founder is not None:
            adverts += founder.identities.directory.adverts_for(DOMAIN.identity)
        for place in self.places.values():
            for advert in adverts:
                place.identities.directory.put(advert, AdvertSource.LOCAL)

    async def _fill(self, host: str) -> None:
        """Start the workers that have ended."""
        place = self.places[host]
        await self._start_engine(host)
        if self.topic is not None:
            await self.topic.fill(place.node, place.identities)
        if "open" not in place.takers:
            await self._start_taker(place, "open", place.identities.own)
        if not self.domain or host not in self.members or "domain" in place.takers:
            return
        await self._start_taker(place, "domain", DOMAIN.identity)
        place.identities.serve(DOMAIN.identity, "domain")
        if host == self.members[0]:
            place.identities.found_domain(DOMAIN, [key_of(each).identity for each in self.members])

    async def _start_engine(self, host: str, key: SigningKey | None = None) -> None:
        """Start an engine, with the key of one that moves or without a key."""
        place = self.places[host]
        name = "engine" if key is None else f"mover{self.movers.index(key)}"
        if name in place.takers:
            return
        own = place.identities.own
        identity = derived_engine(own, name.encode()) if key is None else key.identity
        await self._start_taker(place, name, identity)
        assert place.identities.engine(name, key) == identity

    async def _end_engine(self, place: Place, name: str) -> None:
        if place.takers.pop(name, None) is not None:
            await place.node.stop_worker(name)

    async def _start_strange(self) -> None:
        draw = self.draw
        if self.by_middle is not None:
            node = await self._network.node("middle")
            to = f"sim://{self.by_middle[1]}"
            middle = Middle(random.Random(f"{self._seed}/middle"), to, self.ledger.counts)
            await node.start(lambda: middle, address=ROUTER)
            await node.listen("sim://middle", expose=[ROUTER])
            self.middle, self.run.strange = middle, 1
        if draw.random() < 0.5:
            node = await self._network.node("strange")
            stranger = Stranger(
                *(random.Random(f"{self._seed}/stranger"), key_of("strange"), self.ledger),
                self._targets,
            )
            await node.start(lambda: stranger, address=ROUTER)
            await node.start(lambda: StrangeEngine(stranger), address="strange")
            self.stranger = stranger
            self.run.strange += 1
            for host in self.hosts:
                await stranger.dial(host)

    def _targets(self, host: str) -> tuple[Identity, list[Identity]] | None:
        place = self.places.get(host)
        return None if place is None else (place.identities.own, place.engines)

    async def _keep(self, pair: tuple[str, str]) -> None:
        """Join two nodes whenever they live and are not joined."""
        one, other = pair
        to = "middle" if pair == self.by_middle else other
        while True:
            place, identity = self.places.get(one), key_of(other).identity
            wanted = other in self.places and pair not in self._cut
            if place is None or not wanted or place.has(identity):
                await asyncio.sleep(0.5)
                continue
            with suppress(OnwardError, TimeoutError):
                joined = place.identities.join(f"sim://{to}", identity=identity)
                await asyncio.wait_for(joined, 12)
            await asyncio.sleep(0.5)

    async def _keep_reader(self, host: str) -> None:
        """Subscribe the reader at a node whenever there is one that is not."""
        while self.topic is not None:
            place = self.places.get(host)
            if place is not None:
                self.topic.subscribe(place.identities, host)
            await asyncio.sleep(1)

    # --- what happens -------------------------------------------------------------------------

    async def _trouble(self) -> None:
        until = self._loop.time() + TROUBLE
        while self._loop.time() < until:
            await self._happen()
            self._check_limits()
            await asyncio.sleep(self.draw.choice((0.0, 0.02, 0.1, 0.5)))

    async def _happen(self) -> None:  # noqa: C901 - one of twenty
        draw, network = self.draw, self._network
        what = draw.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        pair, host = draw.choice(self.pairs), draw.choice(self.hosts)
        one, other = pair
        place = self.places.get(host)
        self.run.happened[what] += 1
        match what:
            case "send" if place is not None:
                for _ in range(draw.choice((1, 1, 2, 5))):
                    self._send(place)
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
                self.liar.lies = draw.choice((0.0, 0.2, 0.6))
                if self.middle is not None:
                    self.middle.lies = draw.choice((0.0, 0.02, 0.2))
            case "crash" if place is not None:
                await self._crash(host)
            case "start" if place is None:
                await self._start(host)
                if self.stranger is not None:
                    self._do(self.stranger.come_back(host))
            case "move":
                self._do(self._move(draw.choice(self.movers), host))
            case "end" if place is not None:
                await self._end_engine(place, draw.choice(("open", "engine", "domain")))
            case "engine" if place is not None:
                await self._fill(host)
            case "ban" | "unban" if place is not None:
                self._ban(place, what)
            case "new keys" if place is not None:
                self._renew(place)
            case "deed" if self.stranger is not None:
                self.stranger.act()
            case "dial" if self.stranger is not None:
                self._do(self.stranger.dial(host))
            case "publish" if self.topic is not None and place is not None:
                for _ in range(draw.choice((1, 1, 3))):
                    self.topic.publish(place.node)
            case "reserve" if self.far == "reservations" and place is not None:
                self._do(self._reserve(host))
            case "end reader" if self.topic is not None and place is not None:
                await self.topic.end_reader(place.node)
            case _:
                self.run.happened[what] -= 1

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cut_link(self, pair: tuple[str, str]) -> None:
        place = self.places.get(pair[0])
        if place is None:
            return
        session = place.identities._router.peers.sessions.get(key_of(pair[1]).identity)
        if session is not None and place.node.has(session._route[0]):
            await place.node.stop_worker(session._route[0])

    async def _crash(self, host: str) -> None:
        place = self.places.pop(host)
        if self.topic is not None:
            self.topic.crashed(host)
        self.run.refused.update(place.identities.refused())
        await self._network.crash(host)

    async def _move(self, key: SigningKey, host: str) -> None:
        """End an engine where it is, and start it at another node."""
        name = f"mover{self.movers.index(key)}"
        for place in list(self.places.values()):
            await self._end_engine(place, name)
        # The version of its advert is a time, and the clock of the new place may be behind.
        await asyncio.sleep(self.draw.choice((0.1, 1, 2 * SKEW + 1)))
        if host in self.places and not any(name in each.takers for each in self.places.values()):
            await self._start_engine(host, key)

    def _ban(self, place: Place, what: str) -> None:
        if what == "unban":
            for identity in list(place.banned):
                del place.banned[identity]
                place.identities.unban(identity)
            return
        others = [each for each in self.places.values() if each is not place]
        identities = [each.identities.own for each in others]
        identities += [each for other in others for each in other.engines]
        identities += self.ledger.strange and [key_of("strange").identity]
        if identities:
            identity = self.draw.choice(identities)
            place.identities.ban(identity)
            if self.topic is not None:
                self.topic.banned(place.node.name)
            place.banned.setdefault(identity, self._loop.time())

    def _renew(self, place: Place) -> None:
        """Begin handshakes for new keys."""
        peers = place.identities._router.peers
        for session in list(peers.sessions.values()):
            way = peers._way_of[session]
            if way.dialled and way.handshake is None:
                peers._dial(way)

    # --- messages -----------------------------------------------------------------------------

    def _send(self, place: Place) -> None:
        """Send a message from somewhere at a node to somewhere."""
        draw = self.draw
        others = [each for each in self.places.values() if each is not place]
        targets: list[tuple[Identity, bool]] = [(key.identity, False) for key in self.movers]
        for other in others:
            targets.append((other.identities.own, True))
            targets += [(each, False) for each in other.engines]
        if self.stranger is not None:
            targets.append((self.stranger.key.identity, True))
        target, is_node = draw.choice(targets)
        route = route_to(target, is_node)
        if self.relays and draw.random() < 0.4:
            relays = [key_of(each).identity for each in self.hosts if each != place.node.name]
            route = relay_text(*draw.sample(relays, draw.choice((1, 1, 2)))) + " => " + route
            self.ledger.counts["messages over relays"] += 1
        elif self.domain and draw.random() < 0.2:
            target, route = DOMAIN.identity, domain_text()
            self.ledger.counts["messages to a domain"] += 1
        self._tell(place, target, route, draw.choice(("ask", "ask", "post", "drop")))

    def _tell(self, place: Place, target: Identity, route: str, how: str) -> Sent:
        """Send a message: a request, a message with a return route, or one without."""
        senders = [each for name, each in place.takers.items() if name != "domain"]
        own, sender = place.identities.own, self.draw.choice([None, *senders])
        # A worker without an identity of its own sends by that of its node.
        sent = self.ledger.make(own if sender is None else sender.identity, target)
        if target == DOMAIN.identity:
            sent.nodes = frozenset(each.identity for each in self.keys.values())
        timeout = self.draw.choice((0.5, 3.0, LONGEST))
        by = place.node if sender is None else sender
        self.ledger.counts[f"messages: {how}"] += 1
        if how == "ask":
            sent.asks = True
            asked = by.request(route, sent.payload, timeout=timeout)
            self._do(self.ledger.ask(sent, asked, timeout))
            return sent
        try:
            if sender is not None and how == "post":
                sender.send(route, sent.payload)
            else:
                by.send(route, sent.payload, return_route=())
        except OnwardError as error:
            error.lost = None
            sent.ends.append(f"certain: {error}")
        return sent

    # --- what has to be true ------------------------------------------------------------------

    def _check_limits(self) -> None:
        """Check that no table or queue has more than it may."""
        options = self.options
        for host, place in self.places.items():
            router = place.identities._router
            windows = router.incoming._windows
            sizes = {
                "links": (len(router.links._links), options.max_correspondents),
                "windows": (len(windows), max(64, 2 * options.max_correspondents)),
                "engines": (len(router.engines), options.max_engines),
                "ways": (len(router.peers._ways), options.max_peers),
                "answers that are awaited": (
                    len(place.identities._relays.ways.expected),
                    MAX_EXPECTED,
                ),
                "messages held": (place.identities.relay_statistics().held, 8),
                "requests to domains": (place.identities.domain_statistics().pending, 1000),
                "clocks": (len(router.greetings._clocks), 2 * options.max_peers),
                "parked": (
                    max(map(router._parked.count, router._parked), default=0),
                    options.max_parked,
                ),
                "waiting": (
                    max((len(each.waiting) for each in router.peers.sessions.values()), default=0),
                    MAX_WAITING + 1,
                ),
            }
            for name, (size, most) in sizes.items():
                if size > most:
                    self.ledger.complain(f"{host} has {size} {name}, and may have {most}")

    async def _heal(self) -> None:
        self._network.heal()
        self._network.set_all_faults(Faults())
        self._cut.clear()
        self.liar.lies = 0.0
        if self.middle is not None:
            self.middle.lies = 0.0
        if self.stranger is not None:
            await self._network.crash("strange")
        for host in self.hosts:
            if host not in self.places:
                await self._start(host)
        for host, place in self.places.items():
            self._ban(place, "unban")
            await self._fill(host)
        self._introduce()
        await self._settle()
        for key in self.movers:
            name = f"mover{self.movers.index(key)}"
            if not any(name in each.takers for each in self.places.values()):
                await asyncio.sleep(2 * SKEW + 1)
                await self._start_engine(self.draw.choice(self.hosts), key)

    async def _settle(self) -> None:
        """Wait for all requests and moves that are under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _calm_traffic(self) -> None:
        """Send from all nodes to all that they are joined with: all has to come."""
        await self._settle()
        before = self._without_window()
        for host, place in self.places.items():
            pairs = [each for each in self.pairs if host in each]
            joined = {each for pair in pairs for each in pair if each != host}
            known = {key_of(each).identity for each in joined}
            if not known <= set(place.identities.peers()):
                self.ledger.complain(f"{host} is not joined with all of {sorted(joined)}")
                continue
            for other in sorted(joined):
                there = self.places[other]
                targets = [(there.identities.own, route_to(there.identities.own, True))]
                targets += [(each, route_to(each, False)) for each in there.engines]
                if self.domain and other in self.members:
                    targets.append((DOMAIN.identity, domain_text()))
                if self.relays:
                    targets += self._by_relay(host, other)
                # What was told of an engine while it was banned was refused: the first message may
                # go where it was, and then its sender is told so.
                for engine in there.engines:
                    self._tell(place, engine, route_to(engine, False), "ask")
                    await self._settle()
                targets += self._far_targets(host, other)
                for target, route in targets:
                    how = self.draw.choice(("ask", "ask", "post"))
                    self._tell(place, target, route, how).calm = True
                    await self._settle()
        await asyncio.sleep(1)
        self.ledger.excused = self._without_window() - before
        self._check_limits()

    def _without_window(self) -> int:
        """Return how many messages were refused as the tables of windows were full.

        In some runs a node has 64 windows, for more pairs of identities. Then the window that
        expires first is let go, and what expires before that is refused: "What has no window is not
        accepted if it expires before."
        """
        tables = [each.identities._router.incoming._windows for each in self.places.values()]
        reasons = FreshnessRefusal.FORGOTTEN, FreshnessRefusal.FULL
        return sum(each.refused[reason] for each in tables for reason in reasons if each.let_go)

    def _joined(self, host: str) -> set[str]:
        """Return a node, and those that it is joined with."""
        return {host, *(each for pair in self.pairs if host in pair for each in pair)}

    def _far_targets(self, host: str, near: str) -> list[tuple[Identity, str]]:
        """Return nodes that one is not joined with, which a node that it is joined with knows."""
        if not self.far:
            return []
        far = [
            self.places[each].identities for each in sorted(self._joined(near) - self._joined(host))
        ]
        if self.far == "reservations":
            far = [each for each in far if key_of(near).identity in each.reserved_at()]
        self.ledger.counts[f"far nodes reached: {self.far}"] += len(far)
        return [(each.own, route_to(each.own, True)) for each in far]

    async def _look_again(self) -> None:
        """Send to nodes that one is not joined with, twice.

        A node that was started again refuses the first message over relays, as what is known of it
        is of before, and a further one has it looked up, ten seconds later at the earliest.
        """
        for _ in range(2):
            for host, place in self.places.items():
                for other in sorted({*self.hosts} - self._joined(host)):
                    node = self.places[other].identities.own
                    self._tell(place, node, route_to(node, True), "ask")
            await self._settle()
            await asyncio.sleep(11)

    def _by_relay(self, host: str, relay: str) -> list[tuple[Identity, str]]:
        """Return an identity that is reached over a relay, if there is one, and the route."""
        ends = [each for pair in self.pairs if relay in pair for each in pair]
        ends = sorted({*ends} - {host, relay})
        if not ends:
            return []
        target = key_of(self.draw.choice(ends)).identity
        by = relay_text(key_of(relay).identity)
        return [(target, f"{by} => {route_to(target, True)}")]

    async def _end(self, before: set[asyncio.Task[Any]]) -> None:
        """Stop all nodes, and check that nothing is left of them."""
        for name, node in self._network.nodes.items():
            await node.stop()
            place = self.places.get(name)
            if place is None:
                continue
            self.run.refused.update(place.identities.refused())
            router = place.identities._router
            left = {
                "sessions": len(router.peers.sessions),
                "ways": len(router.peers._ways),
                "engines": len(router.engines),
                "parked": len(router._parked),
                "links": len(self._network.place(node).links),
            }
            if any(left.values()):
                self.ledger.complain(f"{name} has left {left}")
        await asyncio.sleep(10)
        tasks = asyncio.all_tasks() - before - {asyncio.current_task()}
        for task in tasks:
            self.ledger.complain(f"a task is left: {task.get_coro()}")


def keys_of(host: str) -> IdentityKeys:
    """Return the keys of a node: the one to seal to outlives it as well."""
    return IdentityKeys(key_of(host), key_of(f"{host}/kx").sign(b"")[:32], None, None, host, 0)


def route_to(target: Identity, is_node: bool) -> str:
    """Return the route to an engine, or to the open worker of a node."""
    return f"{node_text(target)} => open" if is_node else engine_text(target)


def relay_text(*relays: Identity) -> str:
    """Return the addresses of relays, as a route."""
    return " => ".join(f"36#relay:{identity_text(each)}" for each in relays)


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
