"""Networks of dispatchers in virtual time, and what has to be true of them whatever the seed.

Three to nine nodes, joined at random, on links with different delays and costs, which the two ends
may tell differently. Links are cut, with and without a word, lose frames for a while and become
slow; nodes crash and are started again; consumers come, go and move. When nothing has happened for
a while, with whatever is cut and down, and at the end, when all is healed, it has to hold in each
part of the network:

1. All nodes have the same graph, which is that of the links that there are.
2. Each node knows the names with consumers at each other node, with what it tells of them, and its
   provisions; and of no node that it cannot reach.
3. The next hops from each node to each other lead there, at the cost that is told.
4. A multicast that is flooded over the snapshots reaches each consumer exactly once.
5. There is nothing but hellos and advertisements on the links.

Whenever all nodes of a part have the same graph, no route of next hops goes in a circle. No
neighbour is closed at any time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, cast

from onward.protocol.dispatch import (
    Graph,
    NeighbourClosed,
    Network,
    NetworkFrameKind,
    NetworkLimits,
    ToldName,
    join_links,
)
from tests.simulated.cluster_network import Clockwork

NAMES: Final = tuple(f"name/{number}" for number in range(6))
PATTERNS: Final = tuple(f"name.{number}.#" for number in range(4))
TOLD: Final = ToldName(2), ToldName(3), ToldName(0, 5)
TROUBLE: Final = 12.0
"""Time for which something happens, in seconds."""
CALM: Final = 45.0
"""Time after which all has to be as it should, in seconds: more than an advertisement takes."""
QUIET: Final = 3.0
MOST_FRAMES: Final = 100_000
CHECKED: Final = (NetworkFrameKind.HELLO, NetworkFrameKind.ADVERTISEMENT)
WEIGHTS: Final = {
    "cut": 4,
    "silent cut": 3,
    "heal": 6,
    "slow": 2,
    "lossy": 3,
    "crash": 2,
    "silent crash": 1,
    "start": 4,
    "consumer": 14,
    "move": 5,
    "provision": 4,
}
"""How often each thing happens, relative to the others."""


@dataclass(slots=True, eq=False)
class Link:
    """A link between two nodes, as it is in truth."""

    ends: tuple[int, int]
    costs: tuple[int, int]
    delay: float
    up: bool = True
    silent: bool = False
    loss: float = 0.0
    life: int = 0
    # The time at which the last frame arrives in each direction: frames keep their order.
    last: dict[int, float] = field(default_factory=dict[int, float])


class Node:
    """One node of the network."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"n{(number * 7) % 10}{number}"
        self.alive = False
        self.consumers: dict[str, ToldName] = {}
        self.provisions: dict[str, bytes] = {}
        self.network = self._make(0)
        self._wakes_at = float("inf")
        self._starts = 0

    def _make(self, instance: int) -> Network:
        now = self.world.clock.now
        return self.world.kind(self.name, 1_000 + instance, NetworkLimits(), now)

    def start(self) -> None:
        self._starts += 1
        self.alive = True
        self.network = self._make(self._starts)
        self.network.names_changed(self.consumers, (), self.world.clock.now)
        self.network.provisions_changed(self.provisions, (), self.world.clock.now)
        self._wakes_at = float("inf")
        self.pump()

    def receive(self, key: Hashable, data: bytes) -> None:
        if self.alive:
            self.network.receive(key, data, self.world.clock.now)
            self.pump()

    def wake(self) -> None:
        self._wakes_at = float("inf")
        self.pump()

    def pump(self) -> None:
        """Send what is due, and wake up when there is more."""
        if not self.alive:
            return
        now = self.world.clock.now
        for key, data in self.network.due(now):
            self.world.send(self, key, data)
        for event in self.network.events():
            if isinstance(event, NeighbourClosed):
                self.world.violation(f"a neighbour is closed: {event.reason}")
        at = max(self.network.get_timer(), now)
        if at < self._wakes_at:
            self._wakes_at = at
            self.world.clock.at(at, self.wake)


@dataclass(slots=True)
class Outcome:
    """What has happened in a run."""

    nodes: int
    links: int
    happened: Counter[str]
    frames: Counter[str]
    violations: list[str]


