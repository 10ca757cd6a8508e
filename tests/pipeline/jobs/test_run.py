"""The reports of a day: made, written, counted, shown, and put together to a page."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pytest

from onward.pipeline import REPORT_TABLES
from onward.pipeline.report import render
from tests.pipeline.jobs.lakes import DAY, NOON, MemoryLake, busy_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from onward.pipeline.ingest import Lake

pytestmark = pytest.mark.spark


def as_lake(lake: MemoryLake) -> Lake:
    return cast("Lake", lake)


class Told:
    """Notes stages."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[tuple[str, str]] = []

    def begin(self, name: str) -> None:
        self.begun.append(name)

    def done(self, name: str, text: str) -> None:
        self.ended.append((name, text))


@pytest.mark.slow
def test_a_day_with_something_of_each_becomes_a_page(spark: SparkSession) -> None:
    from onward.pipeline.jobs import REPORTS, run_report
    from onward.pipeline.transforms import Objective

    lake, told = busy_lake(), Told()
    done = run_report(
        spark,
        as_lake(lake),
        DAY,
        objectives=[Objective("fast", "shop", 3000, 0.9)],
        page=True,
        progress=told,
    )
    assert told.begun == [*REPORTS, "page"]
    assert set(done.rows) == set(lake.written) <= set(REPORT_TABLES)
    page = done.page
    assert page is not None
    assert (page.totals.requests, page.totals.delivered, page.totals.unroutable) == (159, 148, 9)
    assert page.totals.failed == 2
    assert page.audit is not None
    assert page.audit.balanced
    assert {(row.src, row.dst) for row in page.audit.rows} == {("eu", ""), ("near", "tcp 1>2")}
    assert page.matrix is not None
    assert page.matrix.origins == ("web",)
    assert dict(zip(page.matrix.dests, page.matrix.frames[0], strict=True)) == {
        "shop": 150,
        "(nobody)": 0,
    }
    assert page.latency is not None
    assert "shop" in {line.dest for line in page.latency.lines}
    shop = next(line for line in page.latency.lines if line.dest == "shop")
    assert shop.times == (NOON,)
    assert shop.day[0] == 3
    assert page.shards is not None
    assert [(row.route, row.frames) for row in page.shards.shards] == [
        ("shop town=berlin 01010101", 120),
        ("shop town=lyon 02020202", 30),
    ]
    assert page.shards.shards[0].skew == pytest.approx(1.6)
    assert page.shards.keys[0].key == f"{7:016x}"
    assert page.churn is not None
    assert page.churn.hours == (NOON,)
    assert (page.churn.ups, page.churn.downs, page.churn.flaps) == ((3,), (1,), (1,))
    assert page.churn.rows[0].route == "shop town=lyon 02020202"
    assert page.churn.rows[0].life == 20
    assert page.demand is not None
    assert [(row.tagset, row.frames, row.nearest) for row in page.demand.rows] == [
        ("town=mars", 9, "service=shop")
    ]
    assert page.demand.rows[0].first == NOON
    assert page.burns is not None
    assert page.burns[0].total > page.burns[0].good
    assert page.paths is not None
    assert "loop" in {row.kind for row in page.paths.rows}
    assert [broker.name for broker in page.brokers] == ["mid", "eu"]
    assert page.replay is None
    assert not page.closed
    assert "Friday, 20 November 2026" in render(page)


@pytest.mark.slow
def test_an_empty_day_becomes_a_page_too(spark: SparkSession) -> None:
    from onward.pipeline.jobs import run_report

    done = run_report(
        spark, as_lake(MemoryLake()), DAY, ["traffic", "latency", "shards", "audit"], page=True
    )
    assert done.page is not None
    assert set(done.rows.values()) == {0}
    assert "Nothing was sent on this day." in render(done.page)


def test_another_day_is_not_in_it(spark: SparkSession) -> None:
    from onward.pipeline.jobs import run_report

    lake = as_lake(busy_lake())
    assert run_report(spark, lake, DAY - timedelta(days=1), ["traffic"]).rows == {
        "traffic_matrix": 0
    }


def test_only_what_was_asked_for_is_made_and_a_table_is_to_be_read(spark: SparkSession) -> None:
    from onward.pipeline.jobs import run_report

    lake = busy_lake()
    done = run_report(spark, as_lake(lake), DAY, ["unroutable"], format="table")
    assert lake.written == {}
    shown = done.shown["unroutable"]
    assert shown.headings[:3] == ("HOUR", "TAGSET", "FRAMES")
    assert shown.rows == (
        (
            *("2026-11-20 12:00:00", "town=mars", "9", "2026-11-20 12:00:00"),
            *("2026-11-20 12:00:00", '{"service": "shop"}'),
        ),
    )
    assert shown.more == 0


def test_a_report_as_csv_has_no_maps_and_lists(spark: SparkSession) -> None:
    from onward.pipeline.jobs import run_report

    lake = busy_lake()
    run_report(spark, as_lake(lake), DAY, ["unroutable"], format="csv")
    assert dict(lake.written["unroutable"].dtypes)["nearest"] == "string"
    assert lake.formats == ["csv"]


def test_a_report_that_there_is_not_is_told_with_those_there_are(spark: SparkSession) -> None:
    from onward.pipeline.jobs import run_report

    with pytest.raises(ValueError, match="no report is called weather: traffic, latency"):
        run_report(spark, as_lake(MemoryLake()), DAY, ["weather"])


def test_the_audit_between_two_times(spark: SparkSession) -> None:
    from onward.pipeline.jobs import run_audit

    lake = busy_lake()
    lake.rows["flows"] = lake.rows["flows"][:-1]
    found = run_audit(spark, as_lake(lake), NOON, NOON + timedelta(hours=1))
    assert found.balanced
    assert next(row for row in found.rows if row.dst).received is None


def test_the_command_knows_the_same_reports() -> None:
    from onward.cli._pipeline_arguments import REPORTS as NAMES
    from onward.pipeline.jobs import REPORTS

    assert tuple(REPORTS) == NAMES
