"""The example of the data source's reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from onward.protocol.eventlog import Outcome
from tests.support.eventlogs import write_log


@pytest.mark.spark
def test_flows_are_added_up(spark: SparkSession, tmp_path: Path) -> None:
    truth = write_log(tmp_path, flows=50)

    def dropped(path: Path) -> DataFrame:
        # --8<-- [start:batch]
        reader = spark.read.format("onward").option("table", "flows")
        flows = reader.option("columns", "broker,outcome,frames").load(str(path))
        return flows.filter(flows.outcome == int(Outcome.DROP)).groupBy("broker").sum("frames")
        # --8<-- [end:batch]

    frames = sum(flow.frames for flow in truth.flows if flow.outcome == Outcome.DROP)
    assert [tuple(row) for row in dropped(tmp_path).collect()] == [("b1", frames)]
