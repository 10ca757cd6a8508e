"""Zones joined by gateway links, a thousand brokers at once, as state machines in virtual time.

    python benchmarks/zone_model.py --zones 32 --size 32

What `cluster_model.py` does with zones one after the other, this does with all of them together:
each broker has a link to each other broker of its zone, and one to each other zone. So 1,024
brokers in 32 zones have 15,872 mesh links and 31,744 gateway links, 47,616 in all. What is real:
the state machines of `onward.protocol.cluster`, the routing tables, and the bytes of each element,
list and comparison. What is a model: the network (0.2 to 2 ms, ordered, a silent end is noticed
after five to six seconds), and the destinations, 5 to 15 for each broker. A broker does what is due
in turns, 25 ms apart. Computing takes no time. A mark is sent each minute instead of every ten
seconds: marks are not counted, and take the model most of its own time.

What happens, one after the other:

- start: all brokers within two seconds, each with two seeds of its zone and one of another, and
  their destinations;
- join: one more broker, and 20 destinations;
- crash: of that broker, with its connections closed by the host; and of one, without a word;
- partition: half of the brokers of each zone are cut off from all others for 40 s: until no route
  and no group of the other half is used and each zone is reached again, and until all is whole. A
  group goes when the last of its routes is removed, 30 s after the link to their broker is lost;
- restart of a zone: of its brokers, one after the other.

"until" is the time until each broker has the routes that are connected in its zone and nothing
else, and of each other zone the groups that there are, by one link. It has a resolution of 50 ms.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from _report import Report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from onward.protocol.cluster import ClusterLimits
from tests.simulated.cluster_broker import QUERY, Broker, Connection
from tests.simulated.cluster_network import Clockwork, Network
from tests.simulated.zone_broker import ZoneBroker

ROUTES: Final = (5, 15)
DELAYS: Final = (0.0002, 0.002)
TURN: Final = 0.025
STEP: Final = 0.05
PATIENCE: Final = 200.0
PARTITION: Final = 40.0
REGIONS: Final = 3
LIMITS: Final = ClusterLimits(mark=60.0)
COUNTED: Final = (
    *("element", "tell", "compare", "compared", "subscribe"),
    *("follow", "filter", "places", "placed"),
)


class Destination:
    """A destination that a broker holds a connection of."""

    def __init__(self, number: int) -> None:
        self.route_id = (number + 1).to_bytes(16)

    def closed(self, connection: Connection) -> None:
        """Ignore it: the model connects it again."""


class TurnBroker(ZoneBroker):
    """A broker that does what is due in turns, and not at once."""

    _in_turn = False

    def poke(self) -> None:
        if self._in_turn:
            super().poke()
        elif self._ready:
            self._schedule_at(self.network.clock.now + TURN)

    def _wake(self, at: float) -> None:
        self._in_turn = True
        super()._wake(at)
        self._in_turn = False

    def _zone_turn(self) -> None:
        if self._in_turn:
            super()._zone_turn()
        else:
            self._schedule_at(self.network.clock.now + TURN)


class Model:
    """Zones of brokers that are joined.

    Args:
        zones: Their number.
        size: Brokers of each.
        seed: What chance is drawn from.
    """

    def __init__(self, zones: int, size: int, seed: int) -> None:
        self.zones = zones
        self.size = size
        self.draw = random.Random(f"{seed}/zones")
        self.clock = Clockwork()
        self.network = Network(self.clock, self.draw, DELAYS)
        self.brokers: dict[int, TurnBroker] = {}
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
        zone = number % self.zones
        self.brokers[number] = TurnBroker(
            self.network,
            number,
            clock_skew=self.draw.randint(-1000, 1000),
            limits=LIMITS,
            watcher=self,
            find=self._find,
            seeds=(zone, zone + self.zones, (zone + 1) % self.zones),
            zone=f"zone-{zone}",
        )

    def fill(self, number: int, count: int | None = None) -> None:
        """Connect destinations to a broker, over half a second."""
        broker = self.brokers[number]
        for _ in range(self.draw.randint(*ROUTES) if count is None else count):
            destination = Destination(self._destinations)
            self._destinations += 1
            at = self.clock.now + self.draw.uniform(0.0, 0.5)
            self.clock.at(at, broker.register, destination)

    def living(self) -> list[TurnBroker]:
        return [broker for broker in self.brokers.values() if broker.alive]

    def is_whole(self) -> bool:
        """Whether each broker has the routes and the groups of all that it can reach."""
        connected = Counter[tuple[str, bool]]()
        regions: dict[tuple[str, bool], set[int]] = {}
        living = self.living()
        for broker in living:
            side = broker.zone, broker.number in self.away
            connected[side] += len(broker.own)
            found = regions.setdefault(side, set())
            found.update(int.from_bytes(route_id) % REGIONS for route_id in broker.own)
        return all(self._has_all(broker, connected, regions) for broker in living)

    def _has_all(
        self,
        broker: TurnBroker,
        connected: Counter[tuple[str, bool]],
        regions: dict[tuple[str, bool], set[int]],
    ) -> bool:
        away = broker.number in self.away
        if broker.table.count(QUERY) != connected[broker.zone, away]:
            return False
        groups = sum(
            len(found)
            for (zone, side), found in regions.items()
            if zone != broker.zone and side == away
        )
        return (
            broker.zone_table.count(QUERY) == groups
            and broker.zone_table.statistics().hidden == 0
            and broker.membership.statistics().to_zones == self.zones - 1
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

    def links(self) -> tuple[int, int]:
        """Return the links within zones, and those between them."""
        figures = [broker.membership.statistics() for broker in self.living()]
        return sum(each.links for each in figures) // 2, sum(each.to_zones for each in figures)

    def cut(self, some: Iterable[int]) -> None:
        """Cut some hosts off from all others."""
        self.away = set(some)
        rest = [number for number in self.brokers if number not in self.away]
        self.network.cut_all((one, other) for one in self.away for other in rest)


def start(model: Model) -> float:
    for number in range(model.zones * model.size):
        model.clock.at(model.clock.now + model.draw.uniform(0.0, 2.0), model.start, number)
    model.clock.run(model.clock.now + 2.0)
    for number in range(model.zones * model.size):
        model.fill(number)
    model.clock.run(model.clock.now + 0.5)
    return model.until_whole()


def join(model: Model) -> float:
    number = model.zones * model.size
    model.start(number)
    model.fill(number, 20)
    model.clock.run(model.clock.now + 0.5)
    return model.until_whole()


def crash(model: Model) -> float:
    model.brokers[model.zones * model.size].crash(silently=False)
    return model.until_whole()


def vanish(model: Model) -> float:
    model.brokers[model.zones * model.size - 1].crash(silently=True)
    return model.until_whole()


def split(model: Model) -> float:
    half = model.size // 2
    model.cut(zone + model.zones * each for zone in range(model.zones) for each in range(half))
    began = model.clock.now
    model.clock.run(began + STEP)
    took = model.until_whole() + STEP
    model.clock.run(max(began + PARTITION, model.clock.now))
    return took


def heal(model: Model) -> float:
    model.network.heal()
    model.away = set()
    return model.until_whole()


def roll(model: Model) -> float:
    longest = 0.0
    for broker in [each for each in model.living() if each.number % model.zones == 0]:
        there = len(broker.own)
        for connection in list(broker.own.values()):
            at = model.clock.now + model.draw.uniform(0.0, 1.0)
            model.clock.at(at, broker.close, connection)
        model.clock.run(model.clock.now + 1.5)
        broker.crash(silently=False)
        model.clock.run(model.clock.now + 1.0)
        model.start(broker.number)
        model.fill(broker.number, there)
        model.clock.run(model.clock.now + 0.5)
        longest = max(longest, model.until_whole())
    return longest


SCENES: Final[tuple[tuple[str, Callable[[Model], float]], ...]] = (
    ("start", start),
    ("join", join),
    ("crash", crash),
    ("silent crash", vanish),
    ("partition of half", split),
    ("its healing", heal),
    ("restart of a zone", roll),
)


def quiet(model: Model) -> int:
    """Return the messages of a minute in which nothing happens, marks not included."""
    model.clock.run(model.clock.now + 90.0)
    before, _ = model.sent()
    model.clock.run(model.clock.now + 60.0)
    return model.sent()[0] - before


def main() -> None:
    """Run the zones, print the table, and the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--quick", action="store_true", help="few brokers, for a smoke test")
    parser.add_argument("--zones", type=int, default=4, help="number of zones (default 4)")
    parser.add_argument("--size", type=int, default=16, help="brokers of each (default 16)")
    given = parser.parse_args()
    zones, size = (3, 4) if given.quick else (given.zones, given.size)

    report = Report("zone_model")
    model = Model(zones, size, seed=0)
    took: dict[str, float] = {}
    print(f"{zones * size} brokers in {zones} zones")
    print(f"{'':20}{'until':>10}{'messages':>12}{'bytes':>15}{'of the model':>16}")
    for name, scene in SCENES:
        before, began = model.sent(), time.process_time()
        took[name] = scene(model)
        model.clock.run(model.clock.now + 2.0)
        after = model.sent()
        print(
            f"{name:20}{took[name]:>8.2f} s{after[0] - before[0]:>12,}{after[1] - before[1]:>15,}"
            f"{time.process_time() - began:>14.1f} s",
            flush=True,
        )
        report.figure(f"{name}: until", took[name], "s")
        report.figure(f"{name}: bytes", after[1] - before[1], "B")
        if name == "start":
            mesh, gateways = model.links()
            report.figure("links within zones", mesh, "")
            report.figure("links between zones", gateways, "")
            report.figure("routes", sum(len(broker.own) for broker in model.living()), "")
    rest = quiet(model)
    mesh, gateways = model.links()
    taken = [broker.membership.statistics().from_zones for broker in model.living()]
    report.figure("gateway links to one broker, most", max(taken), "")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.figure("memory of the model", memory, "MiB")
    count = len(model.living())
    report.figure("links of a mesh of all", count * (count - 1) // 2, "")
    report.target("messages of a link in a minute of rest", rest / (mesh + gateways), "", at_most=3)
    report.target("silent crash: until", took["silent crash"], "s", at_most=8.0)
    report.target("its healing: until", took["its healing"], "s", at_most=50.0)
    report.print(as_json=given.json)


if __name__ == "__main__":
    main()
