"""What the reports say of messages to names."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from onward.pipeline import FROM_DISPATCHERS, FROM_HOLD
from onward.pipeline.transforms import Objective, audit_totals, name_outcomes, slo_burn
from onward.pipeline.transforms._audit import audit
from onward.pipeline.transforms._traffic import traffic_matrix
from onward.protocol.eventlog import Kind, Outcome
from tests.pipeline.transforms.rows import flow, frame

pytestmark = pytest.mark.spark

ORDERS, LATE, SHOP = 1, 2, 3


def flows(spark: SparkSession) -> DataFrame:
    def entered(outcome: Outcome, frames: int, dest: int = 0, origin: int = ORDERS) -> tuple:  # type: ignore[type-arg]
        return flow(
            outcome, frames=frames, kind=Kind.NAME, origin=origin, dest=dest, tagset=0, log="n1"
        )

    rows = [
        entered(Outcome.RECEIVED, 21),
        entered(Outcome.DELIVER, 6),
        entered(Outcome.SETTLED, 5),
        entered(Outcome.FAILED, 4),
        entered(Outcome.RELEASED, 3),
        entered(Outcome.MODIFIED, 2),
        entered(Outcome.DROP, 1),
        entered(Outcome.HOLD, 7),
        entered(Outcome.REDIRECT, 2, LATE),
        flow(Outcome.RECEIVED, frames=6, kind=Kind.NAME_LEG, origin=ORDERS, tagset=0, log="n2"),
        flow(Outcome.DELIVER, frames=5, kind=Kind.NAME_LEG, origin=ORDERS, tagset=0, log="n2"),
        flow(Outcome.CANCELED, frames=1, kind=Kind.NAME_LEG, origin=ORDERS, tagset=0, log="n2"),
        *(
            flow(outcome, frames=3, kind=Kind.NAME_AGAIN, origin=ORDERS, tagset=0, log="n1")
            for outcome in (Outcome.RECEIVED, Outcome.HOLD, Outcome.DELIVER)
        ),
        flow(
            *(Outcome.DELIVER, 3600, 6),
            kind=Kind.NAME_COPY,
            origin=ORDERS,
            dest=SHOP,
            tagset=0,
            log="n2",
        ),
    ]
    return frame(spark, "flows", rows)


def test_outcomes_are_counted_by_name_and_by_consumer(spark: SparkSession) -> None:
    made = name_outcomes(flows(spark)).orderBy("hour", "dest_node").collect()
    assert [tuple(row)[1:] for row in made] == [
        (ORDERS, 0, 21, 6, 5, 4, 3, 2, 1, 0, 7, 0),
        (ORDERS, LATE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2),
        (ORDERS, SHOP, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0),
    ]
    assert len({row.hour for row in made}) == 2


def test_the_audit_balances_what_entered_and_legs_apart(spark: SparkSession) -> None:
    totals = audit_totals(audit(flows(spark))).orderBy("src", "dst").collect()
    assert [tuple(row) for row in totals] == [
        ("n1", "", 21, 0, 11, 10, 0, 0, 0),
        ("n1", FROM_HOLD, 3, 0, 3, 0, 0, 0, 0),
        ("n2", FROM_DISPATCHERS, 6, 0, 5, 1, 0, 0, 0),
    ]


def test_names_are_no_requests_of_brokers(spark: SparkSession) -> None:
    assert traffic_matrix(flows(spark)).collect() == []
    hops = frame(spark, "hops", [])
    tagsets = frame(spark, "dim_tagset", [])
    assert slo_burn(flows(spark), hops, [Objective("all", target=0.9)], tagsets).collect() == []
