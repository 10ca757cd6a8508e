"""The table of a broker in a cluster: all routes of a zone, 312,500 at 32 peer brokers, and groups.

The groups are those of 31 other zones, 10,000 each. They are loaded beside the routes.

A route has five tags, the two default ones included, and comes as the bytes of a ROUTE_ADD; frames
are read and loaded in slices of 500, with the loop free in between. In *usual* tags, region and
zone are those of the broker, and a service has three versions. *Owner*: each has its owner as well,
as brokers with rules tell it, of 1,000 principals with any service. *Since*: and since when that
has had the route id, a time of its own for each. In *unlike* tags each route has a tag that no
other has, so that nothing can be shared.

- *memory*: of a route with all that it has in the table, in the index and beside: resident memory
  of the process, and for some of the routes the sum that `tracemalloc` counts.
- *CPU*: of a route, from the bytes on. *Slices*: what the loop has to wait for while it loads.
- *suspend* and *reveal* a peer broker with 10,000 routes, with 4,096 answers kept.
- *choice*: of a destination for a request among own ones, with and without the routes of others,
  and with the groups; and of a group, for a request that only other zones can take.

Times are CPU times, so other programs have only a small effect. Full passes of Python's collector
are put off while routes are loaded, as a broker does; *full pass* is one with all of them there.

Targets: 350 bytes and 10 µs a route, a slice within 20 ms; also with owners. The full size takes
about three minutes and 1 GiB.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import ParamSpec, TypeVar

from _report import Report

from onward.actors import Node, Worker
from onward.actors.broker import Broker, BrokerOptions, PeerRoutes
from onward.actors.runtime._full_passes import put_off_full_passes
from onward.protocol import TAGS, Address
from onward.protocol.broker import (
    COUNT_KEY,
    MAX_CACHED_QUERIES,
    Dialect,
    RouteAdd,
    WellKnownKey,
    owner_text,
    parse_query,
    with_default_tags,
    with_owner,
)

P = ParamSpec("P")
R = TypeVar("R")

DIALECT = Dialect.SPECIFICATION
NOW = 1_700_000_000_000
SERVICES = 300
ELSEWHERE = 100  # further services, of other zones
SLICE = 500
TRACED = 10_000

REGION, ZONE, VERSION, INSTANCE, SERVICE_NAME = (
    int(key)
    for key in (
        WellKnownKey.REGION,
        WellKnownKey.ZONE,
        WellKnownKey.VERSION,
        WellKnownKey.INSTANCE_NAME,
        WellKnownKey.SERVICE_NAME,
    )
)


OWNERS = tuple(owner_text(f"client-{number}", "token", "") for number in range(1_000))


class Kind(Enum):
    """The tags of the routes that are loaded."""

    USUAL = "usual tags"
    OWNER = "owner"
    SINCE = "owner and since"
    UNLIKE = "unlike tags"


@dataclass(frozen=True, slots=True)
class Size:
    """The number of routes and of peer brokers, and the repetitions of what is timed."""

    routes: int
    peers: int
    choices: int
    rounds: int
    groups: int
    zones: int


FULL = Size(routes=312_500, peers=32, choices=50_000, rounds=9, groups=310_000, zones=31)
QUICK = Size(routes=6_400, peers=4, choices=1_000, rounds=3, groups=3_100, zones=31)


def frames(random: Random, peer: int, count: int, kind: Kind) -> Iterator[bytes]:
    """Yield the ROUTE_ADD frames of a peer broker."""
    broker_id = (1000 + peer).to_bytes(16)
    for number in range(count):
        service = f"service-{random.randrange(SERVICES)}"
        unlike = kind is Kind.UNLIKE
        own = (INSTANCE, f"i-{peer}-{number}") if unlike else (VERSION, f"1.{random.randrange(3)}")
        route_id = random.randbytes(16)
        tags = ((REGION, f"region-{peer % 4}"), (ZONE, f"zone-{peer}"), own)
        told = RouteAdd(
            broker_id,
            route_id,
            NOW + random.randrange(10**9),
            service,
            with_default_tags(tags, service, route_id),
        )
        if kind in (Kind.OWNER, Kind.SINCE):
            since = NOW - random.randrange(10**9) if kind is Kind.SINCE else 0
            told = with_owner(told, random.choice(OWNERS), since)
        # The text of each frame is its own, as it comes from a wire.
        yield told.serialize(DIALECT)


def resident() -> int:
    """Return the resident memory of the process in bytes; 0 where `/proc` does not exist."""
    gc.collect()
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def timed(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began


@dataclass(slots=True)
class Loaded:
    """The costs of loading a table."""

    bytes_each: float
    cpu: float
    reading: float
    slices: list[float]
    kinds: int


def read(made: Sequence[bytes]) -> None:
    for frame in made:
        RouteAdd.parse(frame, DIALECT)


def load_slice(broker: Broker, peer: PeerRoutes, part: Sequence[bytes]) -> None:
    index = broker.index
    put_off_full_passes()  # as `RouteLoader` does
    for frame in part:
        if index.add_remote(peer, RouteAdd.parse(frame, DIALECT)):
            raise AssertionError("a route was refused")


async def load(broker: Broker, random: Random, size: Size, kind: Kind) -> Loaded:
    """Load the routes of all peer brokers; the frames are made before each peer broker's turn."""
    index = broker.index
    slices: list[float] = []
    reading = 0.0
    each = size.routes // size.peers
    before = resident()
    for number in range(size.peers):
        peer = PeerRoutes((1000 + number).to_bytes(16), f"peer-{number}")
        index.peer_joined(peer)
        made = list(frames(random, number, each, kind))
        for first in range(0, each, SLICE):
            part = made[first : first + SLICE]
            slices.append(timed(partial(load_slice, broker, peer, part)))
            await asyncio.sleep(0)
        reading += timed(partial(read, made))
        made.clear()
    count = each * size.peers
    kinds = sum(len(peer.kinds) for peer in index.peers.known.values())
    return Loaded(
        (resident() - before) / count, sum(slices) / count, reading / count, slices, kinds
    )


