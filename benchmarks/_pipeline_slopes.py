"""What a lane costs for each million rows, beside what it costs in any case: from several sizes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["PARTS", "Slope", "fit", "slopes"]

PARTS: Final = (0.1, 0.3, 1.0)
"""Of the rows: the sizes that are measured."""


@dataclass(frozen=True)
class Slope:
    """A straight line through the seconds of processors that a lane took.

    Attributes:
        name: Of the lane.
        fixed: Seconds at no rows at all.
        each: Seconds for a million rows more.
        off: How far the farthest point is from the line, relative to what was measured.
    """

    name: str
    fixed: float
    each: float
    off: float


def fit(name: str, points: Sequence[tuple[float, float]]) -> Slope:
    """Draw the line through points of (million rows, seconds) that is nearest to all, squared."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    line = statistics.linear_regression(xs, ys)
    off = max(abs(line.intercept + line.slope * x - y) / y for x, y in points)
    return Slope(name, line.intercept, line.slope, off)


def slopes(program: Path, rows: int, options: Sequence[str]) -> list[Slope]:
    """Run the benchmark at each size, one after the other, each in a process of its own."""
    points: dict[str, list[tuple[float, float]]] = {}
    for part in PARTS:
        command = [sys.executable, str(program), "--json", "--rows", str(int(rows * part))]
        found: dict[str, Any] = json.loads(_output([*command, *options]).splitlines()[-1])
        for name, lane in found["lanes"].items():
            seconds = statistics.median(each["cores"] for each in lane["warm"])
            points.setdefault(name, []).append((lane["rows"] / 1e6, seconds))
    return [fit(name, some) for name, some in points.items()]


def _output(command: Sequence[str]) -> str:
    """Return what a program prints; if this one is ended, end that too, and wait till it is."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate()
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return said
