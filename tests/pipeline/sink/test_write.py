"""`df.write.format("onward")`: over real sockets, from Spark to a node and to a broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructType

from onward.pipeline import known_error
from onward.pipeline.sink import BatchWriter, RowRefused, RowsNotDelivered, SentRows
from onward.protocol.batches import BatchOptions
from tests.pipeline.sink.receivers import Rows, a_node, services

PAYLOAD = StructType().add("payload", BinaryType())


def writer(uri: str, **given: object) -> BatchWriter:
    options = {"uri": uri, "route": "rows", "id": "q", "epoch": "0", "chunkRows": "10"}
    return BatchWriter(PAYLOAD, False, options | {key: str(each) for key, each in given.items()})


def record_batches(rows: list[bytes], size: int = 30) -> Iterator[Any]:
    for at in range(0, len(rows), size):
        yield pa.record_batch([pa.array(rows[at : at + size], pa.binary())], ["payload"])


ROWS = [b"%d" % number for number in range(200)]


def test_a_task_sends_its_rows_over_a_real_connection() -> None:
    rows = Rows()
    with a_node(rows) as (uri, worker):
        sent = writer(uri).write(record_batches(ROWS))
        assert sent == SentRows(200, 21, 0)
        assert rows.kept == ROWS
        assert writer(uri).write(record_batches(ROWS)) == SentRows(200, 21, 0, 200)
        assert worker.statistics().duplicates == 200
    assert rows.kept == ROWS


def test_a_write_whose_rows_were_all_had_before_says_so(caplog: pytest.LogCaptureFixture) -> None:
    made = writer("tcp://127.0.0.1:1", epoch=3)
    made.commit([SentRows(200, 21), SentRows(0), None])
    assert caplog.messages == []
    made.commit([SentRows(200, 21, 0, 200), SentRows(10, 1, 0, 10), SentRows(0)])
    made.commit([SentRows(200, 21, 0, 0), SentRows(10, 1, 0, 10)])
    every, some = caplog.messages
    assert every.startswith(
        "all 210 rows of id 'q', epoch 3 were dropped (210): rows with these numbers had been taken"
    )
    assert "needs a new id" in every
    assert some.startswith("of 210 rows of id 'q', epoch 3, 10 were dropped")


def test_services_that_are_slower_than_four_tasks_get_each_row_once() -> None:
    rows = [b"%d" % number for number in range(400)]
    with services("a", "b", max_waiting=1) as there:

        def write(task: int) -> SentRows:
            given = {"uri": there.uri, "query": "service=rows", "chunkRows": "10", "retries": "0"}
            some = rows[task * 100 : task * 100 + 100]
            sent = BatchWriter(PAYLOAD, False, given).write(record_batches(some))
            assert isinstance(sent, SentRows)
            return sent

        with ThreadPoolExecutor(4) as pool:
            sent = list(pool.map(write, range(4)))
        assert sum(each.again for each in sent) > 0
        assert sum(each.duplicates for each in sent) == 0
        kept = there.rows["a"].kept + there.rows["b"].kept
        assert sorted_numbers(kept) == list(range(400))


def test_a_task_without_rows_connects_to_nobody() -> None:
    assert writer("tcp://127.0.0.1:1").write(record_batches([])) == SentRows(0)
    assert writer("tcp://127.0.0.1:1").write(iter([next(record_batches(ROWS)).slice(0, 0)])) == (
        SentRows(0)
    )


def test_a_node_that_is_not_there_is_told() -> None:
    with pytest.raises(RowsNotDelivered, match=r"no row of partition 0 was sent: .*must reach"):
        writer("tcp://127.0.0.1:1").write(record_batches(ROWS))


def test_a_worker_that_is_not_there_or_not_exposed_leaves_rows_undelivered() -> None:
    with a_node(Rows()) as (uri, _), pytest.raises(Exception, match="no answer in time"):
        writer(uri, route="nobody", retries=0, timeout=0.2).write(record_batches(ROWS))


def test_a_row_that_is_null_is_told_with_its_number() -> None:
    batch = pa.record_batch([pa.array([b"a", None], pa.binary())], ["payload"])
    with a_node(Rows()) as (uri, _), pytest.raises(RowRefused, match=r"row 1 of .* is null"):
        writer(uri).write(iter([batch]))


KILLED = """
import os, signal, sys
import pyarrow as pa
from onward.pipeline import known_error
from onward.pipeline.sink import BatchWriter
from pyspark.sql.types import BinaryType, StructType

def batches():
    for at in range(0, 100, 10):
        rows = [b"%d" % number for number in range(at, at + 10)]
        yield pa.record_batch([pa.array(rows, pa.binary())], ["payload"])
    os.kill(os.getpid(), signal.SIGKILL)

