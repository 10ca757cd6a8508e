"""The output of a benchmark: a table and, last, one JSON object for `run.py`.

    report = Report("hops", noise=0.03)
    report.figure("hop", 0.84, "µs")
    report.target("hop / bare loop", 2.4, "x", at_most=3.0)
    report.print(as_json=arguments.json)

A target is a ratio or a rate measured within one run, so that it means the same on another machine.
Exactly one of `at_most` and `at_least` is its bound.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Figure", "Report", "Target"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value without a bound.

    Attributes:
        name: The measured quantity.
        value: The median.
        unit: The unit; empty if the name includes it.
        noise: The scatter of the runs, relative to the median; `None` if unknown.
    """

    name: str
    value: float
    unit: str
    noise: float | None = None

    def __str__(self) -> str:
        return f"{self.name:<44}{_short(self.value):>12} {self.unit:<10}{_scatter(self.noise)}"


@dataclass(frozen=True, slots=True)
class Target:
    """A measured value and its bound."""

    name: str
    value: float
    unit: str
    bound: float
    is_upper: bool
    noise: float | None = None

    @property
    def met(self) -> bool:
        """Whether the value is within its bound."""
        return self.value <= self.bound if self.is_upper else self.value >= self.bound

    def __str__(self) -> str:
        sign = "<=" if self.is_upper else ">="
        verdict = "met" if self.met else "MISSED"
        bound = f"{sign} {_short(self.bound)} {self.unit}"
        value = f"{self.name:<44}{_short(self.value):>12}"
        return f"{value} {bound:<24}{verdict:<8}{_scatter(self.noise)}"


@dataclass(slots=True)
class Report:
    """The figures and targets of one benchmark.

    Attributes:
        benchmark: The benchmark's name, that of the file.
        noise: The scatter of the main figure's runs, relative to their median (0.03 is 3 %).
        figures: The values without a bound.
        targets: The values with a bound.
        notes: Explanations of the figures, as of a missed target.
    """

    benchmark: str
    noise: float = 0.0
    figures: list[Figure] = field(default_factory=list[Figure])
    targets: list[Target] = field(default_factory=list[Target])
    notes: list[str] = field(default_factory=list[str])

    def figure(self, name: str, value: float, unit: str, noise: float | None = None) -> None:
        """Add a value without a bound."""
        self.figures.append(Figure(name, value, unit, noise))

    def target(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        noise: float | None = None,
    ) -> None:
        """Add a value with its bound.

        Raises:
            ValueError: Not exactly one bound is given.
        """
        if at_most is not None and at_least is None:
            self.targets.append(Target(name, value, unit, at_most, is_upper=True, noise=noise))
        elif at_least is not None and at_most is None:
            self.targets.append(Target(name, value, unit, at_least, is_upper=False, noise=noise))
        else:
            raise ValueError("a target has exactly one of at_most and at_least")

    def note(self, text: str) -> None:
        """Add a sentence to print below the figures."""
        self.notes.append(text)

    def print(self, *, as_json: bool) -> None:
        """Print the table; with `as_json`, also the JSON object as the last line."""
        print(f"{self.benchmark} (noise {self.noise:.1%})")
        for each in self.figures:
            print(f"  {each}".rstrip())
        for target in self.targets:
            print(f"  {target}".rstrip())
        for text in self.notes:
            print(f"  {text}")
        if as_json:
            print(json.dumps(self.as_object(), ensure_ascii=False))

    def as_object(self) -> dict[str, Any]:
        """Return the report as one JSON-ready object."""
        return {
            **asdict(self),
            "targets": [{**asdict(each), "met": each.met} for each in self.targets],
            "python": platform.python_version(),
        }


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _scatter(noise: float | None) -> str:
    return "" if noise is None else f"±{noise:.1%}"
