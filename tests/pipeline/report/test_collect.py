"""What the page takes from larger tables: the top of each, and figures of all of it."""

from __future__ import annotations

from datetime import datetime
from typing import cast

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from onward.pipeline.report import Names, collect_audit
from onward.pipeline.report._collect import _totals
from onward.pipeline.report._collect_relays import MAX_RELAY_ROWS, MAX_RELAYS, load_of
from onward.pipeline.report._collect_routes import MAX_BARS, shards_of
from onward.protocol.eventlog import Kind, Outcome

HOUR = datetime(2026, 11, 20, 12)
TOTALS = (
    "src string, dst string, sent bigint, received bigint, delivered bigint, dropped bigint, "
    "unroutable bigint, missing bigint, duplicated bigint"
)


class Known:
    """Names that are as their ids, of tag sets that are all asked for by shard."""

    def __init__(self, ids: DataFrame) -> None:
        self.ids = ids

    def of_routing(self, _routing: str) -> DataFrame:
        return self.ids

    def tagsets(self, ids: set[int]) -> dict[int, str]:
        return {each: f"tag set {each}" for each in ids}

    routes = tagsets

    def nodes(self, ids: set[int], *, none: str = "") -> dict[int, str]:
        return {each: f"node {each}" if each else none for each in ids}


@pytest.mark.spark
def test_an_even_part_counts_all_routes_of_a_tag_set_also_hidden_ones(spark: SparkSession) -> None:
    many = MAX_BARS + 4
    load = spark.createDataFrame(
        [(HOUR, 1, route, 100 - route) for route in range(1, many + 1)] + [(HOUR, 2, 99, 1)],
        "hour timestamp, tagset_id bigint, route_id bigint, frames bigint",
    )
    keys = spark.createDataFrame(
        [(HOUR, 1, 7, 30, 0.5), (HOUR.replace(hour=13), 1, 7, 10, 0.9)],
        "hour timestamp, tagset_id bigint, shard_hash bigint, frames bigint, share double",
    )
    ids = spark.createDataFrame([(1,), (2,)], "tagset_id bigint")
    shards = shards_of(load, keys, cast(Names, Known(ids)))
    assert len(shards.shards) == MAX_BARS
    assert {row.even for row in shards.shards} == {1 / many}
    assert shards.more == 5
    assert [(key.frames, key.share) for key in shards.keys] == [(40, 0.9)]


@pytest.mark.spark
def test_requests_that_have_no_tags_in_the_log_are_counted_apart(spark: SparkSession) -> None:
    rows = [
        (int(kind), int(outcome), tagset, frames, 10)
        for kind, outcome, tagset, frames in (
            (Kind.RESPONSE, Outcome.RECEIVED, 7, 100),
            (Kind.RESPONSE, Outcome.RECEIVED, 0, 3),
            (Kind.STREAM, Outcome.RECEIVED, 0, 2),
            (Kind.STREAM, Outcome.DELIVER, 0, 5),
            # Between workers: nobody asks by tags.
            (Kind.MESSAGE, Outcome.RECEIVED, 0, 1_000),
        )
    ]
    schema = "kind tinyint, outcome tinyint, tagset_id bigint, frames bigint, bytes bigint"
    totals = _totals(spark.createDataFrame(rows, schema))
    assert (totals.requests, totals.delivered, totals.untagged) == (105, 5, 5)


@pytest.mark.spark
def test_what_is_missing_is_known_by_whether_its_run_goes_on(spark: SparkSession) -> None:
    totals = spark.createDataFrame(
        [
            ("eu-1", "", 10, 10, 7, 0, 0, 3, 0),
            ("eu-2", "", 10, 10, 8, 0, 0, 2, 0),
            ("eu-3", "", 10, 10, 10, 0, 0, 0, 0),
        ],
        TOTALS,
    )
    going = spark.createDataFrame([("eu-1",), ("eu-1",), ("eu-3",)], "broker string")
    audit = collect_audit(totals, going=going)
    assert (audit.missing, audit.open) == (5, 3)
    assert [(row.src, row.going) for row in audit.rows] == [
        ("eu-1", True),
        ("eu-2", False),
        ("eu-3", True),
    ]
    assert not any(row.going for row in collect_audit(totals).rows)


@pytest.mark.spark
def test_a_second_end_is_known_by_whether_its_run_was_there(spark: SparkSession) -> None:
    totals = spark.createDataFrame(
        [
            ("eu-1", "", 10, 10, 12, 0, 0, 0, 2),
            ("eu-1", "tcp 1>2", 10, 11, 0, 0, 0, 0, 1),
            ("eu-2", "", 10, 10, 15, 0, 0, 0, 5),
        ],
        TOTALS,
    )
    earlier = spark.createDataFrame([("eu-1",), ("eu-1",), ("eu-3",)], "broker string")
    audit = collect_audit(totals, earlier=earlier)
    assert (audit.duplicated, audit.before, audit.open) == (8, 3, 0)
    assert [(row.src, row.duplicated, row.earlier) for row in audit.rows] == [
        ("eu-2", 5, False),
        ("eu-1", 2, True),
        ("eu-1", 1, True),
    ]


LOAD = (
    "hour timestamp, relay string, origin_node bigint, dest_node bigint, relayed bigint, "
    "bytes bigint, refused bigint"
)


@pytest.mark.spark
def test_relays_have_their_day_and_their_busiest_hour(spark: SparkSession) -> None:
    later = HOUR.replace(hour=13)
    report = spark.createDataFrame(
        [
            (HOUR, "hub", 1, 2, 5, 500, 0),
            (HOUR, "hub", 2, 1, 4, 400, 0),
            (later, "hub", 1, 2, 1, 100, 0),
            (later, "hub", 0, 3, 0, 0, 7),
            (HOUR, "anonymous", 0, 4, 20, 2000, 0),
        ],
        LOAD,
    )
    load = load_of(report, cast(Names, Known(report)))
    assert [(row.relay, row.relayed, row.refused, row.busiest) for row in load.relays] == [
        ("anonymous", 20, 0, 20),
        ("hub", 10, 7, 9),
    ]
    assert [(row.relay, row.origin, row.to, row.relayed, row.refused) for row in load.rows] == [
        ("anonymous", "", "node 4", 20, 0),
        ("hub", "node 1", "node 2", 6, 0),
        ("hub", "node 2", "node 1", 4, 0),
        ("hub", "", "node 3", 0, 7),
    ]
    assert (load.more_relays, load.more) == (0, 0)


@pytest.mark.spark
def test_many_relays_are_the_busiest_and_a_number(spark: SparkSession) -> None:
    many = [
        (HOUR, f"relay {relay:02}", 1, node, relay, 1, 0)
        for relay in range(MAX_RELAYS + 3)
        for node in (2, 3)
    ]
    load = load_of(spark.createDataFrame(many, LOAD), cast(Names, Known(spark.range(1))))
    assert len(load.relays) == MAX_RELAYS
    assert load.relays[0].relay == f"relay {MAX_RELAYS + 2:02}"
    assert load.more_relays == 3
    assert (len(load.rows), load.more) == (MAX_RELAY_ROWS, 6)
