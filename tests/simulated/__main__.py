"""Run thousands of seeded runs over a bad network: `python -m tests.simulated`.

A run is that of a pipe, with `--cluster` that of a cluster of brokers, and with `--zones` that of a
cluster of several zones, with `--owners` that of two zones with rules, with `--dispatch` that of a
network of dispatchers, with `--messages` that of their producers and consumers, and with
`--circuits` that of their circuits, and with `--identities` that of nodes with identities. It uses
all cores, says now and then how far it is, and sums up. The status is non-zero if a promise was
broken, or if a pipe, broker or node that is broken on purpose was not caught.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from onward.protocol.dispatch import NetworkFrameKind
from tests.simulated import (
    broken_circuits,
    broken_clusters,
    broken_dispatch,
    broken_dispatchers,
    broken_identities,
    broken_pipes,
    broken_zones,
    circuits,
    clusters,
    dispatch_network,
    dispatchers,
    identities,
    owned_zones,
    pipes,
    zones,
)

BROKEN_RUNS: Final = 200
"""Most runs of each pipe, broker or node that is broken on purpose."""


def main() -> int:
    """Run, print, and return the exit status."""
    parser = argparse.ArgumentParser(description="Seeded runs over a bad network.")
    parser.add_argument("--cluster", action="store_true", help="of a cluster, not of a pipe")
    parser.add_argument("--zones", action="store_true", help="of a cluster of several zones")
    parser.add_argument("--owners", action="store_true", help="of two zones with rules")
    parser.add_argument("--dispatch", action="store_true", help="of a network of dispatchers")
    parser.add_argument("--messages", action="store_true", help="of dispatchers with messages")
    parser.add_argument("--circuits", action="store_true", help="of dispatchers with circuits")
    parser.add_argument("--identities", action="store_true", help="of nodes with identities")
    parser.add_argument("--runs", type=int, default=10_000, help="runs (default 10000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()
    of = ZONES if given.zones else CLUSTERS if given.cluster else PIPES
    of = DISPATCH if given.dispatch else OWNERS if given.owners else of
    of = CIRCUITS if given.circuits else MESSAGES if given.messages else of
    of = IDENTITIES if given.identities else of

    began = time.monotonic()
    totals, failures, done = Counter[str](), 0, 0
    seeds = range(given.first, given.first + given.runs)
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for seed, outcome, violations in pool.imap_unordered(of.run, seeds, chunksize=20):
            done += 1
            for each in violations:
                failures += 1
                print(f"seed {seed}: {each}", flush=True)
            if outcome is not None:
                totals.update(of.counts(outcome))
            if done % 1000 == 0 or done == given.runs:
                took = time.monotonic() - began
                print(
                    f"{done} of {given.runs} runs, {failures} violations, {took:.0f} s", flush=True
                )
        print(f"{'runs':<32}{done:>14,}")
        for name, count in totals.items():
            print(f"{name:<32}{count:>14,}")
        print(f"{'violations':<32}{failures:>14,}", flush=True)
        some = seeds[:BROKEN_RUNS]
        found = Counter[int]()
        for kind, wrong in pool.imap_unordered(
            of.caught, product(range(len(of.broken)), some), chunksize=10
        ):
            found[kind] += wrong
    for kind, broken in enumerate(of.broken):
        print(
            f"broken on purpose: {broken.__name__:<32} caught in {found[kind]} of {len(some)} runs"
        )
    took = time.monotonic() - began
    print(f"{took:.0f} seconds")
    return 1 if failures or not all(found[kind] for kind in range(len(of.broken))) else 0


def pipe_counts(outcome: pipes.Outcome) -> dict[str, int]:
    """Return what the summary of pipes adds up."""
    return {
        "messages sent": outcome.sent,
        "handed on": len(outcome.handed),
        "reported in doubt": len(outcome.in_doubt),
        "reported not delivered": len(outcome.missed) + len(outcome.unsent),
        "runs with such a report": bool(outcome.reported),
        "runs that were calm": outcome.plan.calm,
        "restarts of receivers": len(outcome.plan.restarts),
        "breaks": outcome.breaks,
        "frames sent by links": outcome.frames,
        "of them lost": outcome.lost,
        "duplicated": outcome.duplicated,
        "overtaken": outcome.overtaken,
        "frames sent again": outcome.resent,
        "duplicates dropped": outcome.duplicates,
    }


def cluster_counts(outcome: clusters.Outcome) -> dict[str, int]:
    """Return what the summary of clusters adds up."""
    happened = {f"happened: {name}": outcome.happened[name] for name in clusters.WEIGHTS}
    names: tuple[str, ...] = clusters.SENT
    if isinstance(outcome.plan, zones.ZonePlan):
        names += zones.SENT
    sent = {f"sent: {name}": outcome.counts[name] for name in names}
    return {"brokers": outcome.plan.brokers, **happened, **sent}


def dispatch_counts(outcome: dispatch_network.Outcome) -> dict[str, int]:
    """Return what the summary of networks of dispatchers adds up."""
    happened = {f"happened: {name}": outcome.happened[name] for name in dispatch_network.WEIGHTS}
    kinds = [kind.name for kind in NetworkFrameKind]
    sent = {f"sent: {kind.lower().replace('_', ' ')}": outcome.frames[kind] for kind in kinds}
    return {"nodes": outcome.nodes, "links": outcome.links, **happened, **sent}


def message_counts(outcome: dispatchers.Outcomes) -> dict[str, int]:
    """Return what the summary of dispatchers with messages adds up."""
    happened = {f"happened: {name}": outcome.happened[name] for name in dispatchers.WEIGHTS}
    ends = Counter(
        "pre-settled" if each.settled else type(each.outcome).__name__.lower()
        for each in outcome.sent
    )
    names = "accepted", "rejected", "released", "modified", "pre-settled"
    told = {f"messages: {name}": ends[name] for name in names}
    lost = {"messages: their producer was lost": ends["nonetype"]}
    return {"nodes": outcome.nodes, "links": outcome.links, **happened, **told, **lost}


def circuit_counts(outcome: circuits.Run) -> dict[str, int]:
    """Return what the summary of circuits adds up."""
    happened = {f"happened: {name}": outcome.happened[name] for name in circuits.WEIGHTS}
    return {"deliveries begun": len(outcome.sent), **happened}


def identity_counts(outcome: identities.Run) -> dict[str, int]:
    """Return what the summary of nodes with identities adds up."""
    network = {"nodes": outcome.nodes, "pairs": outcome.pairs, "hostile nodes": outcome.strange}
    happened = {f"happened: {name}": outcome.happened[name] for name in sorted(outcome.happened)}
    refused = {f"refused: {name}": outcome.refused[name] for name in sorted(outcome.refused)}
    return {**network, **happened, **refused}


class Simulation(NamedTuple):
    """A kind of run, and what is broken on purpose to show that it finds something."""

    run: Callable[[int], tuple[int, Any, list[str]]]
    counts: Callable[[Any], dict[str, int]]
    broken: Sequence[type]
    caught: Callable[[tuple[int, int]], tuple[int, bool]]


PIPES: Final = Simulation(pipes.checked_run, pipe_counts, broken_pipes.BROKEN, broken_pipes.caught)
CLUSTERS: Final = Simulation(
    clusters.checked_run, cluster_counts, broken_clusters.BROKEN, broken_clusters.caught
)
ZONES: Final = Simulation(
    zones.checked_run, cluster_counts, broken_zones.BROKEN, broken_zones.caught
)
OWNERS: Final = Simulation(
    owned_zones.checked_run, cluster_counts, owned_zones.BROKEN, owned_zones.caught
)
DISPATCH: Final = Simulation(
    dispatch_network.checked_run, dispatch_counts, broken_dispatch.BROKEN, broken_dispatch.caught
)
MESSAGES: Final = Simulation(
    dispatchers.checked_run, message_counts, broken_dispatchers.BROKEN, broken_dispatchers.caught
)
CIRCUITS: Final = Simulation(
    circuits.checked_run, circuit_counts, broken_circuits.BROKEN, broken_circuits.caught
)
IDENTITIES: Final = Simulation(
    identities.checked_run, identity_counts, broken_identities.BROKEN, broken_identities.caught
)


if __name__ == "__main__":
    sys.exit(main())
