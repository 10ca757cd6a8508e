"""The tasks of an ingest: each reads its segments once and writes all their rows.

No row is passed to the JVM. A task returns the files that it wrote, with their numbers of rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .._schema import LAKE_TABLES, PARTITIONS
from ..source import arrow_schema, columns_of, decode_batches, load_segment
from ._files import check_shared
from ._kept import kept_rows
from ._parquet import PartFiles, Partition, Written

__all__ = ["SUMMARY", "TIMES", "Job", "write_pack", "write_packs"]

TIMES: Final = {"hops": "ts", "flows": "window_start", "route_events": "ts"}
"""The tables of events, each with the column that determines the day and hour of a row."""

SUMMARY: Final = "table string, day date, path string, rows bigint"
"""The result of a task: a row for each file, and one without a path for rows of a dropped day."""

_DIMENSIONS: Final = {
    "dim_tagset": ("tagsets", "tagset_id"),
    "dim_node": ("nodes", "node"),
    "dim_route": ("routes", "route_id"),
}
_COLUMNS: Final = {table: columns_of(LAKE_TABLES[table]) for table in (*TIMES, *_DIMENSIONS)}
_LATE: Final = arrow_schema(columns_of(LAKE_TABLES["late"]))
_SUMMARY: Final = arrow_schema(columns_of(SUMMARY))

_HOUR: Final = 3_600_000_000
_DAY: Final = 24 * _HOUR
_FIRST_DAY: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Job:
    """The description of a batch that all its tasks share.

    Attributes:
        log: The directory of logs.
        lake: The lake.
        batch: The batch's number.
        closed: The last closed day; `None` if there is none. Its events, and those of the days
            before it, are late.
        dropped: The dropped days. Half a day would be wrong, so only the rows of `kept_rows`
            are written.
        packs: The segments of each task, by their paths from the directory of logs.
    """

    log: Path
    lake: Path
    batch: int
    closed: date | None
    dropped: frozenset[date]
    packs: tuple[tuple[str, ...], ...]


def write_packs(job: Job, numbers: Iterable[Any]) -> Iterator[Any]:
    """Write packs, each by its number; the function given to `mapInArrow`.

    Args:
        job: The batch.
        numbers: Arrow batches with one column: the indexes of packs in the job.

    Returns:
        Arrow batches with the columns of `SUMMARY`.
    """
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield write_pack(job, number)


def write_pack(job: Job, number: int) -> Any:
    """Write all rows of a pack's segments; return the files as rows of `SUMMARY`.

    Raises:
        SegmentDamaged: A segment cannot be read; no file is left.
        SegmentGone: A segment was deleted.
        LakeError: The lake is missing or not writable; no file is left.
    """
    check_shared(job.lake)
    with PartFiles(job.lake, job.batch, number) as files:
        pack = _Pack(job, files)
        for path in job.packs[number]:
            pack.take(path)
        pack.end()
    return _told(files.written, pack.dropped)


def _told(written: Iterable[Written], dropped: Mapping[Partition, int]) -> Any:
    files = [(each.place, each.path, each.rows) for each in written]
    left_out = [(place, None, count) for place, count in dropped.items()]
    rows = [
        {"table": place.table, "day": place.day, "path": path, "rows": count}
        for place, path, count in (*files, *left_out)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_SUMMARY)


class _Pack:
    """The writer of one pack, which takes its segments one by one."""

    def __init__(self, job: Job, files: PartFiles) -> None:
        self.dropped = Counter[Partition]()
        self._job = job
        self._files = files
        # Bounded by the bytes of a pack; a task has one pack.
        self._few: defaultdict[str, list[Any]] = defaultdict(list)

    def take(self, path: str) -> None:
        log = self._job.log
        segment = load_segment(log, path)
        for table in TIMES:
            for rows in decode_batches(table, _COLUMNS[table], segment, str(log / path)):
                self._events(table, rows)
        for table, (source, _) in _DIMENSIONS.items():
            self._few[table] += decode_batches(source, _COLUMNS[table], segment, str(log / path))

    def end(self) -> None:
        for table, batches in self._few.items():
            if batches:
                self._files.add(Partition(table), _once(batches, _DIMENSIONS[table][1]))

    def _events(self, table: str, rows: Any) -> None:
        job, hourly = self._job, "hour" in PARTITIONS[table]
        unit = _HOUR if hourly else _DAY
        for number, part in split(rows, TIMES[table], unit):
            day = _FIRST_DAY + timedelta(microseconds=number * unit)
            place = Partition(table, day, number % 24 if hourly else None)
            if day in job.dropped:
                kept = kept_rows(table, part)
                self.dropped[Partition(table, day)] += part.num_rows - kept.num_rows
                if kept.num_rows:
                    self._files.add(place, kept)
                continue
            self._files.add(place, part)
            if job.closed is not None and day <= job.closed:
                self._files.add(Partition("late", day), _late(table, day, part))


def split(rows: Any, column: str, unit: int) -> Iterator[tuple[int, Any]]:
    """Yield the rows of each unit of time, with the unit's number since 1970.

    Args:
        rows: An Arrow batch, not empty.
        column: The column of the time.
        unit: The length of a unit in microseconds.
    """
    times: Any = rows.column(column).view(pa.int64()).to_numpy()
    first, last = int(times.min()) // unit, int(times.max()) // unit
    if first == last:
        yield first, rows
        return
    numbers = times // unit
    if bool((numbers[1:] < numbers[:-1]).any()):
        order = np.argsort(numbers, kind="stable")
        numbers, rows = numbers[order], rows.take(pa.array(order))
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for begin, end in pairwise(edges):
        yield int(numbers[begin]), rows.slice(begin, end - begin)


def _late(table: str, day: date, rows: Any) -> Any:
    columns = [rows.column(name) for name in ("broker", "epoch", "seq", TIMES[table])]
    said = [pa.repeat(pa.scalar(each), rows.num_rows) for each in (table, day)]
    return pa.RecordBatch.from_arrays([*columns, *said], schema=_LATE)


def _once(batches: list[Any], key: str) -> Any:
    """Return one row for each id, with its earliest `first_seen`; other columns are equal."""
    table = pa.Table.from_batches(batches).combine_chunks()
    ids = table.column(key).to_numpy()
    order = np.lexsort((table.column("first_seen").cast(pa.int64()).to_numpy(), ids))
    new = np.ones(len(ids), dtype=bool)
    new[1:] = np.diff(ids[order]) != 0
    (batch,) = table.take(pa.array(order[new])).combine_chunks().to_batches()
    return batch
