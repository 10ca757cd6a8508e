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
            # How often keys were met, for each tag set and hour: few rows.
            "hashpartitioning(hour, tagset_id, frames, slice",
            "hashpartitioning(hour, tagset_id",
            # What a partition has counted; it is exchanged once and read twice. Then for the join.
            "hashpartitioning(_groupingexpression, tagset_id, shard_hash",
            "hashpartitioning(hour, tagset_id",
        ],
    ),
    "paths": (
        paths,
        # All of a trace in one place, once; then what a partition has counted of each path.
        ["hashpartitioning(trace_id", "hashpartitioning(path, bucket", "hashpartitioning(path"],
    ),
    "path anomalies": (path_anomalies, ["hashpartitioning(trace_id"]),
    "latency": (latency_histogram, ["hashpartitioning(slot, dest_node, tagset_id"]),
}


def plan_of(frame: DataFrame) -> str:
    """Return the physical plan, without the numbers of expressions."""
    behind = cast("Any", frame)._jdf
    explained: str = behind.queryExecution().executedPlan().toString()
    return re.sub(r"#\d+L?", "", explained)


@pytest.mark.parametrize("job", HEAVIEST)
def test_a_plan_has_no_python_and_the_exchanges_it_needs(job: str, spark: SparkSession) -> None:
    # With one partition there would be nothing to exchange.
    several = spark.newSession()
    several.conf.set("spark.sql.shuffle.partitions", "4")
    transform, exchanges = HEAVIEST[job]
    joins = int(job == "hot keys")
    plan = plan_of(transform(several.createDataFrame([], LAKE_TABLES["hops"])))

    assert not re.findall(r"\w*(?:EvalPython|InPandas|InArrow|PythonUDF)\w*", plan)
    assert len(re.findall("Join", plan)) == joins
    assert len(re.findall("ReusedExchange", plan)) == joins
    # The plan is read from its end.
    found = re.findall(r"- Exchange (\w+\([^)]*)", plan)
    assert len(found) == len(exchanges), plan
    for said, expected in zip(reversed(found), exchanges, strict=True):
        assert said.startswith(expected), plan


def test_only_candidates_for_hot_keys_are_sorted(spark: SparkSession, traffic: Traffic) -> None:
    plan = plan_of(hot_keys(spark.createDataFrame([], LAKE_TABLES["hops"])))
    above, _, _ = plan.partition("SortMergeJoin")
    assert re.search(r"WindowGroupLimit .*, 20, Final\n\W+Sort ", above), plan

    # Few tag sets are seen to be few as it runs, and keys are not sorted for the join either. Of
    # many it is for Spark to say what fits into a process.
    adaptive = spark.newSession()
    adaptive.conf.set("spark.sql.adaptive.enabled", "true")
    frame = hot_keys(adaptive.createDataFrame(traffic.hops, LAKE_TABLES["hops"]))
    frame.collect()
    final, _, _ = plan_of(frame).partition("== Initial Plan ==")
    assert re.findall(r"\w+Join", final) == ["BroadcastHashJoin"], final


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