options = {"uri": sys.argv[1], "route": "rows", "id": "q", "chunkRows": "10", "window": "1"}
options["epoch"] = "0"
BatchWriter(StructType().add("payload", BinaryType()), False, options).write(batches())
"""


@pytest.mark.slow
def test_a_task_that_is_killed_half_way_and_run_again_sends_each_row_once() -> None:
    rows = Rows()
    with a_node(rows) as (uri, worker):
        done = subprocess.run([sys.executable, "-c", KILLED, uri], check=False, timeout=60)
        assert done.returncode == -9
        taken = len(rows.kept)
        assert 0 < taken <= 100
        writer(uri, chunkRows=7).write(record_batches(ROWS))
        assert worker.statistics().duplicates == taken
    assert rows.kept == ROWS


def test_a_service_that_goes_half_way_fails_the_task_and_the_other_gets_all() -> None:
    with services("a", "b") as there:
        given = {"uri": there.uri, "query": "service=rows", "id": "q", "epoch": "0"}
        given["chunkRows"] = "10"
        first = BatchWriter(PAYLOAD, False, {**given, "retries": "0"})
        for rows in there.rows.values():
            rows.fail_after = 100
        with pytest.raises(RowsNotDelivered, match="has failed"):
            first.write(record_batches(ROWS))
        had = "a" if there.rows["a"].kept else "b"
        other = "b" if had == "a" else "a"
        assert there.rows[had].kept == ROWS[:100]
        assert there.rows[other].kept == []
        for rows in there.rows.values():
            rows.fail_after = None
        there.run(there.stop(had))
        BatchWriter(PAYLOAD, False, given).write(record_batches(ROWS))
        assert there.rows[other].kept == ROWS


def test_a_service_that_was_left_half_way_takes_the_next_epochs_when_it_is_back() -> None:
    with services("a", "b") as there:

        def write(epoch: int, some: list[bytes]) -> SentRows:
            given = {"uri": there.uri, "query": "service=rows", "id": "q", "epoch": str(epoch)}
            made = BatchWriter(PAYLOAD, False, {**given, "chunkRows": "10", "retries": "0"})
            sent = made.write(record_batches(some))
            assert isinstance(sent, SentRows)
            return sent

        for rows in there.rows.values():
            rows.fail_after = 100
        with pytest.raises(RowsNotDelivered):
            write(0, ROWS)
        had, other = ("a", "b") if there.rows["a"].kept else ("b", "a")
        for rows in there.rows.values():
            rows.fail_after = None
        there.run(there.stop(had))
        write(0, ROWS)  # as Spark runs the task again
        there.run(there.join(had))
        there.run(there.stop(other))
        new = [[b"%d/%d" % (epoch, row) for row in range(50)] for epoch in range(1, 3)]
        assert [write(epoch, rows).duplicates for epoch, rows in enumerate(new, 1)] == [0, 0]
        assert write(1, new[0]).duplicates == 50
        assert there.rows[had].kept == [*ROWS[:100], *new[0], *new[1]]
        assert there.rows[other].kept == ROWS
        assert there.takers[had].statistics().unfinished == 1


def test_a_run_that_failed_is_run_again_after_a_later_one_and_nothing_is_lost() -> None:
    rows = Rows()
    monday = [b"monday/%d" % row for row in range(300)]
    tuesday = [b"tuesday/%d" % row for row in range(50)]
    with a_node(rows) as (uri, worker):

        def day(epoch: int, some: list[bytes]) -> SentRows:
            made = writer(uri, id="daily", epoch=epoch, retries=0, window=1)
            sent = made.write(record_batches(some))
            assert isinstance(sent, SentRows)
            return sent

        rows.fail_after = 100
        with pytest.raises(RowsNotDelivered, match="Run the job again with the same id and epoch"):
            day(1, monday)
        rows.fail_after = None
        assert day(2, tuesday).duplicates == 0
        assert day(1, monday).duplicates == 100
        assert rows.kept == monday[:100] + tuesday + monday[100:]
        assert (day(1, monday).duplicates, day(2, tuesday).duplicates) == (300, 50)
        assert worker.statistics().unfinished == 1
    assert len(rows.kept) == 350


def test_a_run_that_never_reached_the_receiver_is_taken_after_a_later_one() -> None:
    rows = Rows()
    with a_node(rows) as (uri, _):
        writer(uri, epoch=2).write(record_batches(ROWS[100:]))
        assert writer(uri, epoch=1).write(record_batches(ROWS[:100])) == SentRows(100, 11)
    assert rows.kept == ROWS[100:] + ROWS[:100]


def test_a_run_that_the_receiver_has_forgotten_fails_and_says_what_to_do() -> None:
    rows = Rows()
    with a_node(rows, BatchOptions(max_ended_bytes=64)) as (uri, worker):
        # Numbers so far apart that it has room for two of them.
        for epoch in range(0, 6 << 40, 1 << 40):
            writer(uri, epoch=epoch).write(record_batches(ROWS[:1]))
        had = list(rows.kept)
        assert worker.statistics().forgotten_epochs
        with pytest.raises(RowRefused, match=r"max_ended_bytes.* look there first"):
            writer(uri, epoch=0).write(record_batches(ROWS[:1]))
    assert rows.kept == had


def test_a_partition_that_is_empty_in_every_other_epoch_is_known_in_each_it_had() -> None:
    rows = Rows()
    with a_node(rows) as (uri, worker):
        for epoch in range(40):
            some = ROWS[epoch : epoch + epoch % 2]
            assert writer(uri, epoch=epoch).write(record_batches(some)) == SentRows(
                len(some), len(some)
            )
        had = list(rows.kept)
        assert len(had) == 20
        assert writer(uri, epoch=1).write(record_batches(ROWS[1:2])) == SentRows(1, 1, 0, 1)
        assert worker.statistics().forgotten_epochs == 0
    assert rows.kept == had


def frame(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    return spark.range(0, rows, 1, partitions).selectExpr("cast(id as string) as payload")


def sorted_numbers(rows: list[bytes]) -> list[int]:
    return sorted(int(row) for row in rows)


@pytest.mark.spark
def test_a_data_frame_is_sent_to_a_route(spark: SparkSession) -> None:
    rows = Rows()
    with a_node(rows) as (uri, worker):
        data = frame(spark, 5000, 3)
        write = data.write.format("onward").mode("append").option("uri", uri)
        write.option("route", "rows").save()
        assert sorted_numbers(rows.kept) == list(range(5000))
        assert worker.statistics().partitions == 3


@pytest.mark.spark
def test_a_column_says_to_which_service_of_a_broker_a_row_goes(spark: SparkSession) -> None:
    with services("a", "b") as there:
        data = frame(spark, 1000, 2).selectExpr(
            "payload", "if(payload % 2 = 0, 'service=rows name=a', 'service=rows name=b') as query"
        )
        data.write.format("onward").mode("append").option("uri", there.uri).save()
        assert sorted_numbers(there.rows["a"].kept) == list(range(0, 1000, 2))
        assert sorted_numbers(there.rows["b"].kept) == list(range(1, 1000, 2))


@pytest.mark.spark
def test_a_query_that_several_services_match_sends_each_row_to_one(spark: SparkSession) -> None:
    with services("a", "b") as there:
        write = frame(spark, 2000, 4).write.format("onward").mode("append")
        write = write.option("uri", there.uri).option("query", "service=rows")
        write = write.option("chunkRows", 50).option("id", "q").option("epoch", 1)
        write.save()
        write.save()  # the same epoch again
        kept = there.rows["a"].kept + there.rows["b"].kept
        assert sorted_numbers(kept) == list(range(2000))


@pytest.mark.spark
def test_a_write_that_failed_half_way_sends_each_row_once(spark: SparkSession) -> None:
    rows = Rows()
    rows.fail_after = 1000
    with a_node(rows) as (uri, worker):
        write = frame(spark, 2000, 2).write.format("onward").mode("append").option("uri", uri)
        write = write.option("route", "rows").option("id", "q").option("epoch", 0)
        write = write.option("retries", 0)
        with pytest.raises(Exception, match=r"RowsNotDelivered: .*what handles") as raised:
            write.save()
        known = known_error(raised.value)
        assert isinstance(known, RowsNotDelivered)
        assert str(known).startswith("rows ")
        assert 0 < len(rows.kept) <= 2000
        rows.fail_after = None
        write.save()
        assert worker.statistics().duplicates > 0
    assert sorted_numbers(rows.kept) == list(range(2000))


@pytest.mark.spark
def test_a_repeated_epoch_of_a_query_is_dropped(spark: SparkSession, tmp_path: Path) -> None:
    rows = Rows()
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    with a_node(rows) as (uri, worker):

        def send(data: DataFrame, batch: int) -> None:
            write = data.write.format("onward").mode("append").option("uri", uri)
            write.option("route", "rows").option("id", "stream").option("epoch", batch).save()

        def run() -> None:
            stream = spark.readStream.schema("payload string").json(str(source))
            query = stream.writeStream.foreachBatch(send)
            started = query.option("checkpointLocation", str(checkpoint))
            started.trigger(availableNow=True).start().awaitTermination()

        for batch in range(2):
            lines = [json.dumps({"payload": str(batch * 100 + n)}) for n in range(100)]
            (source / f"{batch}.json").write_text("\n".join(lines))
            run()
        assert sorted_numbers(rows.kept) == list(range(200))
        commits = sorted((checkpoint / "commits").glob("[0-9]*"))
        commits[-1].unlink()  # as if the driver had died before it wrote this
        (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
        run()
        assert worker.statistics().duplicates == 100
    assert sorted_numbers(rows.kept) == list(range(200))


@pytest.mark.spark
def test_what_will_not_do_is_told_before_any_task_starts(spark: SparkSession) -> None:
    data = frame(spark, 1, 1)
    with pytest.raises(Exception, match="say where the rows go"):
        data.write.format("onward").mode("append").save()
    write = data.write.format("onward").mode("overwrite").option("uri", "tcp://h:1")
    with pytest.raises(Exception, match="write with append"):
        write.option("route", "r").save()
