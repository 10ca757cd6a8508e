"""A cluster in virtual time, and what has to be true of it whatever the seed.

Three to six brokers and some destinations. Brokers join, leave, crash with and without a word,
hang, and restart with the same id; their clocks are up to ten minutes wrong; the ways between them
are cut, one way or both, and messages are delayed, so that a cut falls anywhere in a batch or a
snapshot. Destinations come, go, and move to another broker, also before the old one has noticed.
Then everything is healed, and after a while (`SETTLE`) the promises have to hold:

1. The table of each broker is the union of what is connected; no entry is hidden, none suspended;
   each destination has one connection.
2. A route that was removed is not used later than a message takes, while a link holds; and none
   comes back: what is hidden while a link is lost is used again only as the home broker has it.
3. Each request ends once. No destination gets a multicast twice, and each gets it once when nothing
   changes any more. A request of a peer broker is never forwarded.
4. Logs and what is known stay in their limits. At rest there are marks and comparisons alone, and
   brokers that are gone are forgotten.
5. On one stream each change is sent once. In the end some changes of one broker cost each link that
   holds their own bytes, while another broker crashes, and all others have changes of theirs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from onward.protocol.broker import Dialect, RouteRemove
from onward.protocol.cluster import ClusterLimits, Element, ElementKind, PresenceState
from tests.simulated.cluster_broker import (
    QUERY,
    Broker,
    Connection,
    Peer,
    Request,
)
from tests.simulated.cluster_network import LIFETIME, Clockwork, Network

SKEW: Final = 600_000
"""By how much a clock may be wrong, in milliseconds."""
SETTLE: Final = 100.0
"""Time after healing until all has to be true, in seconds: the longest wait before a dial, the
longest time that a link has to hold, two lifetimes of a link, and the time to forget a broker."""
REST: Final = 25.0
"""Time for which nothing may happen then, in seconds."""
MEASURED: Final = 16
"""Changes of which the bytes are measured: they fit into one element, which is not compressed."""
MOST_SHOWN: Final = 5
"""Violations of one run that are kept."""
AT_REST: Final = frozenset({"element", "compare", "compared"})

LIMITS: Final = ClusterLimits(
    longest_retry=10.0, longest_flap_hold=40.0, forget_after=60.0, compare=20.0
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made of.

    Attributes:
        brokers: Number of brokers.
        clients: Number of destinations.
        steps: Number of things that happen before everything is healed.
        pace: Mean time between them, in seconds.
        delays: The least and the longest time of a message, in seconds.
        log_changes: Changes that a log keeps.
        max_batch: Bytes of an element, so that snapshots have several parts.
        peer_hold: Time for which the routes of a lost peer broker are kept, in seconds.
        slow: Time a slow broker takes for an element, in seconds; 0 for none.
        seeds: How many brokers each is told of at its start.
    """

    brokers: int
    clients: int
    steps: int
    pace: float
    delays: tuple[float, float]
    log_changes: int
    max_batch: int
    peer_hold: float
    slow: float
    seeds: int


@dataclass
class Outcome:
    """What one run came to.

    Attributes:
        plan: What it was made of.
        happened: How often each thing happened.
        counts: What brokers sent and did.
        violations: What was not as promised.
    """

    plan: Plan
    happened: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])


def draw_plan(seed: int) -> Plan:
    """Draw what a run is made of."""
    draw = random.Random(f"{seed}/cluster")
    least = draw.choice((0.0005, 0.005, 0.05))
    brokers = draw.randint(3, 6)
    return Plan(
        brokers=brokers,
        clients=draw.choice((draw.randint(3, 16), draw.randint(3, 16), 60)),
        steps=draw.randint(15, 50),
        pace=draw.choice((0.2, 1.0, 1.0, 4.0)),
        delays=(least, least * draw.choice((1.0, 10.0, 40.0))),
        log_changes=draw.choice((0, 3, 20, 1000)),
        max_batch=draw.choice((1024, 1024, 65_536)),
        peer_hold=draw.choice((1.0, 6.0, 15.0, 30.0)),
        slow=draw.choice((0.0, 0.0, 0.3, 1.0)),
        seeds=draw.choice((1, 1, 2, brokers)),
    )


