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
- rolling restart: of the brokers of one zone, one after the other.

"until" is the time until each broker has the routes that are connected in its zone and nothing
else, and of each other zone the groups that there are, by one link. It has a resolution of 50 ms.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from _cluster_scenes import SCENES, ClusterModel, Scene, Setting, play, quiet
from _report import Report

from onward.protocol.cluster import ClusterLimits
from tests.simulated.cluster_broker import QUERY
from tests.simulated.zone_broker import ZoneBroker

TURN: Final = 0.025
REGIONS: Final = 3
LIMITS: Final = ClusterLimits(mark=60.0)
SETTING: Final = Setting(
    routes=(5, 15),
    startup=2.0,
    step=0.05,
    partition=40.0,
    joining=20,
    pace=0.0,
    counted=(
        *("element", "tell", "compare", "compared", "subscribe"),
        *("follow", "filter", "places", "placed"),
    ),
)


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


class Zones(ClusterModel[TurnBroker]):
    """Zones of brokers that are joined.

    Args:
        zones: Their number.
        size: Brokers of each.
        seed: What chance is drawn from.
    """

    def __init__(self, zones: int, size: int, seed: int) -> None:
        super().__init__(zones * size, random.Random(f"{seed}/zones"), SETTING)
        self.zones = zones

    def make(self, number: int) -> TurnBroker:
        zone = number % self.zones
        return TurnBroker(
            self.network,
            number,
            clock_skew=self.draw.randint(-1000, 1000),
            limits=LIMITS,
            watcher=self,
            find=self.find,
            seeds=(zone, zone + self.zones, (zone + 1) % self.zones),
            zone=f"zone-{zone}",
        )

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

    def links(self) -> tuple[int, int]:
        """Return the links within zones, and those between them."""
        figures = [broker.membership.statistics() for broker in self.living()]
        return sum(each.links for each in figures) // 2, sum(each.to_zones for each in figures)

    def half(self) -> Iterator[int]:
        size = self.count // self.zones
        return (number for number in range(self.count) if number // self.zones < size // 2)

    def rolled(self) -> list[TurnBroker]:
        return [broker for broker in self.living() if broker.number % self.zones == 0]


def show(name: str, scene: Scene, began: float) -> None:
    """Print the row of one thing that happened."""
    print(
        f"{name:20}{scene.until:>8.2f} s{scene.messages:>12,}{scene.size:>15,}"
        f"{time.process_time() - began:>14.1f} s",
        flush=True,
    )


def main() -> None:
    """Run the zones, print the table, and the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--quick", action="store_true", help="few brokers, for a smoke test")
    parser.add_argument("--zones", type=int, default=4, help="number of zones (default 4)")
    parser.add_argument("--size", type=int, default=16, help="brokers of each (default 16)")
    given = parser.parse_args()
    zones, size = (3, 4) if given.quick else (given.zones, given.size)

    # Next to nothing becomes garbage that counting references does not free, and it takes long to
    # look through all there is.
    gc.disable()
    report = Report("zone_model")
    model = Zones(zones, size, seed=0)
    took: dict[str, float] = {}
    print(f"{zones * size} brokers in {zones} zones")
    print(f"{'':20}{'until':>10}{'messages':>12}{'bytes':>15}{'of the model':>16}", flush=True)
    for name in SCENES:
        began = time.process_time()
        scene = play(model, name)
        show(name, scene, began)
        took[name] = scene.until
        report.figure(f"{name}: until", scene.until, "s")
        report.figure(f"{name}: bytes", scene.size, "B")
        if name == "start":
            mesh, gateways = model.links()
            report.figure("links within zones", mesh, "")
            report.figure("links between zones", gateways, "")
            report.figure("routes", model.routes(), "")
    began = time.process_time()
    rest = Scene(0.0, *quiet(model, 90.0))
    show("a minute of rest", rest, began)
    links = sum(model.links())
    taken = [broker.membership.statistics().from_zones for broker in model.living()]
    report.figure("gateway links to one broker, most", max(taken), "")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.figure("memory of the model", memory, "MiB")
    count = len(model.living())
    report.figure("links of a mesh of all", count * (count - 1) // 2, "")
    report.figure("bytes of a link in a minute of rest", rest.size / links, "B")
    report.target("messages of a link in a minute of rest", rest.messages / links, "", at_most=3)
    report.target("silent crash: until", took["silent crash"], "s", at_most=8.0)
    report.target("its healing: until", took["its healing"], "s", at_most=50.0)
    report.print(as_json=given.json)


if __name__ == "__main__":
    main()