def gateway_of(zone: int) -> bytes:
    """Return the id of the broker that tells the groups of a zone."""
    return Random(zone).randbytes(16)


def groups(random: Random, zone: int, count: int) -> Iterator[bytes]:
    """Yield the ROUTE_ADD frames of the groups of a zone.

    They are as `RouteGroups` tells them: with one timestamp for all of a turn.
    """
    broker_id = gateway_of(zone)
    timestamp = NOW
    for number in range(count):
        if number % SLICE == 0:
            timestamp = NOW + random.randrange(10**9)
        service = f"service-{number % (SERVICES + ELSEWHERE)}"
        tags = (
            (SERVICE_NAME, service),
            (COUNT_KEY, str(random.randrange(1, 64))),
            (REGION, f"region-{zone % 4}"),
            (VERSION, f"1.{number // SERVICES}"),
        )
        route_id = random.randbytes(16)
        yield RouteAdd(
            broker_id,
            route_id,
            timestamp,
            service,
            with_default_tags(tags, service, route_id),
        ).serialize(DIALECT)


def group_slice(broker: Broker, peer: PeerRoutes, part: Sequence[bytes]) -> None:
    index = broker.index
    put_off_full_passes()
    for frame in part:
        if index.add_group(peer, RouteAdd.parse(frame, DIALECT)):
            raise AssertionError("a group was refused")


async def load_groups(broker: Broker, random: Random, size: Size) -> Loaded:
    """Load the groups of all other zones, each of a gateway of its own."""
    index = broker.index
    slices: list[float] = []
    each = size.groups // size.zones
    before = resident()
    for number in range(size.zones):
        peer = PeerRoutes(gateway_of(number), f"gateway-{number}")
        peer.zone = f"zone-{number}"
        index.gateway_joined(peer)
        made = list(groups(random, number, each))
        for first in range(0, each, SLICE):
            part = made[first : first + SLICE]
            slices.append(timed(partial(group_slice, broker, peer, part)))
            await asyncio.sleep(0)
        made.clear()
    count = each * size.zones
    return Loaded((resident() - before) / count, sum(slices) / count, 0.0, slices, count)


async def traced(random: Random, kind: Kind) -> float:
    """Return the bytes of a route as `tracemalloc` counts them, for one peer broker."""
    async with Node("traced") as node:
        broker = await Broker.attach(node, OPTIONS)
        peer = PeerRoutes((1000).to_bytes(16))
        broker.index.peer_joined(peer)
        made = list(frames(random, 0, TRACED, kind))
        gc.collect()
        tracemalloc.start()
        load_slice(broker, peer, made)
        gc.collect()
        current, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return current / TRACED


OPTIONS = BrokerOptions(management=False)


async def suspend(broker: Broker, random: Random) -> tuple[float, float]:
    """Return the seconds of hiding and of showing 10,000 routes, with the cache of answers full."""
    index = broker.index
    peer = PeerRoutes((999).to_bytes(16))
    index.peer_joined(peer)
    load_slice(broker, peer, list(frames(random, -1, 10_000, Kind.USUAL)))
    hidden: list[float] = []
    shown: list[float] = []
    for _ in range(5):
        for number in range(MAX_CACHED_QUERIES):
            service, zone = number % SERVICES, number // SERVICES - 1
            index.table.candidates(parse_query(f"service=service-{service} zone=zone-{zone}"))
        hidden.append(timed(lambda: index.suspend_peer(peer)))
        shown.append(timed(lambda: index.reveal_peer(peer)))
    while index.drop_peer(peer, 1000) == 1000:
        pass
    index.peer_left(peer)
    return median(hidden), median(shown)