class Destination:
    """A destination that is to be connected to one broker.

    Attributes:
        route_id: Its id.
        connection: Its connection; `None` while it has none.
        wanted: Whether it is to have one.
    """

    def __init__(self, world: World, number: int) -> None:
        self.route_id = (number + 1).to_bytes(16)
        self.connection: Connection | None = None
        self.wanted = False
        self._lingering: list[Connection] = []
        self._world = world

    def connect(self) -> None:
        world = self._world
        brokers = [each for each in world.living() if not world.network.is_stalled(each)]
        if not self.wanted or self.connection is not None:
            return
        if brokers:
            self.connection = world.draw.choice(brokers).register(self)
        else:
            self.later()

    def later(self) -> None:
        world = self._world
        world.clock.at(world.clock.now + world.draw.uniform(0.2, 3.0), self.connect)

    def closed(self, connection: Connection) -> None:
        if connection is self.connection:
            self.connection = None
            self.later()

    def leave(self) -> None:
        """End the connection; a broker that hangs does not notice yet."""
        connection, self.connection = self.connection, None
        for each in (*self._lingering, *([connection] if connection else [])):
            self._world.end(each)
        self._lingering.clear()

    def move(self, *, unnoticed: bool) -> None:
        """Go over to another broker; the old one may notice late."""
        old, self.connection = self.connection, None
        if old is not None:
            world = self._world
            if not unnoticed:
                world.end(old)
            elif world.draw.random() < 0.7:
                world.clock.at(world.clock.now + world.draw.uniform(0.1, 20.0), world.end, old)
            else:
                self._lingering.append(old)  # it is for the brokers to find out
        self.connect()


