"""Networks of dispatchers as state machines, in virtual time: what it costs to lose a node.

    python benchmarks/dispatch_model.py --nodes 10,100,1000

What is real: the state machines of `onward.protocol.dispatch` and each byte of their frames. What
is a model: the network, with links of 1 ms that keep their order, and no time for computing. Each
node has about four links. Networks of up to 20 nodes start with nothing, and with 10,000 names that
have a consumer each. The nodes of larger ones are given the link states of all others and no
names: names cost nothing when a node is lost, as each node lets go of them a second later.

The lost node has the most links, and its neighbours notice the loss of their links at once.
"until all know" is the time until no node has a path to it. Hellos are not counted. The last column
is the time of this machine for one computation of all paths, and has to be well below a second.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Hashable
from pathlib import Path
from typing import Final, cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from onward.protocol.dispatch import (
    Network,
    NetworkFrameKind,
    NetworkLimits,
    NodeLinks,
    NodeNumbers,
    Paths,
    ToldName,
    join_links,
)
from tests.simulated.cluster_network import Clockwork

NAMES: Final = 10_000
DELAY: Final = 0.001
STEP: Final = 0.001
STARTED: Final = 20
"""Most nodes of a network that starts with nothing."""
PATIENCE: Final = 120.0


class Model:
    """One network of dispatchers."""

    def __init__(self, count: int, seed: int) -> None:
        draw = random.Random(f"{seed}/{count}")
        self.clock = Clockwork()
        self.messages = self.bytes = 0
        self.links: dict[int, dict[int, int]] = {number: {} for number in range(count)}
        for number in range(1, count):
            self._join(number, draw.randrange(number), draw)
        for _ in range(count):
            left, right = draw.sample(range(count), 2)
            self._join(left, right, draw)
        limits = NetworkLimits(max_nodes=max(count, 1024))
        self.nodes = [Network(name(number), 1, limits, 0.0) for number in range(count)]
        self.alive = set(range(count))
        self.wakes = [float("inf")] * count

    def _join(self, left: int, right: int, draw: random.Random) -> None:
        if max(len(self.links[left]), len(self.links[right])) < 32:
            self.links[left][right] = self.links[right][left] = draw.randint(1, 10)

    def start(self) -> None:
        states = {name(n): {name(p): c for p, c in of.items()} for n, of in self.links.items()}
        for number, node in enumerate(self.nodes):
            if len(self.nodes) > STARTED:
                for other, peers in states.items():
                    # It is the state in which a network is that has been running for a while.
                    book, numbers = node._knowledge.book, NodeNumbers(other, 1, 1, 1, 0, 0)  # pyright: ignore[reportPrivateUsage]
                    if other != node.own:
                        book.update(NodeLinks(other, 1, 1, peers), numbers, None, 1, 0.0)
            else:
                own = range(number, NAMES, len(self.nodes))
                node.names_changed({f"shop/{each}": ToldName(2) for each in own}, (), 0.0)
            for peer, cost in self.links[number].items():
                node.neighbour_up(peer, cost, 0.0)
            self.pump(number)

    def pump(self, number: int) -> None:
        """Send what is due, and wake up when there is more."""
        if number not in self.alive:
            return
        node, now = self.nodes[number], self.clock.now
        for link, data in node.due(now):
            if data[2] != NetworkFrameKind.HELLO:
                self.messages += 1
                self.bytes += len(data)
            self.clock.at(now + DELAY, self._arrive, cast("int", link), number, data)
        node.events()
        at = max(node.get_timer(), now)
        if at < self.wakes[number]:
            self.wakes[number] = at
            self.clock.at(at, self._wake, number)

    def _wake(self, number: int) -> None:
        self.wakes[number] = float("inf")
        self.pump(number)

    def _arrive(self, number: int, link: Hashable, data: bytes) -> None:
        if number in self.alive:
            self.nodes[number].receive(link, data, self.clock.now)
            self.pump(number)

    def until(self, reached: int) -> float:
        """Run until each node reaches so many others; return how long that took, in seconds."""
        began = self.clock.now
        while any(len(self.nodes[each].snapshot.nodes) != reached for each in self.alive):
            self.clock.run(self.clock.now + STEP)
            if self.clock.now - began > PATIENCE:
                raise AssertionError("it does not converge")
        return self.clock.now - began

    def lose(self) -> int:
        """Lose the node with the most links of those that no other node depends on."""
        lost = max(self.alive, key=lambda each: (self._is_spare(each), len(self.links[each])))
        self.alive.discard(lost)
        for peer in self.links[lost]:
            self.nodes[peer].neighbour_lost(lost, self.clock.now)
            self.pump(peer)
        return lost

    def _is_spare(self, number: int) -> bool:
        peers = self.links[number]
        found, waiting = {number}, [min(peers)]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += self.links[each]
        return len(found) == len(self.links)

    def compute(self) -> float:
        """Return the time for one computation of the paths, in seconds; the median of some."""
        took: list[float] = []
        states = {name(n): {name(p): c for p, c in of.items()} for n, of in self.links.items()}
        for _ in range(5):
            began = time.perf_counter()
            Paths(join_links(states), name(0))
            took.append(time.perf_counter() - began)
        return statistics.median(took)


def name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:04}"


def main() -> int:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description="What it costs a network to lose a node.")
    parser.add_argument("--nodes", default="10,100", help="numbers of nodes (default 10,100)")
    parser.add_argument("--seed", type=int, default=1, help="what chance is drawn from")
    given = parser.parse_args()
    for text in given.nodes.split(","):
        count = int(text)
        model = Model(count, given.seed)
        model.start()
        took = model.until(count - 1)
        if count <= STARTED:
            model.clock.run(model.clock.now + 3.0)
            print(
                f"{count:,} nodes start: {took * 1000:.0f} ms, {model.messages:,} messages, "
                f"{model.bytes:,} bytes with {NAMES:,} names",
                flush=True,
            )
        else:
            model.clock.run(model.clock.now + 0.5)
        model.messages = model.bytes = 0
        lost = model.lose()
        took = model.until(count - 2)
        model.clock.run(model.clock.now + 0.1)
        print(
            f"{count:,} nodes, one with {len(model.links[lost])} links lost: "
            f"{took * 1000:.0f} ms until all know, {model.messages:,} messages, "
            f"{model.bytes:,} bytes; paths computed in {model.compute() * 1000:.1f} ms",
            flush=True,
        )
        model.clock.run(model.clock.now + 1.2)
        if any(model.nodes[each].names_of(name(lost)) for each in model.alive):
            print("names of the lost node are still known")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
