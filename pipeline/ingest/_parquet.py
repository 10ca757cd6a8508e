"""Parquet written by a task: many files at once, row group by row group, each unseen until named.

A file is begun under a name that begins with a dot and ends with no `.parquet`, so no engine reads
it, and that no other attempt at the same task has. The driver gives it its name when the whole job
is done (see `name_files`): a task that was given up on, and works on, leaves nothing that counts.
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
    "Place",
    "Written",
    "alone",
    "name_files",
    "open_writer",
    "write_file",
]

GROUP_ROWS: Final = 524_288
"""About how many rows a row group has; the last of a file has fewer."""

HELD_BYTES: Final = 128 * 1024 * 1024
"""Bytes that a task holds for row groups to come; over that the largest is written as it is."""

OPEN_FILES: Final = 16
"""Files that a task has open at once; for one more the one that was longest not written to is
closed, and begun again as another if more of it comes."""

_BESIDE: Final = 512
"""Bytes that a column of a batch takes besides its values: measured 9 kB for 17 columns."""

_DELTAS: Final = frozenset({"seq", "ts", "latency_us"})
"""Columns that rise, or are small: what is between two values takes few bits."""

_PLAIN: Final = frozenset({"trace_id", "shard_hash"})
"""Columns whose values hardly ever come twice: a dictionary of them is made and thrown away."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows belong.

    Attributes:
        table: The table.
        day: The day, UTC; `None` if the table has no days.
        hour: The hour of it; `None` if it has no hours.
    """

    table: str
    day: date | None = None
    hour: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a task has written, without its name.

    Attributes:
        place: Of which rows.
        path: Where, from the lake.
        rows: How many.
    """

    place: Place
    path: str
    rows: int


class PartFiles:
    """The files of one task. As a context it removes them if the task fails.

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
        self._open: dict[Place, _File] = {}
        self._begun = Counter[Place]()
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
            # Whatever it is, also of memory: nobody else knows these files by name.
            self._abandon()
            raise

    def add(self, place: Place, rows: Any) -> None:
        """Take a `pyarrow.RecordBatch`; it is held until a row group is full.

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

    def _begin(self, place: Place, schema: Any) -> _File:
        if len(self._open) >= OPEN_FILES:
            self._end(next(iter(self._open)))
        folder = folder_of(place.table, self._batch, place.day, place.hour)
        name = f".part-{self._pack:05d}-{self._begun[place]}.{self._attempt}{UNNAMED}"
        self._begun[place] += 1
        return _File(self._lake, f"{folder}/{name}", schema)

    def _end(self, place: Place) -> None:
        file = self._open[place]
        self._held -= file.flush()
        file.close()
        del self._open[place]
        self.written.append(Written(place, file.path, file.rows))


class _File:
    """One file, and the rows of its next row group."""

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
        """Hold rows; return how many bytes that keeps from being freed."""
        rows, size = alone(rows)
        self._held.append(rows)
        self.held_rows += rows.num_rows
        self.held_bytes += size
        return size

    def flush(self) -> int:
        """Write what is held as a row group; return how many bytes are not held any more."""
        if self._held:
            table = pa.Table.from_batches(self._held)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self.rows += table.num_rows
        freed = self.held_bytes
        self._held, self.held_rows, self.held_bytes = [], 0, 0
        return freed

    def close(self) -> None:
        """End the file, so that it outlives a power cut."""
        self._writer.close()
        self._sink.close()
        sync(self._whole)

    def abandon(self) -> None:
        """Remove the file, also where nothing can be written any more."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._sink.close()
        _remove(self._whole)


def _remove(file: Path) -> None:
    """Remove a file; one that cannot be is left to who removes what has no name."""
    with suppress(OSError):
        file.unlink()


def alone(rows: Any) -> tuple[Any, int]:
    """Return rows that keep less than twice their bytes, and how many bytes they keep.

    Rows that were cut out of a batch keep all of it: one row of each batch that is of the next
    hour would keep as much as all that is written.
    """
    kept = int(rows.get_total_buffer_size())
    if 2 * int(rows.nbytes) < kept:
        columns = [pa.concat_arrays([column]) for column in rows.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        kept = int(rows.get_total_buffer_size())
    return rows, kept + _BESIDE * int(rows.num_columns)


def open_writer(sink: Any, schema: Any) -> Any:
    """Begin a file as those of a lake are: `sink` is a path, or an `OSFile`."""
    deltas = [name for name in schema.names if name in _DELTAS]
    others = (_leaves(field) for field in schema if field.name not in _DELTAS | _PLAIN)
    dictionaries: Any = [leaf for leaves in others for leaf in leaves]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=dictionaries,
        column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED") or None,
        # What only Arrow would understand; Spark's files have none.
        store_schema=False,
    )


def _leaves(field: Any) -> Sequence[str]:
    """What Parquet calls the columns of a field: a map is two."""
    if pa.types.is_map(field.type):
        return [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
    return [field.name]


def write_file(path: Path, rows: Any) -> None:
    """Write a `pyarrow.Table` as one file, at once under its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_writer(str(path), rows.schema) as writer:
        writer.write_table(rows)


def name_files(lake: Path, written: Iterable[Written]) -> set[Path]:
    """Give the files of a job their names; return the folders they are in.

    Raises:
        LakeError: One is not there, or cannot get its name.
    """
    folders: set[Path] = set()
    for each in written:
        path = lake / each.path
        name = path.name.removeprefix(".").partition(".")[0]
        with refusals(lake):
            path.replace(path.with_name(f"{name}.parquet"))
        folders.add(path.parent)
    return folders
