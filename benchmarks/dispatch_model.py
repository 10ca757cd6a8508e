"""Networks of dispatchers as state machines, in virtual time: the start, a join, a crash, a heal.

    python benchmarks/dispatch_model.py --nodes 10,100,1000

What is real: the state machines of `onward.protocol.dispatch` and each byte of their frames. What
is a model: the network, with links of 1 ms that keep their order, and no time for computing. Each
node has about four links, and the names are divided among the nodes: each has consumers of its own.

- *start*: all nodes start at once and know nothing. With `--warm` this is left out: the nodes are
  made as those of a network that has been running, with all link states and without names. The
  names of each node pass each link by themselves, so the start of 1,000 takes nine minutes of CPU.
- *join*: another node joins with two links.
- *crash*: the node with the most links is lost, and its neighbours notice the loss of their links
  at once.
- *cut*: all links between two halves are lost; the time is that until no node has a path to the
  other half, and 2 seconds later the names of the other half are forgotten.
- *heal*: the links are there again.

The time is that until all nodes have the right paths, in milliseconds of the model. What is sent is
counted until a second later, with the names, and without hellos. "computed" is how often a node has
computed all paths, on average, and what one computation takes on this machine: it has to be well
below a second. "memory" is that of the process for each node.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from onward.protocol.dispatch import (
    Network,
    NetworkFrameKind,
    NetworkLimits,
    NodeNumbers,
    NodeRecord,
    Paths,
    PathsChanged,
    ToldName,
    join_links,
)
from tests.simulated.cluster_network import Clockwork

NAMES: Final = 10_000
DELAY: Final = 0.001
STEP: Final = 0.001
SETTLED: Final = 1.0
"""Time for which what is sent is counted after all have the right paths, in seconds."""
PATIENCE: Final = 120.0


class Model:
    """One network of dispatchers."""

    def __init__(self, count: int, names: int, seed: int) -> None:
        draw = random.Random(f"{seed}/{count}")
        self.clock = Clockwork()
        self.messages = self.bytes = self.computed = 0
        self.names = names
        self.links: dict[int, dict[int, int]] = {number: {} for number in range(count + 1)}
        for number in range(1, count):
            self._join(number, draw.randrange(number), draw)
        for _ in range(count):
            left, right = draw.sample(range(count), 2)
            self._join(left, right, draw)
        self.later = count  # the node that joins
        for peer in draw.sample(range(count), 2):
            self._join(self.later, peer, draw)
        self.limits = NetworkLimits(max_nodes=max(count + 1, 1024))
        self.nodes: dict[int, Network] = {}
        self.wakes: dict[int, float] = {}
        self.gone: set[frozenset[int]] = set()
        self.starts = 0

    def _join(self, left: int, right: int, draw: random.Random) -> None:
        if max(len(self.links[left]), len(self.links[right])) < 32:
            self.links[left][right] = self.links[right][left] = draw.randint(1, 10)

    # --- the network --------------------------------------------------------------------------

    def begin(self, number: int) -> None:
        """Start a node with its names."""
        self.starts += 1
        now = self.clock.now
        node = Network(name(number), 1000 + self.starts, self.limits, now)
        own = range(number, self.names, len(self.links) - 1)
        node.names_changed({f"shop/{each}": ToldName(2) for each in own}, (), now)
        self.nodes[number], self.wakes[number] = node, float("inf")

    def connect(self, left: int, right: int) -> None:
        """Make the link between two nodes."""
        self.gone.discard(frozenset((left, right)))
        for one, other in ((left, right), (right, left)):
            self.nodes[one].neighbour_up(other, self.links[one][other], self.clock.now)
            self.pump(one)

    def disconnect(self, left: int, right: int) -> None:
        """Lose the link between two nodes; those that are there notice it."""
        self.gone.add(frozenset((left, right)))
        for one, other in ((left, right), (right, left)):
            if one in self.nodes:
                self.nodes[one].neighbour_lost(other, self.clock.now)
                self.pump(one)

    def pump(self, number: int) -> None:
        """Send what is due, and wake up when there is more."""
        node, now = self.nodes[number], self.clock.now
        for link, data in node.due(now):
            if data[2] != NetworkFrameKind.HELLO:
                self.messages += 1
                self.bytes += len(data)
            self.clock.at(now + DELAY, self._arrive, cast("int", link), number, data)
        self.computed += sum(isinstance(event, PathsChanged) for event in node.events())
        at = max(node.get_timer(), now)
        if at < self.wakes[number]:
            self.wakes[number] = at
            self.clock.at(at, self._wake, number)

    def _wake(self, number: int) -> None:
        if number in self.nodes:
            self.wakes[number] = float("inf")
            self.pump(number)

    def _arrive(self, number: int, link: Hashable, data: bytes) -> None:
        if number in self.nodes and frozenset((number, cast("int", link))) not in self.gone:
            self.nodes[number].receive(link, data, self.clock.now)
            self.pump(number)

    # --- what happens -------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes but the one that joins later."""
        for number in range(self.later):
            self.begin(number)
        for left, right in self.pairs(range(self.later)):
            self.connect(left, right)

    def warm(self) -> None:
        """Make all nodes but the one that joins later, as of a network that has been running."""
        for number in range(self.later):
            self.begin(number)
        peers = {
            number: {name(peer): cost for peer, cost in of.items() if peer != self.later}
            for number, of in self.links.items()
        }
        for number, node in self.nodes.items():
            known, links = node._knowledge, node._neighbours.links  # pyright: ignore[reportPrivateUsage]
            known.book.set_links(peers[number])
            for other, each in self.nodes.items():
                if other != number:
                    told = NodeNumbers(each.own, each.instance, 1, 1, 0, 0)
                    known.book.others[each.own] = NodeRecord(told, peers[other], self.clock.now)
            for peer, cost in self.links[number].items():
                if peer != self.later:
                    node.neighbour_up(peer, cost, self.clock.now)
                    links[peer].node, links[peer].instance = name(peer), self.nodes[peer].instance
                    links[peer].hello.heard(hears_us=True, now=self.clock.now)
            node._compute(self.clock.now)  # pyright: ignore[reportPrivateUsage]
        for number in self.nodes:
            self.pump(number)

    def join(self) -> None:
        """Start the node that joins later."""
        self.begin(self.later)
        for peer in self.links[self.later]:
            self.connect(self.later, peer)

    def crash(self) -> None:
        """Lose the node with the most links of those that no other node depends on."""
        lost = max(self.nodes, key=lambda each: (self._is_spare(each), len(self.links[each])))
        del self.nodes[lost]
        for peer in self.links.pop(lost):
            del self.links[peer][lost]
            self.disconnect(lost, peer)

    def cut(self, between: Iterable[tuple[int, int]]) -> None:
        """Lose some links."""
        for left, right in between:
            self.disconnect(left, right)

    def heal(self, between: Iterable[tuple[int, int]]) -> None:
        """Make some links again."""
        for left, right in between:
            self.connect(left, right)

    def pairs(self, some: Iterable[int]) -> list[tuple[int, int]]:
        """Return the links between some nodes."""
        among = set(some)
        return [
            (left, right)
            for left in among
            for right in self.links[left]
            if left < right and right in among
        ]

    def _is_spare(self, number: int) -> bool:
        """Whether all others reach each other without a node."""
        found, waiting = {number}, [min(self.links[number])]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += [peer for peer in self.links[each] if peer in self.nodes]
        return len(found) == len(self.nodes)

    def halves(self) -> list[tuple[int, int]]:
        """Return the links between two halves, each of which hangs together."""
        first = min(self.nodes)
        half, waiting = {first}, [first]
        for each in waiting:
            for peer in self.links[each]:
                if peer not in half and len(half) < len(self.nodes) // 2:
                    half.add(peer)
                    waiting.append(peer)
        return [(left, right) for left in half for right in self.links[left] if right not in half]

    # --- what is measured -----------------------------------------------------------------------

    def parts(self) -> dict[int, int]:
        """Return for each node how many others it can reach in truth."""
        found: dict[int, int] = {}
        for number in self.nodes:
            if number not in found:
                part, waiting = set[int](), [number]
                while waiting:
                    each = waiting.pop()
                    if each not in part:
                        part.add(each)
                        waiting += [
                            peer
                            for peer in self.links[each]
                            if peer in self.nodes and frozenset((each, peer)) not in self.gone
                        ]
                found |= dict.fromkeys(part, len(part) - 1)
        return found

    def measure(self, what: str, action: Callable[[], None]) -> None:
        """Perform an action, wait until all nodes know, and print a row."""
        self.messages = self.bytes = self.computed = 0
        began, at = self.clock.now, time.perf_counter()
        action()
        wanted = self.parts()
        waiting = set(self.nodes)
        while waiting:
            self.clock.run(self.clock.now + STEP)
            waiting = {n for n in waiting if len(self.nodes[n].snapshot.nodes) != wanted[n]}
            waiting = waiting or {
                n for n in self.nodes if len(self.nodes[n].snapshot.nodes) != wanted[n]
            }
            if self.clock.now - began > PATIENCE:
                raise AssertionError("it does not converge")
        took = self.clock.now - began
        self.clock.run(self.clock.now + SETTLED)
        print(
            f"{what:<28}{took * 1000:>8,.0f} ms{self.messages:>12,}{self.bytes:>16,}"
            f"{self.computed / len(self.nodes):>10.1f}{time.perf_counter() - at:>10.0f} s",
            flush=True,
        )

    def compute(self) -> float:
        """Return the time for one computation of the paths, in seconds; the median of some."""
        took: list[float] = []
        states = {name(n): {name(p): c for p, c in of.items()} for n, of in self.links.items()}
        for _ in range(5):
            began = time.process_time()
            Paths(join_links(states), name(min(self.links)))
            took.append(time.process_time() - began)
        return statistics.median(took)


