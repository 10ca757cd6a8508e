"""Compaction of closed days: the merging of many files into few.

The merged files are written beside their inputs, as a batch with a negative number. A marker
file, which appears atomically, makes them count in place of the inputs. The inputs are deleted
last. After an interruption one of the sets counts, and the next run removes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from .._errors import DayOpen
from .._refused import spark_refusals
from .._schema import LAKE_TABLES, PARTITIONS
from ._files import LOCK_SECONDS, locked, sync_folders
from ._lake import Lake, once
from ._parts import BatchFolder, LakeFiles

__all__ = ["FILE_BYTES", "CompactSummary", "compact"]

FILE_BYTES: Final = 128 * 1024 * 1024
"""The approximate size of a file, in bytes."""

_DATED: Final = [name for name in LAKE_TABLES if PARTITIONS[name][0] == "date"]
_KEYS: Final = {"dim_tagset": "tagset_id", "dim_node": "node", "dim_route": "route_id"}
_UNDATED: Final = ["segments", *_KEYS]


@dataclass(frozen=True, slots=True)
class CompactSummary:
    """The result of a run of `compact`.

    Attributes:
        day: The day.
        files_before: Files of the day, and of tables without days.
        files_after: Files afterwards.
        bytes_before: Their size before.
        bytes_after: Their size afterwards.
    """

    day: date
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def compact(
    spark: SparkSession,
    lake: Path,
    day: date,
    *,
    progress: Callable[[str], None] | None = None,
) -> CompactSummary:
    """Rewrite a closed day, and the tables without days, into few files.

    A second run does nothing, unless events were added in between. A concurrent `ingest` waits
    before its next batch. A concurrent report on the same day may miss a file and fail: run it
    again.

    Args:
        spark: A session; not one of Spark Connect.
        lake: The lake's directory.
        day: The day, UTC.
        progress: Called with a short text for each step.

    Raises:
        DayOpen: The day is not closed.
        LakeError: The lake is not valid or not writable.
    """
    lake = lake.absolute()
    readable = Lake(lake)
    readable.check()
    files = LakeFiles(lake)
    tell = progress or _silent
    with locked(lake / "_write.lock", wait=LOCK_SECONDS), spark_refusals(lake):
        if not readable.is_closed(day):
            raise DayOpen(day, readable.state().closed)
        before = _Sizes()
        after = _Sizes()
        for of, tables in ((day, _DATED), (None, _UNDATED)):
            for table in tables:
                files.remove_stale(table, of, of)
            parts = {table: files.parts(table, of, of) for table in tables}
            for some in parts.values():
                before.add(some)
            if any(part.batch >= 0 for some in parts.values() for part in some):
                _rewrite(spark, files, of, parts, tell)
            for table in tables:
                files.remove_stale(table, of, of)
                after.add(files.parts(table, of, of))
    return CompactSummary(day, before.files, after.files, before.bytes, after.bytes)


class _Sizes:
    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0

    def add(self, parts: Sequence[BatchFolder]) -> None:
        for part in parts:
            for size in _sizes(part):
                self.files += 1
                self.bytes += size


def _sizes(part: BatchFolder) -> Iterator[int]:
    return (file.stat().st_size for file in part.path.glob("*.parquet"))


def _silent(_: str) -> None:
    """Discard a progress text."""


def _rewrite(
    spark: SparkSession,
    files: LakeFiles,
    day: date | None,
    parts: dict[str, list[BatchFolder]],
    tell: Callable[[str], None],
) -> None:
    had = files.compacted(day)
    number = -1 if had is None else had[0] - 1
    upto = files.state().batch
    made: list[Path] = []
    for table, some in parts.items():
        for folder, group in groupby(some, key=lambda part: part.path.parent):
            tell(f"compacting {folder.relative_to(files.path)}")
            made.append(folder / f"batch={number}")
            _merge(spark, table, list(group), made[-1])
    # The inputs are deleted once these files count, so these must survive a power cut.
    sync_folders(made, files.path)
    tell(f"compacted {day or 'tables'}: marking")
    files.set_compacted(day, number, upto)
    tell(f"compacted {day or 'tables'}: marked")


def _merge(spark: SparkSession, table: str, parts: Sequence[BatchFolder], into: Path) -> None:
    frame = spark.read.schema(LAKE_TABLES[table]).parquet(*(str(part.path) for part in parts))
    if table in _KEYS:
        frame = once(frame, _KEYS[table])
    size = sum(size for part in parts for size in _sizes(part))
    frame = frame.coalesce(max(1, -(-size // FILE_BYTES)))
    frame.write.mode("overwrite").option("compression", "zstd").parquet(str(into))