class World:
    """Brokers, destinations, a network, and the things that can happen to them.

    Args:
        plan: What it is made of.
        seed: What chance is drawn from.
        kind: The kind of broker: the real one, or one that is broken on purpose.

    Attributes:
        HONEST: The real kind.
        HOPS: Most peer links that a request passes.
    """

    HONEST: ClassVar[type[Broker]] = Broker
    HOPS: ClassVar = 1

    def __init__(self, plan: Plan, seed: int, kind: type[Broker] = Broker) -> None:
        self.plan = plan
        self.outcome = Outcome(plan)
        self.draw = random.Random(f"{seed}/world")
        self.clock = Clockwork()
        self.network = Network(self.clock, self.draw, plan.delays)
        self.limits = ClusterLimits(
            max_batch=plan.max_batch,
            log_changes=plan.log_changes,
            peer_hold=plan.peer_hold,
            longest_retry=LIMITS.longest_retry,
            longest_flap_hold=LIMITS.longest_flap_hold,
            forget_after=LIMITS.forget_after,
            compare=LIMITS.compare,
        )
        self._kind = kind
        self.brokers: dict[int, Broker] = {}
        self.clients = [Destination(self, number) for number in range(plan.clients)]
        self._healed = False
        self._requests: list[Request] = []
        self._delivered = Counter[tuple[int, Connection]]()

    # --- for brokers --------------------------------------------------------------------------

    def violation(self, text: str) -> None:
        found = f"{text}, at {self.clock.now:.2f} s"
        if len(self.outcome.violations) < MOST_SHOWN:
            self.outcome.violations.append(found)
        if self._kind is not self.HONEST:
            # One is enough, and some that are broken become slow.
            raise AssertionError(found)

    def delivered(self, request: Request, connection: Connection) -> None:
        # One that has moved meanwhile is another one.
        key = request.number, connection
        self._delivered[key] += 1
        if self._delivered[key] > 1:
            self.violation("a destination has a request twice")

    def sent_part(self, number: int, other: int) -> None:
        """Cut the way of a snapshot now and then, before it is whole."""
        if not self._healed and self.draw.random() < 0.2:
            at = self.clock.now + self.draw.uniform(0.0, 3 * self.plan.delays[1])
            self.clock.at(at, self.cut, [(number, other)], 7.0)

    def _find(self, uri: str) -> Broker | None:
        return self.brokers.get(int(uri.removeprefix("sim://")))

    # --- things that happen -------------------------------------------------------------------

    def living(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.alive]

    def start(self, number: int) -> None:
        """Start the broker of a host, for the first time or anew."""
        others = [each for each in range(self.plan.brokers) if each != number]
        self.brokers[number] = self._kind(
            self.network,
            number,
            clock_skew=self.draw.randint(-SKEW, SKEW),
            limits=self.limits,
            watcher=self,
            find=self._find,
            # A host that everybody is told of, and some others.
            seeds=dict.fromkeys((*self.meeting_points(number), *others[: self.plan.seeds - 1])),
            slow=self.plan.slow if self.draw.random() < 0.3 else 0.0,
            zone=self.zone_of(number),
        )

    def meeting_points(self, number: int) -> tuple[int, ...]:
        """Return the hosts that the broker of a host is told of in any case."""
        return (0,)

    def zone_of(self, number: int) -> str:
        """Return the zone of the broker of a host."""
        return ""

    def crash(self, broker: Broker, *, silently: bool) -> None:
        broker.crash(silently=silently)

    def leave(self, broker: Broker) -> None:
        """End a broker in good order: its destinations go first."""
        for connection in list(broker.own.values()):
            broker.close(connection)
        self.clock.at(self.clock.now + 0.5, self._end, broker)

    def _end(self, broker: Broker) -> None:
        if broker.alive:
            broker.crash(silently=False)

    def stall(self, broker: Broker, time: float) -> None:
        """Let a broker hang; destinations that notice go elsewhere."""
        broker.stalled_until = self.clock.now + time
        self.network.look()
        self.clock.at(broker.stalled_until, self._resume, broker)
        if time > LIFETIME:
            for connection in broker.own.values():
                self.clock.at(self.clock.now + LIFETIME, self._give_up, connection)

    def _give_up(self, connection: Connection) -> None:
        for client in self.clients:
            if client.connection is connection:
                client.move(unnoticed=True)

    def _resume(self, broker: Broker) -> None:
        if broker.alive:
            self.network.look()
            broker.poke()

    def end(self, connection: Connection) -> None:
        """End a connection of a destination, at its broker."""
        broker = connection.broker
        if self.network.is_stalled(broker):
            self.clock.at(broker.stalled_until, self.end, connection)
        elif broker.alive:
            broker.close(connection)

    def request(self, broker: Broker, *, multicast: bool, route_id: bytes | None = None) -> Request:
        request = Request(len(self._requests), multicast, route_id)
        self._requests.append(request)
        broker.request(request)
        return request

    def heal(self) -> None:
        """Mend everything; brokers that are down stay so."""
        self._healed = True
        self.network.heal()
        for broker in self.living():
            if self.network.is_stalled(broker):
                broker.stalled_until = self.clock.now
                self._resume(broker)

    # --- chance -------------------------------------------------------------------------------

    def happen(self) -> None:
        """Let something happen that chance chooses."""
        names = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
        name = self.draw.choice(names)
        broker = self.draw.choice(self.living()) if self.living() else None
        if broker is None or self.network.is_stalled(broker):
            name = "start"
        if self.do(name, broker):
            self.outcome.happened[name] += 1

    def do(self, name: str, broker: Broker | None) -> bool:
        draw = self.draw
        if name == "start" or broker is None:
            down = [
                number
                for number in range(self.plan.brokers)
                if number not in self.brokers or not self.brokers[number].alive
            ]
            if down:
                self.start(draw.choice(down))
            return bool(down)
        return self._do_to_broker(name, broker) or self._do_to_client(name)

    def _do_to_broker(self, name: str, broker: Broker) -> bool:
        draw = self.draw
        match name:
            case "crash" | "silent crash" | "leave" if len(self.living()) < 2:
                return False
            case "crash" | "silent crash":
                self.crash(broker, silently=name == "silent crash")
            case "restart":
                self.crash(broker, silently=draw.random() < 0.3)
                self.clock.at(self.clock.now + draw.choice((0.01, 1.0, 8.0)), self._restart, broker)
            case "leave":
                self.leave(broker)
            case "stall":
                self.stall(broker, draw.choice((0.5, 3.0, 12.0, 40.0)))
            case "clock":
                broker.clock_skew = draw.randint(-SKEW, SKEW)
            case "cut" | "cut one way":
                other = draw.randrange(self.plan.brokers)
                if other == broker.number:
                    return False
                ways = [(broker.number, other)]
                if name == "cut":
                    ways.append((other, broker.number))
                self.cut(ways, draw.choice((0.3, 2.0, 7.0, 40.0)))
            case "partition":
                side = [n for n in range(self.plan.brokers) if draw.random() < 0.5]
                rest = [n for n in range(self.plan.brokers) if n not in side]
                ways = [(a, b) for a in side for b in rest] + [(b, a) for a in side for b in rest]
                self.cut(ways, draw.choice((2.0, 10.0, 40.0)))
            case "request" | "multicast":
                self.request(broker, multicast=name == "multicast")
            case _:
                return False
        return True

    def _restart(self, broker: Broker) -> None:
        if self.brokers[broker.number] is broker:
            self.start(broker.number)

    def cut(self, ways: Sequence[tuple[int, int]], time: float) -> None:
        """Cut ways for a time."""
        if self._healed:
            return
        for way in ways:
            self.network.cut(*way)
        if ways:
            self.clock.at(self.clock.now + time, self.network.heal, *ways)

    def _do_to_client(self, name: str) -> bool:
        draw = self.draw
        client = draw.choice(self.clients)
        match name:
            case "come":
                client.wanted = True
                client.connect()
            case "go":
                client.wanted = False
                client.leave()
            case "move" | "move unnoticed":
                client.wanted = True
                client.move(unnoticed=name == "move unnoticed")
                # Some brokers do not know it yet.
                for broker in self.living():
                    if not self.network.is_stalled(broker):
                        self.request(broker, multicast=False, route_id=client.route_id)
            case "burst":
                for each in self.clients:
                    each.wanted = draw.random() < 0.8
                    if each.wanted:
                        each.move(unnoticed=False)
                    else:
                        each.leave()
            case _:
                return False
        return True

    def advance(self, time: float) -> None:
        """Let time pass, and look at what is shown now and then."""
        until = self.clock.now + time
        while self.clock.now < until:
            self.clock.run(min(until, self.clock.now + 0.5))
            self.look()

    # --- what has to be true ------------------------------------------------------------------

    def look(self) -> None:
        """Check what has to be true at any time."""
        for broker in self.living():
            if self.network.is_stalled(broker):
                continue
            shown = broker.shown
            for entry in broker.table.candidates(QUERY):
                if entry.broker_id != broker.id and entry.broker_id not in shown:
                    self.violation("a route of a peer broker that is away is used")
            statistics = broker.log.statistics()
            if statistics.changes > self.plan.log_changes:
                self.violation(f"{statistics.changes} changes are kept")
            for peer in broker.peers.values():
                if peer.broker_id in shown:
                    self._look_at(broker, peer)

    def _look_at(self, broker: Broker, peer: Peer) -> None:
        """Check that nothing is shown that the home broker has removed for long."""
        wire = peer.wire
        if wire is None:
            self.violation("a peer broker without a link is shown")
            return
        home = wire.other(broker)
        if not isinstance(home, Broker) or not wire.is_open(home) or not home.alive:
            return
        disturbed = wire.last_disturbed(home)
        back = wire.last_disturbed(broker)  # credit comes back this way
        late = self.limits.gather + 4 * self.plan.delays[1] + 12 * self.plan.slow + 0.1
        for entry in broker.table.of(peer.broker_id):
            there = home.own.get(entry.route_id)
            if there is not None and there.timestamp == entry.timestamp:
                continue
            removed_at = home.removed.get((entry.route_id, entry.timestamp))
            if removed_at is None:
                self.violation("a route is shown that its home broker never had")
            elif self.clock.now - max(removed_at, disturbed, back) > late:
                self.violation("a route is shown that its home broker has removed")

    def check(self) -> None:
        """Check what has to be true when all is healed and has settled."""
        living = self.living()
        connected = {
            (connection.client.route_id, broker.id)
            for broker in living
            for connection in broker.own.values()
        }
        for client in self.clients:
            places = [home for route_id, home in connected if route_id == client.route_id]
            if len(places) != (1 if client.wanted else 0):
                self.violation(f"a destination has {len(places)} connections")
        for broker in living:
            self._check_table(broker, connected)
            others = {each.id for each in living if each is not broker}
            if set(broker.membership.linked) != others:
                self.violation(
                    f"{len(broker.membership.linked)} links to {len(others)} other brokers"
                )
            if broker.membership.statistics().known != len(others):
                self.violation("a broker that is gone is remembered")
            if any(
                peer.presence.state is not PresenceState.UP
                for peer in broker.peers.values()
                if peer.broker_id in others
            ):
                self.violation("a peer broker is not up")
        for request in self._requests:
            if len(request.ends) != 1:
                self.violation(f"a request has ended {len(request.ends)} times")

    def _check_table(self, broker: Broker, connected: set[tuple[bytes, bytes]]) -> None:
        found = {(entry.route_id, entry.broker_id) for entry in broker.table}
        used = {(entry.route_id, entry.broker_id) for entry in broker.table.candidates(QUERY)}
        if found != connected:
            self.violation(
                f"a table lacks {len(connected - found)} routes "
                f"and has {len(found - connected)} too many"
            )
        if used != found:
            self.violation(f"{len(found - used)} routes are not used")
        if broker.table.statistics().hidden:
            self.violation("an entry is hidden")

    def rest(self) -> None:
        """Check that nothing is sent but marks and comparisons, and that multicasts reach all."""
        before = Counter(self.network.counts)
        self.advance(REST)
        sent = Counter(self.network.counts)
        sent.subtract(before)
        if more := {
            name
            for name, count in sent.items()
            if count and " " not in name and name not in AT_REST and ":" not in name
        }:
            self.violation(f"not at rest: {', '.join(sorted(more))}")
        if sent["elements: changes"] or sent["elements: snapshot"]:
            self.violation("not at rest: routes")
        for broker in self.living():
            request = self.request(broker, multicast=True)
            self.advance(1.0 + 2 * self.HOPS * self.plan.delays[1])
            for client in self.clients:
                connection = client.connection
                if connection is not None and not self._delivered[request.number, connection]:
                    self.violation("a multicast did not reach all")
            if request.ends != ["done"]:
                self.violation(f"a multicast has ended {request.ends}")

    def settle(self) -> None:
        """Heal everything, wait, and check."""
        self.heal()
        self.advance(10.0)  # for what was on its way
        # Others are told of these alone, as a rule: without them they do not find each other.
        for number in {0}.union(*map(self.meeting_points, range(self.plan.brokers))):
            if number not in self.brokers or not self.brokers[number].alive:
                self.start(number)
        self.advance(SETTLE)
        self.check()
        self.rest()
        self.measure()
        self.outcome.counts = self.network.counts

    def measure(self) -> None:
        """Check that changes cost their own bytes on a link that holds, whatever happens elsewhere.

        It is the last thing of a run: all destinations leave, and a broker crashes.
        """
        homes = [each for each in self.living() if 0 < len(each.own) <= self.plan.log_changes]
        if not homes:
            return
        home = self.draw.choice(homes)
        others = [each for each in self.living() if each is not home]
        crashed = self.draw.choice(others) if len(others) > 1 else None
        first = home.log.sequence
        for client in self.clients:
            client.wanted = False
        leaving = list(home.own.values())[:MEASURED]
        elsewhere = [each for other in others for each in other.own.values()]
        before = {id(peer): peer.fed_bytes for peer in home.peers.values()}
        for connection in (*elsewhere, *leaving):
            self.end(connection)
        if crashed is not None:
            self.crash(crashed, silently=False)
        self.advance(1.0 + 4 * self.plan.delays[1] + 2 * self.plan.slow)
        count = home.log.sequence - first
        frame = RouteRemove(home.id, bytes(16), 1).serialize(Dialect.SPECIFICATION)
        instance = home.membership.own.instance
        element = Element(ElementKind.CHANGES, home.id, instance, first + count, (frame,) * count)
        cost = len(element.serialize())
        for peer in home.peers.values():
            if peer.wire is None:
                continue
            self.network.counts["links measured"] += 1
            found = peer.fed_bytes - before[id(peer)]
            if count != len(leaving) or found != cost:
                self.violation(f"{len(leaving)} changes cost {found} bytes, not {cost}")


