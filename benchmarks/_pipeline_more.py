"""The lanes that are more than one query: encode, index, replay and sink."""

# PySpark, pyarrow and DuckDB are annotated in part, as in the pipeline itself: see pyproject.toml.
# pyright: reportUnknownMemberType=none, reportUnknownVariableType=none
# pyright: reportUnknownArgumentType=none, reportUnknownLambdaType=none

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from _pipeline_lanes import Lane, bitmaps_alone, noop
from pyspark.sql import SparkSession

from onward.actors import Node
from onward.actors.batches import BatchWorker
from onward.actors.eventlog import LogOptions, Recorder
from onward.actors.eventlog.recording._messages import codes_of
from onward.pipeline import LAKE_TABLES
from onward.pipeline.replay import MethodSet, Question, Resolver, open_table, replay, turn_of
from onward.protocol.batches import BatchRows
from onward.protocol.broker import RoutingType, tag_set
from onward.protocol.eventlog import Asked, Kind, Outcome, asked_text, tagset_id

__all__ = ["encode", "index_lane", "replay_lanes", "sink_lane"]

COMPARED: Final = 20_000
"""Requests that are also resolved one by one."""


class Nowhere:
    """A segment writer that discards all blocks and reports no losses."""

    def begin(self, started_us: int, last_seq: int) -> bool:
        return True

    def append(self, kind: bytes, body: bytes, records: int = 0) -> bool:
        return True

    def seal(self, last_seq: int, ended_us: int) -> None: ...

    def trouble(self) -> str | None:
        return None

    def lost(self) -> int:
        return 0


def encode(hops: int, runs: int) -> list[float]:
    """Return the CPU nanoseconds of recording a hop, for each run."""
    options = LogOptions(Path("nowhere"), "benchmark", sample_rate=1.0)
    recorder = Recorder(Nowhere(), options, "node")
    recorder.begin()
    codes, found = codes_of(int(Kind.RESPONSE), int(Outcome.DELIVER), 0, 2), list[float]()
    ends = recorder.naming.learn("ends", "front", "orders")
    for _ in range(runs + 1):
        hop = recorder.hop
        began = time.thread_time_ns()
        for number in range(hops):
            hop(number, 7, codes, ends, 1234, 512, 100)
        found.append((time.thread_time_ns() - began) / hops)
    return found[1:]


# --- the index --------------------------------------------------------------------------------


def index_lane(spark: SparkSession, postings: Path, rows: int) -> Lane:
    """Return the lane of the tag index; the bytes of each bitmap are compared."""
    from onward.pipeline.tagindex import build

    def made() -> Any:
        return build(spark.read.parquet(str(postings)))

    def alone() -> Any:
        bitmaps = bitmaps_alone(postings)
        keys, values = zip(*bitmaps, strict=True)
        return pa.table({"key": keys, "value": values, "bitmap": list(bitmaps.values())})

    return Lane(
        "index",
        rows,
        lambda: noop(made()),
        lambda: bitmaps_alone(postings),
        "DuckDB and pyroaring",
        answer=lambda: made().select("key", "value", "bitmap").toArrow(),
        other_answer=alone,
        target=0.8,
    )


# --- replay -----------------------------------------------------------------------------------


def replay_lanes(
    spark: SparkSession,
    folder: Path,
    asked: dict[str, list[Asked]],
    tables: tuple[Path, Path],
    rows: int,
) -> list[Lane]:
    """Return the lanes of replay; the counts of moved, lost and gained are compared."""
    return [
        _replay_lane(spark, name, folder / f"frames-{name}", sets, tables, rows)
        for name, sets in asked.items()
    ]


def _replay_lane(
    spark: SparkSession,
    name: str,
    frames: Path,
    asked: Sequence[Asked],
    tables: tuple[Path, Path],
    rows: int,
) -> Lane:
    hops = spark.read.schema(LAKE_TABLES["hops"]).parquet(str(frames))
    described: list[tuple[Any, ...]] = [
        (tagset_id(each), {}, asked_text(each), each.routing.name.lower(), each.method, None)
        for each in asked
    ]
    tagsets = spark.createDataFrame(described, LAKE_TABLES["dim_tagset"])
    part = min(COMPARED, rows // 8)

    def run() -> None:
        with replay(spark, hops, tagsets, *tables, shard_old="jump", shard_new="modulo"):
            pass

    def of_a_part() -> Any:
        some = hops.where(f"seq <= {part}")
        with replay(spark, some, tagsets, *tables, shard_old="jump", shard_new="modulo") as result:
            totals = result.totals
            return pa.table(
                {
                    "moved": [totals.moved],
                    "lost": [totals.lost],
                    "gained": [totals.gained],
                    "frames": [totals.frames],
                }
            )

    return Lane(
        f"replay, {len(asked)} tag sets",
        rows,
        run,
        None,
        "the resolver in a loop",
        answer=of_a_part,
        other_answer=lambda: _one_by_one(frames, asked, tables, part),
        target=0.43,
    )


def _one_by_one(frames: Path, asked: Sequence[Asked], tables: tuple[Path, Path], part: int) -> Any:
    """Resolve the first requests one by one with the broker's own methods."""
    columns = ["seq", "epoch", "tagset_id", "shard_hash"]
    table = pq.read_table(frames / "0.parquet", columns=columns).slice(0, part)
    questions = {
        tagset_id(each): Question(tag_set(each.tags), each.routing, each.method) for each in asked
    }
    old = Resolver(open_table(str(tables[0])), MethodSet(None, "jump"))
    new = Resolver(open_table(str(tables[1])), MethodSet(None, "modulo"))
    moved = lost = gained = 0
    listed: list[list[int]] = [column.to_pylist() for column in table.columns]
    for seq, epoch, tagset, key in zip(*listed, strict=True):
        question = questions[tagset]
        shard = question.routing is RoutingType.SHARD
        turn = key & (1 << 64) - 1 if shard else turn_of(epoch, seq)
        before, after = old.route(question, turn), new.route(question, turn)
        lost += bool(before and not after)
        gained += bool(after and not before)
        moved += bool(before and after and before != after)
    counts = {"moved": [moved], "lost": [lost], "gained": [gained], "frames": [len(table)]}
    return pa.table(counts)


# --- the sink ---------------------------------------------------------------------------------


@contextmanager
def sink_lane(spark: SparkSession, rows: int) -> Generator[Lane]:
    """Yield the lane of the sink: rows of a hundred bytes, to a node in this process."""
    taken = [0]

    def take(some: tuple[bytes, ...], _batch: BatchRows) -> None:
        taken[0] += len(some)

    payload = "concat(repeat('x', 90), lpad(cast(id as string), 10, '0')) as payload"
    frame = spark.range(0, rows, 1, 2).selectExpr(payload)
    with Node.in_background() as node:
        node.start(lambda: BatchWorker(take), address="rows")
        listener = node.listen("tcp://127.0.0.1:0", expose=["rows"])

        def send() -> None:
            before = taken[0]
            write = frame.write.format("onward").mode("append").option("uri", listener.uri)
            write.option("route", "rows").save()
            if taken[0] - before != rows:
                raise AssertionError(f"{taken[0] - before} of {rows} rows came")

        yield Lane("sink", rows, send, target=0.3)
