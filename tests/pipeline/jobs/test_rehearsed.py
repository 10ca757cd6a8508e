"""What a rehearsal was of is kept where its reports are, and found again for the page."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from onward.pipeline import REPORT_TABLES
from onward.pipeline.ingest import Lake
from onward.pipeline.jobs import Day, ReplayMethods, replay_tables
from onward.pipeline.jobs._rehearsed import keep_rehearsal, rehearsal_of
from onward.pipeline.jobs._replay import _about
from tests.pipeline.jobs.lakes import DAY, MemoryLake

pytestmark = pytest.mark.spark


def test_what_was_rehearsed_is_kept_by_day_and_place(tmp_path: Path) -> None:
    lake = MemoryLake()
    lake.path = tmp_path / "lake"
    places: tuple[tuple[Path | None, Path], ...] = (
        (None, tmp_path / "lake" / "reports"),
        (tmp_path / "out", tmp_path / "out"),
    )
    for number, (out, root) in enumerate(places):
        (root / "replay_summary" / f"day={DAY}").mkdir(parents=True)
        assert rehearsal_of(cast("Lake", lake), DAY, out) == ""
        keep_rehearsal(cast("Lake", lake), DAY, out, f"rehearsal {number}")
    for number, (out, _) in enumerate(places):
        assert rehearsal_of(cast("Lake", lake), DAY, out) == f"rehearsal {number}"


def test_the_page_takes_the_rehearsal_of_out_and_else_the_lakes(spark: SparkSession) -> None:
    class Lakes(MemoryLake):
        made = 0

        def report(
            self, spark: SparkSession, name: str, day: date, out: str | Path | None = None
        ) -> DataFrame:
            del day
            number = 1 if out is None else self.made
            row: tuple[float, ...] = (number, 2, 3)
            if name == "replay_summary":
                row = (1, 2, 1, 0, 0, 0.5, 1.0, 1.0)
            return spark.createDataFrame([row] if number else [], REPORT_TABLES[name])

    lake = Lakes()
    for made, route in ((0, 1), (9, 9)):
        lake.made = made
        tables, _ = replay_tables(Day(spark, cast("Lake", lake), DAY), "elsewhere")
        assert tables["replay_routes"].collect()[0].route_id == route


def test_it_says_candidate_methods_and_logs() -> None:
    said = _about("a/now.onwx", "b/next.jsonl", ReplayMethods(shard_new="jump"), ["us", "eu"])
    assert said == (
        "Rehearsed: next.jsonl instead of now.onwx; shard requests by jump instead of default; "
        "requests of eu, us."
    )
    same = _about("now", "now", ReplayMethods(method_old="race", method_new="race"), [])
    assert same == "Rehearsed: the table as it is; unicast requests by race."
