"""Run thousands of seeded runs of a pipe over a bad network: `python -m tests.simulated`.

It uses all cores, says now and then how far it is, and sums up. The status is non-zero if a
promise was broken, or if a receiver that is broken on purpose was not caught.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable

from tests.simulated.pipes import BROKEN, Outcome, checked_run, run_broken, violations


def caught(kind: int, seeds: Iterable[int]) -> int:
    """Count the runs that catch a receiver that is broken on purpose."""
    return sum(bool(violations(run_broken(seed, BROKEN[kind]))) for seed in seeds)


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
        for seed, outcome, wrong in pool.imap_unordered(checked_run, seeds, chunksize=20):
            done += 1
            for each in wrong:
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
    print(f"violations                {failures:>10,}")
    blind = 0
    some = range(given.first, given.first + min(given.runs, 50))
    for kind, broken in enumerate(BROKEN):
        found = caught(kind, some)
        blind += not found
        print(f"broken on purpose: {broken.__name__}: caught in {found} of {len(some)} runs")
    return 1 if failures or blind else 0


def counts(outcome: Outcome) -> dict[str, int]:
    """Return what the summary adds up."""
    return {
        "messages sent": outcome.sent,
        "handed on": len(outcome.handed),
        "reported in doubt": len(outcome.in_doubt),
        "reported not delivered": len(outcome.missed) + len(outcome.unsent),
        "runs with such a report": outcome.gave_up,
        "frames sent by links": outcome.frames,
        "of them lost": outcome.lost,
        "duplicated": outcome.duplicated,
        "overtaken": outcome.overtaken,
        "frames sent again": outcome.resent,
        "duplicates dropped": outcome.duplicates,
    }


if __name__ == "__main__":
    sys.exit(main())
