"""The format `onward` in Spark: the same rows as the plain reader, in batches and as a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from onward.pipeline import EVENT_TABLES
from onward.pipeline._errors import SegmentDamaged, known_error
from onward.pipeline.source import decode
from onward.protocol.eventlog import read_segment
from tests.support.eventlogs import START_US, Truth, write_log

pytestmark = pytest.mark.spark


def load(spark: SparkSession, log: Path, **options: str) -> DataFrame:
    return spark.read.format("onward").options(**options).load(str(log))


def decoded(table: str, *truths: Truth) -> list[dict[str, Any]]:
    return [
        row
        for truth in truths
        for written in truth.segments
        for row in decode(table, None, read_segment(written.path.read_bytes())).to_pylist()
    ]


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("table", [table for table in EVENT_TABLES if table != "segments"])
def test_spark_reads_as_the_plain_reader(table: str, spark: SparkSession, tmp_path: Path) -> None:
    one = write_log(tmp_path, segments=3)
    two = write_log(tmp_path, broker="b2", segments=1)

    frame = load(spark, tmp_path, table=table)

    assert frame.schema == spark.createDataFrame([], EVENT_TABLES[table]).schema
    assert ordered(frame.toArrow().to_pylist()) == ordered(decoded(table, one, two))


def test_segments_are_told_by_their_two_ends(spark: SparkSession, tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=2)
    rows = load(spark, tmp_path, table="segments").orderBy("path").toArrow().to_pylist()
    for row, written in zip(rows, truth.segments, strict=True):
        assert row["path"] == str(written.path.relative_to(tmp_path))
        assert row["size"] == written.path.stat().st_size
        assert row["log_id"] == truth.log_id.hex()
        assert (row["broker"], row["epoch"], row["version"]) == ("b1", 1, 1)
        assert (row["first_seq"], row["last_seq"]) == (written.first_seq, written.last_seq)
        counts = (len(written.hops), len(written.flows), len(written.events))
        assert (row["hops"], row["flows"], row["events"]) == counts


def test_columns_brokers_segments_and_times_are_chosen(spark: SparkSession, tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=4)
    write_log(tmp_path, broker="b2", segments=1)
    chosen = {"columns": "seq,broker", "brokers": "b1", "since": "2025-11-20T00:20"}

    frame = load(spark, tmp_path, **chosen)

    since = START_US + 1_200_000_000
    assert frame.columns == ["seq", "broker"]
    assert {(row.seq, row.broker) for row in frame.collect()} == {
        (hop.seq, "b1") for hop in truth.hops if hop.ts_us >= since
    }
    only = truth.segments[2]
    path = str(only.path.relative_to(tmp_path))
    rows = load(spark, tmp_path, columns="seq", segments=path).collect()
    assert sorted(row.seq for row in rows) == [hop.seq for hop in only.hops]


def test_an_empty_log_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    for table in ("hops", "segments"):
        assert load(spark, tmp_path, table=table).collect() == []


def test_a_damaged_segment_is_named_or_skipped_whole(spark: SparkSession, tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=3)
    path = truth.segments[1].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    with pytest.raises(Exception, match=path.name) as raised:
        load(spark, tmp_path).collect()
    known = known_error(str(raised.value))
    assert isinstance(known, SegmentDamaged)
    assert "onward events --check" in str(known)
    assert "at byte" in str(known)

    rows = load(spark, tmp_path, columns="seq", skipCorrupt="true").collect()
    assert {row.seq for row in rows} == {
        hop.seq for written in (truth.segments[0], truth.segments[2]) for hop in written.hops
    }
    checked = load(spark, tmp_path, table="segments", skipCorrupt="true", check="true")
    assert [row.path for row in checked.filter("damaged is not null").collect()] == [
        str(path.relative_to(tmp_path))
    ]


def test_a_stream_reads_all_and_goes_on_from_there(spark: SparkSession, tmp_path: Path) -> None:
    log, out, checkpoint = tmp_path / "log", tmp_path / "out", tmp_path / "checkpoint"
    truth = write_log(log, segments=4)

    def run() -> int:
        stream = spark.readStream.format("onward").options(columns="seq", maxSegments="3")
        writer = stream.load(str(log)).writeStream.format("parquet").outputMode("append")
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start(str(out))
        query.awaitTermination()
        return len(query.recentProgress)

    assert run() == 2
    more = write_log(log, segments=1, first_seq=truth.segments[-1].last_seq + 1)
    run()

    table = spark.read.parquet(str(out)).toArrow()
    assert table.schema.field("seq").type == pa.int64()
    expected = sorted(hop.seq for hop in (*truth.hops, *more.hops))
    assert sorted(table.column("seq").to_pylist()) == expected
