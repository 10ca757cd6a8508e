"""Frames of random traffic, made once for all tests of transforms."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import DataFrame, SparkSession

from onward.pipeline import LAKE_TABLES
from tests.support.counts import times
from tests.support.traffic import Traffic, make_traffic

SEEDS = range(times(6, 20))


@pytest.fixture(scope="session")
def traffic() -> Traffic:
    """The traffic of some seeds."""
    return make_traffic(SEEDS)


@pytest.fixture(scope="session")
def lake(spark: SparkSession, traffic: Traffic) -> Mapping[str, DataFrame]:
    """Its rows as tables of a lake."""
    rows = {
        "hops": traffic.hops,
        "flows": traffic.flows,
        "route_events": traffic.events,
        "dim_tagset": traffic.tagsets,
        "dim_node": traffic.nodes,
    }
    return {name: spark.createDataFrame(rows[name], LAKE_TABLES[name]) for name in rows}
