"""The reports of a day: made, written, counted, shown, and put together to a page."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from onward.cli._pipeline_arguments import REPORTS as NAMES
from onward.pipeline import REPORT_TABLES
from onward.pipeline.ingest import Lake
from onward.pipeline.jobs import REPORTS, NotUtc, in_utc, run_audit, run_report
from onward.pipeline.report import Page, render
from onward.pipeline.transforms import Objective
from onward.protocol.eventlog import Kind, Outcome
from tests.pipeline.jobs.lakes import DAY, NOON, MemoryLake, busy_lake, flow
from tests.support.counts import exhaustive
from tests.support.fixtures import Patch

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
    lake, told = busy_lake(), Told()
    done = run_report(
        spark,
        as_lake(lake),
        DAY,
        objectives=[Objective("fast", "shop", 3000, 0.9)],
        page=True,
        progress=told,
    )
    parts = [text for name, text in told.ended if name == "page"]
    assert told.begun == [*REPORTS, *["page"] * len(parts)]
    assert parts == [
        *("rehearsal", "logs", "totals", "audit", "matrix", "latency", "shards", "churn"),
        *("demand", "burns", "paths", "names", "relays"),
    ]
    assert set(done.rows) == set(lake.written) <= set(REPORT_TABLES)
    page = done.page
    assert page is not None
    assert (page.totals.requests, page.totals.delivered, page.totals.unroutable) == (159, 148, 9)
    assert page.totals.failed == 2
    assert page.audit is not None
    assert page.audit.balanced
    # One number of a log is not there, so the balance says nothing.
    assert [(hole.log, hole.absent) for hole in page.audit.holes] == [("mid", 1)]
    assert "Audit: 1 missing from the lake" in render(page)
    assert {(row.src, row.dst) for row in page.audit.rows} == {("eu", ""), ("near", "tcp 1>2")}
    assert page.matrix is not None
    assert page.matrix.origins == ("web",)
    assert dict(zip(page.matrix.dests, page.matrix.frames[0], strict=True)) == {
        "shop": 150,
        "(none)": 0,
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


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_empty_day_becomes_a_page_too(spark: SparkSession) -> None:
    done = run_report(
        spark, as_lake(MemoryLake()), DAY, ["traffic", "latency", "shards", "audit"], page=True
    )
    assert done.page is not None
    assert set(done.rows.values()) == {0}
    assert "There were no requests on this day." in render(done.page)
    assert "Audit: nothing was recorded" in render(done.page)


def audited(spark: SparkSession, lake: MemoryLake) -> Page:
    page = run_report(spark, as_lake(lake), DAY, ["audit"], page=True).page
    assert page is not None
    return page


def test_what_is_in_hand_at_midnight_and_ends_then_adds_up(spark: SparkSession) -> None:
    late, next_day = NOON + timedelta(hours=11, minutes=59), NOON + timedelta(hours=12)
    lake = MemoryLake(
        {
            "flows": [
                flow(Outcome.RECEIVED, 100, at=late),
                flow(Outcome.DELIVER, 99, at=late),
                flow(Outcome.DELIVER, 1, at=next_day),
            ]
        }
    )
    page = audited(spark, lake)
    assert page.audit is not None
    assert (page.audit.missing, page.audit.open) == (0, 0)
    assert "Audit: balanced" in render(page)


@pytest.mark.parametrize(
    ("goes_on", "closed", "told"),
    [
        *exhaustive((True, True, "verdict note"), (False, False, "verdict note")),
        (False, True, "verdict bad"),
    ],
)
def test_what_has_not_ended_may_be_in_hand_while_the_log_goes_on(
    goes_on: bool, closed: bool, told: str, spark: SparkSession, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(MemoryLake, "is_closed", lambda _lake, _day: closed)
    rows = [flow(Outcome.RECEIVED, 5), flow(Outcome.DELIVER, 3)]
    if goes_on:
        rows.append(flow(Outcome.FORWARD, 1, at=NOON + timedelta(hours=13)))
    page = audited(spark, MemoryLake({"flows": rows}))
    assert f'class="{told}"' in render(page)
    in_hand = "2 in progress or lost" in render(page)
    assert in_hand == (told == "verdict note")


def segment(first: int, started: datetime, ended: datetime) -> tuple[Any, ...]:
    return ("eu", 1, first, 99, "00", "", 1, 1.0, started, ended, 0, 1, 0, 1, None)


@pytest.mark.parametrize(
    ("first", "days_before", "dropped", "was_there"),
    [
        # The run is longer than the audit looks back; its beginning is not in the lake; is gone.
        (1, 8, None, True),
        *exhaustive((7, 2, None, True), (1, 4, 3, True)),
        # The audit has seen all of it.
        (1, 4, None, False),
        *exhaustive((1, 4, 5, False)),
    ],
)
def test_a_stream_that_was_open_before_the_audit_begins_is_not_counted_twice(
    first: int, days_before: int, dropped: int | None, was_there: bool, spark: SparkSession
) -> None:
    began = NOON - timedelta(days=days_before)
    lake = MemoryLake(
        {
            "flows": [
                *(flow(outcome, 2) for outcome in (Outcome.RECEIVED, Outcome.DELIVER)),
                flow(Outcome.DELIVER, 1, kind=Kind.STREAM),
            ],
            "segments": [segment(first, began, began), segment(50, NOON, NOON)],
        }
    )
    if dropped is not None:
        lake.dropped = [DAY - timedelta(days=dropped)]
    page = audited(spark, lake)
    assert page.audit is not None
    assert (page.audit.duplicated, page.audit.before) == (1, int(was_there))
    in_hand = "1 in progress before the audit or duplicated" in render(page)
    assert in_hand == was_there


def test_a_balance_over_a_hole_is_not_believed(spark: SparkSession) -> None:
    lake = MemoryLake(
        {
            "flows": [flow(Outcome.RECEIVED, 5), flow(Outcome.DELIVER, 5)],
            "route_events": [("eu", 1, 3, NOON, "lost", None, 0, {}, "5000 events: disk full")],
        }
    )
    page = audited(spark, lake)
    assert "Audit: 5\u202f000 not recorded" in render(page)
    assert "disk full" in render(page)
    found = run_audit(spark, as_lake(lake))
    assert found.balanced
    assert not found.whole
    assert (found.unrecorded, found.holes[0].reasons) == (5000, ("disk full",))


@pytest.mark.exhaustive
def test_a_report_is_the_same_in_a_session_of_another_zone(spark: SparkSession) -> None:
    kolkata = spark.newSession()
    kolkata.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    made = []
    for session in (kolkata, spark):
        lake = as_lake(busy_lake())
        done = run_report(session, lake, DAY, ["unroutable", "churn", "paths"], format="table")
        made.append(done.shown)
    assert made[0] == made[1]
    assert kolkata.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"


def test_a_session_that_cannot_be_set_to_utc_is_refused() -> None:
    class Settings:
        def get(self, _key: str) -> str:
            return "Asia/Kolkata"

        def set(self, _key: str, _value: str) -> None:
            raise AnalysisException("it is static")

    class Session:
        conf = Settings()

    with (
        pytest.raises(NotUtc, match="Asia/Kolkata and cannot be changed"),
        in_utc(cast("SparkSession", Session())),
    ):
        pass


def test_another_day_is_not_in_it(spark: SparkSession) -> None:
    lake = as_lake(busy_lake())
    assert run_report(spark, lake, DAY - timedelta(days=1), ["traffic"]).rows == {
        "traffic_matrix": 0
    }


def test_only_what_was_asked_for_is_made_and_a_table_is_to_be_read(spark: SparkSession) -> None:
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
    lake = busy_lake()
    run_report(spark, as_lake(lake), DAY, ["unroutable"], format="csv")
    assert dict(lake.written["unroutable"].dtypes)["nearest"] == "string"
    assert lake.formats == ["csv"]


def test_a_report_that_there_is_not_is_told_with_those_there_are(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="no report is called weather: traffic, latency"):
        run_report(spark, as_lake(MemoryLake()), DAY, ["weather"])


def test_the_audit_between_two_times(spark: SparkSession) -> None:
    lake = busy_lake()
    lake.rows["flows"] = lake.rows["flows"][:-1]
    found = run_audit(spark, as_lake(lake), NOON, NOON + timedelta(hours=1))
    assert found.balanced
    assert next(row for row in found.rows if row.dst).received is None


def test_an_audit_of_nothing_is_empty(spark: SparkSession) -> None:
    assert run_audit(spark, as_lake(MemoryLake())).empty
    # What was in hand at the end is settled by what comes after.
    late = NOON + timedelta(minutes=5)
    lake = MemoryLake({"flows": [flow(Outcome.RECEIVED, 1), flow(Outcome.DELIVER, 1, at=late)]})
    assert run_audit(spark, as_lake(lake), until=late).balanced


def test_the_command_knows_the_same_reports() -> None:
    assert tuple(REPORTS) == NAMES
