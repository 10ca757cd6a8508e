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
from typing import Final

from _cluster_scenes import SCENES, ClusterModel, Scene, Setting, play, quiet
from _report import Report

from onward.protocol.cluster import ClusterLimits
from tests.simulated.cluster_broker import QUERY, Broker

ZONE: Final = 32
SETTING: Final = Setting(
    routes=(20, 100),
    startup=1.0,
    step=0.01,
    partition=20.0,
    joining=60,
    pace=1.0,
    counted=("element", "tell", "compare", "compared", "subscribe"),
)


class Zone(ClusterModel[Broker]):
    """One full mesh of brokers.

    Args:
        size: Number of brokers.
        seed: What chance is drawn from.
    """

    def __init__(self, size: int, seed: int) -> None:
        super().__init__(size, random.Random(f"{seed}/zone"), SETTING)

    def make(self, number: int) -> Broker:
        return Broker(
            self.network,
            number,
            clock_skew=self.draw.randint(-1000, 1000),
            limits=ClusterLimits(),
            watcher=self,
            find=self.find,
            seeds=(0, 1, 2),
        )

    def is_whole(self) -> bool:
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

    def half(self) -> range:
        return range(self.count // 2)

    def rolled(self) -> list[Broker]:
        return self.living()


def main() -> None:
    """Run the zones, print the table, and the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--quick", action="store_true", help="one small zone, for a smoke test")
    parser.add_argument("--zones", type=int, default=2, help="zones of 32 brokers (default 2)")
    given = parser.parse_args()
    zones, size = (1, 6) if given.quick else (given.zones, ZONE)

    scenes: dict[str, list[Scene]] = {name: [] for name in SCENES}
    routes: list[int] = []
    rest: list[int] = []
    for seed in range(zones):
        zone = Zone(size, seed)
        for name, found in scenes.items():
            found.append(play(zone, name))
            if name == "start":
                routes.append(zone.routes())
        rest.append(quiet(zone, 10.0)[0])

    print(f"{zones * size} brokers in {zones} zones, {sum(routes):,.0f} routes")
    print(f"{'':20}{'until, median':>15}{'longest':>10}{'messages':>12}{'bytes':>14}  a zone")
    longest = {name: max(each.until for each in found) for name, found in scenes.items()}
    sizes = {name: statistics.mean(each.size for each in found) for name, found in scenes.items()}
    for name, found in scenes.items():
        messages = statistics.mean(each.messages for each in found)
        print(
            f"{name:20}{statistics.median(each.until for each in found):>13.2f} s"
            f"{longest[name]:>8.2f} s{messages:>12,.0f}{sizes[name]:>14,.0f}"
        )
    report = Report("cluster_model")
    report.figure("brokers", zones * size, "")
    report.figure("routes", sum(routes), "")
    for name in scenes:
        report.figure(f"{name}: longest", longest[name], "s")
        report.figure(f"{name}: bytes of a zone", sizes[name], "B")
    # Each of 60 new routes to each peer broker: 65 bytes compressed, 171 as they are.
    known = statistics.mean(routes) * 171
    report.target("join / all routes twice", sizes["join"] / (2 * known), "", at_most=1.0)
    of_link = statistics.mean(rest) / (size * (size - 1) / 2)
    report.target("messages of a link in a minute of rest", of_link, "", at_most=3.0)
    report.target("silent crash: longest", longest["silent crash"], "s", at_most=6.5)
    report.target("its healing: longest", longest["its healing"], "s", at_most=50.0)
    report.print(as_json=given.json)


if __name__ == "__main__":
    main()
