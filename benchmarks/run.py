"""Run every benchmark of this folder and sum up the targets: `python benchmarks/run.py`.

A benchmark is any `*.py` here that does not start with an underscore, except `soak.py` and
`hostile.py`, which run for a given time. It accepts `--json`, and `--quick` for a run that only
shows that it works (its figures mean nothing). The last line of its output is the JSON object of
`_report.Report`. The status is non-zero if a benchmark fails to run. A missed target is a failure
only with `--strict`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _report import Target

FOLDER = Path(__file__).resolve().parent
NO_BENCHMARKS = ("run", "soak", "hostile")


def benchmarks(names: Sequence[str]) -> list[Path]:
    """Find all benchmarks, or those with the given names.

    Raises:
        SystemExit: There is no benchmark of that name.
    """
    found = {
        file.stem: file
        for file in sorted(FOLDER.glob("*.py"))
        if file.stem not in NO_BENCHMARKS and not file.name.startswith("_")
    }
    if unknown := set(names) - set(found):
        sys.exit(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    return [file for name, file in found.items() if not names or name in names]


def run(file: Path, options: Sequence[str]) -> dict[str, Any] | None:
    """Run one benchmark, print its table, and return its JSON object.

    Returns:
        `None` if it failed or did not end with an object.
    """
    command = [sys.executable, str(file), "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=FOLDER.parent) as process:
        last = ""
        for line in process.stdout or ():
            if last:
                print(last, end="", flush=True)
            last = line
    if process.returncode:
        print(f"{last}{file.stem}: FAILED with status {process.returncode}", flush=True)
        return None
    try:
        found = dict[str, Any](json.loads(last))
    except (TypeError, ValueError):
        print(f"{last}{file.stem}: FAILED, the last line is not a JSON object", flush=True)
        return None
    return found


def targets(result: dict[str, Any]) -> Iterator[Target]:
    """Parse the targets of a benchmark's JSON object."""
    for each in result["targets"]:
        yield Target(**{name: value for name, value in each.items() if name != "met"})


def main() -> int:
    """Run the benchmarks, print the summary, and return the exit status."""
    parser = argparse.ArgumentParser(description="Run the benchmarks and sum up their targets.")
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--quick", action="store_true", help="only show that each one runs")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    parser.add_argument("--output", type=Path, help="also write all results to this JSON file")
    arguments = parser.parse_args()

    results: dict[str, dict[str, Any] | None] = {}
    for file in benchmarks(arguments.names):
        results[file.stem] = run(file, ["--quick"] if arguments.quick else [])
        print(flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")

    failed = [name for name, result in results.items() if result is None]
    if arguments.quick:
        print(f"benchmarks: {len(results) - len(failed)} of {len(results)} ran")
    else:
        missed = summarise(results)
        if arguments.strict and missed:
            return 1
    for name in failed:
        print(f"{name}: FAILED")
    return 1 if failed else 0


def summarise(results: dict[str, dict[str, Any] | None]) -> int:
    """Print every target with its figure; return how many are missed."""
    print("targets")
    met = missed = 0
    for name, result in results.items():
        if result is None:
            continue
        for target in targets(result):
            print(f"  {name:<10}{target}")
            met, missed = met + target.met, missed + (not target.met)
    print(f"benchmarks: {met} targets met, {missed} missed")
    return missed


if __name__ == "__main__":
    sys.exit(main())
