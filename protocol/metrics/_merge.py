"""The metrics of several processes as those of one program.

The family says how its series go together. What a process has counted stays in a sum when it has
ended, or does not answer: a sum that fell would be read as a restart, and its next value as a rate
that there never was. So the last counts of each process are kept. What a process has counted after
it was read last, and before it ended, is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Final, TypeAlias

from ._families import Metric, MetricFamily
from ._histogram import Durations

__all__ = ["MAX_SERIES", "PROCESS", "MergedMetrics"]

PROCESS: Final = "process"
"""The label with the number of a process."""

MAX_SERIES: Final = 10_000
"""The maximum number of series that are kept of the ended runs of a process; those beyond it are
missing in the sums."""

_Value: TypeAlias = float | Durations
_Values: TypeAlias = dict[tuple[str, ...], _Value]


class _Run:
    """The counts of a process: those of the run that was read last, and of those before it."""

    def __init__(self) -> None:
        self.run = ""
        self.last: dict[str, _Values] = {}
        self.before: dict[str, _Values] = {}
        self.kept = 0

    def began(self, run: str) -> None:
        """Add the counts of the last run to those before, if this is another one."""
        if run == self.run:
            return
        self.run = run
        for name, values in self.last.items():
            before = self.before.setdefault(name, {})
            for labels, value in values.items():
                if labels in before:
                    before[labels] = _added(before[labels], value)
                elif self.kept < MAX_SERIES:
                    self.kept += 1
                    before[labels] = value
        self.last.clear()

    def counts(self, name: str) -> _Values:
        """Return the counts of a family, of all runs."""
        found = dict(self.before.get(name, {}))
        for labels, value in self.last.get(name, {}).items():
            found[labels] = _added(found[labels], value) if labels in found else value
        return found


class MergedMetrics:
    """The metrics of several processes together, with the last counts of each.

    Each family of a sum is kept by its name: the processes have the same families.
    """

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}
        self._families: dict[str, MetricFamily] = {}

    def merge(self, answers: Mapping[int, tuple[str, Iterable[Metric]]]) -> Iterator[Metric]:
        """Yield the metrics of all processes together.

        Args:
            answers: The number of each process that has answered, with a text that tells its run
                from others, and its metrics: of all the same families.
        """
        current: dict[str, dict[int, _Values]] = {}
        for process, (run, metrics) in sorted(answers.items()):
            known = self._runs.setdefault(process, _Run())
            known.began(run)
            for metric in metrics:
                family = metric.family
                values: _Values = dict(metric.series)
                current.setdefault(family.name, {})[process] = values
                self._families[family.name] = family
                if _is_kept(family):
                    known.last[family.name] = values
        for name, values_of in current.items():
            family = self._families[name]
            if family.across == "process":
                yield _apart(family, values_of)
            elif _is_kept(family):
                yield _together(family, [each.counts(name) for each in self._runs.values()])
            else:
                yield _together(family, values_of.values())


def _is_kept(family: MetricFamily) -> bool:
    """Whether the counts of a family are kept: of each apart, a reader sees which has restarted."""
    return family.kind != "gauge" and family.across != "process"


def _apart(family: MetricFamily, values_of: Mapping[int, _Values]) -> Metric:
    apart = replace(family, labels=(*family.labels, PROCESS))
    series = [
        ((*labels, str(process)), value)
        for process, values in values_of.items()
        for labels, value in values.items()
    ]
    return Metric(apart, tuple(series))


def _together(family: MetricFamily, parts: Iterable[_Values]) -> Metric:
    found: dict[tuple[str, ...], list[_Value]] = {}
    for values in parts:
        for labels, value in values.items():
            found.setdefault(labels, []).append(value)
    return Metric(family, tuple((labels, _one(family, values)) for labels, values in found.items()))


def _one(family: MetricFamily, values: list[_Value]) -> _Value:
    if family.across == "sum":
        return reduce(_added, values)
    numbers = [value for value in values if not isinstance(value, Durations)]
    return max(numbers) if family.across == "max" else min(numbers)


def _added(one: _Value, other: _Value) -> _Value:
    if isinstance(one, Durations) and isinstance(other, Durations):
        counts = tuple(map(sum, zip(one.counts, other.counts, strict=True)))
        return Durations(counts, one.total + other.total)
    if isinstance(one, Durations) or isinstance(other, Durations):
        raise TypeError("a number and a histogram have no sum")
    return one + other
