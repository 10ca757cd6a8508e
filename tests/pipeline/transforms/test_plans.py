"""How the two heaviest jobs run: nothing in Python, as few exchanges as can be, and compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from onward.pipeline import LAKE_TABLES
from onward.pipeline.transforms import hot_keys, latency_histogram, path_anomalies, paths
from tests.support.traffic import Traffic

pytestmark = pytest.mark.spark

HEAVIEST: dict[str, tuple[Callable[[DataFrame], DataFrame], list[str]]] = {
    "hot keys": (
        hot_keys,
        [
            # What a partition has counted, then each tag set and hour in one place.
            "hashpartitioning(_groupingexpression, tagset_id, shard_hash",
            "hashpartitioning(hour, tagset_id",
        ],
    ),
    "paths": (
        paths,
        # All of a trace in one place, once; then what a partition has counted of each path.
        [
            "hashpartitioning(trace_id",
            "hashpartitioning(path, bucket",
            "hashpartitioning(path",
        ],
    ),
    "path anomalies": (path_anomalies, ["hashpartitioning(trace_id"]),
    "latency": (
        latency_histogram,
        ["hashpartitioning(minute, dest_node, tagset_id, bucket"],
    ),
}


def plan_of(frame: DataFrame) -> str:
    """Return the physical plan, without the numbers of expressions."""
    behind = cast("Any", frame)._jdf
    explained: str = behind.queryExecution().executedPlan().toString()
    return re.sub(r"#\d+L?", "", explained)


@pytest.mark.parametrize("job", HEAVIEST)
def test_a_plan_has_no_python_in_it_and_the_exchanges_it_needs(
    job: str, spark: SparkSession
) -> None:
    # With one partition there would be nothing to exchange.
    several = spark.newSession()
    several.conf.set("spark.sql.shuffle.partitions", "4")
    transform, exchanges = HEAVIEST[job]
    plan = plan_of(transform(several.createDataFrame([], LAKE_TABLES["hops"])))

    assert not re.findall(r"\w*(?:EvalPython|InPandas|InArrow|PythonUDF)\w*", plan)
    assert "Join" not in plan
    # The plan is read from its end.
    found = re.findall(r"Exchange (\w+\([^)]*)", plan)
    assert len(found) == len(exchanges), plan
    for said, expected in zip(reversed(found), exchanges, strict=True):
        assert said.startswith(expected), plan


@pytest.mark.parametrize("job", ["hot keys", "paths"])
def test_compiled_it_says_the_same(
    job: str, spark: SparkSession, lake: Mapping[str, DataFrame], traffic: Traffic
) -> None:
    # The way it runs outside of tests.
    compiled = spark.newSession()
    compiled.conf.set("spark.sql.codegen.wholeStage", "true")
    compiled.conf.set("spark.sql.adaptive.enabled", "true")
    transform, _ = HEAVIEST[job]
    hops = compiled.createDataFrame(traffic.hops, LAKE_TABLES["hops"])

    made = transform(hops)

    rows = made.collect()
    assert rows
    assertDataFrameEqual(spark.createDataFrame(rows, made.schema), transform(lake["hops"]))
