"""The tag index by Spark is that of one process, byte for byte, however the routes are divided."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, ClassVar, TypeAlias
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from onward.pipeline import LAKE_TABLES, REPORT_TABLES, RouteUnreadable, known_error
from onward.pipeline.tagindex import (
    MANIFEST,
    ROUTE_ROWS,
    SNAPSHOT,
    _build,
    _routes,
    _write,
    build,
    number_routes,
    prepare,
    routes_of_events,
    routes_of_lines,
    routes_of_snapshot,
    verify,
    write_snapshot_from,
)
from onward.protocol.broker import (
    SnapshotRoute,
    TagList,
    format_id,
    format_key,
    format_route,
    read_snapshot,
    write_snapshot,
    written_tags,
)
from onward.protocol.eventlog import carried_tags_text, name_id, route_key
from tests.support.fixtures import Patch

pytestmark = pytest.mark.spark

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def rid(number: int) -> bytes:
    return Random(number).randbytes(16)


def routes(count: int) -> list[SnapshotRoute]:
    random = Random(3)
    # Values that a careless key would run together, or lose: NUL, empty, null, another's own id.
    odd = ["", None, "\0", "a\0b", format_id(rid(1)), "é", "\U0001f600", "\uffff"]
    return [
        SnapshotRoute(
            rid(n),
            f"s{n % 3}",
            (
                (6, ("eu", "us")[n % 2]),
                ("k", random.choice(odd)),
                ("k\0", random.choice(odd)),
                *(((2, format_id(rid(1))),) if n % 5 == 0 else ()),
                *((("k", "twice"),) if n % 4 == 0 else ()),
            ),
            rid(99),
            n,
            n % 3 + 0.5,
        )
        for n in range(count)
    ]


def frame(spark: SparkSession, rows: list[SnapshotRoute], parts: int) -> DataFrame:
    schema = ROUTE_ROWS.replace("map<string,string>", "array<struct<key:string,value:string>>")
    made = [
        (
            format_id(r.route_id),
            r.service,
            [(format_key(key), value) for key, value in r.tags],
            format_id(r.broker_id),
            r.timestamp,
            r.weight,
        )
        for r in rows
    ]
    return spark.createDataFrame(made, schema).repartition(parts)


def written(rows: list[SnapshotRoute]) -> bytes:
    return b"".join(write_snapshot(rows))


@pytest.mark.parametrize("parts", [1, 3])
def test_the_bytes_are_of_one_process(spark: SparkSession, tmp_path: Path, parts: int) -> None:
    rows = routes(60)
    context: Any = spark.sparkContext
    before = set(context._jsc.getPersistentRDDs())
    spark.conf.set("spark.sql.shuffle.partitions", str(parts))
    try:
        manifest = write_snapshot_from(prepare(frame(spark, rows, parts)), tmp_path / "out")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "1")
    data = (tmp_path / "out" / SNAPSHOT).read_bytes()
    assert data == written(rows)
    snapshot = read_snapshot(data)
    snapshot.check()
    said = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert said["routes"] == manifest.routes == 60
    assert said["bitmaps"] == manifest.bitmaps == snapshot.bitmaps
    assert said["postings"] == manifest.postings == snapshot.postings
    assert said["bytes"] == len(data)
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [SNAPSHOT, MANIFEST]
    assert stat.S_IMODE((tmp_path / "out" / SNAPSHOT).stat().st_mode) & 0o137 == 0
    # Nothing is left with Spark.
    assert set(context._jsc.getPersistentRDDs()) <= before


def test_a_bound_on_partial_bitmaps_changes_nothing(spark: SparkSession) -> None:
    numbered, kept = number_routes(prepare(frame(spark, routes(40), 3)))
    try:
        some, all_at_once = (
            sorted(
                (row["key"], row["value"] or "", row["value"] is None, bytes(row["bitmap"]))
                for row in build(numbered, max_partials=limit).collect()
            )
            for limit in (1, 100_000)
        )
        assert some == all_at_once
        made = build(numbered)
        declared = spark.createDataFrame([], REPORT_TABLES["tag_index"]).schema
        assert made.schema.simpleString() == declared.simpleString()
        plan: Any = made
        assert "BatchEvalPython" not in str(plan._jdf.queryExecution().toString())
    finally:
        kept.unpersist()


def test_routes_of_files_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rows = routes(20)
    lines = tmp_path / "routes.jsonl"
    line, *rest = map(format_route, rows)
    lines.write_text("\n".join(["# by hand", "", f"  {line}", " \t", "\t# more", *rest]))
    write_snapshot_from(routes_of_lines(spark, lines), tmp_path / "a")
    first = tmp_path / "a" / SNAPSHOT
    assert first.read_bytes() == written(rows)
    write_snapshot_from(routes_of_snapshot(spark, first, 20), tmp_path / "b")
    assert (tmp_path / "b" / SNAPSHOT).read_bytes() == written(rows)


def test_a_bad_line_is_named_by_file_and_number(spark: SparkSession, tmp_path: Path) -> None:
    good = format_route(routes(1)[0])
    folder = tmp_path / "some tables.jsonl"
    folder.mkdir()
    (folder / "a b.jsonl").write_text(f"# by hand\n\n{good}\n")
    bad = '{"route": "x", "service": "s"}'
    (folder / "c%d.jsonl").write_text(f"# by hand\r\n\r\n{bad}\r\n")
    with pytest.raises(Exception, match="RouteUnreadable") as raised:
        write_snapshot_from(routes_of_lines(spark, folder), tmp_path / "out")
    assert str(known_error(raised.value)) == (
        f"{folder}/c%d.jsonl, line 3: 'x': not a UUID, in {bad!r}. Mend it or leave it out (a line "
        "with # at its beginning is), and build again"
    )


def test_a_line_of_a_file_that_cannot_be_opened_here_has_no_number() -> None:
    lines, files = pa.array(["[]"]), pa.array(["s3a://bucket/routes.jsonl"])
    batch = pa.record_batch([lines, files], ["value", "file_path"])
    with pytest.raises(RouteUnreadable, match=r"^s3a://bucket/routes.jsonl: a route is an object,"):
        list(_routes._of_lines(batch))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"route": "x"}, "'x': not a UUID, in 'the row of route x'"),
        ({"route": None}, "'': not a UUID, in 'the row of route None'"),
        ({"service": ""}, "in 'the row of route 00000000-"),
        ({"service": None}, "in 'the row of route 00000000-"),
        ({"tags": [None]}, "a tag is null, in 'the row of route 00000000-"),
        ({"tags": [{"key": None, "value": "x"}]}, "the key of a tag is null, its value is 'x', in"),
    ],
)
def test_a_row_that_is_no_route_is_named(row: dict[str, Any], said: str) -> None:
    tag = pa.struct([("key", pa.string()), ("value", pa.string())])
    schema = pa.schema([("route", pa.string()), ("service", pa.string()), ("tags", pa.list_(tag))])
    right = {"route": format_id(bytes(16)), "service": "s", "tags": [{"key": "a", "value": None}]}
    batch = pa.RecordBatch.from_pylist([right, right | row], schema=schema)
    with pytest.raises(RouteUnreadable) as raised:
        list(_routes._of_rows("routes.parquet", batch))
    assert str(raised.value).startswith("routes.parquet: ")
    assert said in str(raised.value)


def test_a_row_may_leave_out_what_it_does_not_know(spark: SparkSession, tmp_path: Path) -> None:
    schema = "route string, service string, tags map<string,string>"
    made = spark.createDataFrame([(format_id(rid(1)), "s", {"region": "eu"})], schema)
    write_snapshot_from(prepare(made), tmp_path)
    assert (tmp_path / SNAPSHOT).read_bytes() == written([SnapshotRoute(rid(1), "s", ((6, "eu"),))])


def test_of_no_routes_there_is_a_snapshot_without_any(spark: SparkSession, tmp_path: Path) -> None:
    manifest = write_snapshot_from(prepare(spark.createDataFrame([], ROUTE_ROWS)), tmp_path)
    assert (manifest.routes, manifest.bitmaps) == (0, 0)
    assert (tmp_path / SNAPSHOT).read_bytes() == written([])


def test_what_is_there_twice_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    twice = [*routes(3), routes(1)[0]]
    with pytest.raises(Exception, match="twice"):
        write_snapshot_from(prepare(frame(spark, twice, 2)), tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- against a log ----------------------------------------------------------------------------
Event: TypeAlias = tuple[str, int, int, int, str, int, str]

EVENTS: Sequence[Event] = [
    # broker, epoch, seq, second, event, route, region
    ("b", 1, 1, 0, "up", 1, "eu"),
    ("b", 2, 1, 10, "up", 2, "eu"),
    ("b", 2, 2, 11, "up", 3, "eu"),
    ("b", 2, 3, 12, "retag", 3, "us"),
    ("b", 2, 4, 13, "up", 4, "eu"),
    ("b", 2, 5, 14, "down", 4, "eu"),
    ("b", 2, 6, 15, "drain", 2, "eu"),
    ("b", 2, 7, 16, "reject", 0, "eu"),
    ("c", 1, 1, 5, "up", 5, "eu"),
    ("b", 2, 8, 50, "down", 2, "eu"),
]


class Log:
    """A lake that has nothing but who came and went."""

    events: ClassVar[Sequence[Event]] = EVENTS
    runs: ClassVar[Sequence[tuple[str, int, datetime]]] = ()

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        ids = {n: rid(n) for n in range(1, 6)}
        rows: list[Any]
        if name == "route_events":
            rows = [
                (
                    *(broker, epoch, seq, NOW + timedelta(seconds=at), event),
                    *(route_key(ids[n]) if n else 0, name_id("s")),
                    {"region": region, "service": "s", "route": format_id(ids[n]) if n else ""},
                    "",
                )
                for broker, epoch, seq, at, event, n, region in self.events
            ]
        elif name == "segments":
            rows = [
                (*(broker, epoch, 1, 1, "00", "", 1, 1.0), started, None, 0, 0, 0, 0, None)
                for broker, epoch, started in self.runs
            ]
        elif name == "dim_node":
            rows = [(name_id("s"), "s", NOW)]
        else:
            rows = [(route_key(each), format_id(each), NOW) for each in ids.values()]
        return spark.createDataFrame(rows, LAKE_TABLES[name])


def test_a_log_says_who_was_there(spark: SparkSession) -> None:
    log = Log()
    tables = (
        log.table(spark, "route_events"),
        log.table(spark, "dim_node"),
        log.table(spark, "dim_route"),
    )

    def at(second: int | None) -> dict[str, str]:
        moment = None if second is None else NOW + timedelta(seconds=second)
        rows = routes_of_events(*tables, moment).collect()
        assert all(row["service"] == "s" for row in rows)
        return {row["route"]: dict(row["tags"])["region"] for row in rows}

    one, two, three, five = (format_id(rid(n)) for n in (1, 2, 3, 5))
    assert at(3) == {one: "eu"}
    # A broker that starts anew has nobody.
    assert at(20) == {two: "eu", three: "us", five: "eu"}
    assert at(12) == {two: "eu", three: "eu", five: "eu"}
    assert at(None) == {three: "us", five: "eu"}


class Set(Log):
    """A log whose clock was set back by an hour, and destinations that two brokers had."""

    events = (
        ("b", 1, 1, 3600, "up", 1, "eu"),
        ("b", 1, 2, 3601, "up", 2, "eu"),
        ("b", 1, 3, 1, "down", 1, "eu"),
        ("b", 1, 4, 2, "retag", 2, "us"),
        # It went from one broker to another; the first was long in noticing.
        ("b", 1, 5, 3, "up", 3, "eu"),
        ("c", 1, 1, 5, "up", 3, "us"),
        ("b", 1, 6, 9, "down", 3, "eu"),
        # Both have it: the one that it came to last says what it carries.
        ("b", 1, 7, 20, "up", 4, "us"),
        ("c", 1, 2, 10, "up", 4, "eu"),
    )


def test_presence_follows_the_order_of_the_log_and_not_its_clock(spark: SparkSession) -> None:
    log = Set()
    events, nodes, routes = (
        log.table(spark, name) for name in ("route_events", "dim_node", "dim_route")
    )
    rows = routes_of_events(events, nodes, routes).collect()
    assert {row["route"]: dict(row["tags"])["region"] for row in rows} == {
        format_id(rid(2)): "us",
        format_id(rid(3)): "us",
        format_id(rid(4)): "us",
    }


class Restarted(Log):
    """A log that goes on in another run, in which nobody has come."""

    runs = (("b", 3, NOW + timedelta(seconds=40)),)


def test_a_broker_that_starts_anew_has_nobody_even_if_nobody_comes(spark: SparkSession) -> None:
    log = Restarted()
    events, nodes, routes, segments = (
        log.table(spark, name) for name in ("route_events", "dim_node", "dim_route", "segments")
    )

    def at(moment: datetime | None) -> set[str]:
        rows = routes_of_events(events, nodes, routes, moment, segments=segments).collect()
        return {row["route"] for row in rows}

    assert at(None) == {format_id(rid(5))}
    before = at(NOW + timedelta(seconds=40))
    assert before == {format_id(rid(n)) for n in (2, 3, 5)}


def test_a_destination_not_listed_by_the_lake_is_known_by_its_tags(spark: SparkSession) -> None:
    log = Log()
    nobody = spark.createDataFrame([], LAKE_TABLES["dim_route"])
    events, nodes = log.table(spark, "route_events"), log.table(spark, "dim_node")
    rows = routes_of_events(events, nodes, nobody).collect()
    assert {row["route"] for row in rows} == {format_id(rid(3)), format_id(rid(5))}


def test_a_snapshot_like_the_log_has_no_differences(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "saved"
    saved = [
        SnapshotRoute(rid(3), "s", ((6, "us"),), rid(7), 5),
        SnapshotRoute(rid(5), "s", ((6, "eu"),)),
        # It was expected when the table was saved, and never came.
        SnapshotRoute(rid(9), "s", ((6, "eu"),), expected=True),
    ]
    file.write_bytes(written(saved))
    drift = verify(spark, file, Log())
    assert (drift.routes, drift.differences, drift.shown) == (2, 0, ())


class Tagged(Log):
    """A log of some destinations that all have these tags."""

    def __init__(self, tags: TagList, count: int) -> None:
        self.tags = tags
        self.count = count

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        if name != "route_events":
            return super().table(spark, name)
        rows = []
        for number in range(self.count):
            settled = SnapshotRoute(rid(number), "s", self.tags).settled()
            said = carried_tags_text(settled.tags)
            key = route_key(rid(number))
            rows.append(("b", 1, number + 1, NOW, "up", key, name_id("s"), said, ""))
        return spark.createDataFrame(rows, LAKE_TABLES[name])


ODD: TagList = (
    ("zone", "b"),
    ("zone", "a"),
    ("zone", None),
    ("colour", None),
    ("size", ""),
    ("a b", "="),
    ("weight", "2.5"),
)


def test_all_values_of_a_key_and_weights_compare(spark: SparkSession, tmp_path: Path) -> None:
    saved: list[tuple[TagList, float]] = [
        (ODD, 2.5),
        # All that follow differ.
        (ODD[1:], 2.5),
        ((*ODD, ("zone", "c")), 2.5),
        (tuple(each for each in ODD if each != ("zone", None)), 2.5),
        ((*(each for each in ODD if each[0] != "colour"), ("colour", "")), 2.5),
        ((*(each for each in ODD if each[0] != "size"), ("size", None)), 2.5),
        (ODD, 1.0),
    ]
    rows = [SnapshotRoute(rid(n), "s", tags, weight=w) for n, (tags, w) in enumerate(saved)]
    file = tmp_path / "saved"
    file.write_bytes(written(rows))
    drift = verify(spark, file, Tagged(ODD, len(saved)))
    assert drift.other_tags == drift.differences == len(saved) - 1, drift.shown
    assert not any(str(UUID(bytes=rid(0))) in each for each in drift.shown)


def test_two_streams_of_bitmaps_are_compared_in_one_go() -> None:
    # Code points, as UTF-8 compares: not what UTF-16 does.
    tags: list[tuple[str, str | None]] = [("a", None), ("a", ""), ("a", "b"), ("b", "\uffff")]
    tags.append(("b", "\U0001f600"))
    whole = [(*tag, b"x") for tag in tags]
    assert list(_write._differences(iter(whole), iter(whole))) == []
    random = Random(7)
    for _ in range(50):
        ours = [each for each in whole if random.random() < 0.7]
        theirs = [
            (key, value, random.choice([b"x", b"y"]))
            for key, value, _ in whole
            if random.random() < 0.7
        ]
        told = sorted(text for text in _write._differences(iter(ours), iter(theirs)))
        left = {each[:2]: each[2] for each in ours}
        right = {each[:2]: each[2] for each in theirs}
        expected = [
            f"bitmap of {key}={value!r} "
            + (
                "is not there"
                if (key, value) not in left
                else "is of no route"
                if (key, value) not in right
                else "is not of the routes"
            )
            for key, value in tags
            if left.get((key, value)) != right.get((key, value))
        ]
        assert told == sorted(expected)


def test_the_names_of_a_drift_are_few(
    spark: SparkSession, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(_write, "MAX_SHOWN", 3)
    file = tmp_path / "saved"
    rows = [SnapshotRoute(rid(n), "s", (("n", str(n)),)) for n in range(20, 30)]
    monkeypatch.setattr(
        "onward.protocol.broker._snapshot_writer.written_tags", lambda route: route.tags[:1]
    )
    file.write_bytes(written(rows))
    monkeypatch.undo()
    monkeypatch.setattr(_write, "MAX_SHOWN", 3)
    drift = verify(spark, file, Log())
    assert drift.bitmaps == 10
    assert len(drift.shown) == 3


def test_partial_bitmaps_are_handed_on_as_they_become_many() -> None:
    rows = 40
    batch = pa.record_batch(
        [
            pa.array(range(rows), pa.int64()),
            pa.array([["k", "all"]] * rows, pa.list_(pa.string())),
            pa.array([[str(n), "x"] for n in range(rows)], pa.list_(pa.string())),
        ],
        names=["number", "keys", "values"],
    )
    handed = [each.num_rows for each in _build._partials(7, iter([batch, batch]))]
    assert max(handed) == 7
    assert sum(handed) >= 2 * rows


def test_each_difference_is_named(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "saved"
    saved = [SnapshotRoute(rid(3), "s", ((6, "eu"),)), SnapshotRoute(rid(8), "s", ((6, "eu"),))]
    file.write_bytes(written(saved))
    drift = verify(spark, file, Log())
    assert (drift.missing, drift.unexpected, drift.other_tags, drift.bitmaps) == (1, 1, 1, 0)
    assert drift.differences == 3
    told = "\n".join(drift.shown)
    assert f"missing: {format_id(rid(5))}" in told
    assert f"unexpected: {format_id(rid(8))}" in told
    assert f"other tags: {format_id(rid(3))}" in told
    earlier = verify(spark, file, Log(), NOW + timedelta(seconds=12))
    assert (earlier.missing, earlier.unexpected, earlier.other_tags) == (2, 1, 0)


def test_bitmaps_of_other_routes(spark: SparkSession, tmp_path: Path, monkeypatch: Patch) -> None:
    file = tmp_path / "saved"
    real = written_tags

    def forgetful(route: SnapshotRoute) -> TagList:
        """Forget one tag of one route."""
        return real(route)[:-1] if route.route_id == rid(3) else real(route)

    saved = [SnapshotRoute(rid(n), "s", ((6, "us"),)) for n in (3, 5)]
    monkeypatch.setattr("onward.protocol.broker._snapshot_writer.written_tags", forgetful)
    file.write_bytes(written(saved))
    monkeypatch.undo()
    drift = verify(spark, file, Log())
    assert drift.bitmaps == 1
    assert any("is not of the routes" in each for each in drift.shown)