def choices(broker: Broker, size: Size, first: int = 0) -> float:
    """Return the seconds of CPU for the choice of a destination, the median of rounds."""
    index = broker.index
    services = range(first, first + 100)
    asks = [index.asked(Address(TAGS, f"service=service-{n}".encode())) for n in services]

    def choose() -> None:
        for _ in range(size.choices // len(asks)):
            for ask in asks:
                index.choose(ask, None)

    choose()
    return median(timed(choose) / size.choices for _ in range(size.rounds))


def measure(size: Size) -> Report:
    """Measure each kind of tags in a process of its own, so that it finds no memory in use."""
    report = Report("cluster_table", noise=0.05)
    report.figure("routes", size.routes, "")
    for kind in Kind:
        each = apart(traced_alone, kind)
        part = apart(measure_alone, kind, size, each)
        report.figures += part.figures
        report.targets += part.targets
        report.notes += part.notes
    return report


def apart(work: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Call a function in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **named).result()


def traced_alone(kind: Kind) -> float:
    return asyncio.run(traced(Random(5), kind))


def measure_alone(kind: Kind, size: Size, each: float) -> Report:
    return asyncio.run(measure_kind(kind, size, each))


async def measure_kind(kind: Kind, size: Size, each: float) -> Report:
    report = Report("cluster_table")
    async with Node("bench") as node:
        broker = await Broker.attach(node, OPTIONS)
        await node.start(Worker, address="worker")
        for service in range(100):
            for _ in range(3):
                broker.register("worker", service=f"service-{service}")
        alone = choices(broker, size) if kind is Kind.USUAL else 0.0
        found = await load(broker, Random(7), size, kind)
        report_loaded(report, kind, size, found, each)
        if kind is Kind.USUAL:
            hidden, shown = await suspend(broker, Random(11))
            report.figure("suspend 10,000 routes", hidden * 1e3, "ms")
            report.figure("reveal 10,000 routes", shown * 1e3, "ms")
            report.figure("choice, own routes alone", alone * 1e6, "µs")
            report.target(
                "choice, among all / alone", choices(broker, size) / alone, "x", at_most=1.2
            )
            await measure_groups(report, broker, size, alone)
    return report


def report_loaded(report: Report, kind: Kind, size: Size, found: Loaded, each: float) -> None:
    """Report what the routes of a kind have cost; `each` is their memory as it was traced."""
    name = kind.value
    ordered = sorted(found.slices)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    report.figure(f"{name}: kinds", found.kinds, "")
    report.figure(f"{name}: memory, traced", each, "bytes")
    report.figure(f"{name}: reading alone", found.reading * 1e6, "µs")
    report.figure(f"{name}: longest slice", ordered[-1] * 1e3, "ms")
    if kind is Kind.UNLIKE:
        report.figure(f"{name}: memory, resident", found.bytes_each, "bytes")
        report.figure(f"{name}: CPU", found.cpu * 1e6, "µs")
        report.figure(f"{name}: slice, p99", p99 * 1e3, "ms")
        return
    report.target(f"{name}: memory of a route", found.bytes_each, "bytes", at_most=350)
    report.target(f"{name}: CPU of a route", found.cpu * 1e6, "µs", at_most=10)
    report.target(f"{name}: slice of 500 routes, p99", p99 * 1e3, "ms", at_most=20)
    if found.cpu > 10e-6:
        share = found.reading / found.cpu
        first = found.kinds / size.routes
        report.note(
            f"{name}, CPU: {share:.0%} of it reads the frame. The rest is the index of five tags, "
            f"and what is shared: {first:.0%} of the routes are the first of their kind."
        )


async def measure_groups(report: Report, broker: Broker, size: Size, alone: float) -> None:
    """Load the groups of other zones into a broker that has all routes of its own zone."""
    found = await load_groups(broker, Random(13), size)
    report.figure("groups", size.groups, "")
    report.target("choice, with groups / alone", choices(broker, size) / alone, "x", at_most=1.2)
    report.figure("choice of a group", choices(broker, size, SERVICES) * 1e6, "µs")
    ordered = sorted(found.slices)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    report.target("memory of a group, resident", found.bytes_each, "bytes", at_most=350)
    report.target("CPU of a group", found.cpu * 1e6, "µs", at_most=10)
    report.figure("longest slice of groups", ordered[-1] * 1e3, "ms")
    report.figure("full pass of the collector", timed(gc.collect) * 1e3, "ms")
    report.target("slice of 500 groups, p99", p99 * 1e3, "ms", at_most=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    options = parser.parse_args()
    measure(QUICK if options.quick else FULL).print(as_json=options.json)


if __name__ == "__main__":
    main()
