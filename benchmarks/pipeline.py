"""The pipeline on Spark, lane by lane, compared with another engine on the same query.

Ten million hops (`--rows`) of seeded traffic, and a million flows, are written as event logs. The
lanes are:

- *encode*: a hop recorded, on one core;
- *ingest*: the logs into a lake, each event once; compared with one process that writes Parquet
  with DuckDB, without any guarantee;
- *scan*: the logs read by the data source; compared with one process without Spark;
- *matrix*, *latency*, *hot keys*, *paths*: reports of the lake; compared with DuckDB on the same
  files; *matrix, whole* and *latency, whole* return the sum of all minutes and tag sets;
- *index*: the tag index of a quarter as many routes with four tags each; compared with DuckDB and
  bitmaps in one process;
- *replay*: a fifth as many requests, resolved with two tables and two shard methods, for 120 tag
  sets and for 20,000; compared with the broker's resolver in a loop, on a part of them;
- *sink*: a fifth as many rows sent as messages to a node, 500 to a message.

If two engines run one query, their answers are compared, and a difference fails the benchmark. The
first run of a lane is *cold*: a command runs each lane once, so it always has that cost. `--runs`
more follow, in turns with the other engine; figures are their medians. Spark, its Python and the
other engine use all cores of the machine. *Core time* is the CPU time of all processes together;
other load on the machine hardly changes it.

Targets, in million rows a second when warm, are the figures of prototypes on two idle cores, less
30 %; of encoding, 400 ns. With other load on the machine they mean little, and the ratio to the
other engine is the better figure. Prototypes counted 100,000 groups of the matrix and one histogram
for each destination. Of ten million rows here the matrix has 180,000 groups and the histogram of
latencies, by minute and tag set, 1.2 million. The 3.1 million requests with a key have 2.7 million
keys by hour and tag set. The lanes named *whole* have the groups of the prototypes: 90,000 and
11,000.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from _report import Report

if TYPE_CHECKING:
    from _pipeline_lanes import Lane

NEEDED: Final = ("pyspark", "duckdb", "pyarrow", "pandas", "numpy", "pyroaring")
LANES: Final = (
    "encode",
    "ingest",
    "scan",
    "matrix",
    "latency",
    "hot keys",
    "paths",
    "index",
    "replay",
    "sink",
)
QUICK_ROWS: Final = 2000
QUICK_LANES: Final = ("encode", "ingest", "scan", "hot keys")
"""Ingest, and one report of the lake. All lanes take a minute, however few the rows are: Spark
compiles for each anew.
"""


def missing() -> str | None:
    """Return the reason why Spark cannot run here; `None` if it can."""
    for name in NEEDED:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return f"{name} is not installed: pip install '.[spark]' duckdb"
    from onward.pipeline import JavaMissing, find_java

    try:
        find_java()
    except JavaMissing as error:
        return str(error)
    return None


def noise(values: list[float]) -> float:
    """Return the distance from the median to the farthest value, relative to the median."""
    middle = statistics.median(values)
    return max(abs(value - middle) for value in values) / middle if middle else 0.0


def say(text: str) -> None:
    """Print progress on standard error: a run takes minutes."""
    print(f"pipeline: {text}", file=sys.stderr, flush=True)


class Lanes:
    """A runner of lanes that records their times.

    Attributes:
        found: Seconds of each lane, for the JSON object.
        wrong: Differences between answers.
    """

    def __init__(self, report: Report, runs: int) -> None:
        self.found: dict[str, Any] = {}
        self.wrong: list[str] = []
        self._report = report
        self._runs = runs

    def run(self, lane: Lane) -> None:
        """Run one lane."""
        from _pipeline_lanes import compared, timed

        say(f"{lane.name} ...")
        took = timed(lane, self._runs)
        times = ", ".join(f"{each.wall:.1f}" for each in took.warm)
        say(f"{lane.name}: {took.cold.wall:.1f} s, then {times}")
        self.found[lane.name] = {"rows": lane.rows, **asdict(took)}
        answer = compared(lane)
        if answer is not None and answer.wrong is not None:
            self.wrong.append(answer.wrong)
        report, millions = self._report, lane.rows / 1e6
        walls = [each.wall for each in took.warm]
        wall, rate = statistics.median(walls), millions / statistics.median(walls)
        report.figure(f"{lane.name}, cold", millions / took.cold.wall, "M rows/s")
        if lane.target is None:
            report.figure(f"{lane.name}, warm", rate, "M rows/s", noise(walls))
        else:
            name, least = f"{lane.name}, warm", lane.target
            report.target(name, rate, "M rows/s", at_least=least, noise=noise(walls))
        ours = statistics.median(each.cores for each in took.warm)
        report.figure(f"{lane.name}, core time for a million", ours / millions, "s")
        if answer is not None:
            report.figure(f"{lane.name}, rows of the answer", answer.rows, "rows")
        if took.other:
            others = statistics.median(each.wall for each in took.other)
            report.figure(f"{lane.name} / {lane.beside}", wall / others, "x")
            cores = statistics.median(each.cores for each in took.other)
            report.figure(
                f"{lane.name} / {lane.beside}, core time", ours / cores if cores else 0.0, "x"
            )


def chosen(text: str) -> tuple[str, ...]:
    """Return the lanes with these prefixes, separated by commas; all lanes if there are none.

    Raises:
        SystemExit: There is no such lane.
    """
    begins = [each.strip() for each in text.split(",") if each.strip()]
    for each in begins:
        if not any(lane.startswith(each) for lane in LANES):
            sys.exit(f"no such lane: {each}; there are {', '.join(LANES)}")
    return tuple(lane for lane in LANES if not begins or lane.startswith(tuple(begins)))


def measure(report: Report, rows: int, runs: int, folder: Path, only: tuple[str, ...]) -> Lanes:
    """Make the data and run the lanes."""
    from _pipeline_data import make_flows, make_frames, make_logs, make_postings, make_tables
    from _pipeline_lanes import lanes_of
    from _pipeline_more import encode, index_lane, replay_lanes, sink_lane

    from onward.pipeline import build_session

    lanes = Lanes(report, runs)

    def wanted(name: str) -> bool:
        return name.partition(",")[0] in only

    if wanted("encode"):
        each = encode(min(rows, 1_000_000), max(1, runs))
        report.target("encode a hop", statistics.median(each), "ns", at_most=400, noise=noise(each))
    say(f"making {rows:,} rows ...")
    began = time.perf_counter()
    data = make_logs(folder / "log", rows)
    make_flows(folder / "flows", rows)
    if wanted("index"):
        make_postings(folder / "postings", rows // 4)
    report.figure("making the data", time.perf_counter() - began, "s")
    report.figure("a hop in the log, with its flows", data.size / data.hops, "bytes")
    began = time.perf_counter()
    spark = build_session("onward-benchmark", {"spark.driver.memory": "2g"})
    report.figure("starting Spark", time.perf_counter() - began, "s")
    threads = os.cpu_count() or 1
    try:
        for lane in lanes_of(spark, folder, threads, data.hops, rows):
            if wanted(lane.name):
                lanes.run(lane)
            elif lane.name == "ingest":
                lane.spark()  # the other lanes read the lake that it makes
        if wanted("index"):
            lanes.run(index_lane(spark, folder / "postings", rows // 4 * 4))
        if wanted("replay"):
            tables = make_tables(folder / "tables")
            asked = {
                name: make_frames(folder / f"frames-{name}", rows // 5, many=name == "many")
                for name in ("few", "many")
            }
            for lane in replay_lanes(spark, folder, asked, tables, rows // 5):
                lanes.run(lane)
        if wanted("sink"):
            with sink_lane(spark, rows // 5) as lane:
                lanes.run(lane)
    finally:
        spark.stop()
    lake = sum(file.stat().st_size for file in (folder / "lake-0" / "hops").rglob("*.parquet"))
    report.figure("a hop in the lake", lake / data.hops, "bytes")
    return lanes


def show_slopes(options: argparse.Namespace) -> int:
    """Print the fixed cost of each lane, and its cost for each million rows."""
    from _pipeline_slopes import slopes

    given = ["--runs", str(options.runs), "--only", options.only]
    given += ["--folder", str(options.folder)] if options.folder else []
    print(f"{'core time':<30}{'in any case':>12}{'a million':>12}{'a billion':>20}{'off':>8}")
    for each in slopes(Path(__file__), options.rows, given):
        fixed, more = f"{each.fixed:.2f} s", f"{each.each:.3f} s"
        hours = f"{each.each * 1000 / 3600:.2f} core hours"
        print(f"{each.name:<30}{fixed:>12}{more:>12}{hours:>20}{each.off:>8.0%}")
    return 0


def end_in_order() -> None:
    """Make SIGTERM end this process with an exception, so that temporary data is removed."""

    def end(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument(
        "--quick", action="store_true", help="only show that it works: few rows and lanes"
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="hops (default 10,000,000)")
    parser.add_argument("--runs", type=int, default=2, help="warm runs of each lane (default 2)")
    parser.add_argument("--only", default="", help="lanes that begin so, with commas between")
    parser.add_argument("--slopes", action="store_true", help="cost by rows, from three sizes")
    parser.add_argument("--folder", type=Path, help="where to make the data (default: temporary)")
    options = parser.parse_args()
    only = QUICK_LANES if options.quick and not options.only else chosen(options.only)
    end_in_order()

    report = Report("pipeline")
    reason = missing()
    if reason is not None:
        report.note(f"skipped: {reason}")
        report.print(as_json=options.json)
        return 0
    if options.slopes:
        return show_slopes(options)
    rows = QUICK_ROWS if options.quick else options.rows
    runs = 0 if options.quick else options.runs
    folder = Path(tempfile.mkdtemp(prefix="onward-pipeline-", dir=options.folder))
    try:
        lanes = measure(report, rows, runs, folder, only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    versions = {name: importlib.metadata.version(name) for name in NEEDED}
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    report.note(f"{rows:,} rows, {os.cpu_count()} cores, {said}.")
    report.noise = max((target.noise or 0.0 for target in report.targets), default=0.0)
    report.print(as_json=False)
    if options.json:
        about = {
            "rows": rows,
            "nproc": os.cpu_count(),
            "load": os.getloadavg(),
            "lanes": lanes.found,
        }
        print(json.dumps({**report.as_object(), **about, "versions": versions}, ensure_ascii=False))
    for wrong in lanes.wrong:
        print(f"pipeline: the answers differ: {wrong}", file=sys.stderr)
    return 1 if lanes.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
