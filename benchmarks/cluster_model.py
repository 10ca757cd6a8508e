"""A thousand brokers as state machines, in virtual time: convergence, messages and bytes.

    python benchmarks/cluster_model.py --zones 32

The brokers are in zones of 32: a zone is a full mesh, and zones are not joined. So 1,024 brokers
are 32 zones with 15,872 peer links, which are run one after the other; a full mesh of all would
have 523,776. What is real: the state machines of `onward.protocol.cluster`, the routing tables, and
the bytes of each element, list and comparison. What is a model: the network (0.2 to 2 ms, ordered,
a silent end is noticed after five to six seconds) and the destinations, 20 to 100 for each broker.
Headers of RSocket, TLS and TCP and the KEEPALIVE frames are not counted, and computing takes no
time. Bytes and messages are exact for a seed; times have a resolution of 10 ms, and begin when the
last destination has connected.

What happens in each zone, one after the other:

- start: all brokers within a second, with three seeds each, and their destinations;
- join: one more broker, and its destinations;
- crash: of a broker, with its connections closed by the host; and of one, without a word;
- partition: half of the zone is cut off for 20 s: until no route of the other half is used, and
  until all are again;
- rolling restart: each broker drains, restarts, and gets destinations back, one after the other.

"until" is the time until the table of each broker has what is connected, and nothing else. A
target is not the speed of this machine, but what the protocol promises: a change costs each peer
link its own bytes and no more, and at rest a link has nothing but marks.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from _report import Report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from onward.protocol.cluster import ClusterLimits
from tests.simulated.cluster_broker import QUERY, Broker, Connection
from tests.simulated.cluster_network import Clockwork, Network

ZONE: Final = 32
ROUTES: Final = (20, 100)
DELAYS: Final = (0.0002, 0.002)
STEP: Final = 0.01
PATIENCE: Final = 200.0
PARTITION: Final = 20.0
PACE: Final = 1.0
COUNTED: Final = ("element", "tell", "compare", "compared", "subscribe")


class Destination:
    """A destination that a broker holds a connection of."""

    def __init__(self, number: int) -> None:
        self.route_id = (number + 1).to_bytes(16)

    def closed(self, connection: Connection) -> None:
        """Ignore it: the zone connects it again."""


class Zone:
    """One full mesh of brokers.

    Args:
        size: Number of brokers.
        seed: What chance is drawn from.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.draw = random.Random(f"{seed}/zone")
        self.clock = Clockwork()
        self.network = Network(self.clock, self.draw, DELAYS)
        self.brokers: dict[int, Broker] = {}
        self.away: set[int] = set()
        self._destinations = 0

    # --- for brokers --------------------------------------------------------------------------

    def violation(self, text: str) -> None:
        raise AssertionError(f"{text}, at {self.clock.now:.2f} s")

    def delivered(self, request: object, connection: Connection) -> None:
        raise AssertionError("nothing is requested")

    def sent_part(self, number: int, other: int) -> None:
        """Ignore it: no snapshot is cut."""

    def _find(self, uri: str) -> Broker | None:
        return self.brokers.get(int(uri.removeprefix("sim://")))

    # --- what happens -------------------------------------------------------------------------

    def start(self, number: int) -> None:
        self.brokers[number] = Broker(
            self.network,
            number,
            clock_skew=self.draw.randint(-1000, 1000),
            limits=ClusterLimits(),
            watcher=self,
            find=self._find,
            seeds=(0, 1, 2),
        )

    def fill(self, number: int, count: int | None = None) -> None:
        """Connect destinations to a broker, over half a second."""
        broker = self.brokers[number]
        for _ in range(self.draw.randint(*ROUTES) if count is None else count):
            destination = Destination(self._destinations)
            self._destinations += 1
            at = self.clock.now + self.draw.uniform(0.0, 0.5)
            self.clock.at(at, broker.register, destination)

    def living(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.alive]

    def is_whole(self) -> bool:
        """Whether each broker has the routes of all that it can reach."""
        living = self.living()
        sides = [[b for b in living if b.number not in self.away]]
        sides.append([b for b in living if b.number in self.away])
        return all(self._has_all(side) for side in sides)

    def _has_all(self, side: list[Broker]) -> bool:
        connected = sum(len(broker.own) for broker in side)
        return all(
            broker.table.count(QUERY) == connected
            and len(broker.own) == broker.table.count_of(broker.id)
            for broker in side
        )

    def until_whole(self) -> float:
        """Run until all is as it has to be; return how long that took."""
        began = self.clock.now
        while not self.is_whole():
            self.clock.run(self.clock.now + STEP)
            if self.clock.now - began > PATIENCE:
                raise AssertionError("it does not become whole")
        return self.clock.now - began

    def sent(self) -> tuple[int, int]:
        """Return messages and bytes so far, marks not included."""
        counts = self.network.counts
        messages = sum(counts[name] for name in COUNTED) - counts["elements: mark"]
        return messages, sum(counts[f"bytes of {name}"] for name in COUNTED)


