"""Tables made of the log, and held against it, through a lake with files."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from onward.pipeline._errors import LakeBehind, NoSuchLog
from onward.pipeline.ingest import Lake, ingest
from onward.pipeline.jobs import LogsOf, run_index_of_log, run_replay, run_verify
from onward.protocol.broker import SnapshotRoute, write_snapshot
from onward.protocol.eventlog import EventName, RouteEvent, SegmentHeader
from tests.pipeline.jobs.lakes import MemoryLake
from tests.support.eventlogs import DAY_US, START_US, log_id_of, write_segment

pytestmark = pytest.mark.spark

DAY = date(2025, 11, 20)
NOON = datetime(2025, 11, 20, 12, tzinfo=UTC)
NOON_US = START_US + DAY_US // 2


def event(seq: int, day: int, number: int, name: EventName = EventName.UP) -> RouteEvent:
    route = SnapshotRoute(number.to_bytes(16), "shop").settled()
    at = NOON_US + day * DAY_US
    if name is EventName.REJECT:
        return RouteEvent(seq, at, name, None, "", (), "nobody")
    return RouteEvent(seq, at, name, route.route_id, "shop", route.tags, "")


def write(log: Path, first: int, day: int, *events: RouteEvent) -> None:
    header = SegmentHeader("eu", log_id_of("eu"), 1, first, NOON_US + day * DAY_US, 1.0)
    ids = [each.route_id for each in events if each.route_id is not None]
    write_segment(log, header, names=["shop"], routes=ids, events=events)


def as_lake(lake: MemoryLake) -> Lake:
    return cast("Lake", lake)


def logs(**ends: datetime) -> MemoryLake:
    """A lake with logs that are sealed up to these times, and nothing in them."""
    rows = [(name, "00", end, 1, 1, 1, 1, 0) for name, end in ends.items()]
    return MemoryLake({"completeness": rows})


def test_an_error_names_the_brokers_of_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    lake = as_lake(logs(eu=NOON, us=NOON))
    table = tmp_path / "none.jsonl"
    table.write_text("# none\n")
    with pytest.raises(NoSuchLog, match="no log of typo; it has eu, us: name one"):
        run_index_of_log(spark, lake, tmp_path / "out", brokers=["eu", "typo"])
    assert not (tmp_path / "out").exists()
    with pytest.raises(NoSuchLog, match="typo"):
        run_verify(spark, table, lake, brokers=["typo"])
    with pytest.raises(NoSuchLog, match="typo"):
        run_replay(spark, lake, DAY, table, table, brokers=["typo"])
    with pytest.raises(NoSuchLog, match="it has none at all"):
        LogsOf(as_lake(MemoryLake()), ["eu"]).check(spark)


def test_a_time_beyond_the_lake_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    hour, table = timedelta(hours=1), tmp_path / "none.onwx"
    table.write_bytes(b"".join(write_snapshot([])))
    # The last one has ended: nobody waits for it.
    lake = as_lake(logs(eu=NOON, us=NOON - hour, old=NOON - timedelta(days=2)))
    said = "log of us up to 2025-11-20 11:00:00 UTC, .* at 2025-11-20 11:00:01 UTC is .*--broker"
    late = NOON - hour + timedelta(seconds=1)
    with pytest.raises(LakeBehind, match=said):
        run_index_of_log(spark, lake, tmp_path / "out", at=late)
    with pytest.raises(LakeBehind, match=said):
        run_verify(spark, table, lake, at=late)
    # Of the other alone it is known.
    assert run_verify(spark, table, lake, at=late, brokers=["eu"]).through == NOON
    assert run_verify(spark, table, lake, at=NOON - hour).through == NOON - hour
    assert LogsOf(lake).check(spark) == NOON - hour
    assert LogsOf(as_lake(MemoryLake())).check(spark) is None


@pytest.mark.slow
def test_a_route_of_a_dropped_day_stays_in_the_table(spark: SparkSession, tmp_path: Path) -> None:
    log, lake = tmp_path / "log", Lake(tmp_path / "lake")
    write(log, 1, 0, event(1, 0, 1), event(2, 0, 2), event(3, 0, 9, EventName.REJECT))
    write(log, 4, 1, event(4, 1, 3), event(5, 1, 2, EventName.DOWN))
    write(log, 6, 3, event(6, 3, 4))
    ingest(spark, log, lake.path, tmp_path / "checkpoint")
    full = run_index_of_log(spark, lake, tmp_path / "full")
    assert full.routes == 3

    lake.drop(DAY)

    assert run_index_of_log(spark, lake, tmp_path / "after") == full
    assert run_verify(spark, tmp_path / "full" / "index.onwx", lake).differences == 0
    events = lake.table(spark, "route_events", until=NOON + timedelta(hours=12)).collect()
    assert sorted(row.event for row in events) == ["up", "up"]
