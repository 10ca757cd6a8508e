"""Routes found by tags: a million routes of six tags each, and the queries for them.

Each route is read from a ROUTE_SETUP, so that no two share an object, and has a service (1,000
different ones), a region (16), a zone (64), a cluster (256), a version (20) and its route id. A
query has a service, a region and a zone.

- *cold*: new queries. *repeated*: from the bytes of an ADDRESS to the tuple of candidates, for a
  few hundred queries in turn.
- *frequent tags*: cold queries of three frequent tags, without a target. This is the worst case:
  three bitmaps of tens of thousands of routes each.
- The comparison is the plain method: a dictionary of sets, intersected from the smallest on.

Targets: 20 µs cold, 1 µs repeated, 50,000 registrations per second. Times are CPU times, so other
programs have only a small effect, through the caches; medians repeat to within 10 %. The full size
takes about a minute and 2 GiB.
"""

from __future__ import annotations

import argparse
import gc
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from time import process_time

from _report import Report
from pyroaring import BitMap

from onward.protocol.broker import (
    MAX_CACHED_QUERIES,
    AddressFrame,
    Dialect,
    Query,
    RouteSetup,
    RoutingTable,
    RoutingType,
    Tag,
    TagList,
    WellKnownKey,
    tag_set,
)

BROKER = bytes(16)
NOW = 1_700_000_000_000
DIALECT = Dialect.REFERENCE
HOT_QUERIES = 256
VALUES = {
    WellKnownKey.SERVICE_NAME: 1000,
    WellKnownKey.REGION: 16,
    WellKnownKey.ZONE: 64,
    WellKnownKey.CLUSTER_NAME: 256,
    WellKnownKey.VERSION: 20,
}
QUERY_KEYS = (WellKnownKey.SERVICE_NAME, WellKnownKey.REGION, WellKnownKey.ZONE)
FREQUENT_KEYS = (WellKnownKey.REGION, WellKnownKey.ZONE, WellKnownKey.VERSION)


@dataclass(frozen=True, slots=True)
class Size:
    """The number of routes, rounds of each kind, look-ups and changes in a round."""

    routes: int
    rounds: int
    cold: int
    repeated: int
    changes: int


