"""The Parquet files of a task: written concurrently by row groups, and invisible until named.

A temporary name begins with a dot and does not end with `.parquet`, so no engine reads the file.
It is unique to an attempt at a task. The driver gives the file its name when the whole job is done
(see `name_files`). So an abandoned task that still runs leaves no file that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from ._files import UNNAMED, refusals, sync
from ._parts import folder_of

__all__ = [
    "GROUP_ROWS",
    "HELD_BYTES",
    "OPEN_FILES",
    "PartFiles",
    "Partition",
    "Written",
    "alone",
    "name_files",
    "open_writer",
    "write_file",
]

GROUP_ROWS: Final = 524_288
"""The approximate number of rows in a row group; the last of a file has fewer."""

HELD_BYTES: Final = 128 * 1024 * 1024
"""Bytes that a task buffers for row groups; above it the largest buffer is written."""

OPEN_FILES: Final = 16
"""Files that a task has open at once. For one more the least recently written is closed; later
rows of it begin another file."""

_BESIDE: Final = 512
"""Overhead of a column in a batch, in bytes: measured 9 kB for 17 columns."""

_DELTAS: Final = frozenset({"seq", "ts", "latency_us"})
"""Columns with rising or small values: the differences take few bits."""

_PLAIN: Final = frozenset({"trace_id", "shard_hash"})
"""Columns with hardly any repeated value, for which a dictionary is wasted."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a table.

    Attributes:
        table: The table.
        day: The day, UTC; `None` if the table has no days.
        hour: The hour; `None` if the table has no hours.
    """

    table: str
    day: date | None = None
    hour: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a task has written under a temporary name.

    Attributes:
        place: The partition of its rows.
        path: The path, relative to the lake.
        rows: The number of rows.
    """

    place: Partition
    path: str
    rows: int


class PartFiles:
    """The files of one task, and a context manager that removes them on failure.

    Args:
        lake: The lake.
        batch: The batch's number.
        pack: The task's number in it.
    """

    def __init__(self, lake: Path, batch: int, pack: int) -> None:
        self.written: list[Written] = []
        self._lake = lake
        self._batch = batch
        self._pack = pack
        self._attempt = uuid4().hex
        # In the order they were last written to.
        self._open: dict[Partition, _File] = {}
        self._begun = Counter[Partition]()
        self._held = 0

    def __enter__(self) -> PartFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is not None:
            self._abandon()
            return
        try:
            with refusals(self._lake):
                for place in list(self._open):
                    self._end(place)
        except BaseException:
            # On any error, also of memory: nothing else knows these files by name.
            self._abandon()
            raise

    def add(self, place: Partition, rows: Any) -> None:
        """Add a `pyarrow.RecordBatch`, which is buffered until a row group is full.

        Raises:
            LakeError: The lake cannot be written.
        """
        with refusals(self._lake):
            file = self._open.pop(place, None) or self._begin(place, rows.schema)
            self._open[place] = file
            self._held += file.add(rows)
            if file.held_rows >= GROUP_ROWS:
                self._held -= file.flush()
            while self._held > HELD_BYTES:
                self._held -= max(self._open.values(), key=lambda each: each.held_bytes).flush()

    def _abandon(self) -> None:
        for file in self._open.values():
            file.abandon()
        for each in self.written:
            _remove(self._lake / each.path)

    def _begin(self, place: Partition, schema: Any) -> _File:
        if len(self._open) >= OPEN_FILES:
            self._end(next(iter(self._open)))
        folder = folder_of(place.table, self._batch, place.day, place.hour)
        name = f".part-{self._pack:05d}-{self._begun[place]}.{self._attempt}{UNNAMED}"
        self._begun[place] += 1
        return _File(self._lake, f"{folder}/{name}", schema)

    def _end(self, place: Partition) -> None:
        file = self._open[place]
        self._held -= file.flush()
        file.close()
        del self._open[place]
        self.written.append(Written(place, file.path, file.rows))


class _File:
    """A file with the buffered rows of its next row group."""

    def __init__(self, lake: Path, path: str, schema: Any) -> None:
        self.path = path
        self.rows = 0
        self.held_rows = 0
        self.held_bytes = 0
        self._whole = lake / path
        self._whole.parent.mkdir(parents=True, exist_ok=True)
        self._sink = pa.OSFile(str(self._whole), "wb")
        try:
            self._writer = open_writer(self._sink, schema)
        except BaseException:
            self._sink.close()
            _remove(self._whole)
            raise
        self._held: list[Any] = []

    def add(self, rows: Any) -> int:
        """Buffer rows; return the bytes of memory that they occupy."""
        rows, size = alone(rows)
        self._held.append(rows)
        self.held_rows += rows.num_rows
        self.held_bytes += size
        return size

    def flush(self) -> int:
        """Write the buffered rows as a row group; return the bytes that this frees."""
        if self._held:
            table = pa.Table.from_batches(self._held)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self.rows += table.num_rows
        freed = self.held_bytes
        self._held, self.held_rows, self.held_bytes = [], 0, 0
        return freed

    def close(self) -> None:
        """Close the file and flush it to disk."""
        self._writer.close()
        self._sink.close()
        sync(self._whole)

    def abandon(self) -> None:
        """Remove the file, even if the disk refuses writes."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._sink.close()
        _remove(self._whole)


def _remove(file: Path) -> None:
    """Remove a file; a failure is left to `remove_unnamed`."""
    with suppress(OSError):
        file.unlink()


def alone(rows: Any) -> tuple[Any, int]:
    """Return rows that occupy less than twice their bytes, and the bytes that they occupy.

    A slice keeps all of its batch in memory: one row of the next hour in each batch would keep
    everything. So a small slice is copied.
    """
    kept = int(rows.get_total_buffer_size())
    if 2 * int(rows.nbytes) < kept:
        columns = [pa.concat_arrays([column]) for column in rows.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        kept = int(rows.get_total_buffer_size())
    return rows, kept + _BESIDE * int(rows.num_columns)


def open_writer(sink: Any, schema: Any) -> Any:
    """Open a writer with the lake's encodings; `sink` is a path or an `OSFile`."""
    deltas = [name for name in schema.names if name in _DELTAS]
    others = (_leaves(field) for field in schema if field.name not in _DELTAS | _PLAIN)
    dictionaries: Any = [leaf for leaves in others for leaf in leaves]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=dictionaries,
        column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED") or None,
        # Only Arrow reads it; Spark's files have none.
        store_schema=False,
    )


def _leaves(field: Any) -> Sequence[str]:
    """Return Parquet's names of a field's columns; a map has two."""
    if pa.types.is_map(field.type):
        return [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
    return [field.name]


def write_file(path: Path, rows: Any) -> None:
    """Write a `pyarrow.Table` as one file, under its final name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_writer(str(path), rows.schema) as writer:
        writer.write_table(rows)


def name_files(lake: Path, written: Iterable[Written]) -> set[Path]:
    """Rename the files of a job to their final names; return their folders.

    Raises:
        LakeError: A file is missing or cannot be renamed.
    """
    folders: set[Path] = set()
    for each in written:
        path = lake / each.path
        name = path.name.removeprefix(".").partition(".")[0]
        with refusals(lake):
            path.replace(path.with_name(f"{name}.parquet"))
        folders.add(path.parent)
    return folders
