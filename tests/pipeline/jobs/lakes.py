"""A lake in memory: what the jobs ask of one, without files, and a day with something of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from onward.pipeline import LAKE_TABLES, REPORT_TABLES
from onward.protocol.eventlog import Kind, Outcome, name_id, route_key

DAY = date(2026, 11, 20)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
CLOCK = {"hops": "ts", "flows": "window_start", "route_events": "ts"}

ROUTES = {town: bytes([number]) * 16 for number, town in enumerate(("berlin", "lyon"), start=1)}
SHARD, PLAIN, MARS = 11, 12, 13


class MemoryLake:
    """Tables from rows; reports that were written are kept."""

    def __init__(self, rows: Mapping[str, Sequence[tuple[Any, ...]]] | None = None) -> None:
        self.rows = dict(rows or {})
        self.written: dict[str, DataFrame] = {}
        self.formats: list[str] = []
        self.dropped: list[date] = []
        self.path = Path("/nowhere")

    def table(
        self,
        spark: SparkSession,
        name: str,
        *,
        day: date | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> DataFrame:
        if day is not None:
            since = datetime.combine(day, time(), UTC)
            until = since + timedelta(days=1)
        rows = list(self.rows.get(name, ()))
        if name in CLOCK:
            # The first time in a row is the table's.
            rows = [
                row
                for row in rows
                if (since is None or _when(row) >= since) and (until is None or _when(row) < until)
            ]
        return spark.createDataFrame(rows, LAKE_TABLES[name])

    def write_report(
        self,
        df: DataFrame,
        report: str,
        day: date,
        out: str | Path | None = None,
        format: str = "parquet",  # noqa: A002
        through: int | None = None,
    ) -> None:
        del day, out, through
        self.written[report] = df
        self.formats.append(format)

    def report(
        self, spark: SparkSession, name: str, day: date, out: str | Path | None = None
    ) -> DataFrame:
        del day, out
        return spark.createDataFrame(self.rows.get(name, []), REPORT_TABLES[name])

    def batch(self) -> int:
        return 0

    def dropped_days(self) -> list[date]:
        return self.dropped

    def is_closed(self, day: date) -> bool:
        return day < DAY


def _when(row: tuple[Any, ...]) -> datetime:
    return next(each for each in row if isinstance(each, datetime))


def flow(
    outcome: Outcome,
    frames: int,
    dest: str = "",
    route: int = 0,
    tagset: int = PLAIN,
    kind: Kind = Kind.RESPONSE,
    *,
    broker: str = "eu",
    origin: str = "web",
    at: datetime = NOON,
) -> tuple[Any, ...]:
    to = name_id(dest) if dest else 0
    return (
        *(broker, 1, 1, at, 10_000, name_id(origin), to, route, tagset, int(kind)),
        *(int(outcome), frames, frames * 100),
    )


def hop(
    trace: int,
    number: int,
    outcome: Outcome,
    origin: str,
    dest: str,
    kind: Kind = Kind.MESSAGE,
    tagset: int = 0,
    shard_hash: int = 0,
    latency: int = 1500,
) -> tuple[Any, ...]:
    at = NOON + timedelta(milliseconds=trace * 10 + number)
    return (
        *("eu", 1, trace * 100 + number, at, trace, int(kind), int(outcome), number, 0),
        *(name_id(origin), name_id(dest), 0, tagset, shard_hash, latency, 100, 1),
    )


def event(seq: int, name: str, town: str, seconds: int) -> tuple[Any, ...]:
    at = NOON + timedelta(seconds=seconds)
    tags = {"service": "shop", "town": town}
    return ("eu", 1, seq, at, name, route_key(ROUTES[town]), name_id("shop"), tags, "")


def busy_lake(evil: str = "") -> MemoryLake:
    """Two shops, one of them killed, a shard with a hot key, a loop, and what nobody has."""
    berlin, lyon = (route_key(each) for each in ROUTES.values())
    names = ("web", "shop", "near/a", "mid/b", f"tcp 1>2{evil}")
    return MemoryLake(
        {
            "flows": [
                flow(Outcome.RECEIVED, 150, tagset=SHARD),
                flow(Outcome.FORWARD, 120, "shop", berlin, SHARD),
                flow(Outcome.FORWARD, 30, "shop", lyon, SHARD),
                flow(Outcome.DELIVER, 148, "shop", berlin, SHARD),
                flow(Outcome.DROP, 2, "shop", lyon, SHARD),
                flow(Outcome.RECEIVED, 9, tagset=MARS),
                flow(Outcome.UNROUTABLE, 9, tagset=MARS),
                flow(Outcome.FORWARD, 70, f"tcp 1>2{evil}", 0, 0, Kind.LINK, broker="near"),
                flow(Outcome.RECEIVED, 70, f"tcp 1>2{evil}", 0, 0, Kind.LINK, broker="mid"),
            ],
            "hops": [
                hop(1, 0, Outcome.DELIVER, "web", "shop", Kind.RESPONSE, SHARD, 7, 2500),
                hop(2, 0, Outcome.DELIVER, "web", "shop", Kind.RESPONSE, SHARD, 7, 3500),
                hop(3, 0, Outcome.DELIVER, "web", "shop", Kind.RESPONSE, SHARD, 9, 900),
                hop(4, 0, Outcome.FORWARD, "near", "near/a"),
                hop(4, 1, Outcome.FORWARD, "near/a", "mid/b"),
                hop(4, 2, Outcome.FORWARD, "mid/b", "near/a"),
                hop(4, 3, Outcome.DROP, "near/a", "mid/b"),
                hop(5, 0, Outcome.FORWARD, "near", "near/a"),
            ],
            "route_events": [
                event(1, "up", "berlin", 0),
                event(2, "up", "lyon", 0),
                event(3, "down", "lyon", 20),
                event(4, "up", "lyon", 30),
            ],
            "dim_tagset": [
                (SHARD, {"service": "shop"}, f"@shard service=shop{evil}", "shard", "", NOON),
                (PLAIN, {"service": "shop"}, "service=shop", "unicast", "", NOON),
                (MARS, {"service": "shop", "town": "mars"}, "town=mars", "unicast", "", NOON),
            ],
            "dim_node": [(name_id(name), name, NOON) for name in names],
            "dim_route": [
                (route_key(each), f"{each.hex()[:8]}-0000", NOON) for each in ROUTES.values()
            ],
            "completeness": [
                ("eu", "00", NOON, 1, 40, 2, 40, 0),
                ("mid", "01", NOON, 1, 4, 1, 4, 1),
            ],
        }
    )
