"""From logs to a lake with Spark: everything once, told where it cannot be, in few files."""

from __future__ import annotations

import json
import os
import shutil
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from onward.pipeline import LAKE_TABLES, REPORT_TABLES
from onward.pipeline._errors import (
    CheckpointLost,
    CheckpointRefused,
    DayOpen,
    DuplicateBroker,
    LakeError,
    LakeLost,
    NeedsClassic,
    NewerSegment,
    SegmentDamaged,
    SegmentGap,
)
from onward.pipeline.ingest import IngestSummary, Lake, LakeState, compact, ingest
from onward.pipeline.ingest._files import write_json
from onward.pipeline.ingest._parts import LakeFiles
from onward.pipeline.source import decode
from onward.protocol.eventlog import SegmentHeader, read_segment
from tests.support.counts import TRIES
from tests.support.eventlogs import DAY_US, START_US, Truth, log_id_of, write_log, write_segment
from tests.support.fixtures import Patch

DAY = date(2025, 11, 20)
TABLES = ("hops", "flows", "route_events")


class Place:
    """A log, a lake and a checkpoint."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.log = root / "log"
        self.path = root / "lake"
        self.checkpoint = root / "checkpoint"
        self.lake = Lake(self.path)
        self.said: list[str] = []
        self.log.mkdir()

    def ingest(self, **options: Any) -> IngestSummary:
        options.setdefault("progress", self.said.append)
        return ingest(self.spark, self.log, self.path, self.checkpoint, **options)

    def rows(self, table: str, **options: Any) -> list[str]:
        """Return the rows of the files that count, in order."""
        files = self.lake.files(table, **options)
        return sorted(
            repr(row) for file in files for row in pq.ParquetFile(file).read().to_pylist()
        )

    def read(self, table: str, **options: Any) -> list[str]:
        """Return the rows that Spark reads, in order."""
        frame = self.lake.table(self.spark, table, **options)
        assert frame.schema == self.spark.createDataFrame([], LAKE_TABLES[table]).schema
        return sorted(map(repr, frame.toArrow().to_pylist()))


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def decoded(table: str, *truths: Truth) -> list[str]:
    return sorted(
        repr(row)
        for truth in truths
        for written in truth.segments
        for row in decode(table, None, read_segment(written.path.read_bytes())).to_pylist()
    )


def comings_and_goings(*truths: Truth) -> list[str]:
    kinds = ("up", "down", "drain", "retag")
    rows = decoded("route_events", *truths)
    return [row for row in rows if any(f"'event': '{kind}'" in row for kind in kinds)]


@pytest.mark.spark
def test_everything_is_in_the_lake_once(place: Place) -> None:
    one = write_log(place.log, segments=3, span_us=3 * 3_600_000_000)
    two = write_log(place.log, broker="b2", seed=1, segments=1, start_us=START_US + DAY_US)

    summary = place.ingest(max_segments=3)

    assert (summary.batches, summary.segments, summary.missing) == (2, 4, 0)
    assert (summary.hops, summary.flows, summary.events) == (200, 40, 20)
    for table in TABLES:
        assert place.read(table) == decoded(table, one, two)
        assert place.read(table, day=DAY) == decoded(table, one)
        files = place.lake.files(table)
        pattern = str(place.path / table / "**" / "*.parquet")
        for given in (files, pattern):
            query = "select count(*) from read_parquet($files)"
            counted = duckdb.execute(query, {"files": given}).fetchall()
            assert counted == [(len(decoded(table, one, two)),)]
    assert place.lake.days() == [DAY, DAY + timedelta(days=1)]
    since = datetime(2025, 11, 20, 1, tzinfo=UTC)
    between = place.lake.table(place.spark, "hops", since=since, until=since + timedelta(hours=1))
    hours = {START_US + hour * 3_600_000_000 for hour in (1, 2)}
    assert sorted(row.seq for row in between.select("seq").collect()) == [
        hop.seq for hop in one.hops if min(hours) <= hop.ts_us < max(hours)
    ]
    tagsets = place.lake.table(place.spark, "dim_tagset").toArrow().to_pylist()
    asked = {asked for truth in (one, two) for s in truth.segments for asked in s.tagsets}
    assert len(tagsets) == len({row["tagset_id"] for row in tagsets}) == len(asked)
    assert {row["name"] for row in place.lake.table(place.spark, "dim_node").collect()} == {
        f"service-{number}" for number in range(4)
    }

    again = place.ingest()

    assert (again.batches, again.segments) == (0, 0)
    assert place.rows("hops") == decoded("hops", one, two)
    for truth in (one, two):
        acks = list((place.log / truth.broker / ".acks").glob("*.json"))
        assert [json.loads(ack.read_text()) for ack in acks] == [
            {"segment": truth.segments[-1].path.name}
        ]
    complete = place.lake.table(place.spark, "completeness").orderBy("broker").toArrow()
    first, second = complete.to_pylist()
    assert (first["broker"], first["last_seq"]) == ("b1", one.segments[-1].last_seq)
    assert (first["segments"], first["events"], first["missing"]) == (3, 130, 0)
    assert second["sealed_through"] == datetime(2025, 11, 21, 1, tzinfo=UTC)


@pytest.mark.spark
def test_with_nothing_logged_all_tables_are_there_and_empty(place: Place) -> None:
    assert place.ingest() == IngestSummary()
    for table in LAKE_TABLES:
        assert place.read(table) == []
    assert place.read("hops", day=DAY) == []
    assert place.lake.days() == []
    assert not place.lake.is_closed(DAY)


@pytest.mark.spark
def test_following_adds_what_comes_until_the_query_is_stopped(place: Place) -> None:
    one = write_log(place.log, segments=1)
    written = [one]

    def progress(text: str) -> None:
        place.said.append(text)
        if text == "batch 0: done":
            after = one.segments[-1].last_seq + 1
            written.append(write_log(place.log, segments=1, first_seq=after))
        elif text == "batch 1: done":
            # From the thread of the query, which must not wait for its own end.
            (query,) = place.spark.streams.active
            threading.Thread(target=query.stop).start()

    summary = place.ingest(follow=True, interval=0.1, progress=progress)

    assert (summary.batches, summary.segments) == (2, 2)
    for table in TABLES:
        assert place.rows(table) == decoded(table, *written)
    assert place.spark.streams.active == []
    assert place.ingest().batches == 0


@pytest.mark.exhaustive
@pytest.mark.spark
def test_after_a_lost_checkpoint_nothing_is_lost_and_nothing_twice(place: Place) -> None:
    truth = write_log(place.log, segments=3)
    place.ingest()
    shutil.rmtree(place.checkpoint)
    more = write_log(place.log, segments=1, first_seq=truth.segments[-1].last_seq + 1)

    with pytest.raises(CheckpointLost, match="--rebuild"):
        place.ingest()
    summary = place.ingest(rebuild=True)

    assert (summary.segments, summary.duplicates) == (1, 3)
    assert place.rows("hops") == decoded("hops", truth, more)
    assert place.ingest().batches == 0


@pytest.mark.spark
def test_what_counts_is_on_the_disk_before_it_counts(place: Place, monkeypatch: Patch) -> None:
    truth = write_log(place.log, segments=1)
    after = truth.segments[-1].last_seq + 1
    write_log(place.log, segments=1, start_us=START_US + DAY_US, first_seq=after)
    synced: list[str] = []
    real = os.fsync

    def fsync(opened: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{opened}").readlink()))
        real(opened)

    monkeypatch.setattr(os, "fsync", fsync)

    def unsynced(pattern: str, marker: str) -> list[str]:
        """Files that were synced after the marker or not at all, and the folders around them."""
        until = next(at for at, path in enumerate(synced) if marker in path)
        before = set(synced[:until])
        files = [path for path in place.path.rglob(pattern) if path.is_file()]
        assert len(files) >= 3
        around = {each for file in files for each in file.parents if each != place.path.parent}
        inside = {each for each in around if each.is_relative_to(place.path)}
        return [str(path) for path in (*files, *inside) if str(path) not in before]

    place.ingest()
    assert unsynced("batch=0/*.parquet", "_commits/") == []

    synced.clear()
    compact(place.spark, place.path, DAY)
    assert unsynced("date=2025-11-20/**/batch=-1/*.parquet", f"_compacted/.{DAY}") == []


@pytest.mark.spark
def test_a_lake_that_was_set_back_is_told_with_what_to_do(place: Place) -> None:
    truth = write_log(place.log, segments=1)
    place.ingest()
    shutil.rmtree(place.path / "_commits")
    write_log(place.log, segments=1, first_seq=truth.segments[-1].last_seq + 1)

    with pytest.raises(LakeLost, match=r"has no batch at all.*--rebuild"):
        place.ingest()

    assert place.ingest(rebuild=True).segments == 2


@pytest.mark.spark
def test_a_checkpoint_that_is_the_log_is_refused_before_anything_is_touched(place: Place) -> None:
    write_log(place.log, segments=1)
    before = sorted(place.log.rglob("*"))
    for rebuild in (False, True):
        with pytest.raises(CheckpointRefused, match="the log itself"):
            ingest(place.spark, place.log, place.path, place.log, rebuild=rebuild)
    assert sorted(place.log.rglob("*")) == before
    assert not place.path.exists()


@pytest.mark.spark
def test_a_batch_that_fails_is_not_seen_and_is_done_again(place: Place) -> None:
    truth = write_log(place.log, segments=1)

    class Stop(Exception):
        pass

    def stop_at(point: str) -> None:
        def progress(text: str) -> None:
            if point in text:
                raise Stop(text)

        with pytest.raises(Stop):
            place.ingest(progress=progress)

    stop_at("writing segments")
    assert place.rows("hops") == []
    assert list((place.path / "hops").glob("date=*"))
    stop_at("committed")
    assert place.rows("hops") == decoded("hops", truth)

    summary = place.ingest()

    assert summary.batches == 0
    assert "batch 0: is in the lake already" in place.said
    for table in TABLES:
        assert place.rows(table) == decoded(table, truth)


@pytest.mark.spark
def test_what_goes_wrong_on_a_disk_is_told_with_what_to_do(place: Place) -> None:
    write_log(place.log, segments=1)
    marker, aside = place.path / "_lake.json", place.path.with_name("aside.json")

    def unshared(text: str) -> None:
        # As if tasks saw another disk.
        if "writing 100 hops" in text:
            marker.rename(aside)

    with pytest.raises(LakeError, match=r"no _lake\.json in it\. Log, lake and .* share"):
        place.ingest(progress=unshared)
    aside.rename(marker)
    assert list((place.path / "hops").rglob("*")) == []

    commits = place.path / "_commits"

    def refused(text: str) -> None:
        if "committing" in text:
            commits.write_text("a file where a folder belongs")

    with pytest.raises(LakeError, match=r"lake cannot be written: File exists\. .*run it again"):
        place.ingest(progress=refused)
    commits.unlink()
    assert place.rows("hops") == []


@pytest.mark.spark
def test_files_of_a_late_task_are_removed_with_the_next_batch_or_run(place: Place) -> None:
    write_log(place.log, segments=2)
    left: list[Path] = []

    def leave(text: str) -> None:
        place.said.append(text)
        if text.endswith(": done"):
            batch = text.split()[1].removesuffix(":")
            for folder in place.path.glob(f"hops/*/*/batch={batch}"):
                left.append(folder / f".part-00000-0.{batch}.new")
                left[-1].write_bytes(b"x")

    place.ingest(max_segments=1, progress=leave)
    assert [path.exists() for path in left] == [False, True]

    place.ingest()
    assert [path.exists() for path in left] == [False, False]
    assert "removed 1 file of tasks that ended after their batch" in place.said
    assert all(path.parent.is_dir() for path in left)


@pytest.mark.spark
def test_what_comes_late_is_in_the_facts_and_asks_for_the_report_again(place: Place) -> None:
    write_log(place.log, segments=1, hops=5, start_us=START_US + 2 * DAY_US)
    # A clock that is a year ahead: it closes nothing before its time.
    now = datetime(2025, 11, 22, 2, tzinfo=UTC)
    write_log(place.log, broker="ahead", segments=1, hops=5, start_us=START_US + 365 * DAY_US)
    place.ingest(clock=lambda: now)
    assert place.lake.state().closed == date(2025, 11, 21)
    assert (place.lake.is_closed(DAY), place.lake.days_to_rerun()) == (True, [])

    late = write_log(place.log, broker="b2", segments=1, hops=40, flows=7, events=3)
    summary = place.ingest(clock=lambda: now)

    assert summary.late == 50
    rows = place.lake.table(place.spark, "late", day=DAY).toArrow().to_pylist()
    assert {(row["broker"], row["epoch"], row["seq"]) for row in rows} == late.keys
    assert {row["source"] for row in rows} == set(TABLES)
    assert {row["day"] for row in rows} == {DAY}
    assert place.rows("hops", day=DAY) == decoded("hops", late)
    assert place.lake.days_to_rerun() == [DAY]

    empty = place.lake.report(place.spark, "traffic_matrix", DAY)
    assert empty.collect() == []
    place.lake.write_report(empty, "traffic_matrix", DAY, through=place.lake.batch())
    assert place.lake.days_to_rerun() == []
    assert place.lake.report(place.spark, "traffic_matrix", DAY).schema == empty.schema


@pytest.mark.spark
def test_a_day_is_rerun_until_all_its_reports_are_current(place: Place, tmp_path: Path) -> None:
    lake = place.lake
    day = date(2025, 11, 20)
    lake.path.mkdir()
    write_json(lake.path / "_lake.json", {"format": 1, "id": "x", "base": 0})
    LakeFiles(lake.path).commit(LakeState(batch=7, late={day: (3, 7)}))

    def write(report: str, **options: Any) -> bool:
        frame = place.spark.createDataFrame([], REPORT_TABLES[report])
        lake.write_report(frame, report, day, **options)
        return lake.days_to_rerun() == []

    assert lake.days_to_rerun() == [day]
    assert not write("traffic_matrix", through=6)
    assert not write("audit", through=6)
    # A rehearsal, another place, and what does not say when it was planned: none of them clears it.
    assert not write("replay_summary", through=7)
    assert not write("audit", out=tmp_path / "elsewhere", through=7)
    assert not write("traffic_matrix")
    assert not write("traffic_matrix", through=7)
    assert write("audit", through=7)
    # One that was planned before, and ended after, puts the older one there.
    assert not write("audit", through=6)
    assert write("audit", through=8)


@pytest.mark.spark
def test_errors_come_out_as_what_they_are(place: Place) -> None:
    truth = write_log(place.log, segments=4)
    place.ingest(max_segments=1)
    gone = write_log(place.log, segments=3, first_seq=truth.segments[-1].last_seq + 1)
    gone.segments[0].path.unlink()

    with pytest.raises(SegmentGap, match="--allow-gaps") as raised:
        place.ingest()
    assert "\n" not in str(raised.value)

    path = gone.segments[1].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SegmentDamaged, match=path.name):
        place.ingest(allow_gaps=True)
    assert place.rows("hops") == decoded("hops", truth)

    summary = place.ingest(allow_gaps=True, skip_corrupt=True)

    assert (summary.segments, summary.damaged) == (1, 1)
    lost = [*gone.segments[0].hops, *gone.segments[1].hops]
    assert summary.hops == len(gone.hops) - len(lost)
    first, last = gone.segments[0].first_seq, gone.segments[1].last_seq
    assert summary.missing == last - first + 1
    write_log(place.log, broker="b1", segments=1, epoch=9, log_id=log_id_of("other"))
    with pytest.raises(DuplicateBroker, match="two event logs are called b1"):
        place.ingest()


@pytest.mark.exhaustive
@pytest.mark.spark
def test_a_skipped_segment_is_told_counted_and_added_once_when_it_is_put_back(place: Place) -> None:
    truth = write_log(place.log, segments=3, hops=30, flows=6, events=3)
    inside, end = truth.segments[1], truth.segments[2]
    good = {each: each.path.read_bytes() for each in (inside, end)}
    spoil(inside.path, len(good[inside]) // 2)
    spoil(end.path, -1)

    summary = place.ingest(skip_corrupt=True)

    assert (summary.segments, summary.damaged, summary.missing) == (1, 2, 13 + 1)
    rows = {
        row["path"]: row for row in place.lake.table(place.spark, "segments").toArrow().to_pylist()
    }
    skipped = [rows[f"b1/{each.path.name}"] for each in (inside, end)]
    assert [row["last_seq"] for row in skipped] == [inside.last_seq, None]
    assert all(row["damaged"] for row in skipped)
    assert sum(row["damaged"] is None for row in rows.values()) == 1
    (complete,) = place.lake.table(place.spark, "completeness").collect()
    assert complete.missing == 14
    assert place.ingest().batches == 0

    end.path.write_bytes(good[end])
    second = place.ingest()
    inside.path.write_bytes(good[inside])
    # Together with what is new.
    more = write_log(place.log, segments=1, first_seq=end.last_seq + 1)
    third = place.ingest()

    assert (second.segments, second.missing) == (1, 13)
    assert (third.segments, third.missing) == (2, 0)
    for table in TABLES:
        assert place.rows(table) == decoded(table, truth, more)
    assert place.ingest().batches == 0


def spoil(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.spark
def test_a_newer_segment_asks_for_an_upgrade(place: Place) -> None:
    header = SegmentHeader("b1", log_id_of("b1"), 1, 1, START_US, 1.0, version=2)
    write_segment(place.log, header)
    with pytest.raises(NewerSegment, match="upgrade Onward"):
        place.ingest(skip_corrupt=True)


@pytest.mark.spark
def test_compaction_leaves_few_files_with_the_same_rows(place: Place) -> None:
    truth = write_log(place.log, segments=3)
    place.ingest(max_segments=1)
    with pytest.raises(DayOpen, match="2025-11-20 is not closed"):
        compact(place.spark, place.path, DAY)
    after = write_log(
        place.log, segments=1, start_us=START_US + DAY_US, first_seq=truth.segments[-1].last_seq + 1
    )
    place.ingest()
    some = ("hops", "dim_node") if TRIES == "few" else LAKE_TABLES
    before = {table: place.read(table) for table in some}

    summary = compact(place.spark, place.path, DAY)

    assert summary.files_before > 2 * summary.files_after
    assert {table: place.read(table) for table in some} == before
    assert before["hops"] == decoded("hops", truth, after)
    assert len(list((place.path / "hops" / f"date={DAY}").rglob("*.parquet"))) == 1
    again = compact(place.spark, place.path, DAY)
    assert (again.files_before, again.files_after) == (summary.files_after, summary.files_after)


@pytest.mark.exhaustive
@pytest.mark.spark
def test_what_comes_late_is_compacted_with_what_was_and_left_out_of_a_dropped_day(
    place: Place,
) -> None:
    truth = write_log(place.log, segments=3)
    last = truth.segments[-1].last_seq
    after = write_log(place.log, segments=1, start_us=START_US + DAY_US, first_seq=last + 1)
    place.ingest()
    compact(place.spark, place.path, DAY)
    late = write_log(place.log, broker="b2", segments=1)
    place.ingest()
    assert place.rows("hops", day=DAY) == decoded("hops", truth, late)
    compact(place.spark, place.path, DAY)
    assert place.rows("hops", day=DAY) == decoded("hops", truth, late)
    assert len(list((place.path / "hops" / f"date={DAY}").rglob("*.parquet"))) == 1
    assert place.ingest().batches == 0

    dropped = place.lake.drop(DAY)
    later = write_log(place.log, broker="b2", segments=1, first_seq=late.segments[-1].last_seq + 1)
    added = place.ingest()

    # Who came and went stays, and is added as well: somebody may be there still.
    gone = len(later.keys) - len(comings_and_goings(later))
    assert (added.segments, added.dropped, added.late) == (1, gone, 0)
    assert place.lake.state().dropped == {DAY: gone}
    assert place.rows("hops") == decoded("hops", after)
    assert place.read("hops", day=DAY) == place.read("late") == []
    kept = comings_and_goings(truth, late, later)
    assert 0 < len(kept) < len(decoded("route_events", truth, late, later))
    assert place.rows("route_events", day=DAY) == kept
    assert place.lake.days() == [DAY + timedelta(days=1)]
    assert place.lake.days_to_rerun() == []

    assert dropped.bytes > 0
    assert (place.lake.drop(DAY).files, place.lake.drop(DAY).bytes) == (0, 0)
    compact(place.spark, place.path, DAY)
    assert place.rows("route_events", day=DAY) == kept
    assert place.ingest().batches == 0


def test_spark_connect_cannot_ingest(tmp_path: Path) -> None:
    class Remote:
        __module__ = "pyspark.sql.connect.session"

    session: Any = Remote()
    with pytest.raises(NeedsClassic, match="without --remote"):
        ingest(session, tmp_path, tmp_path / "lake", tmp_path / "checkpoint")