class World:
    """A network, its trouble, and what has to be true."""

    def __init__(self, seed: int, kind: type[Network] = Network) -> None:
        self.draw = draw = random.Random(f"{seed}/dispatch")
        self.kind = kind
        self.clock = Clockwork()
        self.violations: list[str] = []
        self.frames = Counter[str]()
        self.happened = Counter[str]()
        count = draw.randint(3, 9)
        self.nodes = [Node(self, number) for number in range(count)]
        pairs = [(draw.randrange(number), number) for number in range(1, count)]
        for _ in range(draw.randint(0, count)):
            left, right = sorted(draw.sample(range(count), 2))
            if (left, right) not in pairs:
                pairs.append((left, right))
        self.links = [
            Link(pair, self._costs(), draw.choice((0.001, 0.005, 0.05))) for pair in pairs
        ]

    def _costs(self) -> tuple[int, int]:
        cost = self.draw.randint(1, 3)
        return cost, cost if self.draw.random() < 0.8 else self.draw.randint(1, 3)

    def violation(self, text: str) -> None:
        self.violations.append(f"{text}, at {self.clock.now:.2f} s")

    # --- the network --------------------------------------------------------------------------

    def send(self, node: Node, key: Hashable, data: bytes) -> None:
        number, life = cast("tuple[int, int]", key)
        link = self.links[number]
        kind = NetworkFrameKind(data[2])
        self.frames[kind.name] += 1
        if self.frames.total() > MOST_FRAMES:
            raise AssertionError("a storm of frames")
        if not link.up or link.life != life:
            return
        if link.silent or self.draw.random() < link.loss:
            return
        other = self.nodes[link.ends[link.ends[0] == node.number]]
        at = max(self.clock.now + link.delay, link.last.get(other.number, 0.0))
        link.last[other.number] = at
        self.clock.at(at, self._arrive, link, life, other, data)

    def _arrive(self, link: Link, life: int, node: Node, data: bytes) -> None:
        if link.up and link.life == life:
            node.receive((self.links.index(link), life), data)

    def connect(self, link: Link) -> None:
        """Make a link anew, if both of its ends are alive."""
        link.silent, link.loss, link.last = False, 0.0, {}
        ends = [self.nodes[number] for number in link.ends]
        if link.up or not all(each.alive for each in ends):
            return
        link.up = True
        link.life += 1
        key = self.links.index(link), link.life
        for node, cost in zip(ends, link.costs, strict=True):
            node.network.neighbour_up(key, cost, self.clock.now)
            node.pump()

    def disconnect(self, link: Link) -> None:
        """End a link with a word to both of its ends."""
        if not link.up:
            return
        link.up = False
        for number in link.ends:
            node = self.nodes[number]
            if node.alive:
                key = self.links.index(link), link.life
                node.network.neighbour_lost(key, self.clock.now)
                node.pump()

    # --- what happens -------------------------------------------------------------------------

    def start(self) -> None:
        for link in self.links:
            link.up = False
        for node in self.nodes:
            node.start()
        for link in self.links:
            self.connect(link)

    def happen(self) -> None:
        what = self.draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self.happened[what] += 1
        link, node = self.draw.choice(self.links), self.draw.choice(self.nodes)
        match what:
            case "cut":
                self.disconnect(link)
            case "silent cut":
                link.silent = True
            case "heal":
                self.connect(link)
            case "slow":
                link.delay = self.draw.choice((0.2, 0.5))
            case "lossy":
                link.loss = 0.3
            case "crash" | "silent crash":
                self._crash(node, silent=what == "silent crash")
            case "start":
                self._start(node)
            case "consumer":
                self._turn(node, self.draw.choice(NAMES))
            case "provision":
                self._provision(node, self.draw.choice(PATTERNS))
            case _:
                if node.consumers:
                    name = next(iter(node.consumers))
                    self._turn(node, name)
                    self._turn(self.draw.choice(self.nodes), name)

    def _crash(self, node: Node, *, silent: bool) -> None:
        node.alive = False
        for link in self.links:
            if node.number in link.ends and not silent:
                self.disconnect(link)

    def _start(self, node: Node) -> None:
        if node.alive:
            return
        for link in self.links:
            if node.number in link.ends:
                self.disconnect(link)
        node.start()
        for link in self.links:
            if node.number in link.ends:
                self.connect(link)

    def _turn(self, node: Node, name: str) -> None:
        """Add a consumer of a name to a node, or remove it."""
        added: dict[str, ToldName] = {}
        if name in node.consumers:
            del node.consumers[name]
        else:
            added[name] = node.consumers[name] = self.draw.choice(TOLD)
        if node.alive:
            removed = () if added else (name,)
            node.network.names_changed(added, removed, self.clock.now)
            node.pump()

    def _provision(self, node: Node, pattern: str) -> None:
        """Provision a pattern at a node, update it, or withdraw it."""
        added: dict[str, bytes] = {}
        if node.provisions.pop(pattern, None) is None or self.draw.random() < 0.5:
            added[pattern] = node.provisions[pattern] = self.draw.randbytes(4)
        if node.alive:
            removed = () if added else (pattern,)
            node.network.provisions_changed(added, removed, self.clock.now)
            node.pump()

    def trouble(self) -> None:
        until = self.clock.now + TROUBLE
        while self.clock.now < until:
            self.happen()
            self.clock.run(self.clock.now + self.draw.choice((0.0, 0.03, 0.2, 1.5)))
            self.look()

    def calm(self) -> None:
        """End what is half broken, so that each link works or does not, and wait."""
        for link in self.links:
            link.loss = 0.0
        self.clock.run(self.clock.now + CALM)
        before = +self.frames
        self.clock.run(self.clock.now + QUIET)
        more = self.frames - before
        if any(more[kind.name] for kind in NetworkFrameKind if kind not in CHECKED):
            self.violation(f"there are frames at rest: {dict(more)}")
        self.check()

    def heal(self) -> None:
        for node in self.nodes:
            self._start(node)
        for link in self.links:
            if link.silent:
                self.disconnect(link)
            self.connect(link)

    # --- what has to be true ------------------------------------------------------------------

    def look(self) -> None:
        """Check that next hops do not go in a circle where all have the same graph."""
        living = {node.name: node for node in self.nodes if node.alive}
        for node in living.values():
            mine = node.network.snapshot
            if not mine.nodes <= living.keys():
                continue  # it does not know yet that a node has crashed
            part = [living[name].network for name in mine.nodes]
            if all(same(each.snapshot.graph, mine.graph) for each in part):
                for end in mine.nodes:
                    self._follow(living, node.name, end)

    def _follow(self, living: dict[str, Node], here: str, end: str) -> int:
        hops = 0
        while here != end:
            hop = living[here].network.snapshot.next_hop(end)
            hops += 1
            if hop is None or hops > len(self.nodes):
                self.violation(f"next hops do not lead from {here} to {end}")
                return hops
            here = hop
        return hops

    def truth(self) -> Graph:
        states: dict[str, dict[str, int]] = {n.name: {} for n in self.nodes if n.alive}
        for link in self.links:
            left, right = (self.nodes[number] for number in link.ends)
            if link.up and not link.silent and left.alive and right.alive:
                states[left.name][right.name] = link.costs[0]
                states[right.name][left.name] = link.costs[1]
        return join_links(states)

    def check(self) -> None:
        truth = self.truth()
        living = {node.name: node for node in self.nodes if node.alive}
        for node in living.values():
            paths = node.network.snapshot
            there = component(truth, node.name)
            if set(paths.nodes) != there - {node.name}:
                self.violation(f"{node.name} reaches {sorted(paths.nodes)} of {sorted(there)}")
                continue
            if links_of(paths.graph, there) != links_of(truth, there):
                self.violation(f"{node.name} has another graph")
            for end in paths.nodes:
                self._follow(living, node.name, end)
                if dict(node.network.names_of(end)) != living[end].consumers:
                    self.violation(f"{node.name} knows other names of {end}")
                if dict(node.network.provisions_of(end)) != living[end].provisions:
                    self.violation(f"{node.name} knows other provisions of {end}")
            for name in NAMES:
                having = {each for each in paths.nodes if name in living[each].consumers}
                if set(node.network.nodes_of(name)) != having:
                    self.violation(f"{node.name} knows other nodes of {name}")
                self._flood(living, node.name, name, there)

    def _flood(self, living: dict[str, Node], ingress: str, name: str, there: set[str]) -> None:
        """Check that a multicast from an ingress reaches each node with consumers once."""
        copies, waiting = Counter[str](), [ingress]
        while waiting and copies.total() < 100:
            here = waiting.pop()
            copies[here] += 1
            network = living[here].network
            paths = network.snapshot
            nodes = [each for each in network.nodes_of(name) if paths.passes(ingress, each)]
            waiting += sorted({hop for each in nodes if (hop := paths.next_hop(each))})
        for each in there:
            if name in living[each].consumers and copies[each] != 1:
                self.violation(f"a multicast from {ingress} reaches {each} {copies[each]} times")


