"""What the reports say of messages that relays of identities pass on."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from onward.pipeline.transforms import Objective, audit_totals, relay_load, slo_burn
from onward.pipeline.transforms._audit import audit
from onward.pipeline.transforms._traffic import traffic_matrix
from onward.protocol.eventlog import Kind, Outcome
from tests.pipeline.transforms.rows import flow, frame
from tests.support.traffic import Row

pytestmark = pytest.mark.spark

ROME, OSLO, DENIED = 1, 2, 3


def flows(spark: SparkSession) -> DataFrame:
    def row(outcome: Outcome, at: float, frames: int, origin: int, dest: int) -> Row:
        return flow(
            outcome, at, frames, kind=Kind.RELAY, origin=origin, dest=dest, tagset=0, log="hub"
        )

    rows = [
        row(Outcome.FORWARD, 0, 5, ROME, OSLO),
        row(Outcome.FORWARD, 10, 2, ROME, OSLO),
        row(Outcome.FORWARD, 3600, 1, ROME, OSLO),
        row(Outcome.FORWARD, 0, 4, OSLO, ROME),
        row(Outcome.REJECTED, 0, 3, 0, DENIED),
    ]
    return frame(spark, "flows", rows)


def test_load_and_refusals_are_counted_by_relay_and_its_neighbours(spark: SparkSession) -> None:
    made = relay_load(flows(spark)).orderBy("hour", "origin_node", "dest_node").collect()
    assert [tuple(row)[1:] for row in made] == [
        ("hub", 0, DENIED, 0, 0, 3),
        ("hub", ROME, OSLO, 7, 0, 0),
        ("hub", OSLO, ROME, 4, 0, 0),
        ("hub", ROME, OSLO, 1, 0, 0),
    ]
    assert len({row.hour for row in made}) == 2


def test_they_are_in_no_other_report(spark: SparkSession) -> None:
    given = flows(spark)
    assert traffic_matrix(given).collect() == []
    assert audit_totals(audit(given)).collect() == []
    hops, tagsets = frame(spark, "hops", []), frame(spark, "dim_tagset", [])
    assert slo_burn(given, hops, [Objective("all", target=0.9)], tagsets).collect() == []
