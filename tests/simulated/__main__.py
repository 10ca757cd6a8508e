"""Run thousands of seeded runs of a pipe over a bad network: `python -m tests.simulated`.

It uses all cores, says now and then how far it is, and sums up. The status is non-zero if a
promise was broken, or if a pipe that is broken on purpose was not caught.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from itertools import product
from typing import Final

from tests.simulated.broken_pipes import BROKEN, caught
from tests.simulated.pipes import Outcome, checked_run

BROKEN_RUNS: Final = 200
"""Most runs of each pipe that is broken on purpose."""


def main() -> int:
    """Run, print, and return the exit status."""
    parser = argparse.ArgumentParser(description="Seeded runs of a pipe over five bad hops.")
    parser.add_argument("--runs", type=int, default=10_000, help="runs (default 10000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()

    began = time.monotonic()
    totals, failures, done = Counter[str](), 0, 0
    seeds = range(given.first, given.first + given.runs)
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for seed, outcome, violations in pool.imap_unordered(checked_run, seeds, chunksize=20):
            done += 1
            for each in violations:
                failures += 1
                print(f"seed {seed}: {each}", flush=True)
            if outcome is not None:
                totals.update(counts(outcome))
            if done % 1000 == 0 or done == given.runs:
                took = time.monotonic() - began
                print(
                    f"{done} of {given.runs} runs, {failures} violations, {took:.0f} s", flush=True
                )
        print(f"runs                      {done:>10,}")
        for name, count in totals.items():
            print(f"{name:<26}{count:>10,}")
        print(f"violations                {failures:>10,}", flush=True)
        some = seeds[:BROKEN_RUNS]
        found = Counter[int]()
        for kind, wrong in pool.imap_unordered(
            caught, product(range(len(BROKEN)), some), chunksize=10
        ):
            found[kind] += wrong
    for kind, broken in enumerate(BROKEN):
        print(
            f"broken on purpose: {broken.__name__:<22} caught in {found[kind]} of {len(some)} runs"
        )
    took = time.monotonic() - began
    print(f"{took:.0f} seconds")
    return 1 if failures or not all(found[kind] for kind in range(len(BROKEN))) else 0


def counts(outcome: Outcome) -> dict[str, int]:
    """Return what the summary adds up."""
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


if __name__ == "__main__":
    sys.exit(main())
