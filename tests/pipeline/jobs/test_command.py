"""`onward pipeline` from the log to the page, on one session of Spark."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onward.cli import main
from onward.cli._pipeline_run import _make_absolute
from onward.cli._status import Status
from onward.pipeline.ingest import Lake
from onward.protocol.eventlog import EventName, Flow, Kind, Outcome, RouteEvent, SegmentHeader
from tests.support.eventlogs import DAY_US, START_US, log_id_of, write_log, write_segment
from tests.support.fixtures import Capsys, Patch

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DAY = datetime.fromtimestamp(START_US / 1e6, UTC).date().isoformat()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that the command has made, of the logs of one broker."""
    del spark
    folder = tmp_path_factory.mktemp("pipeline")
    write_log(folder / "log", broker="eu", hops=40, flows=20, events=10)
    assert ingest(folder) == Status.OK
    return folder / "lake"


def ingest(folder: Path, *more: str) -> int:
    words = [
        word for name in ("log", "lake", "checkpoint") for word in (f"--{name}", str(folder / name))
    ]
    return main(["pipeline", "ingest", *words, *more])


def test_a_second_ingest_adds_nothing(lake: Path, capsys: Capsys) -> None:
    assert ingest(lake.parent) == Status.OK
    assert capsys.readouterr().out.splitlines() == [
        "0 segments: 0 hops, 0 flows, 0 route events",
        "0 damaged and skipped, 0 there already, 0 events late; missing in the lake: 0",
    ]


@pytest.mark.exhaustive
def test_what_was_ingested_is_said_also_if_the_day_cannot_be_compacted_or_dropped(
    spark: SparkSession, tmp_path: Path, capsys: Capsys
) -> None:
    del spark
    truth = write_log(tmp_path / "log", broker="eu", hops=40, flows=20, events=10, segments=2)
    said = "2 segments: 40 hops, 20 flows, 10 route events"
    assert ingest(tmp_path, "--compact", DAY) == Status.FAILED
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == said
    assert f"{DAY} is not closed" in printed.err
    after = truth.segments[-1].last_seq + 1
    next_day = START_US + DAY_US
    write_log(tmp_path / "log", broker="eu", segments=1, first_seq=after, start_us=next_day)
    assert ingest(tmp_path, "--compact", DAY, "--drop", DAY) == Status.OK
    stages = {line.split()[0]: line for line in capsys.readouterr().err.splitlines()}
    assert re.search(
        rf" s  \d+ files of {DAY}, now \d+; [\d,]+ bytes, now [\d,]+$", stages["compact"]
    )
    assert re.search(rf" s  \d+ files of {DAY}, [\d,]+ bytes$", stages["drop"])


def test_reports_are_written_and_a_page(lake: Path, capsys: Capsys) -> None:
    page = lake.parent / "page.html"
    words = ("--lake", str(lake), "--day", DAY, "--only", "traffic", "--html", str(page))
    assert main(["pipeline", "report", *words]) == Status.OK
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [f"1 report of {DAY} in {lake}/reports", f"page: {page}"]
    stages = [line.split() for line in printed.err.splitlines()]
    assert [stage[0] for stage in stages] == ["traffic", *["page"] * 4]
    assert [stage[-1] for stage in stages[1:]] == ["rehearsal", "logs", "totals", "matrix"]
    assert "<title>Routing on" in page.read_text()
    assert list((lake / "reports" / "traffic_matrix" / f"day={DAY}").glob("*.parquet"))


def test_a_report_can_be_read_at_once(lake: Path, capsys: Capsys) -> None:
    words = ("--lake", str(lake), "--day", DAY, "--only", "churn", "--format", "table")
    assert main(["pipeline", "report", *words, "--quiet", "--rows", "2"]) == Status.OK
    printed = capsys.readouterr()
    assert printed.out.startswith("route_churn: ")
    assert "HOUR  " in printed.out
    assert printed.err == ""


def test_a_day_without_anything_is_no_error(lake: Path, capsys: Capsys) -> None:
    words = ("--lake", str(lake), "--day", "2001-01-01", "--only", "traffic")
    assert main(["pipeline", "report", *words]) == Status.OK
    assert f"the lake has nothing of 2001-01-01; it has {DAY} to {DAY}" in capsys.readouterr().err


def test_an_audit_out_of_balance_is_status_2(lake: Path, capsys: Capsys) -> None:
    # What is in that log is made up at random.
    assert main(["pipeline", "audit", "--lake", str(lake)]) == Status.USAGE
    printed = capsys.readouterr()
    assert printed.out.startswith("FROM  LINK")
    assert "onward pipeline: gate failed: it does not add up" in printed.err
    assert main(["pipeline", "audit", "--lake", str(lake), "--allow", "99999999"]) == Status.OK