WEIGHTS: Final = {
    "start": 4,
    "crash": 1,
    "silent crash": 1,
    "restart": 2,
    "leave": 1,
    "stall": 1,
    "clock": 1,
    "cut": 2,
    "cut one way": 2,
    "partition": 1,
    "come": 8,
    "go": 3,
    "move": 3,
    "move unnoticed": 4,
    "burst": 1,
    "request": 4,
    "multicast": 3,
}
"""How likely each thing is."""

SENT: Final = (
    *("subscribe", "element", "elements: snapshot", "elements: changes", "elements: mark"),
    *("bytes of element", "tell", "compare", "request", "requests tried again"),
    "replaced by a newer connection",
)
"""What is counted of what brokers have sent and done."""


def run(seed: int, kind: type[Broker] = Broker) -> Outcome:
    """Run a cluster from a seed."""
    return drive(World(draw_plan(seed), seed, kind))


def drive(world: World) -> Outcome:
    """Let happen what chance chooses, heal everything, and check."""
    plan = world.plan
    for number in range(plan.brokers):
        if world.draw.random() < 0.8 or number == 0:
            world.start(number)
    for client in world.clients:
        client.wanted = world.draw.random() < 0.7
        client.later()
    for _ in range(plan.steps):
        world.advance(world.draw.expovariate(1 / plan.pace))
        world.happen()
    world.settle()
    return world.outcome


def checked_run(seed: int, kind: type[Broker] = Broker) -> tuple[int, Outcome | None, list[str]]:
    """Run a cluster; return the seed, the outcome, and what was not as promised."""
    try:
        outcome = run(seed, kind)
    except Exception as error:
        return seed, None, [f"{type(error).__name__}: {error}"]
    return seed, outcome, outcome.violations
