"""The rows of a dropped day that are kept: the events by which destinations came and went.

A destination that came on a dropped day may still be there. The routing table is computed from all
such events, so these rows are kept, and late ones are added. The other rows of `route_events`,
mostly unroutable requests, are deleted with the rest of the day.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...protocol.eventlog import EventName
from .._schema import LAKE_TABLES
from ..source import arrow_schema, columns_of
from ._files import UNNAMED, remove_unnamed, sync
from ._parquet import open_writer
from ._parts import KEPT_TABLE

__all__ = ["Gone", "kept_rows", "thin"]

_SCHEMA: Final = arrow_schema(columns_of(LAKE_TABLES[KEPT_TABLE]))

_compute: Any = pc
"""The module `pyarrow.compute`; its functions are generated and have no annotations."""

_KEPT: Final = pa.array(
    [each.name.lower() for each in (EventName.UP, EventName.DOWN, EventName.DRAIN, EventName.RETAG)]
)

Gone = tuple[int, int]
"""The number of deleted files, and of bytes deleted with them and from other files."""


def kept_rows(table: str, rows: Any) -> Any:
    """Return the rows of a dropped day that are kept; only `route_events` has any."""
    if table != KEPT_TABLE:
        return rows.slice(0, 0)
    return rows.filter(_compute.is_in(rows.column("event"), value_set=_KEPT))


def thin(folders: Sequence[Path]) -> Gone:
    """Remove all rows from files of `route_events` but those that are kept.

    Each file is replaced atomically. A second run changes nothing.
    """
    remove_unnamed(folders)
    files = size = 0
    for folder in folders:
        for file in sorted(folder.glob("*.parquet")):
            before = file.stat().st_size
            after = _thinned(file)
            files, size = files + (after == 0), size + before - after
        sync(folder)
    return files, size


def _thinned(file: Path) -> int:
    """Rewrite a file with the kept rows only; return its size, 0 if it has none."""
    new = file.with_name(f".{file.name}.{os.getpid()}{UNNAMED}")
    rows = kept = 0
    with pq.ParquetFile(file) as old, open_writer(str(new), _SCHEMA) as writer:
        # One row group at a time, to bound memory.
        for number in range(old.num_row_groups):
            group = old.read_row_group(number).cast(_SCHEMA)
            some = kept_rows(KEPT_TABLE, group)
            rows, kept = rows + group.num_rows, kept + some.num_rows
            if some.num_rows:
                writer.write_table(some)
    if kept == rows:
        new.unlink()
        return file.stat().st_size
    if not kept:
        new.unlink()
        file.unlink()
        return 0
    sync(new)
    # Spark's checksum of a file that it compacted is of the old content.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    new.replace(file)
    return file.stat().st_size
