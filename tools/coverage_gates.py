"""Hold the coverage of each folder against its gate: `coverage_gates.py coverage.json`.

Coverage's own `fail_under` knows one figure for everything; each of our folders has its own,
and lines and branches are held separately. Prints the figures either way.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GATES: Mapping[str, tuple[float, float]] = {
    "protocol": (100.0, 100.0),
    "actors": (95.0, 95.0),
    "transports": (95.0, 95.0),
    # Processes that Spark starts are killed before they can save what was measured.
    "pipeline": (95.0, 86.0),
    "cli": (95.0, 88.0),
}
"""Least coverage of each folder in percent, of lines and of branches."""

BUILT = {"transports/amqp/": "proton"}
"""Parts, each with the module that its tests need: they are skipped where it is not built."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The numbers of lines and branches, and of those that ran."""

    lines: int
    lines_run: int
    branches: int
    branches_run: int

    @property
    def line_percent(self) -> float:
        """Lines that ran, in percent; 100 where there are none."""
        return 100.0 * self.lines_run / self.lines if self.lines else 100.0

    @property
    def branch_percent(self) -> float:
        """Branches taken, in percent; 100 where there are none."""
        return 100.0 * self.branches_run / self.branches if self.branches else 100.0


def measure(files: Mapping[str, Any], folder: str) -> Coverage:
    """Add up the files below a folder.

    Args:
        files: The `files` of coverage's JSON report, by path.
        folder: A top-level folder of the repository.
    """
    parts = [each["summary"] for path, each in files.items() if Path(path).parts[0] == folder]
    return Coverage(
        lines=sum(part["num_statements"] for part in parts),
        lines_run=sum(part["covered_lines"] for part in parts),
        branches=sum(part["num_branches"] for part in parts),
        branches_run=sum(part["covered_branches"] for part in parts),
    )


def gaps(files: Mapping[str, Any], folder: str) -> Iterable[str]:
    """Name each file below a folder that is not wholly covered, and what it misses."""
    for path, each in sorted(files.items()):
        if Path(path).parts[0] != folder:
            continue
        lines = ", ".join(spans(each["missing_lines"]))
        branches = ", ".join(f"{start}->{end}" for start, end in each["missing_branches"])
        if lines or branches:
            yield f"    {path}: lines [{lines}] branches [{branches}]"


def spans(numbers: Iterable[int]) -> list[str]:
    """Write numbers in ascending order as spans: 3, 4, 5, 9 as `3-5` and `9`."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]


def main(report: Path) -> int:
    """Print a line for each gate and what is missed; return 1 if a gate does not hold."""
    files: dict[str, Any] = json.loads(report.read_text())["files"]
    missed = 0
    for part, module in BUILT.items():
        if importlib.util.find_spec(module) is None:
            files = {path: each for path, each in files.items() if not path.startswith(part)}
            print(f"{part} is not measured, as {module} is not installed")
    print(f"{'coverage':<12}{'lines':>16}{'branches':>16}{'gate':>10}")
    for folder, (lines, branches) in GATES.items():
        found = measure(files, folder)
        # A folder without a single measured line means the measurement is broken.
        enough = found.line_percent >= lines and found.branch_percent >= branches
        holds = found.lines > 0 and enough
        print(
            f"{folder + '/':<12}"
            f"{_share(found.lines_run, found.lines):>16}"
            f"{_share(found.branches_run, found.branches):>16}"
            f"{f'{lines:g}/{branches:g}%':>10}  {'ok' if holds else 'MISSED'}"
        )
        if not holds:
            missed += 1
            print(*gaps(files, folder), sep="\n")
    print("coverage gates: " + (f"{missed} MISSED" if missed else "ok"))
    return 1 if missed else 0


def _share(part: int, whole: int) -> str:
    # Rounded down: 99.996 % is not 100 %.
    percent = int(10_000 * part / whole) / 100 if whole else 100.0
    return f"{part}/{whole} {percent:.4g}%"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
