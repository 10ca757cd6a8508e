"""The rehearsal on Spark: equal to the resolver called in a loop, however the hops are divided."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from onward.pipeline import LAKE_TABLES, REPORT_TABLES
from onward.pipeline._errors import PipelineError, known_error
from onward.pipeline.replay import (
    MethodSet,
    ReplayResult,
    Resolver,
    _replay,
    check_gates,
    open_table,
    read_question,
    replay,
    turn_of,
)
from onward.protocol.broker import RoutingType, SnapshotRoute, write_snapshot
from onward.protocol.eventlog import Asked, Flag, Kind, Outcome, asked_text, tagset_id
from tests.support.counts import exhaustive
from tests.support.fixtures import Patch

pytestmark = pytest.mark.spark

NOW = datetime(2026, 11, 20, tzinfo=UTC)
ASKED = [
    Asked(((6, "eu"),)),
    Asked(((6, "us"),), method="weighted"),
    Asked(((1, "s1"),), RoutingType.SHARD),
    Asked(((1, "s2"),), RoutingType.MULTICAST),
    Asked(((1, "gone"),)),
]
MASK = 2**64 - 1


def routes(count: int, *, gone: bool = True) -> list[SnapshotRoute]:
    made = [
        SnapshotRoute((n * 7919).to_bytes(16), f"s{n % 3}", ((6, ("eu", "us")[n % 2]),))
        for n in range(count)
    ]
    return [*made, SnapshotRoute(b"\xff" * 16, "gone")] if gone else made


def written(path: Path, rows: list[SnapshotRoute]) -> Path:
    path.write_bytes(b"".join(write_snapshot(rows)))
    return path


def hop(seq: int, asked: Asked | None, **more: int) -> tuple[Any, ...]:
    row = {
        "kind": int(Kind.RESPONSE),
        "outcome": int(Outcome.DELIVER),
        "flags": 0,
        "shard_hash": 0,
        "weight": 10,
        **more,
    }
    tagset = 0 if asked is None else tagset_id(asked)
    return (
        *("b", 1, seq, NOW, seq, row["kind"], row["outcome"], 0, row["flags"], 1, 1, 1),
        *(tagset, row["shard_hash"], 1, 1, row["weight"]),
    )


@pytest.fixture(scope="module")
def hops() -> list[tuple[Any, ...]]:
    random = Random(5)
    made = [
        hop(
            seq,
            random.choice(ASKED),
            shard_hash=random.getrandbits(64) - 2**63,
            flags=random.choice([0, int(Flag.STICKY)]),
            kind=random.choice([int(Kind.STREAM), int(Kind.RESPONSE)]),
        )
        for seq in range(1, 400)
    ]
    # None of these is a request that was read: a worker's message, a copy, what nobody could read.
    made.append(hop(500, ASKED[0], kind=int(Kind.MESSAGE)))
    made.append(hop(501, ASKED[0], outcome=int(Outcome.FORWARD), flags=int(Flag.MULTICAST)))
    made.append(hop(502, None, outcome=int(Outcome.INVALID)))
    made.append(hop(503, ASKED[0], outcome=int(Outcome.INVALID)))
    # And these two's tag sets are not in the lake, and not in the log.
    made.append(hop(504, Asked((("lost", "set"),))))
    made.append(hop(505, None))
    return made


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], parts: int = 2) -> DataFrame:
    return spark.createDataFrame(rows, LAKE_TABLES["hops"]).repartition(parts)


def tagsets(spark: SparkSession) -> DataFrame:
    rows: list[Any] = [
        (tagset_id(a), {}, asked_text(a), a.routing.name.lower(), a.method, NOW) for a in ASKED
    ]
    return spark.createDataFrame(rows, LAKE_TABLES["dim_tagset"])


def in_a_loop(
    rows: list[tuple[Any, ...]], old: Resolver, new: Resolver
) -> tuple[Counter[tuple[int, str]], Counter[int], Counter[int]]:
    summary, was_at, would_be_at = Counter[tuple[int, str]](), Counter[int](), Counter[int]()
    known = {tagset_id(each): each for each in ASKED}
    for row in rows[:399]:
        seq, flags, tagset, key, weight = row[2], row[8], row[12], row[13], row[16]
        asked = known[tagset]
        question = read_question(asked_text(asked), asked.routing.name.lower(), asked.method)
        by_key = asked.routing is RoutingType.SHARD or flags & Flag.STICKY
        chosen = key & MASK if by_key else turn_of(1, seq)
        was, would = old.route(question, chosen), new.route(question, chosen)
        summary[tagset, "frames"] += weight
        summary[tagset, "moved"] += weight * bool(was and would and set(was) != set(would))
        summary[tagset, "lost"] += weight * bool(was and not would)
        summary[tagset, "gained"] += weight * bool(would and not was)
        was_at.update(dict.fromkeys(was, weight))
        would_be_at.update(dict.fromkeys(would, weight))
    return summary, was_at, would_be_at


@pytest.mark.parametrize(
    ("parts", "sent"), [(2, len(ASKED) - 1), *exhaustive((1, 65_536), (3, 65_536))]
)
def test_it_is_what_the_resolver_says(
    spark: SparkSession,
    hops: list[tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: Patch,
    parts: int,
    sent: int,
) -> None:
    # What tag sets ask for is sent at once, or goes along with each frame.
    monkeypatch.setattr(_replay, "MAX_SENT_SETS", sent)
    table = written(tmp_path / "old", routes(20))
    candidate = written(tmp_path / "new", routes(23, gone=False))
    old = Resolver(open_table(str(table)), MethodSet(None, None))
    new = Resolver(open_table(str(candidate)), MethodSet(None, "jump"))
    summary, was_at, would_be_at = in_a_loop(hops, old, new)
    with replay(
        spark, frame(spark, hops, parts), tagsets(spark), table, candidate, shard_new="jump"
    ) as result:
        rows = {row["tagset_id"]: row.asDict() for row in result.summary.collect()}
        routed = {row["route_id"]: row.asDict() for row in result.routes.collect()}
    assert set(rows) == {tagset_id(each) for each in ASKED}
    for tagset, row in rows.items():
        for name in ("frames", "moved", "lost", "gained"):
            assert row[name] == summary[tagset, name], (tagset, name)
        assert row["moved_ratio"] == pytest.approx(row["moved"] / row["frames"])
    assert {key: row["frames_old"] for key, row in routed.items() if row["frames_old"]} == was_at
    assert {key: row["frames_new"] for key, row in routed.items() if row["frames_new"]} == (
        would_be_at
    )
    assert (result.totals.frames, result.totals.unknown) == (3990, 20)
    assert result.totals.lost == summary[tagset_id(ASKED[4]), "lost"] > 0
    failed = check_gates(result.totals, max_moved=0.01, fail_if_lost=True, max_skew=0.0)
    gates = [each.gate for each in failed]
    # The tag set that the lake does not know is one of them.
    assert gates[:3] == ["max_unknown", "max_moved", "fail_if_lost"]
    assert (result.totals.stale, result.totals.nowhere, result.totals.failed) == (0, 0, 0)
    assert rows[tagset_id(ASKED[3])]["skew_new"] == 1.0
    assert rows[tagset_id(ASKED[4])]["skew_new"] == 0.0


def test_the_same_table(spark: SparkSession, hops: list[tuple[Any, ...]], tmp_path: Path) -> None:
    table = written(tmp_path / "old", routes(20))
    same = written(tmp_path / "same", routes(20))
    with replay(spark, frame(spark, hops), tagsets(spark), table, same) as result:
        totals = result.totals
    assert (totals.moved, totals.lost, totals.gained) == (0, 0, 0)
    assert totals.frames > 0
    assert totals.skew_old == totals.skew_new


def test_a_few_heavy_samples_give_no_skew(spark: SparkSession, tmp_path: Path) -> None:
    table = written(tmp_path / "old", [*routes(4, gone=False), SnapshotRoute(b"\xfe" * 16, "one")])
    few = [hop(seq, ASKED[0], weight=1_000) for seq in range(3)]
    many = [hop(seq, Asked(((1, "one"),)), weight=1) for seq in range(100)]
    asked: list[Any] = [
        (tagset_id(a), {}, asked_text(a), a.routing.name.lower(), a.method, NOW)
        for a in (ASKED[0], Asked(((1, "one"),)))
    ]
    said = spark.createDataFrame(asked, LAKE_TABLES["dim_tagset"])
    for rows, skew, judged in ((few, 0.0, 0), (many, 1.0, 1), ([*few, *many], 1.0, 1)):
        with replay(spark, frame(spark, rows), said, table, table) as result:
            totals = result.totals
        assert (totals.skew_old, totals.skew_new, totals.judged) == (skew, skew, judged)
        assert check_gates(totals, max_skew=1.0) == []


def test_of_no_hops_there_are_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = written(tmp_path / "old", routes(3))
    with replay(spark, frame(spark, []), tagsets(spark), table, table) as result:
        assert result.summary.count() == result.routes.count() == 0
        assert result.totals.frames == 0
        assert [each.gate for each in check_gates(result.totals)] == ["frames"]
        for name in ("replay_summary", "replay_routes"):
            made = result.summary if name == "replay_summary" else result.routes
            declared = spark.createDataFrame([], REPORT_TABLES[name]).schema
            assert [(f.name, f.dataType) for f in made.schema] == [
                (f.name, f.dataType) for f in declared
            ]


def test_another_brokers_table(
    spark: SparkSession, hops: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    other = written(tmp_path / "other", [SnapshotRoute(b"\1" * 16, "other", ((6, "ap"),))])
    table = written(tmp_path / "old", routes(20))
    rejected = hop(600, ASKED[0], outcome=int(Outcome.UNROUTABLE))
    rows = [*hops[:399], rejected]
    with replay(spark, frame(spark, rows), tagsets(spark), other, table) as result:
        totals = result.totals
    # What was not delivered does not say that the table is another.
    assert (totals.frames, totals.stale, totals.gained) == (4000, 3990, 4000)
    assert [each.gate for each in check_gates(totals)] == ["max_stale"]
    with replay(spark, frame(spark, rows), tagsets(spark), other, other) as result:
        totals = result.totals
    assert totals.nowhere == totals.frames == 4000
    assert [each.gate for each in check_gates(totals)] == ["frames", "max_stale"]


def test_no_function_of_python_is_pickled_and_frames_are_numbers_alone(
    spark: SparkSession, hops: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: Patch
) -> None:
    table = written(tmp_path / "old", routes(3))
    with replay(spark, frame(spark, hops[:9]), tagsets(spark), table, table) as result:
        plan = plan_of(result)
    assert "BatchEvalPython" not in plan
    assert "MapInArrow" in plan or "InMemoryTableScan" in plan
    assert "Join" not in plan
    # Of more than fit, the words go with the frames.
    monkeypatch.setattr(_replay, "MAX_SENT_BYTES", 1)
    with replay(spark, frame(spark, hops[:9]), tagsets(spark), table, table) as result:
        plan = plan_of(result)
    assert "BroadcastHashJoin" in plan


@pytest.mark.parametrize("before", [None, "1000000b"])
def test_a_session_has_its_own_limits_back(
    spark: SparkSession, hops: list[tuple[Any, ...]], tmp_path: Path, before: str | None
) -> None:
    session, limit = spark.newSession(), "spark.sql.execution.arrow.maxBytesPerBatch"
    if before is not None:
        session.conf.set(limit, before)
    had = session.conf.get(limit, None)
    table = written(tmp_path / "old", routes(3))
    with replay(session, frame(session, hops[:9]), tagsets(session), table, table) as result:
        assert result.totals.frames == 90
    assert session.conf.get(limit, None) == had


def plan_of(result: ReplayResult) -> str:
    frame: Any = result.summary
    return str(frame._jdf.queryExecution().toString())


def test_a_missing_table(spark: SparkSession, hops: list[tuple[Any, ...]], tmp_path: Path) -> None:
    table = written(tmp_path / "old", routes(3))
    with pytest.raises(Exception, match="--files") as info:
        replay(spark, frame(spark, hops[:5]), tagsets(spark), table, tmp_path / "gone")
    assert isinstance(known_error(info.value), PipelineError)
    (tmp_path / "bad").write_bytes(b"x" * 999)
    with pytest.raises(PipelineError, match="begins as no snapshot does"):
        replay(spark, frame(spark, hops[:5]), tagsets(spark), table, tmp_path / "bad")
