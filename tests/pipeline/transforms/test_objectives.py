"""Objectives: what is refused, limits of time, and burns over windows."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from onward.pipeline.transforms import MAX_OBJECTIVES, Objective, hot_keys, slo_burn
from onward.protocol.eventlog import Kind, Outcome, name_id
from tests.pipeline.transforms.rows import TAGSET, flow, frame, hop
from tests.support.traffic import START, time_of

SHOP = name_id("shop")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "empty name"),
        ({"name": "a", "service": ""}, "empty name"),
        ({"name": "a", "target": 1.0}, "less than 1"),
        ({"name": "a", "target": 0.0}, "more than 0"),
        ({"name": "a", "latency_us": 0}, "0 us has to be"),
        ({"name": "a", "latency_us": 2**32}, "us has to be"),
    ],
)
def test_an_objective_without_effect_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Objective(**wrong)  # type: ignore[arg-type]


@pytest.mark.spark
def test_objectives_are_limited_and_have_names_of_their_own(spark: SparkSession) -> None:
    flows, hops = frame(spark, "flows", []), frame(spark, "hops", [])
    many = [Objective(str(number)) for number in range(MAX_OBJECTIVES + 1)]
    for wrong, said in (([], "0 objectives"), (many, "there can be"), (many[:1] * 2, "one name")):
        with pytest.raises(ValueError, match=said):
            slo_burn(flows, hops, wrong)
    with pytest.raises(ValueError, match="top is 0"):
        hot_keys(hops, 0)


@pytest.mark.spark
def test_what_was_slow_is_not_good(spark: SparkSession) -> None:
    # 100 ended well in the first five minutes, a quarter of the sample above the limit; of the
    # second five minutes there is no sample.
    flows = frame(
        spark,
        "flows",
        [
            flow(Outcome.DELIVER, 0, 100, dest=SHOP),
            flow(Outcome.DELIVER, 300, 10, dest=SHOP),
            flow(Outcome.CANCELED, 300, 10, dest=SHOP),
            flow(Outcome.DELIVER, 0, 9, dest=name_id("other")),
        ],
    )
    hops = [
        hop(number, 0, SHOP, Outcome.DELIVER, kind=Kind.RESPONSE, tagset=TAGSET, latency=latency)
        for number, latency in enumerate((10, 15, 20, 21))
    ]
    objective = Objective("fast", "shop", latency_us=20, target=0.9)

    rows = (
        slo_burn(flows, frame(spark, "hops", hops), [objective]).orderBy("window_start").collect()
    )

    assert [tuple(row)[1:4] for row in rows] == [("fast", 75, 100), ("fast", 10, 10)]
    assert [row["burn_5m"] for row in rows] == [pytest.approx(2.5), 0]
    assert rows[1]["burn_1h"] == rows[1]["burn_6h"] == pytest.approx(25 / 110 / 0.1)


@pytest.mark.spark
def test_an_outage_counts_against_who_was_asked_for(spark: SparkSession) -> None:
    flows = frame(spark, "flows", [flow(Outcome.UNROUTABLE, 0, 4), flow(Outcome.DELIVER, 7200, 4)])
    tags = {"service": "shop", "zone": "a"}
    tagsets = frame(spark, "dim_tagset", [(TAGSET, tags, "", "unicast", "", time_of(START))])
    objectives = [Objective("shop", "shop"), Objective("all", target=0.5)]

    rows = slo_burn(flows, frame(spark, "hops", []), objectives, tagsets).collect()
    told = {(row["objective"], row["window_start"].minute, row["good"]): row for row in rows}

    out = told["shop", 0, 0]
    assert (out["total"], round(out["burn_5m"])) == (4, 1000)
    well = told["all", 0, 4]
    assert (well["burn_5m"], well["burn_1h"], well["burn_6h"]) == (0, 0, 1)
    # Without the tag sets nobody knows who was asked for.
    blind = slo_burn(flows, frame(spark, "hops", []), objectives[:1])
    assert blind.collect() == []
