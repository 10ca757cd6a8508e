"""Snapshots written by Spark, equal in bytes to one process's; and their check against a log."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from pyspark.sql import DataFrame, SparkSession, functions as sf

from ...protocol.broker import (
    SNAPSHOT_HEADER_SIZE,
    SNAPSHOT_VERSION,
    Snapshot,
    SnapshotWriter,
    format_id,
    format_key,
    parse_key,
)
from ..replay import open_table
from ._build import build, number_routes
from ._routes import prepare, routes_of_events, routes_of_snapshot

__all__ = [
    "MANIFEST",
    "MAX_SHOWN",
    "SNAPSHOT",
    "Drift",
    "Manifest",
    "verify",
    "write_snapshot_from",
]

SNAPSHOT: Final = "index.onwx"
"""The name of the snapshot in its folder."""

MANIFEST: Final = "manifest.json"
"""The name of the manifest beside it."""

FILE_MODE: Final = 0o640
"""The mode of segments, too: tags are user data. The umask applies."""

MAX_SHOWN: Final = 100
"""Most routes and tags that a `Drift` names."""


Bitmap: TypeAlias = tuple[str, str | None, bytes]
"""A tag's key in text form, its value, and its bitmap's bytes."""


_NOTHING: Final[Bitmap] = ("", None, b"")


class Tables(Protocol):
    """A reader of a lake's tables, such as `ingest.Lake`."""

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a table."""
        ...


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a snapshot.

    Attributes:
        version: The version of its format.
        routes: The number of routes.
        bitmaps: The number of distinct tags, each with a bitmap.
        postings: The sum of the numbers of tags of all routes.
        bytes: The size of the file.
        xor: The XOR of the hashes of all bitmaps, to compare two snapshots.
    """

    version: int
    routes: int
    bitmaps: int
    postings: int
    bytes: int
    xor: str


@dataclass(frozen=True, slots=True)
class Drift:
    """The differences between a snapshot and a log.

    Attributes:
        routes: Registered routes in the snapshot.
        missing: Routes in the log only.
        unexpected: Routes in the snapshot only.
        other_tags: Routes with different tags or weights.
        bitmaps: Bitmaps of the snapshot that are missing or do not match its routes.
        shown: Texts of some differences.
        through: The time up to which the log is known, set by the jobs.
    """

    routes: int
    missing: int
    unexpected: int
    other_tags: int
    bitmaps: int
    shown: tuple[str, ...]
    through: datetime | None = None

    @property
    def differences(self) -> int:
        """The number of differences."""
        return self.missing + self.unexpected + self.other_tags + self.bitmaps