FULL = Size(routes=1_000_000, rounds=9, cold=4000, repeated=200_000, changes=20_000)
QUICK = Size(routes=20_000, rounds=3, cold=200, repeated=5_000, changes=1_000)


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of each round."""

    rounds: Sequence[float]

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def noise(self) -> float:
        return (max(self.rounds) - min(self.rounds)) / 2 / self.median


class PlainIndex:
    """A set of routes for each tag: the plain method of the comparison."""

    def __init__(self) -> None:
        self.routes: dict[Tag, set[int]] = {}

    def add(self, number: int, tags: Iterable[Tag]) -> None:
        for tag in tags:
            self.routes.setdefault(tag, set()).add(number)

    def resolve(self, query: Query) -> set[int]:
        found = [self.routes.get(tag) for tag in query]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return set()
        known.sort(key=len)
        return known[0].intersection(*known[1:])

    def resolve_all(self, asked: Iterable[Query]) -> None:
        for query in asked:
            self.resolve(query)


def timed(work: Callable[[], object]) -> float:
    started = process_time()
    work()
    return process_time() - started


def count_all(table: RoutingTable[None], asked: Iterable[Query]) -> None:
    for query in asked:
        table.count(query)


def remove_all(table: RoutingTable[None], frames: Iterable[RouteSetup], timestamp: int) -> None:
    for frame in frames:
        table.remove(frame.route_id, timestamp, broker_id=BROKER, now=NOW)


def resident() -> int:
    """Return the resident memory of the process in bytes; 0 where `/proc` does not exist."""
    gc.collect()
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def draw(random: Random, key: WellKnownKey) -> Tag:
    return int(key), f"{key.name.lower()}-{random.randrange(VALUES[key])}"


def setups(random: Random, first: int, count: int) -> list[RouteSetup]:
    """Return the frames of routes from number `first` on, each read from its bytes."""
    written = (
        RouteSetup(
            number.to_bytes(16),
            str(draw(random, WellKnownKey.SERVICE_NAME)[1]),
            tuple(draw(random, key) for key in VALUES if key is not WellKnownKey.SERVICE_NAME),
        ).serialize(DIALECT)
        for number in range(first, first + count)
    )
    return [RouteSetup.parse(each, DIALECT) for each in written]


def register(table: RoutingTable[None], frames: Iterable[RouteSetup], timestamp: int) -> None:
    for frame in frames:
        table.add(frame.route_id, BROKER, frame.service_name, frame.tags, timestamp, None, now=NOW)


def queries(random: Random, keys: Sequence[WellKnownKey], count: int) -> list[Query]:
    """Return different random queries."""
    made: dict[Query, None] = {}
    while len(made) < count:
        made[tag_set(draw(random, key) for key in keys)] = None
    return list(made)


def fill(size: Size, random: Random) -> tuple[RoutingTable[None], Measured, float]:
    """Register all routes; return the table, the seconds of a route, and its bytes."""
    table = RoutingTable[None]()
    before = resident()
    rounds: list[float] = []
    chunk = size.routes // 20
    for first in range(0, size.routes, chunk):
        frames = setups(random, first, chunk)
        rounds.append(timed(partial(register, table, frames, NOW)) / chunk)
        frames.clear()
    return table, Measured(rounds), (resident() - before) / size.routes


def cold(table: RoutingTable[None], batches: Iterable[list[Query]]) -> Measured:
    rounds: list[float] = []
    for batch in batches:
        computed = table.statistics().index.computed
        rounds.append(timed(partial(count_all, table, batch)) / len(batch))
        if table.statistics().index.computed - computed != len(batch):
            raise AssertionError("a cold look-up was answered from the cache")
    return Measured(rounds)


def repeated(table: RoutingTable[None], hot: list[Query], size: Size) -> Measured:
    addresses = [
        AddressFrame(BROKER, RoutingType.UNICAST, tuple(query)).serialize(DIALECT) for query in hot
    ]

    def ask(times: int) -> None:
        for frame in itertools.islice(itertools.cycle(addresses), times):
            table.candidates(table.queries.from_address(frame, DIALECT).query)

    ask(len(addresses))
    work = partial(ask, size.repeated)
    return Measured([timed(work) / size.repeated for _ in range(size.rounds)])


def change(table: RoutingTable[None], size: Size, random: Random) -> tuple[Measured, Measured]:
    """Re-register with other tags, then remove, with the cache of answers full."""
    for query in queries(random, QUERY_KEYS, min(MAX_CACHED_QUERIES, size.routes)):
        table.count(query)
    replaced: list[float] = []
    removed: list[float] = []
    for number in range(size.rounds):
        frames = setups(random, number * size.changes, size.changes)
        replaced.append(timed(partial(register, table, frames, NOW + 1)) / size.changes)
        removed.append(timed(partial(remove_all, table, frames, NOW + 2)) / size.changes)
    return Measured(replaced), Measured(removed)


def compare(
    tags: Sequence[tuple[int, TagList]], batches: Iterable[list[Query]]
) -> tuple[PlainIndex, float, float, Measured]:
    """Measure plain sets: seconds and bytes for a route, seconds for a look-up."""
    plain = PlainIndex()
    before = resident()

    def add_all() -> None:
        for number, each in tags:
            plain.add(number, each)

    seconds = timed(add_all) / len(tags)
    size = (resident() - before) / len(tags)
    rounds = [timed(partial(plain.resolve_all, batch)) for batch in batches]
    return plain, seconds, size, Measured(rounds)


def bare(plain: PlainIndex, batches: Iterable[list[Query]]) -> Measured:
    """Time only the ANDs of a look-up, on new bitmaps of the same routes."""
    rounds: list[float] = []
    for batch in batches:
        tags = {tag for query in batch for tag in query}
        bitmaps = {tag: BitMap(plain.routes[tag]) for tag in tags}
        sorted_by_size = [sorted((bitmaps[tag] for tag in query), key=len) for query in batch]
        rounds.append(timed(partial(intersect_all, sorted_by_size)) / len(batch))
    return Measured(rounds)


def intersect_all(asked: Iterable[list[BitMap]]) -> None:
    for first, second, third in asked:
        _ = first & second & third


def agree(table: RoutingTable[None], plain: PlainIndex, asked: Iterable[Query]) -> None:
    for query in asked:
        if {table.number_of(entry) for entry in table.candidates(query)} != plain.resolve(query):
            raise AssertionError(f"the two ways disagree about {query}")


def measure(size: Size) -> Report:
    random = Random(5)
    table, registered, bytes_each = fill(size, random)
    asked = queries(random, QUERY_KEYS, size.rounds * size.cold)
    batches = [asked[start :: size.rounds] for start in range(size.rounds)]
    common = queries(random, FREQUENT_KEYS, min(1000, size.cold))
    cold_each = cold(table, batches)
    frequent = cold(table, [common[start :: size.rounds] for start in range(size.rounds)])
    again = repeated(table, asked[:HOT_QUERIES], size)

    tags = [(table.number_of(entry), entry.tags) for entry in table]
    few = [batch[: max(20, size.cold // 20)] for batch in batches]
    plain, plain_add, plain_bytes, plain_each = compare(tags, few)
    plain_cold = plain_each.median / len(few[0])
    agree(table, plain, itertools.chain(*few))
    ands = bare(plain, batches)
    del tags, plain
    replaced, removed = change(table, size, random)

    report = Report("resolve", noise=max(cold_each.noise, again.noise))
    report.figure("routes", size.routes, "")
    report.figure("a look-up names, on average", size.routes / 1000 / 16 / 64, "routes")
    report.figure("memory of a route", bytes_each, "bytes")
    report.figure("memory of all routes", bytes_each * size.routes / 2**30, "GiB")
    report.figure("memory of a route, in plain sets alone", plain_bytes, "bytes")
    report.figure("cold look-up, frequent tags", frequent.median * 1e6, "µs")
    report.figure("cold look-up, the ANDs alone", ands.median * 1e6, "µs")
    report.figure("cold look-up, plain sets", plain_cold * 1e6, "µs")
    report.figure("plain sets / cold", plain_cold / cold_each.median, "x")
    report.figure("plain sets / repeated", plain_cold / again.median, "x")
    report.figure("registrations, plain sets alone", 1 / plain_add, "/s")
    report.figure("re-registrations, cache full", 1 / replaced.median, "/s")
    report.figure("removals, cache full", 1 / removed.median, "/s")
    report.figure("noise of registrations", registered.noise * 100, "%")
    report.target("cold look-up of 3 tags", cold_each.median * 1e6, "µs", at_most=20)
    report.target("repeated look-up, from ADDRESS bytes", again.median * 1e6, "µs", at_most=1)
    if cold_each.median > 20e-6:
        share = ands.median / cold_each.median
        report.note(
            f"Cold: {share:.0%} of the time goes to the ANDs even on freshly made bitmaps, and "
            "they get slower with what else runs."
        )
    report.target("registrations", 1 / registered.median, "/s", at_least=50_000)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    options = parser.parse_args()
    measure(QUICK if options.quick else FULL).print(as_json=options.json)


if __name__ == "__main__":
    main()