def same(one: Graph, other: Graph) -> bool:
    """Whether two graphs are the same."""
    return one.names == other.names and one.links == other.links


def links_of(graph: Graph, nodes: set[str]) -> dict[str, dict[str, int]]:
    """Return the links of some nodes by their names."""
    return {
        name: {graph.names[peer]: cost for peer, cost in graph.links[graph.numbers[name]]}
        for name in nodes
    }


def component(graph: Graph, name: str) -> set[str]:
    """Return the nodes that can be reached from one, with that one."""
    found, waiting = {name}, [name]
    while waiting:
        for peer, _ in graph.links[graph.numbers[waiting.pop()]]:
            if graph.names[peer] not in found:
                found.add(graph.names[peer])
                waiting.append(graph.names[peer])
    return found


def run_network(seed: int, kind: type[Network] = Network) -> Outcome:
    """Run a network of dispatchers from a seed."""
    world = World(seed, kind)
    world.start()
    world.trouble()
    world.calm()
    world.trouble()
    world.heal()
    world.calm()
    return Outcome(
        len(world.nodes), len(world.links), world.happened, world.frames, world.violations
    )


def checked_run(seed: int, kind: type[Network] = Network) -> tuple[int, Outcome | None, list[str]]:
    """Run a network; return the seed, the outcome, and what was not as promised."""
    try:
        outcome = run_network(seed, kind)
    except Exception as error:
        return seed, None, [f"{type(error).__name__}: {error}"]
    return seed, outcome, outcome.violations