def name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:04}"


def memory() -> int:
    """Return the most memory that the process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description="What it costs a network to change.")
    parser.add_argument("--nodes", default="10,100", help="numbers of nodes (default 10,100)")
    parser.add_argument("--names", type=int, default=NAMES, help="names (default 10,000)")
    parser.add_argument("--warm", action="store_true", help="begin with nodes that know all others")
    parser.add_argument("--seed", type=int, default=1, help="what chance is drawn from")
    given = parser.parse_args()
    for text in given.nodes.split(","):
        count, before = int(text), memory()
        word, names = ("warm", 0) if given.warm else ("start", given.names)
        model = Model(count, names, given.seed)
        print(f"{'':<28}{'all know':>11}{'frames':>12}{'bytes':>16}{'computed':>10}{'took':>12}")
        model.measure(f"{count:,} nodes: {word}", model.warm if given.warm else model.start)
        each = (memory() - before) / count
        model.measure("join", model.join)
        model.measure("crash", model.crash)
        between = model.halves()
        model.measure(f"cut of {len(between)} links", partial(model.cut, between))
        model.clock.run(model.clock.now + 2.0)
        model.measure("heal", partial(model.heal, between))
        print(
            f"paths computed in {model.compute() * 1000:.1f} ms; "
            f"memory for each node {each / 1024:,.0f} KiB with {names:,} names\n",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
