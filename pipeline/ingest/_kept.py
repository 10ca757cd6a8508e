"""What stays of a day that was dropped: who came and went, without which nobody is known later.

A destination that came on a dropped day may be there still. Which ones are is told by all comings
and goings since, so those rows stay, and come in late; the others of `route_events`, mostly
requests that nobody could take, go with the rest of the day.
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
"""Its functions are made when it is imported, and have no annotations."""

_KEPT: Final = pa.array(
    [each.name.lower() for each in (EventName.UP, EventName.DOWN, EventName.DRAIN, EventName.RETAG)]
)

Gone = tuple[int, int]
"""How many files went, and how many bytes with them and from others."""


def kept_rows(table: str, rows: Any) -> Any:
    """Return those of a dropped day's rows that stay: none, but of `route_events`."""
    if table != KEPT_TABLE:
        return rows.slice(0, 0)
    return rows.filter(_compute.is_in(rows.column("event"), value_set=_KEPT))


def thin(folders: Sequence[Path]) -> Gone:
    """Leave in the files of `route_events` what stays; done again, it changes nothing.

    Each file is replaced at once, so that readers see it as it was or as it is.
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
    """Write a file anew without what goes; return its bytes, 0 if nothing stays of it."""
    new = file.with_name(f".{file.name}.{os.getpid()}{UNNAMED}")
    rows = kept = 0
    with pq.ParquetFile(file) as old, open_writer(str(new), _SCHEMA) as writer:
        # A row group at a time, as they were written.
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
    # Spark's sum of a file that it has compacted is of what it was.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    new.replace(file)
    return file.stat().st_size
