"""The cost of a lane for each million rows and its fixed cost, fitted to several sizes."""

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
"""The measured sizes, as fractions of the rows."""


@dataclass(frozen=True)
class Slope:
    """A straight line through the CPU seconds of a lane.

    Attributes:
        name: The lane's name.
        fixed: Seconds at no rows.
        each: Seconds for each million rows.
        off: The distance of the farthest point from the line, relative to its measured value.
    """

    name: str
    fixed: float
    each: float
    off: float


def fit(name: str, points: Sequence[tuple[float, float]]) -> Slope:
    """Fit a line to points of (million rows, seconds) by least squares."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    line = statistics.linear_regression(xs, ys)
    off = max(abs(line.intercept + line.slope * x - y) / y for x, y in points)
    return Slope(name, line.intercept, line.slope, off)


def slopes(program: Path, rows: int, options: Sequence[str]) -> list[Slope]:
    """Run the benchmark at each size, one after the other, each in its own process."""
    points: dict[str, list[tuple[float, float]]] = {}
    for part in PARTS:
        command = [sys.executable, str(program), "--json", "--rows", str(int(rows * part))]
        found: dict[str, Any] = json.loads(_output([*command, *options]).splitlines()[-1])
        for name, lane in found["lanes"].items():
            seconds = statistics.median(each["cores"] for each in lane["warm"])
            points.setdefault(name, []).append((lane["rows"] / 1e6, seconds))
    return [fit(name, some) for name, some in points.items()]


def _output(command: Sequence[str]) -> str:
    """Return the output of a program; on an exception, end the program and wait for its end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate()
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return said