def write_snapshot_from(prepared: DataFrame, folder: str | Path) -> Manifest:
    """Write a snapshot of routes, and its manifest.

    The driver writes the file to its local disk. It fetches the rows in order, one partition at a
    time, and keeps 32 bytes for each route and bitmap. File and manifest are renamed to their names
    when they are complete.

    Args:
        prepared: Routes, in the form `PREPARED`.
        folder: The folder of the files; it is created.

    Raises:
        SnapshotError: A route occurs twice.
        OSError: A file cannot be written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    numbered, kept = number_routes(prepared)
    index = build(numbered).persist()
    partial = target / f".{SNAPSHOT}.{os.getpid()}"
    try:
        manifest = _written(numbered, index, partial)
        partial.replace(target / SNAPSHOT)
    finally:
        partial.unlink(missing_ok=True)
        index.unpersist()
        kept.unpersist()
    text = target / f".{MANIFEST}.{os.getpid()}"
    text.write_text(json.dumps(asdict(manifest), indent=2) + "\n")
    text.replace(target / MANIFEST)
    return manifest


def _written(numbered: DataFrame, index: DataFrame, path: Path) -> Manifest:
    writer, xor, count, bitmaps, postings = SnapshotWriter(), 0, 0, 0, 0
    path.unlink(missing_ok=True)
    with open(path, "xb", opener=_open) as file:
        file.seek(SNAPSHOT_HEADER_SIZE)
        for row in _rows(numbered.select("number", "route_id", "record")):
            if row["number"] != count:
                raise AssertionError(f"unexpected number {row['number']} of route {count}")
            file.write(writer.route(bytes(row["route_id"]), bytes(row["record"])))
            count += 1
        for row in _rows(index.orderBy("key", sf.col("value").asc_nulls_first())):
            key, value, bitmap = row["key"], row["value"], bytes(row["bitmap"])
            file.write(writer.posting((parse_key(key), value), row["n"], bitmap))
            bitmaps += 1
            postings += row["n"]
            xor ^= _hash(key, value, bitmap)
        tail, header = writer.finish()
        file.write(tail)
        size = file.tell()
        file.seek(0)
        file.write(header)
        file.flush()
        os.fsync(file.fileno())
    return Manifest(SNAPSHOT_VERSION, count, bitmaps, postings, size, f"{xor:016x}")


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _rows(frame: DataFrame) -> Iterator[Any]:
    return iter(frame.toLocalIterator(prefetchPartitions=True))


def _hash(key: str, value: str | None, bitmap: bytes) -> int:
    # Each part with its length, so that different tags have different inputs.
    name, text = key.encode(), b"" if value is None else value.encode()
    head = len(name).to_bytes(4) + (b"\0" if value is None else b"\1") + len(text).to_bytes(4)
    return int.from_bytes(blake2b(head + name + text + bitmap, digest_size=8).digest())


# --- against a log ----------------------------------------------------------------------------


def verify(
    spark: SparkSession, snapshot: str | Path, lake: Tables, at: datetime | None = None
) -> Drift:
    """Compare a snapshot with a log, and its bitmaps with its routes.

    Two routes are equal if they have the same tags, each with all its values, and the same weight.
    Routes that the snapshot only expected are ignored. A log of an earlier Onward has one value for
    each key, and does not distinguish null from empty.

    The driver compares the bitmaps of both in one order, a partition of Spark's at a time, and
    keeps 16 bytes for each of the snapshot's.

    Args:
        spark: The session.
        snapshot: The file; drivers and executors read it.
        lake: The lake.
        at: The time of the snapshot; `None` for the end of the log.

    Raises:
        TableUnreadable: The snapshot cannot be read.
    """
    path = str(Path(snapshot).absolute())
    opened = open_table(path).snapshot
    saved = routes_of_snapshot(spark, path, len(opened)).persist()
    try:
        events = routes_of_events(
            lake.table(spark, "route_events"),
            lake.table(spark, "dim_node"),
            lake.table(spark, "dim_route"),
            at,
            segments=lake.table(spark, "segments"),
        )
        there = saved.where("not expected")
        routes = there.count()
        counts, shown = _routes_apart(there, prepare(_without_ours(events)))
        bitmaps, tags = _bitmaps_apart(saved, opened)
    finally:
        saved.unpersist()
    return Drift(
        routes,
        counts.get("missing", 0),
        counts.get("unexpected", 0),
        counts.get("other tags", 0),
        bitmaps,
        tuple([*shown, *tags][:MAX_SHOWN]),
    )


def _without_ours(rows: DataFrame) -> DataFrame:
    # The broker's own services are not saved: they register at each start.
    return rows.where("service is not null and not startswith(service, 'onward.')")


def _routes_apart(saved: DataFrame, logged: DataFrame) -> tuple[dict[str, int], list[str]]:
    theirs = logged.select("route_id", sf.col("shown").alias("logged"))
    apart = (
        saved.select("route_id", "shown")
        .join(theirs, "route_id", "full_outer")
        .withColumn(
            "what",
            sf.when(sf.col("shown").isNull(), "missing")
            .when(sf.col("logged").isNull(), "unexpected")
            .when(sf.col("shown") != sf.col("logged"), "other tags"),
        )
        .where("what is not null")
    )
    counts = {row["what"]: int(row["count"]) for row in apart.groupBy("what").count().collect()}
    some = apart.orderBy("route_id").limit(MAX_SHOWN).collect()
    return counts, [
        f"{row['what']}: {format_id(bytes(row['route_id']))} "
        f"(snapshot {row['shown'] or '-'}, log {row['logged'] or '-'})"
        for row in some
    ]


def _bitmaps_apart(saved: DataFrame, opened: Snapshot) -> tuple[int, list[str]]:
    """Compare the bitmaps of a snapshot with ones built from its routes."""
    numbered, kept = number_routes(saved)
    try:
        made = build(numbered).orderBy("key", sf.col("value").asc_nulls_first())
        theirs = ((row["key"], row["value"], bytes(row["bitmap"])) for row in _rows(made))
        count, wrong = 0, list[str]()
        for text in _differences(_in_order(opened), theirs):
            count += 1
            if len(wrong) < MAX_SHOWN:
                wrong.append(text)
    finally:
        kept.unpersist()
    return count, wrong


def _in_order(opened: Snapshot) -> Iterator[Bitmap]:
    """Yield the bitmaps of a snapshot in the order of the file: `posting_order`."""
    entries = np.frombuffer(opened.tag_directory, np.dtype("<u8")).reshape(-1, 4)
    for at in np.argsort(entries[:, 1], kind="stable"):
        (key, value), _, bitmap = opened.tag(int(at))
        yield format_key(key), value, bitmap


def _differences(ours: Iterator[Bitmap], theirs: Iterator[Bitmap]) -> Iterator[str]:
    """Yield texts of the differences between two streams of bitmaps, both sorted.

    Bitmaps out of order are reported as differences.
    """
    mine, made = next(ours, None), next(theirs, None)
    while mine is not None or made is not None:
        if mine is None or (made is not None and _place(made) < _place(mine)):
            key, value, _ = made or _NOTHING
            yield f"bitmap of {key}={value!r} is not there"
            made = next(theirs, None)
        elif made is None or _place(mine) < _place(made):
            yield f"bitmap of {mine[0]}={mine[1]!r} is of no route"
            mine = next(ours, None)
        else:
            if mine[2] != made[2]:
                yield f"bitmap of {mine[0]}={mine[1]!r} is not of the routes"
            mine, made = next(ours, None), next(theirs, None)


def _place(bitmap: Bitmap) -> tuple[str, bool, str]:
    key, value, _ = bitmap
    return key, value is not None, value or ""
