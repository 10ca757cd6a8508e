"""Routes from wherever they are, in the one form that an index is made of.

Routes come as rows (`ROUTE_ROWS`), as lines of JSON, as a snapshot, or as what a log says of who
came and went. Each is read by the code that a table of a broker uses: so keys have one spelling,
default tags are there, and no tag counts twice.
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
"""Routes as rows: `route` and `broker` are UUIDs, keys of tags are as people write them. A route
that has a key several times needs `tags array<struct<key:string,value:string>>` instead. The last
three may be left out, or be null: none, 0 and 1."""

PREPARED: Final = (
    "route_id binary, record binary, keys array<string>, values array<string>, shown string,"
    " expected boolean"
)
"""Routes as an index is made of them: id, what a snapshot has of it, its tags, those and its weight
as people write them, and whether it was there or only expected."""

ROWS: Final = 10_000
"""Rows in one batch of what is prepared."""

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
"""What `carried_tags_text` has made a map of."""

_WEIGHT: Final = """
if(tags['weight'] rlike '^[0-9]{1,9}([.][0-9]{1,9})?$', cast(tags['weight'] as double), 1.0D)
"""
"""What a broker makes of the tag."""

Batch = Any
"""A `pyarrow.RecordBatch`, which has no annotations."""


def prepare(rows: DataFrame, path: str | Path | None = None) -> DataFrame:
    """Return routes in the form `PREPARED`.

    Args:
        rows: The columns of `ROUTE_ROWS`.
        path: Where they are from, to be named where one is no route.

    Raises:
        RouteUnreadable: (In Spark's job.) A row is no route; the text says which, and why.
    """
    read = partial(_of_rows, "the routes" if path is None else str(path))
    return rows.mapInArrow(partial(_mapped, read), PREPARED)


def routes_of_lines(spark: SparkSession, path: str | Path) -> DataFrame:
    """Return the routes of files with lines of JSON, in the form `PREPARED`.

    Raises:
        RouteUnreadable: (In Spark's job.) A line is no route; the text says which, and why.
    """
    # Without empty lines and remarks, as `parse_routes` reads them.
    read = spark.read.text(str(path)).select("value", "_metadata.file_path")
    lines = read.where(sf.col("value").rlike(r"^\s*[^\s#]"))
    return lines.mapInArrow(partial(_mapped, _of_lines), PREPARED)


def routes_of_snapshot(spark: SparkSession, path: str | Path, count: int) -> DataFrame:
    """Return the routes of a snapshot, in the form `PREPARED`.

    Args:
        spark: The session.
        path: The snapshot; the executors read it.
        count: How many routes it has.
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
    """Return who was there at a time, as a log says: the columns of `ROUTE_ROWS`.

    Tags are a list, as a key may be there several times. The weight is what the tag `weight` says,
    which is the default of `BrokerOptions.weight_tag`.

    A destination was there if it had come, or changed its tags, and had not left since: by the
    order in which its broker wrote, whatever its clock said. It is there while one broker has it;
    of several, the one that wrote of it last by the clock. A broker that starts anew, after a crash
    say, has nobody: what came in an epoch before counts no more.

    Args:
        events: The table `route_events`, from as far back as anybody who is there may have come.
        nodes: The table `dim_node`: the names of services.
        routes: The table `dim_route`: the ids of routes.
        at: Up to when events count by the broker's clock, that moment not included; `None` for all
            there are.
        segments: The table `segments`, which knows of a broker's start even if nobody has come
            since.
    """
    # Spark's comparison needs a column of its own type; `None` leaves all.
    before = events if at is None else events.where(sf.col("ts") < sf.lit(at))
    # The clock may be set; what a broker has written keeps its order.
    last = Window.partitionBy("broker", "route_id").orderBy(sf.col("seq").desc())
    # Brokers have no order but the clock's. One that lost it does not take it from another.
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
        # By the left, as each carries its id among its tags, whatever the lake lists.
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
    """Return which line of a file it is, which Spark does not tell; `None` if nobody knows."""
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
    """Yield tags from a map, or from a list of structures.

    Raises:
        SnapshotError: A tag of a list, or its key, is null; those of a map cannot be.
    """
    for each in tags or ():
        if each is None:
            raise SnapshotError("a tag is null")
        key, value = (each["key"], each["value"]) if isinstance(each, Mapping) else each
        if key is None:
            raise SnapshotError(f"the key of a tag is null, its value is {value!r}")
        yield key, value
