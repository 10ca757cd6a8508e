"""Readers of route entries from several sources, into the form that an index is built from.

Sources are rows (`ROUTE_ROWS`), lines of JSON, a snapshot, or the route events of a log. Each is
read by the code of the broker's routing table. So keys have one spelling, default tags are added,
and no tag counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window, functions as sf

from ...protocol import AddressError
from ...protocol.broker import (
    NO_BROKER,
    SnapshotError,
    SnapshotRoute,
    encode_route,
    format_key,
    format_tag,
    parse_id,
    parse_key,
    parse_route,
    written_tags,
)
from .._errors import RouteUnreadable
from ..replay import open_table

__all__ = [
    "PREPARED",
    "ROUTE_ROWS",
    "prepare",
    "routes_of_events",
    "routes_of_lines",
    "routes_of_snapshot",
]

ROUTE_ROWS: Final = (
    "route string, service string, tags map<string,string>, broker string, timestamp bigint,"
    " weight double"
)
"""Routes as rows: `route` and `broker` are UUIDs, keys of tags are in text form. A route with
several values of a key needs `tags array<struct<key:string,value:string>>` instead. The last three
may be omitted or null, which means none, 0 and 1."""

PREPARED: Final = (
    "route_id binary, record binary, keys array<string>, values array<string>, shown string,"
    " expected boolean"
)
"""Prepared routes: the id, the record in a snapshot, the tags, a text of tags and weight, and
whether the destination was only expected."""

ROWS: Final = 10_000
"""Rows in one batch of prepared routes."""

_ALL_TAGS: Final = """
flatten(transform(
    filter(map_entries(tags), each -> not map_contains_key(tags, concat(each.key, '[]'))),
    each -> if(
        endswith(each.key, '[]'),
        transform(
            from_json(each.value, 'array<string>'),
            one -> named_struct('key', left(each.key, length(each.key) - 2), 'value', one)
        ),
        array(named_struct('key', each.key, 'value', each.value))
    )
))
"""
"""The list of tags from a map by `carried_tags_text`."""

_WEIGHT: Final = """
if(tags['weight'] rlike '^[0-9]{1,9}([.][0-9]{1,9})?$', cast(tags['weight'] as double), 1.0D)
"""
"""The weight that a broker reads from the tag."""

Batch = Any
"""A `pyarrow.RecordBatch`, which has no annotations."""


def prepare(rows: DataFrame, path: str | Path | None = None) -> DataFrame:
    """Return routes in the form `PREPARED`.

    Args:
        rows: The columns of `ROUTE_ROWS`.
        path: Their origin, for errors.

    Raises:
        RouteUnreadable: (In Spark's job.) A row is no route; the text gives row and reason.
    """
    read = partial(_of_rows, "the routes" if path is None else str(path))
    return rows.mapInArrow(partial(_mapped, read), PREPARED)


def routes_of_lines(spark: SparkSession, path: str | Path) -> DataFrame:
    """Return the routes of files with lines of JSON, in the form `PREPARED`.

    Raises:
        RouteUnreadable: (In Spark's job.) A line is no route; the text gives line and reason.
    """
    # Without empty lines and comments, like `parse_routes`.
    read = spark.read.text(str(path)).select("value", "_metadata.file_path")
    lines = read.where(sf.col("value").rlike(r"^\s*[^\s#]"))
    return lines.mapInArrow(partial(_mapped, _of_lines), PREPARED)


def routes_of_snapshot(spark: SparkSession, path: str | Path, count: int) -> DataFrame:
    """Return the routes of a snapshot, in the form `PREPARED`.

    Args:
        spark: The session.
        path: The snapshot; the executors read it.
        count: The number of its routes.
    """
    read = partial(_of_snapshot, str(path))
    return spark.range(count).mapInArrow(partial(_mapped, read), PREPARED)


def routes_of_events(
    events: DataFrame,
    nodes: DataFrame,
    routes: DataFrame,
    at: datetime | None = None,
    *,
    segments: DataFrame | None = None,
) -> DataFrame:
    """Return the destinations registered at a time, by a log: the columns of `ROUTE_ROWS`.

    Tags are a list, as a key may have several values. The weight is read from the tag `weight`,
    the default of `ChoiceOptions.weight_tag`.

    A destination was registered if it had come, or changed its tags, and had not left since. The
    order is that of the broker's log, not of its clock. One broker that has the destination
    suffices; of several, the last event by the clock is used. A broker that restarts has no
    destinations, so events of its earlier epochs do not count.

    Args:
        events: The table `route_events`, since the registration of the oldest destination.
        nodes: The table `dim_node`: the names of services.
        routes: The table `dim_route`: the ids of routes.
        at: Use events before this time by the broker's clock; `None` for all.
        segments: The table `segments`, which shows a broker's start even if no destination has come
            since.
    """
    # Spark cannot compare with `None`.
    before = events if at is None else events.where(sf.col("ts") < sf.lit(at))
    # The clock may be set; a broker's numbers keep their order.
    last = Window.partitionBy("broker", "route_id").orderBy(sf.col("seq").desc())
    # Events of several brokers are ordered by the clock only. A departure does not hide another's.
    elsewhere = Window.partitionBy("route_id").orderBy(sf.col("ts").desc(), "broker")
    runs = before.select("broker", "epoch")
    if segments is not None:
        begun = segments if at is None else segments.where(sf.col("started") < sf.lit(at))
        runs = runs.unionByName(begun.select("broker", "epoch"))
    newest = runs.groupBy("broker").agg(sf.max("epoch").alias("epoch"))
    there = (
        before.join(newest, ["broker", "epoch"])
        .where("event in ('up', 'down', 'retag') and route_id <> 0")
        .withColumn("place", sf.row_number().over(last))
        .where("place = 1 and event <> 'down'")
        .withColumn("place", sf.row_number().over(elsewhere))
        .where("place = 1")
    )
    ids = routes.groupBy("route_id").agg(sf.min("uuid").alias("route"))
    names = nodes.groupBy("node").agg(sf.min("name").alias("service"))
    return (
        # Left joins: a destination carries its id among its tags even if the lake lacks it.
        there.join(ids, "route_id", "left")
        .join(names, "node", "left")
        .select(
            sf.coalesce("route", sf.element_at("tags", sf.lit("route"))).alias("route"),
            sf.coalesce("service", sf.element_at("tags", sf.lit("service"))).alias("service"),
            sf.expr(_ALL_TAGS).alias("tags"),
            sf.lit(None).cast("string").alias("broker"),
            sf.unix_millis("ts").alias("timestamp"),
            sf.expr(_WEIGHT).alias("weight"),
        )
    )


# --- in the executors -------------------------------------------------------------------------


def _mapped(
    read: Callable[[Batch], Iterable[SnapshotRoute]], batches: Iterator[Batch]
) -> Iterator[Batch]:
    made: list[SnapshotRoute] = []
    for batch in batches:
        for route in read(batch):
            made.append(route)
            if len(made) >= ROWS:
                yield _rows(made)
                made.clear()
    if made:
        yield _rows(made)


def _rows(routes: list[SnapshotRoute]) -> Batch:
    tags = [[(format_key(key), value) for key, value in written_tags(route)] for route in routes]
    columns = (
        ([route.route_id for route in routes], pa.binary()),
        ([encode_route(route) for route in routes], pa.binary()),
        ([[key for key, _ in each] for each in tags], pa.list_(pa.string())),
        ([[value for _, value in each] for each in tags], pa.list_(pa.string())),
        ([_shown(route) for route in routes], pa.string()),
        ([route.expected for route in routes], pa.bool_()),
    )
    names = ["route_id", "record", "keys", "values", "shown", "expected"]
    return pa.record_batch([pa.array(values, kind) for values, kind in columns], names=names)


def _shown(route: SnapshotRoute) -> str:
    tags = sorted(format_tag(tag) for tag in written_tags(route))
    return " ".join(tags if route.weight == 1.0 else (*tags, f"(weight {route.weight!r})"))


def _of_lines(batch: Batch) -> Iterator[SnapshotRoute]:
    for at, line in enumerate(batch.column("value").to_pylist()):
        try:
            route = parse_route(line)
        except SnapshotError as error:
            file = batch.column("file_path")[at].as_py()
            path = unquote(urlsplit(file).path) if file.startswith("file:") else file
            raise RouteUnreadable(path, _number_of(path, line), line, error.reason) from None
        yield route


def _number_of(path: str, line: str) -> int | None:
    """Return the number of a line in a file, which Spark does not give; `None` if unknown."""
    try:
        with Path(path).open("rb") as file:
            numbered = enumerate(file, 1)
            return next((n for n, each in numbered if each.rstrip(b"\r\n") == line.encode()), None)
    except OSError:
        return None


def _of_snapshot(path: str, batch: Batch) -> Iterator[SnapshotRoute]:
    snapshot = open_table(path).snapshot
    for number in batch.column("id").to_pylist():
        yield snapshot.route(number)


def _of_rows(path: str, batch: Batch) -> Iterator[SnapshotRoute]:
    for row in batch.to_pylist():
        which = f"the row of route {row['route']}"
        try:
            route = _of_row(row)
        except AddressError as error:
            raise RouteUnreadable(path, None, which, f"{error.text!r}: {error.reason}") from None
        except SnapshotError as error:
            raise RouteUnreadable(path, None, which, error.reason) from None
        yield route


def _of_row(row: Mapping[str, Any]) -> SnapshotRoute:
    broker = row.get("broker")
    weight = row.get("weight")
    return SnapshotRoute(
        parse_id(row["route"] or ""),
        row["service"] or "",
        tuple((parse_key(key), value) for key, value in _pairs(row.get("tags"))),
        NO_BROKER if broker is None else parse_id(broker),
        row.get("timestamp") or 0,
        1.0 if weight is None else weight,
    ).settled()


def _pairs(tags: Any) -> Iterator[tuple[str, str | None]]:
    """Yield tags from a map, or from a list of structs.

    Raises:
        SnapshotError: A tag of a list, or its key, is null.
    """
    for each in tags or ():
        if each is None:
            raise SnapshotError("a tag is null")
        key, value = (each["key"], each["value"]) if isinstance(each, Mapping) else each
        if key is None:
            raise SnapshotError(f"the key of a tag is null, its value is {value!r}")
        yield key, value
