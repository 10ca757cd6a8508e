"""Whatever is killed, and at whatever point, every event is in the lake once."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from onward.pipeline._errors import NoCommit
from onward.pipeline.ingest import Lake
from onward.pipeline.source import decode
from onward.protocol.eventlog import read_segment
from tests.support.counts import UNMEASURED
from tests.support.eventlogs import DAY_US, START_US, Truth, write_log

ROOT = Path(__file__).resolve().parents[3]
CRASHING = Path(__file__).with_name("crashing.py")
RETRYING = Path(__file__).with_name("retrying.py")
TABLES = ("hops", "flows", "route_events")
LONGEST = 300.0

POINTS = [
    "batch 0: writing",
    # Rows of a task that has not ended, a task that has, and files that have got their names.
    "files:hops/date=*/hour=*/batch=0/.part-*",
    "files:dim_node/batch=0/.part-*",
    "batch 0: naming",
    "files:*/**/batch=0/part-*.parquet",
    "batch 0: committing",
    "batch 0: committed",
    "files:flows/date=*/hour=*/batch=1",
    "batch 1: writing completeness",
    "batch 1: done",
    "compacting flows",
    "compacted 2025-11-20: marked",
]


def run(root: Path, point: str = "", *, driver: Path = CRASHING) -> CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(driver), str(root), point],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=LONGEST,
        check=False,
    )


def committed(lake: Lake, table: str) -> list[dict[str, Any]]:
    return [row for file in lake.files(table) for row in pq.ParquetFile(file).read().to_pylist()]


def keys(lake: Lake) -> Counter[tuple[str, int, int]]:
    return Counter(
        (row["broker"], row["epoch"], row["seq"])
        for table in TABLES
        for row in committed(lake, table)
    )


def look_at(lake: Lake, everything: set[tuple[str, int, int]]) -> int:
    """What is committed is there once, and is what the state says; return how much it is."""
    try:
        state = lake.state()
    except NoCommit:
        return 0
    found = keys(lake)
    assert set(found.values()) <= {1}
    assert set(found) == {
        key
        for key in everything
        if (broker := state.brokers.get(key[0])) is not None and broker.has(key[1], key[2], key[2])
    }
    return len(found)


def write_logs(log: Path) -> list[Truth]:
    truths: list[Truth] = []
    for broker in ("b1", "b2"):
        truth = write_log(log, broker=broker, hops=3_000, segments=2, span_us=3 * 3_600_000_000)
        more = write_log(
            log,
            broker=broker,
            segments=1,
            start_us=START_US + DAY_US,
            first_seq=truth.segments[-1].last_seq + 1,
        )
        truths += [truth, more]
    return truths


def hold_against(lake: Lake, truths: list[Truth]) -> None:
    """All rows are there, and no others; nor are any files that do not count."""
    for table in TABLES:
        expected = [
            row
            for truth in truths
            for written in truth.segments
            for row in decode(table, None, read_segment(written.path.read_bytes())).to_pylist()
        ]
        found = committed(lake, table)
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
        # Nothing else is left in the folders: any engine that reads them all counts the same.
        pattern = str(lake.path / table / "**" / "*.parquet")
        counted = duckdb.execute("select count(*) from read_parquet($p)", {"p": pattern}).fetchall()
        assert counted == [(len(expected),)]
    assert not list(lake.path.rglob("*.new"))


# Of a process that is killed nothing is measured, and `test_ingest.py` does what the last one does.
@UNMEASURED
@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.slow
def test_killed_at_any_point_every_event_is_there_once(tmp_path: Path) -> None:
    # A dozen Javas take longer than what looks like a test that hangs.
    faulthandler.cancel_dump_traceback_later()
    truths = write_logs(tmp_path / "log")
    everything = set[tuple[str, int, int]]().union(*(truth.keys for truth in truths))
    lake = Lake(tmp_path / "lake")
    amounts: list[int] = []

    for point in POINTS:
        died = run(tmp_path, point)
        assert died.returncode == -signal.SIGKILL, (point, died.stdout, died.stderr[-4_000:])
        amounts.append(look_at(lake, everything))
    ended = run(tmp_path)
    assert ended.returncode == 0, ended.stderr[-4_000:]

    assert amounts == sorted(amounts)
    assert look_at(lake, everything) == len(everything)
    hold_against(lake, truths)


@UNMEASURED
@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.slow
def test_a_task_that_loses_its_worker_is_repeated_and_leaves_no_rest(tmp_path: Path) -> None:
    truths = write_logs(tmp_path / "log")

    ended = run(tmp_path, driver=RETRYING)

    assert ended.returncode == 0, ended.stderr[-4_000:]
    assert (tmp_path / "killed").exists()
    # What the first one had begun was there when the second one had ended.
    assert ended.stdout.split("\n")[0] == "2 attempts"
    lake = Lake(tmp_path / "lake")
    assert lake.batch() == 0
    hold_against(lake, truths)
