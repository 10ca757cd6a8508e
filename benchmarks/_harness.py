"""Arguments, repetition, medians with their noise, and JSON, for all benchmarks.

A figure is the median of several runs. Its noise is the distance from the median to the farther
quartile, as a fraction of the median: the middle half of the runs lies within it. A ratio is the
median of the ratios of single runs, as a busy machine slows both sides of a run.

Run a benchmark from the root of the repository: `python benchmarks/hops.py --json`. With `--json`
the last line is one JSON object; without it only the table before it is printed.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import _report

__all__ = ["Arguments", "Report", "parse_arguments", "repeat"]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a benchmark's command line.

    Attributes:
        json: Print the JSON object as the last line.
        quick: One short run of everything, as a smoke test; the figures mean nothing.
        runs: The number of runs.
    """

    json: bool
    quick: bool
    runs: int


def parse_arguments(description: str | None, *, runs: int = 5) -> Arguments:
    """Parse the command line of a benchmark.

    Args:
        description: The benchmark's docstring; its first line is shown by `--help`.
        runs: The default number of runs.
    """
    first_line = (description or "").strip().partition("\n")[0]
    parser = argparse.ArgumentParser(description=first_line)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--quick", action="store_true", help="one short run, for a smoke test")
    parser.add_argument("--runs", type=int, default=runs, help=f"runs (default {runs})")
    given = parser.parse_args()
    return Arguments(given.json, given.quick, 1 if given.quick else max(1, given.runs))


def repeat(runs: int, once: Callable[[], Mapping[str, float]]) -> dict[str, list[float]]:
    """Call a function several times and collect the values of each run by name."""
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


class Report(_report.Report):
    """A report of figures that were measured in several runs.

    Args:
        benchmark: The benchmark's name.
        arguments: The arguments of its command line.
    """

    def __init__(self, benchmark: str, arguments: Arguments) -> None:
        super().__init__(benchmark)
        self._as_json = arguments.json
        self._measured: dict[str, _report.Figure] = {}

    def add(self, measured: Mapping[str, list[float]]) -> None:
        """Add figures: the values of all runs by name. The name includes the unit."""
        for name, values in measured.items():
            self._measured[name] = _report.Figure(
                name, statistics.median(values), "", noise(values)
            )
            self.figures.append(self._measured[name])

    def ratio(self, name: str, above: list[float], below: list[float]) -> None:
        """Add the ratio of two lists of figures, made run by run."""
        self.add({name: [a / b for a, b in zip(above, below, strict=True)]})

    def at_most(self, name: str, limit: float) -> None:
        """Set an upper limit as the target of a figure."""
        figure = self._take(name)
        self.target(name, figure.value, "", at_most=limit, noise=figure.noise)

    def at_least(self, name: str, limit: float) -> None:
        """Set a lower limit as the target of a figure."""
        figure = self._take(name)
        self.target(name, figure.value, "", at_least=limit, noise=figure.noise)

    def _take(self, name: str) -> _report.Figure:
        """Remove a figure from the list: with a limit it is a target."""
        figure = self._measured[name]
        self.figures.remove(figure)
        return figure

    def print(self, *, as_json: bool | None = None) -> None:
        """Print a table and, if configured, the JSON object as the last line."""
        self.noise = max((target.noise or 0.0 for target in self.targets), default=0.0)
        super().print(as_json=self._as_json if as_json is None else as_json)