def test_an_audit_of_nothing_does_not_pass(lake: Path, capsys: Capsys) -> None:
    words = ("--lake", str(lake), "--since", "2001-01-01", "--until", "2001-01-02")
    assert main(["pipeline", "audit", *words]) == Status.FAILED
    assert "nothing to audit: the lake has no flows between" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_an_incomplete_log_fails_the_audit(
    spark: SparkSession, tmp_path: Path, capsys: Capsys
) -> None:
    del spark
    header = SegmentHeader("eu", log_id_of("eu"), 1, 1, START_US, 1.0)
    flows = [
        Flow(seq, START_US, 10_000, 0, 0, 0, 0, Kind.RESPONSE, outcome, 10, 0)
        for seq, outcome in enumerate((Outcome.RECEIVED, Outcome.DELIVER), start=1)
    ]
    lost = RouteEvent(3, START_US, EventName.LOST, None, "", (), "5000 events: disk full")
    # One number was given and is not there.
    write_segment(tmp_path / "log", header, flows=flows, events=[lost], last_seq=4)
    assert ingest(tmp_path) == Status.OK
    words = ["pipeline", "audit", "--lake", str(tmp_path / "lake"), "--quiet"]
    capsys.readouterr()
    assert main([*words, "--allow", "9999999"]) == Status.USAGE
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-2:] == [
        "eu: 5,000 events not recorded (disk full)",
        "eu: 1 event missing from the lake",
    ]
    assert "gate failed: 5,000 events not recorded; 1 event missing" in printed.err
    assert main([*words, "--allow-lost", "5001"]) == Status.OK


def test_a_folder_without_a_lake(spark: SparkSession, tmp_path: Path, capsys: Capsys) -> None:
    del spark
    words = ("--lake", str(tmp_path), "--day", DAY)
    assert main(["pipeline", "report", *words]) == Status.FAILED
    assert "run `onward pipeline ingest` first" in capsys.readouterr().err


def test_a_table_is_built_and_held_against_the_log(lake: Path, capsys: Capsys) -> None:
    out = lake.parent / "index"
    assert main(["pipeline", "index", "build", "--lake", str(lake), "--out", str(out)]) == 0
    assert "routes with" in capsys.readouterr().out
    snapshot = out / "index.onwx"
    words = ("--snapshot", str(snapshot), "--against", str(lake))
    assert main(["pipeline", "index", "verify", *words]) == Status.OK
    assert "as the log says; the lake has the log up to 2025-11-20" in capsys.readouterr().out
    same = ("--table", str(snapshot), "--candidate", str(snapshot), "--max-moved", "0")
    any_table = ("--max-unknown", "1", "--max-stale", "1")
    asked = ["pipeline", "replay", "--lake", str(lake), "--day", DAY, *same, "--quiet"]
    status = main([*asked, *any_table])
    printed = capsys.readouterr()
    assert status == Status.OK, printed.err
    assert "frames: 0 would move (0.0%), 0 would lose a route, 0 would gain one" in printed.out


@pytest.mark.exhaustive
def test_no_routes_cannot_be_verified(spark: SparkSession, tmp_path: Path, capsys: Capsys) -> None:
    del spark
    header = SegmentHeader("eu", log_id_of("eu"), 1, 1, START_US, 1.0)
    write_segment(tmp_path / "log", header)
    assert ingest(tmp_path) == Status.OK
    out, lake = str(tmp_path / "index"), str(tmp_path / "lake")
    assert main(["pipeline", "index", "build", "--lake", lake, "--out", out]) == Status.OK
    words = ("--snapshot", f"{out}/index.onwx", "--against", lake)
    assert main(["pipeline", "index", "verify", *words]) == Status.FAILED
    assert "nothing to verify: neither" in capsys.readouterr().err
    assert main(["pipeline", "index", "verify", *words, "--broker", "typo"]) == Status.FAILED
    assert "no log of typo; it has eu" in capsys.readouterr().err


def test_a_rehearsal_of_nothing_is_status_2(lake: Path, capsys: Capsys) -> None:
    table = lake.parent / "none.jsonl"
    table.write_text("# no routes\n")
    same = ("--table", str(table), "--candidate", str(table), "--quiet")
    words = ["pipeline", "replay", "--lake", str(lake), *same]
    assert main([*words, "--day", "2001-01-01"]) == Status.USAGE
    assert "nothing was rehearsed: the lake has no sampled requests" in capsys.readouterr().err
    assert main([*words, "--day", DAY]) == Status.USAGE
    printed = capsys.readouterr()
    assert "has a route in either table" in printed.err
    assert "delivered, without a route in the table as it is" in printed.err
    assert "delivered, without a route in --table" in printed.out


