"""The writer of a batch: it adds to each table a folder of the batch alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ...protocol import counted
from .._errors import LakeError
from .._schema import LAKE_TABLES
from ..source import arrow_schema, columns_of, pack
from ._files import refusals, remove_unnamed, sync_folders
from ._packs import SUMMARY, Job, write_packs
from ._parquet import Partition, Written, name_files, write_file
from ._parts import LakeFiles, folder_of
from ._plan import BatchPlan
from ._state import BrokerState

__all__ = ["Added", "TableWriter", "packs_of"]

_COUNTS: Final = {"hops": "hops", "flows": "flows", "route_events": "events"}


@dataclass(slots=True)
class Added:
    """The late and the dropped events of a batch, by day.

    Attributes:
        late: Events of days already closed.
        dropped: Events of dropped days, which were not written.
    """

    late: Counter[date] = field(default_factory=Counter[date])
    dropped: Counter[date] = field(default_factory=Counter[date])


class TableWriter:
    """A writer of one batch, after `LakeFiles.sweep` has removed an earlier attempt.

    Args:
        spark: The batch's session.
        files: The lake.
        log: The directory of logs.
        number: The batch's number.
        tell: Called with a text before each step.

    Attributes:
        folders: The folders it has written to.
    """

    def __init__(
        self,
        spark: SparkSession,
        files: LakeFiles,
        log: Path,
        number: int,
        tell: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._files = files
        self._log = log
        self._number = number
        self._tell = tell
        self.folders: set[Path] = set()

    def write(self, batch: BatchPlan, closed: date | None) -> Added:
        """Write all tables but `completeness`.

        Raises:
            LogError: A segment cannot be read.
            LakeError: The rows written are not as many as the segments have.
        """
        added = Added()
        if batch.rows:
            self._write_packs(batch, closed, added)
        segments = [*batch.rows, *batch.damaged]
        self._tell(f"writing segments: {len(segments)} rows")
        self.write_small("segments", segments)
        return added

    def write_completeness(self, brokers: Mapping[str, BrokerState]) -> None:
        """Write the progress of every broker's log, as of this batch."""
        self._tell(f"writing completeness: {len(brokers)} rows")
        rows = [_completeness(name, broker) for name, broker in sorted(brokers.items())]
        self.write_small("completeness", rows)

    def write_small(self, table: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Write a table of few rows, without Spark.

        Raises:
            LakeError: The lake cannot be written.
        """
        if not rows:
            return
        folder = self._files.path / folder_of(table, self._number)
        schema = arrow_schema(columns_of(LAKE_TABLES[table]))
        made = pa.Table.from_pylist(list(rows), schema=schema)
        with refusals(self._files.path):
            write_file(folder / "part-00000.parquet", made)
        self.folders.add(folder)

    def sync(self) -> None:
        """Flush all that was written to disk; call this before the commit.

        Raises:
            LakeError: The disk refuses it.
        """
        with refusals(self._files.path):
            sync_folders(self.folders, self._files.path)

    # --- packs ----------------------------------------------------------------------------

    def _write_packs(self, batch: BatchPlan, closed: date | None, added: Added) -> None:
        counts = {table: batch.total(column) for table, column in _COUNTS.items()}
        said = ", ".join(f"{count} {table}" for table, count in counts.items())
        self._tell(f"writing {said} of {len(batch.rows)} segments")
        segments = pack([(row["path"], row["size"]) for row in batch.rows], ends_only=False)
        packs = tuple(each.paths for each in segments)
        path, dropped = self._files.path, self._files.dropped()
        job = Job(self._log, path, self._number, closed, dropped, packs)
        rows: list[dict[str, Any]] = packs_of(self._spark, job).toArrow().to_pylist()
        written = [
            Written(Partition(row["table"], row["day"]), row["path"], row["rows"])
            for row in rows
            if row["path"] is not None
        ]
        self._check(rows, counts)
        self._tell(f"naming {counted(len(written), 'file')}")
        self.folders |= name_files(path, written)
        with refusals(path):
            remove_unnamed(self.folders)
        for row in rows:
            if row["path"] is None:
                added.dropped[row["day"]] += row["rows"]
            elif row["table"] == "late":
                added.late[row["day"]] += row["rows"]

    def _check(self, rows: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> None:
        """Compare the rows that tasks wrote with the counts in the segments."""
        found = Counter[str]()
        for row in rows:
            found[row["table"]] += row["rows"]
        for table, count in counts.items():
            if found[table] != count:
                raise LakeError(
                    f"{self._files.path}: {found[table]} rows of {table} were written of the "
                    f"{count} that the segments have, and the batch was given up: run ingest "
                    "again; if it says so again, look at the logs with `onward events --check`"
                )


def packs_of(spark: SparkSession, job: Job) -> DataFrame:
    """Return a frame that writes a job when it is computed: a task for each pack."""
    count = len(job.packs)
    return spark.range(0, count, 1, count).mapInArrow(partial(write_packs, job), SUMMARY)


def _completeness(name: str, broker: BrokerState) -> dict[str, Any]:
    epoch, last = broker.last
    return {
        "broker": name,
        "log_id": broker.log_id,
        "sealed_through": datetime(1970, 1, 1, tzinfo=UTC)
        + timedelta(microseconds=broker.sealed_through),
        "last_epoch": epoch,
        "last_seq": last,
        "segments": broker.segments,
        "events": broker.events,
        "missing": broker.missing,
    }