def start(zone: Zone) -> float:
    for number in range(zone.size):
        zone.clock.at(zone.clock.now + zone.draw.uniform(0.0, 1.0), zone.start, number)
    zone.clock.run(zone.clock.now + 1.0)
    for number in range(zone.size):
        zone.fill(number)
    zone.clock.run(zone.clock.now + 0.5)
    return zone.until_whole()


def join(zone: Zone) -> float:
    zone.start(zone.size)
    zone.fill(zone.size, 60)
    zone.clock.run(zone.clock.now + 0.5)
    return zone.until_whole()


def crash(zone: Zone) -> float:
    zone.brokers[zone.size].crash(silently=False)
    return zone.until_whole()


def vanish(zone: Zone) -> float:
    zone.brokers[zone.size - 1].crash(silently=True)
    return zone.until_whole()


def split(zone: Zone) -> float:
    zone.away = set(range(zone.size // 2))
    for one in zone.away:
        for other in range(zone.size // 2, zone.size):
            zone.network.cut(one, other)
            zone.network.cut(other, one)
    began = zone.clock.now
    took = zone.until_whole()
    zone.clock.run(began + PARTITION)
    return took


def heal(zone: Zone) -> float:
    zone.network.heal()
    zone.away = set()
    return zone.until_whole()


def roll(zone: Zone) -> float:
    longest = 0.0
    for broker in zone.living():
        there = len(broker.own)
        for connection in list(broker.own.values()):
            at = zone.clock.now + zone.draw.uniform(0.0, 1.0)
            zone.clock.at(at, broker.close, connection)
        zone.clock.run(zone.clock.now + 1.5)
        broker.crash(silently=False)
        zone.clock.run(zone.clock.now + 1.0)
        zone.start(broker.number)
        zone.fill(broker.number, there)
        zone.clock.run(zone.clock.now + 0.5)
        longest = max(longest, zone.until_whole())
        zone.clock.run(zone.clock.now + PACE)
    return longest


SCENES: Final[tuple[tuple[str, Callable[[Zone], float]], ...]] = (
    ("start", start),
    ("join", join),
    ("crash", crash),
    ("silent crash", vanish),
    ("partition of half", split),
    ("its healing", heal),
    ("rolling restart", roll),
)


def quiet(zone: Zone) -> int:
    """Return the messages of a minute in which nothing happens, marks not included."""
    zone.clock.run(zone.clock.now + 10.0)
    before, _ = zone.sent()
    zone.clock.run(zone.clock.now + 60.0)
    return zone.sent()[0] - before


def main() -> None:
    """Run the zones, print the table, and the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--quick", action="store_true", help="one small zone, for a smoke test")
    parser.add_argument("--zones", type=int, default=2, help="zones of 32 brokers (default 2)")
    given = parser.parse_args()
    zones, size = (1, 6) if given.quick else (given.zones, ZONE)

    took, messages, sizes = (defaultdict[str, list[float]](list) for _ in range(3))
    routes: list[float] = []
    for seed in range(zones):
        zone = Zone(size, seed)
        for name, scene in SCENES:
            before = zone.sent()
            took[name].append(scene(zone))
            zone.clock.run(zone.clock.now + 2.0)
            after = zone.sent()
            messages[name].append(after[0] - before[0])
            sizes[name].append(after[1] - before[1])
            if name == "start":
                routes.append(sum(len(broker.own) for broker in zone.living()))
        messages["a minute of rest"].append(quiet(zone))

    print(f"{zones * size} brokers in {zones} zones, {sum(routes):,.0f} routes")
    print(f"{'':20}{'until, median':>15}{'longest':>10}{'messages':>12}{'bytes':>14}  a zone")
    for name, _ in SCENES:
        print(
            f"{name:20}{statistics.median(took[name]):>13.2f} s{max(took[name]):>8.2f} s"
            f"{statistics.mean(messages[name]):>12,.0f}{statistics.mean(sizes[name]):>14,.0f}"
        )
    report = Report("cluster_model")
    report.figure("brokers", zones * size, "")
    report.figure("routes", sum(routes), "")
    for name, _ in SCENES:
        report.figure(f"{name}: longest", max(took[name]), "s")
        report.figure(f"{name}: bytes of a zone", statistics.mean(sizes[name]), "B")
    # Each of 60 new routes to each peer broker: 65 bytes compressed, 171 as they are.
    new = statistics.mean(sizes["join"])
    known = statistics.mean(routes) * 171
    report.target("join / all routes twice", new / (2 * known), "", at_most=1.0)
    rest = statistics.mean(messages["a minute of rest"]) / (size * (size - 1) / 2)
    report.target("messages of a link in a minute of rest", rest, "", at_most=3.0)
    report.target("silent crash: longest", max(took["silent crash"]), "s", at_most=6.5)
    report.target("its healing: longest", max(took["its healing"]), "s", at_most=50.0)
    report.print(as_json=given.json)


if __name__ == "__main__":
    main()
