"""Requests through the broker process, for each second of its CPU time.

A load of raw frames (`_rawload.py`) keeps 64 requests of request/response in flight, each with 64
bytes of data and composite metadata with a unicast ADDRESS. One connection sends requests, one
answers. The same load, in the same run and in turn, goes through a broker made of the `rsocket`
package's server and requester (`_rsocket_broker.py`).

Targets: at least 150,000 requests for a CPU second of the broker, and at least 5 times those of the
comparison. CPU time is that of the broker's process alone, so the load's own cost does not count.
Other programs have a small effect, through the caches. Medians repeat to within 5 % on a quiet
machine.

A figure without a target is the same 64 requests over eight connections, with fewer frames in each
chunk that the broker reads.
"""

from __future__ import annotations

import argparse
import pstats
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from _rawload import DATA, Load, cpu_seconds, open_load
from _report import Report

IN_FLIGHT = 64
TARGET_RATE = 150_000
"""Requests for each CPU second of the broker's process."""
TARGET_RATIO = 5

PROFILED = 16
"""Functions printed when a target is missed."""

ONWARD = [
    str(Path(sys.executable).with_name("onward")),
    "broker",
    "--listen",
    "rsocket+tcp://127.0.0.1:0",
]
COMPARISON = [sys.executable, str(Path(__file__).with_name("_rsocket_broker.py"))]
LISTENING = "listening rsocket+tcp://127.0.0.1:"


@dataclass(frozen=True, slots=True)
class Size:
    """The number of windows, and the requests of each."""

    windows: int
    onward: int
    comparison: int


FULL = Size(windows=7, onward=200_000, comparison=20_000)
QUICK = Size(windows=1, onward=40_000, comparison=2_000)


@contextmanager
def broker(command: Sequence[str]) -> Generator[tuple[int, int]]:
    """Start a broker, yield its process id and its port, and end it on exit.

    Raises:
        RuntimeError: It ended without printing its address.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                if LISTENING in line:
                    yield process.pid, int(line.partition(LISTENING)[2])
                    break
            else:
                raise RuntimeError(f"{command[0]} did not listen")
        finally:
            process.terminate()


def spread(values: Sequence[float]) -> float:
    """Return half the range of the values, relative to their median."""
    return (max(values) - min(values)) / 2 / median(values)


@dataclass(slots=True)
class Rates:
    """Requests for each CPU second of a broker, and for each second of wall time, by window."""

    cpu: list[float] = field(default_factory=list[float])
    clock: list[float] = field(default_factory=list[float])

    def add(self, pid: int, load: Load, requests: int) -> None:
        """Run one window through the broker with this process id."""
        before = cpu_seconds(pid)
        window = load.run(requests)
        self.cpu.append(window.requests / (cpu_seconds(pid) - before))
        self.clock.append(window.requests / window.seconds)


def compare(size: Size) -> tuple[Rates, Rates]:
    """Measure both brokers in turn, window by window; return the rates of Onward and the other."""
    ours, theirs = Rates(), Rates()
    with (
        broker(ONWARD) as (our_pid, our_port),
        broker(COMPARISON) as (their_pid, their_port),
        open_load(our_port, requesters=1, in_flight=IN_FLIGHT) as our_load,
        open_load(their_port, requesters=1, in_flight=IN_FLIGHT) as their_load,
    ):
        our_load.run(size.onward // 10)
        their_load.run(size.comparison // 10)
        for _ in range(size.windows):
            ours.add(our_pid, our_load, size.onward)
            theirs.add(their_pid, their_load, size.comparison)
    return ours, theirs


def measure_spread_out(size: Size) -> Rates:
    """Measure Onward's broker with the same load on eight connections."""
    rates = Rates()
    with (
        broker(ONWARD) as (pid, port),
        open_load(port, requesters=8, in_flight=IN_FLIGHT) as load,
    ):
        load.run(size.onward // 10)
        for _ in range(size.windows):
            rates.add(pid, load, size.onward)
    return rates


def where_time_goes(requests: int) -> list[str]:
    """Run Onward's broker under a profiler; return the functions with most time, one a line."""
    with TemporaryDirectory() as folder:
        written = Path(folder, "profile")
        command = [sys.executable, "-m", "cProfile", "-o", str(written), *ONWARD]
        with (
            broker(command) as (_, port),
            open_load(port, requesters=1, in_flight=IN_FLIGHT) as load,
        ):
            load.run(requests)
        profile: Any = pstats.Stats(str(written))
    own_time = {where: times[2] for where, times in profile.stats.items()}
    largest = sorted(own_time, key=lambda where: own_time[where], reverse=True)[:PROFILED]
    lines: list[str] = []
    for file, line, name in largest:
        share = own_time[file, line, name] / profile.total_tt
        lines.append(f"{share:6.1%}  {name}  {'/'.join(Path(file).parts[-3:])}")
    return lines


def report_on(ours: Rates, theirs: Rates, spread_out: Rates) -> Report:
    """Report the medians of the windows, and the ratio of each pair of windows."""
    per_cpu_second = median(ours.cpu)
    ratio = median(our / their for our, their in zip(ours.cpu, theirs.cpu, strict=True))
    report = Report("broker", noise=spread(ours.cpu))
    report.figure("data of a request, and of an answer", len(DATA), "B")
    report.figure("broker CPU for a request", 1e6 / per_cpu_second, "µs")
    report.figure("requests by the clock", median(ours.clock), "/s")
    report.figure("requests on eight connections", median(spread_out.cpu), "/CPU s")
    report.figure("requests, comparison", median(theirs.cpu), "/CPU s")
    report.figure("noise, comparison", spread(theirs.cpu) * 100, "%")
    report.target("requests", per_cpu_second, "/CPU s", at_least=TARGET_RATE)
    report.target("requests / comparison", ratio, "x", at_least=TARGET_RATIO)
    return report


def main() -> None:
    """Run the benchmark with the arguments of the command line."""
    parser = argparse.ArgumentParser(description="Requests through the broker.")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    report = report_on(*compare(size), measure_spread_out(size))
    if not arguments.quick and not all(target.met for target in report.targets):
        report.note("own time of functions, under a profiler that favours the long ones:")
        for line in where_time_goes(size.onward):
            report.note(line)
    report.print(as_json=arguments.json)


if __name__ == "__main__":
    main()
