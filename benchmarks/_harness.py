"""What the benchmarks share: arguments, repetition, medians with their noise, JSON.

A figure is the median of several runs. Its noise is the distance from the median to the
farther quartile, as a fraction of the median: the middle half of the runs lies within it.
Ratios are made of figures of one and the same run, so that a busy machine slows both sides, and are
medians of the runs' ratios.

Run a benchmark from the root of the repository: `python benchmarks/hops.py --json`. The
last line printed is one JSON object; without `--json` only the table before it.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Arguments", "Report", "parse_arguments", "repeat"]


@dataclass(frozen=True, slots=True)
class Arguments:
    """What was asked for on the command line.

    Attributes:
        json: Print the JSON object as the last line.
        quick: One short run of everything, to see that it works; figures mean nothing.
        runs: How often everything is run.
    """

    json: bool
    quick: bool
    runs: int


def parse_arguments(description: str | None, *, runs: int = 5) -> Arguments:
    """Read the command line of a benchmark.

    Args:
        description: The benchmark's docstring; its first line is shown by `--help`.
        runs: How often everything is run by default.
    """
    first_line = (description or "").strip().partition("\n")[0]
    parser = argparse.ArgumentParser(description=first_line)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--quick", action="store_true", help="one short run, for a smoke test")
    parser.add_argument("--runs", type=int, default=runs, help=f"runs (default {runs})")
    given = parser.parse_args()
    return Arguments(given.json, given.quick, 1 if given.quick else max(1, given.runs))


def repeat(runs: int, once: Callable[[], Mapping[str, float]]) -> dict[str, list[float]]:
    """Run something several times and collect what each run measured, by name."""
    collected: dict[str, list[float]] = {}
    for _ in range(runs):
        gc.collect()
        for name, value in once().items():
            collected.setdefault(name, []).append(value)
    return collected


def noise(values: list[float]) -> float:
    """Return the distance from the median to the farther quartile, relative to the median."""
    middle = statistics.median(values)
    if len(values) < 2 or not middle:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return max(high - middle, middle - low) / abs(middle)


@dataclass(slots=True)
class Report:
    """The result of a benchmark.

    Attributes:
        name: The benchmark's name.
        arguments: How it was run.
        figures: Name to median.
        noises: Name to noise.
        targets: Name to whether it was met.
        notes: Anything worth knowing about the run.
    """

    name: str
    arguments: Arguments
    figures: dict[str, float] = field(default_factory=dict[str, float])
    noises: dict[str, float] = field(default_factory=dict[str, float])
    targets: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    notes: list[str] = field(default_factory=list[str])

    def add(self, measured: Mapping[str, list[float]]) -> None:
        """Add figures: name to what each run measured. Say the unit in the name."""
        for name, values in measured.items():
            self.figures[name] = statistics.median(values)
            self.noises[name] = noise(values)

    def ratio(self, name: str, above: list[float], below: list[float]) -> None:
        """Add the ratio of two lists of figures, made run by run."""
        self.add({name: [a / b for a, b in zip(above, below, strict=True)]})

    def at_most(self, name: str, limit: float) -> None:
        """Say that a figure should be at most this."""
        self._target(name, "at most", limit, met=self.figures[name] <= limit)

    def at_least(self, name: str, limit: float) -> None:
        """Say that a figure should be at least this."""
        self._target(name, "at least", limit, met=self.figures[name] >= limit)

    def _target(self, name: str, relation: str, limit: float, *, met: bool) -> None:
        self.targets.append({"figure": name, "relation": relation, "limit": limit, "met": met})

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        return all(target["met"] for target in self.targets)

    def print(self) -> None:
        """Print a table for people and, if asked for, the JSON object as the last line."""
        width = max((len(name) for name in self.figures), default=0)
        print(f"{self.name}: {self.arguments.runs} runs, Python {platform.python_version()}")
        for name, value in self.figures.items():
            print(f"  {name:<{width}}  {value:>14,.3f}  ±{self.noises[name]:.1%}")
        for target in self.targets:
            verdict = "met" if target["met"] else "MISSED"
            print(f"  target {target['figure']} {target['relation']} {target['limit']}: {verdict}")
        for note in self.notes:
            print(f"  note: {note}")
        sys.stdout.flush()
        if self.arguments.json:
            print(json.dumps(self.as_dict()))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "name": self.name,
            "quick": self.arguments.quick,
            "runs": self.arguments.runs,
            "python": platform.python_version(),
            "figures": self.figures,
            "noise": self.noises,
            "targets": self.targets,
            "met": self.met,
            "notes": self.notes,
        }