@pytest.mark.exhaustive
def test_a_machine_that_cannot_have_its_memory_is_said(lake: Path) -> None:
    words = ("report", "--lake", str(lake), "--day", DAY, "--driver-memory", "1k")
    done = subprocess.run(
        [sys.executable, "-m", "onward.cli", "pipeline", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == Status.FAILED
    assert "see --driver-memory" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def copied(lake: Path, to: Path) -> Path:
    """Copy a lake, with its logs and its checkpoint."""
    for name in ("log", "lake", "checkpoint"):
        shutil.copytree(lake.parent / name, to / name)
    return to / "lake"


def files_of(lake: Path) -> set[Path]:
    return {path for path in lake.rglob("*.parquet") if "reports" not in path.parts}


@pytest.mark.exhaustive
def test_deleted_commits_stop_a_removal(lake: Path, tmp_path: Path, capsys: Capsys) -> None:
    other = copied(lake, tmp_path)
    there = files_of(other)
    shutil.rmtree(other / "_commits")
    report = ("report", "--day", DAY, "--only", "traffic")
    for words in (report, ("audit",), ("index", "build", "--out", str(tmp_path / "out"))):
        assert main(["pipeline", *words, "--lake", str(other)]) == Status.FAILED
        assert "has rows, and no commit that counts them" in capsys.readouterr().err
    assert ingest(tmp_path) == Status.FAILED
    assert "or its _commits were deleted" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "checkpoint")
    assert ingest(tmp_path) == Status.FAILED
    assert "its _commits were deleted. Put them back" in capsys.readouterr().err
    assert files_of(other) == there
    # It is asked for; the logs have it all.
    assert ingest(tmp_path, "--rebuild") == Status.OK
    assert "2 segments: 40 hops" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_commits_set_back_stop_a_removal(lake: Path, tmp_path: Path, capsys: Capsys) -> None:
    other = copied(lake, tmp_path)
    first = next((other / "segments").glob("batch=*"))
    shutil.copytree(first, other / "segments" / "batch=2")
    there = files_of(other)
    assert ingest(tmp_path) == Status.FAILED
    said = capsys.readouterr().err
    assert "rows of batch 2, and its last commit is 0: its _commits were set back" in said
    assert files_of(other) == there


def test_an_unreadable_checkpoint_has_advice(lake: Path, tmp_path: Path, capsys: Capsys) -> None:
    copied(lake, tmp_path)
    (tmp_path / "checkpoint" / "metadata").unlink()
    assert ingest(tmp_path) == Status.FAILED
    said = capsys.readouterr().err
    assert "checkpoint cannot be read by Spark (STREAMING_CHECKPOINT" in said
    assert "--rebuild" in said


def test_an_unwritable_report_has_advice(lake: Path, tmp_path: Path, capsys: Capsys) -> None:
    # What a read-only disk answers to; root may write where the bits of a folder forbid it.
    other = copied(lake, tmp_path)
    shutil.rmtree(other / "reports", ignore_errors=True)
    (other / "reports").write_text("in the way")
    words = ("--lake", str(other), "--day", DAY, "--only", "traffic")
    assert main(["pipeline", "report", *words]) == Status.FAILED
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"onward pipeline: {other}/reports/traffic_matrix/day={DAY} cannot be")
    assert "run it again" in said


@pytest.mark.exhaustive
def test_compact_and_drop_are_both_tried(lake: Path, tmp_path: Path, capsys: Capsys) -> None:
    copied(lake, tmp_path)
    assert ingest(tmp_path, "--compact", DAY, "--drop", "2001-01-02", "--quiet") == Status.FAILED
    printed = capsys.readouterr()
    assert printed.out.splitlines()[2:] == ["dropped: the lake has nothing of 2001-01-02"]
    assert f"--compact: {DAY} is not closed" in printed.err
    words = ("--compact", "2001-01-01", "--drop", "2001-01-02", "--quiet")
    assert ingest(tmp_path, *words) == Status.OK
    assert capsys.readouterr().out.splitlines()[2:] == [
        "compacted: the lake has nothing of 2001-01-01",
        "dropped: the lake has nothing of 2001-01-02",
    ]


@pytest.mark.exhaustive
def test_an_audit_of_a_log_without_what_was_taken_says_what_is_known(
    spark: SparkSession, tmp_path: Path, capsys: Capsys
) -> None:
    del spark
    header = SegmentHeader("eu", log_id_of("eu"), 1, 1, START_US, 1.0)
    flow = Flow(1, START_US, 10_000, 0, 0, 0, 0, Kind.RESPONSE, Outcome.DELIVER, 5000, 0)
    write_segment(tmp_path / "log", header, flows=[flow])
    assert ingest(tmp_path) == Status.OK
    capsys.readouterr()
    words = ["pipeline", "audit", "--lake", str(tmp_path / "lake"), "--quiet"]
    assert main([*words, "--allow", "9999999"]) == Status.USAGE
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == ["eu", "-", "-", "0", "5,000", "0", "0", "-", "-"]
    assert printed.out.splitlines()[2] == (
        "eu: 5,000 requests ended, and none was recorded as received: how many are missing or "
        "duplicated is not known"
    )
    assert "gate failed: of 5,000 requests that ended none was recorded as received" in printed.err
    assert "duplicated, 0" not in printed.err


def test_a_relative_lake_is_absolute_for_a_server(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    given = argparse.Namespace(lake="lake", out="out", table="s3a://x/y", candidate=None)
    _make_absolute(given)
    assert (given.lake, given.out) == (str(tmp_path / "lake"), str(tmp_path / "out"))
    assert (given.table, given.candidate) == ("s3a://x/y", None)
    assert Lake("lake").path == tmp_path / "lake"
