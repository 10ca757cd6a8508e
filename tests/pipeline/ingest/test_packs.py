"""What a task of an ingest writes: all there is of its segments, once, by day and hour."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from onward.pipeline import LAKE_TABLES
from onward.pipeline._errors import LakeError, SegmentDamaged, SegmentGone
from onward.pipeline.ingest import LakeState
from onward.pipeline.ingest._packs import Job, split, write_pack, write_packs
from onward.pipeline.ingest._parts import LakeFiles
from onward.pipeline.ingest._plan import plan
from onward.pipeline.ingest._tables import TableWriter, packs_of
from onward.pipeline.source import arrow_schema, columns_of, decode
from onward.protocol.eventlog import read_segment
from tests.support.eventlogs import DAY_US, START_US, Truth, write_log

DAY = date(2025, 11, 20)
HOUR = 3_600_000_000
TABLES = ("hops", "flows", "route_events")


def job_of(root: Path, *truths: Truth, each: int = 100, **options: Any) -> Job:
    """A job whose packs have so many segments each."""
    paths = [f"{truth.broker}/{one.path.name}" for truth in truths for one in truth.segments]
    packs = tuple(tuple(paths[at : at + each]) for at in range(0, len(paths), each))
    given: dict[str, Any] = {"batch": 4, "closed": None, "dropped": frozenset(), **options}
    begin_lake(root / "lake")
    return Job(log=root / "log", lake=root / "lake", packs=packs, **given)


def begin_lake(lake: Path) -> None:
    """What a task looks for before it makes anything."""
    lake.mkdir(exist_ok=True)
    (lake / "_lake.json").write_text("{}")


def files_in(lake: Path) -> list[str]:
    """All files but the one that says what it is."""
    return [each.name for each in lake.rglob("*") if each.is_file() and each.name != "_lake.json"]


def told(job: Job) -> list[dict[str, Any]]:
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(job.packs)))})
    return [row for batch in write_packs(job, [numbers]) for row in batch.to_pylist()]


def rows_of(job: Job, written: list[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    """What is in the files of a table, each of which has what its folder and its row say."""
    found: list[dict[str, Any]] = []
    for row in written:
        if row["table"] != table or row["path"] is None:
            continue
        with pq.ParquetFile(job.lake / row["path"]) as file:
            assert file.schema_arrow == arrow_schema(columns_of(LAKE_TABLES[table]))
            rows = file.read().to_pylist()
        assert len(rows) == row["rows"]
        assert f"/batch={job.batch}/." in row["path"]
        for each in rows:
            when = each.get("ts", each.get("window_start"))
            if row["day"] is not None:
                assert when.date() == row["day"]
                assert f"/date={row['day']}/" in row["path"]
            if "/hour=" in row["path"]:
                assert f"/hour={when.hour}/" in row["path"]
        found += rows
    return found


def decoded(table: str, *truths: Truth) -> list[str]:
    return sorted(
        repr(row)
        for truth in truths
        for one in truth.segments
        for row in decode(table, None, read_segment(one.path.read_bytes())).to_pylist()
    )


def comings_and_goings(truth: Truth) -> list[str]:
    kinds = ("up", "down", "drain", "retag")
    rows = decoded("route_events", truth)
    return [row for row in rows if any(f"'event': '{kind}'" in row for kind in kinds)]


def test_a_pack_has_all_of_its_segments_by_day_and_hour(tmp_path: Path) -> None:
    one = write_log(tmp_path / "log", hops=300, segments=3, span_us=30 * HOUR)
    two = write_log(tmp_path / "log", broker="b2", seed=1, hops=50, segments=2)
    job = job_of(tmp_path, one, two, each=2)

    written = told(job)

    for table in TABLES:
        assert sorted(map(repr, rows_of(job, written, table))) == decoded(table, one, two)
    assert {row["table"] for row in written} == {*TABLES, "dim_tagset", "dim_node", "dim_route"}
    assert all(row["path"] is not None for row in written)


def test_definitions_of_a_pack_s_segments_are_there_once_from_the_first(tmp_path: Path) -> None:
    later = write_log(tmp_path / "log", broker="a", segments=2, start_us=START_US + DAY_US)
    first = write_log(tmp_path / "log", broker="b", segments=2)
    job = job_of(tmp_path, later, first)

    written = told(job)

    begin = datetime(2025, 11, 20, tzinfo=UTC)
    nodes = rows_of(job, written, "dim_node")
    names = {name for truth in (later, first) for one in truth.segments for name in one.names}
    assert {row["name"] for row in nodes} == names
    assert len(nodes) == len(names)
    assert min(row["first_seen"] for row in nodes) == begin
    assert max(row["first_seen"] for row in nodes) < begin + timedelta(days=1)
    asked = {each for truth in (later, first) for one in truth.segments for each in one.tagsets}
    assert len(rows_of(job, written, "dim_tagset")) == len(asked)
    expected = {
        (row["tagset_id"], repr(row["tags"]), row["text"], row["routing"], row["method"])
        for truth in (later, first)
        for one in truth.segments
        for row in decode("tagsets", None, read_segment(one.path.read_bytes())).to_pylist()
    }
    assert expected == {
        (row["tagset_id"], repr(row["tags"]), row["text"], row["routing"], row["method"])
        for row in rows_of(job, written, "dim_tagset")
    }


def test_what_is_late_is_there_twice_and_what_was_dropped_is_counted(tmp_path: Path) -> None:
    days = [
        write_log(tmp_path / "log", broker=f"b{day}", segments=1, start_us=START_US + day * DAY_US)
        for day in range(4)
    ]
    closed = DAY + timedelta(days=2)
    job = job_of(tmp_path, *days, closed=closed, dropped=frozenset({DAY + timedelta(days=1)}))

    written = told(job)

    for table in TABLES:
        expected = decoded(table, days[0], *days[2:])
        if table == "route_events":
            # Who came on a dropped day may be there still.
            expected = sorted([*expected, *comings_and_goings(days[1])])
        assert sorted(map(repr, rows_of(job, written, table))) == expected
    late = rows_of(job, written, "late")
    found = {(row["broker"], row["epoch"], row["seq"]) for row in late}
    assert found == days[0].keys | days[2].keys
    assert len(found) == len(late) == 260
    assert {row["source"] for row in late} == set(TABLES)
    assert all(row["day"] == row["ts"].date() for row in late)
    left_out = {row["table"]: row["rows"] for row in written if row["path"] is None}
    others = 10 - len(comings_and_goings(days[1]))
    assert 0 < others < 10
    assert left_out == {"hops": 100, "flows": 20, "route_events": others}


def test_a_damaged_segment_leaves_nothing_of_its_pack(tmp_path: Path) -> None:
    truth = write_log(tmp_path / "log", segments=2)
    path = truth.segments[1].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SegmentDamaged, match=path.name):
        write_pack(job_of(tmp_path, truth), 0)
    path.unlink()
    with pytest.raises(SegmentGone, match=path.name):
        write_pack(job_of(tmp_path, truth), 0)
    assert files_in(tmp_path / "lake") == []


def test_a_task_that_does_not_see_the_lake_makes_none_on_its_own_disk(tmp_path: Path) -> None:
    job = job_of(tmp_path, write_log(tmp_path / "log", segments=1))
    (job.lake / "_lake.json").unlink()
    told_what_to_do = r"no _lake\.json in it\. .* must be on a file system that .* share"
    with pytest.raises(LakeError, match=told_what_to_do):
        write_pack(job, 0)
    assert list(job.lake.iterdir()) == []
    job.lake.rmdir()
    with pytest.raises(LakeError, match=told_what_to_do):
        write_pack(job, 0)
    assert not job.lake.exists()


def test_a_write_error_of_the_driver_has_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = write_log(tmp_path / "log", segments=1)
    rows = [row_of(truth)]
    session: Any = None
    writer = TableWriter(session, LakeFiles(tmp_path), tmp_path / "log", 0, list[str]().append)
    (tmp_path / "completeness").write_text("a file where a folder belongs")
    with pytest.raises(LakeError, match=r"cannot be written: .*irectory.* run it again"):
        writer.write_completeness(plan(rows, LakeState()).brokers)

    writer.write_small("segments", rows)
    shutil.rmtree(tmp_path / "segments")
    with pytest.raises(LakeError, match=r"/segments/batch=0 is not there\. .* share"):
        writer.sync()


@pytest.mark.parametrize("order", [1, -1])
def test_rows_are_split_where_an_hour_ends(order: int) -> None:
    times = [HOUR - 1, HOUR, HOUR + 1, 24 * HOUR - 1, 24 * HOUR, 24 * HOUR + 1][::order]
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("at", pa.int64())])
    rows = pa.RecordBatch.from_pydict({"ts": times, "at": times}, schema=schema)

    def found(unit: int) -> dict[int, list[int]]:
        return {number: part.column("at").to_pylist() for number, part in split(rows, "ts", unit)}

    assert found(HOUR) == {
        0: times[:1] if order == 1 else times[-1:],
        1: [HOUR, HOUR + 1][::order],
        23: [24 * HOUR - 1],
        24: [24 * HOUR, 24 * HOUR + 1][::order],
    }
    assert found(24 * HOUR) == {
        0: sorted(times[:4] if order == 1 else times[2:])[::order],
        1: [24 * HOUR, 24 * HOUR + 1][::order],
    }
    assert found(100 * HOUR) == {0: times}


def test_rows_of_as_many_hours_as_there_are_rows_are_split_in_no_time() -> None:
    # As many passes over all rows would take minutes.
    count = 20_000
    times = np.random.default_rng(1).permutation(count) * HOUR
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC"))])
    rows = pa.RecordBatch.from_arrays([pa.array(times).cast(schema.field(0).type)], schema=schema)
    assert [number for number, _ in split(rows, "ts", HOUR)] == list(range(count))


def row_of(truth: Truth, number: int = 0, **changed: Any) -> dict[str, Any]:
    """A row of the table `segments`."""
    one = truth.segments[number]
    return {
        "broker": truth.broker,
        "epoch": one.epoch,
        "first_seq": one.first_seq,
        "last_seq": one.last_seq,
        "log_id": truth.log_id.hex(),
        "path": f"{truth.broker}/{one.path.name}",
        "hops": len(one.hops),
        "flows": len(one.flows),
        "events": len(one.events),
        "size": one.path.stat().st_size,
        "ended": datetime(2025, 11, 20, tzinfo=UTC),
        "damaged": None,
        **changed,
    }


@pytest.mark.spark
def test_fewer_rows_than_in_the_segments_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    truth = write_log(tmp_path / "log", segments=1)
    batch = plan([row_of(truth, hops=101)], LakeState())
    files = LakeFiles(tmp_path / "lake")
    begin_lake(files.path)
    writer = TableWriter(spark, files, tmp_path / "log", 0, list[str]().append)
    with pytest.raises(LakeError, match=r"100 rows of hops were written of the 101"):
        writer.write(batch, None)
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.spark
def test_the_job_is_one_stage_without_rows_in_the_jvm(spark: SparkSession, tmp_path: Path) -> None:
    truth = write_log(tmp_path / "log", segments=3)
    frame = packs_of(spark, job_of(tmp_path, truth, each=1))
    plan_text = cast("Any", frame)._jdf.queryExecution().executedPlan().toString()

    assert re.findall(r"\w*InArrow\w*", plan_text) == ["MapInArrow"]
    assert not re.search(r"Exchange|EvalPython|InPandas|Scan ExistingRDD", plan_text)
    assert files_in(tmp_path / "lake") == []
    assert frame.rdd.getNumPartitions() == 3


@pytest.mark.spark
def test_spark_and_duckdb_read_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    truth = write_log(tmp_path / "log", segments=2, hops=400)
    job = job_of(tmp_path, truth, each=1)
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    for table in (*TABLES, "dim_tagset", "dim_node", "dim_route"):
        paths = [str(job.lake / row["path"]) for row in told(job) if row["table"] == table]
        # Under names that are read.
        named = [path.replace("/.part", "/part") for path in paths]
        for path, name in zip(paths, named, strict=True):
            Path(path).rename(name)
        expected = [row for name in named for row in pq.ParquetFile(name).read().to_pylist()]

        frame = spark.read.schema(LAKE_TABLES[table]).parquet(*named)
        # What it finds by itself, too: times are of UTC and numbers as narrow as they were.
        inferred = spark.read.parquet(*named)
        duck = connection.sql(f"select * from read_parquet({named}, hive_partitioning = false)")

        assert inferred.schema == frame.schema
        for rows in (frame.toArrow().to_pylist(), duck.to_arrow_table().to_pylist()):
            assert sorted(map(_plain, rows)) == sorted(map(_plain, expected))


def _plain(row: dict[str, Any]) -> str:
    # Of maps one engine makes dictionaries, the others lists of pairs.
    return repr(
        {key: sorted(dict(value).items()) if key == "tags" else value for key, value in row.items()}
    )
