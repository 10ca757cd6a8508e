"""The folders of a lake's tables, and which of them count.

```
<lake>/_lake.json                        the lake's format and query
       _commits/<batch>.json             the state as of each of the newest batches
       _begun.json                       the mark of the first commit
       _compacted/<day>.json             a day's compacted batch, and the last one merged into it
       _compacted/tables.json            the same for tables without days
       _dropped/<day>.json               the mark of a dropped day
       <table>/[date=D/[hour=H/]]batch=N/*.parquet
       reports/<report>/day=D/
```

Batches from 0 on are written by ingestion, those below 0 by compaction.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from .._errors import CommitsLost
from .._schema import LAKE_TABLES, PARTITIONS
from ._files import read_json, refusals, remove_unnamed, write_json
from ._state import LakeState

__all__ = [
    "KEPT_COMMITS",
    "KEPT_TABLE",
    "SWEPT_BATCHES",
    "BatchFolder",
    "LakeFiles",
    "Swept",
    "folder_of",
]

KEPT_COMMITS: Final = 100
"""Commits that are kept; each includes the ones before it."""

SWEPT_BATCHES: Final = 100
"""The newest batches, which are searched for files of abandoned tasks: see `sweep`."""

KEPT_TABLE: Final = "route_events"
"""The table of which a dropped day keeps rows: a destination of it may still be registered."""

MAX_TRIES: Final = 10
"""Attempts to remove a folder into which files are still written."""

_UNDATED: Final = "tables"


@dataclass(frozen=True, slots=True)
class BatchFolder:
    """The folder of one batch in a table.

    Attributes:
        path: The folder.
        batch: The batch.
        day: The day; `None` if the table has no days.
        hour: The hour; `None` if the table has no hours.
    """

    path: Path
    batch: int
    day: date | None = None
    hour: int | None = None


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of `LakeFiles.sweep`.

    Attributes:
        folders: Removed folders, which did not count.
        files: Removed temporary files, in folders that count.
    """

    folders: int
    files: int


def folder_of(table: str, batch: int, day: date | None = None, hour: int | None = None) -> str:
    """Return the path of a batch's folder, relative to the lake."""
    days = "" if day is None else f"/date={day.isoformat()}"
    hours = "" if hour is None else f"/hour={hour}"
    return f"{table}{days}{hours}/batch={batch}"


class LakeFiles:
    """The files of a lake, without Spark.

    Args:
        path: The lake.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    # --- commits --------------------------------------------------------------------------

    def state(self) -> LakeState:
        """Return the lake's state as of its newest commit; an empty one if there is none."""
        batches = self._commits()
        if not batches:
            return LakeState()
        plain = read_json(self._commit(batches[-1]))
        if plain is None:
            # A commit is only removed after newer ones exist.
            return self.state()
        return LakeState.of(plain)

    @property
    def skipped(self) -> Path:
        """The file that lists the skipped segments for the source: see `tell_skipped`."""
        return self.path / "_skipped.json"

    def tell_skipped(self, state: LakeState) -> None:
        """Write the list of skipped segments for the source, with the files' size and time."""
        told = {
            name: {each.name: [each.size, each.modified] for each in broker.skipped}
            for name, broker in state.brokers.items()
            if broker.skipped
        }
        if told != (read_json(self.skipped) or {}):
            with refusals(self.path):
                write_json(self.skipped, told)

    def commit(self, state: LakeState) -> None:
        """Commit a batch: from now on it is read.

        Raises:
            LakeError: The lake cannot be written. The batch may count: read `state` again.
        """
        with refusals(self.path):
            write_json(self._commit(state.batch), state.plain())
            if not self._begun.is_file():
                write_json(self._begun, {})
            for batch in self._commits()[:-KEPT_COMMITS]:
                self._commit(batch).unlink(missing_ok=True)

    @property
    def _begun(self) -> Path:
        """The file that proves a first commit if all commits are gone."""
        return self.path / "_begun.json"

    def _commit(self, batch: int) -> Path:
        return self.path / "_commits" / f"{batch:016d}.json"

    def _commits(self) -> list[int]:
        folder = self.path / "_commits"
        if not folder.is_dir():
            return []
        stems = (each.stem for each in folder.iterdir() if each.suffix == ".json")
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def check_commits(self) -> None:
        """Check, for a reader, that the commits were not deleted.

        Raises:
            CommitsLost: There was a commit, and there is none now.
        """
        if self._commits():
            return
        written = self._written()
        # Rows of the first batch alone may be of an interrupted ingest.
        if written > 0 or self._begun.is_file():
            raise CommitsLost(str(self.path), written, -1)

    def check_written(self) -> None:
        """Check, for a writer, that the commits are not older than the rows.

        An interrupted run leaves rows of the batch after its last commit, which the next run
        removes. Rows of a later batch were committed: their commit is lost, and they must stay.

        Raises:
            CommitsLost: The commits are older.
        """
        last, written = self.state().batch, self._written()
        if written > last + 1:
            raise CommitsLost(str(self.path), written, last)

    def _written(self) -> int:
        """Return the last batch that has rows, committed or not; -1 if there is none."""
        parts = (part.batch for table in LAKE_TABLES for part in self.all_parts(table))
        return max(parts, default=-1)

    # --- compactions ----------------------------------------------------------------------

    def compacted(self, day: date | None) -> tuple[int, int] | None:
        """Return the compacted batch of a day or of none, and the last batch merged into it."""
        plain = read_json(self._marker(day))
        return None if plain is None else (plain["batch"], plain["upto"])

    def set_compacted(self, day: date | None, batch: int, upto: int) -> None:
        """Mark a compaction, so that it counts in place of its inputs."""
        with refusals(self.path):
            write_json(self._marker(day), {"batch": batch, "upto": upto})

    def _marker(self, day: date | None) -> Path:
        return self.path / "_compacted" / f"{_UNDATED if day is None else day.isoformat()}.json"

    # --- dropped days ---------------------------------------------------------------------

    def dropped(self) -> frozenset[date]:
        """Return the days that were dropped."""
        folder = self.path / "_dropped"
        names = [each.stem for each in folder.glob("*.json")] if folder.is_dir() else []
        return frozenset(date.fromisoformat(name) for name in names if not name.startswith("."))

    def set_dropped(self, day: date) -> None:
        """Mark a day as dropped for good: only its rows in `KEPT_TABLE` count."""
        with refusals(self.path):
            write_json(self.path / "_dropped" / f"{day.isoformat()}.json", {})

    # --- folders --------------------------------------------------------------------------

    def parts(
        self, table: str, since: date | None = None, through: date | None = None
    ) -> list[BatchFolder]:
        """Return the folders of a table that count, sorted."""
        found = [part for part, counts in self._judged(table, since, through) if counts]
        return sorted(found, key=lambda part: part.path)

    def _judged(
        self, table: str, since: date | None = None, through: date | None = None
    ) -> Iterator[tuple[BatchFolder, bool]]:
        """Yield all folders of a table, and whether they count."""
        last = self.state().batch
        dropped = self.dropped()
        known: dict[date | None, tuple[int, int] | None] = {}
        for part in self.all_parts(table, since, through):
            if table == "completeness":
                # Each batch writes the whole table.
                yield part, part.batch == last
                continue
            if part.day in dropped and table != KEPT_TABLE:
                yield part, False
                continue
            if part.day not in known:
                known[part.day] = self.compacted(part.day)
            yield part, _counts(part, known[part.day], last)

    def all_parts(
        self, table: str, since: date | None = None, through: date | None = None
    ) -> Iterator[BatchFolder]:
        """Yield all folders of a table, whether they count or not."""
        root = self.path / table
        columns = PARTITIONS[table]
        if columns[0] != "date":
            yield from (BatchFolder(path, int(value)) for value, path in _folders(root, "batch"))
            return
        for text, folder in _folders(root, "date"):
            day = date.fromisoformat(text)
            if (since is not None and day < since) or (through is not None and day > through):
                continue
            if "hour" in columns:
                for hour, within in _folders(folder, "hour"):
                    for value, path in _folders(within, "batch"):
                        yield BatchFolder(path, int(value), day, int(hour))
            else:
                yield from (
                    BatchFolder(path, int(value), day) for value, path in _folders(folder, "batch")
                )

    def days(self) -> list[date]:
        """Return the days that have rows and are not dropped, sorted."""
        found = {
            part.day for table in ("hops", "flows", "route_events") for part in self.parts(table)
        }
        gone = self.dropped()
        return sorted(day for day in found if day is not None and day not in gone)

    def sweep(self) -> Swept:
        """Remove the files of interrupted runs, which do not count.

        An abandoned task that ends after its batch's commit leaves temporary files in folders
        that count. The newest `SWEPT_BATCHES` batches are searched for them; those of older
        batches are deleted when the day is compacted.

        The caller must hold the lake's locks and run no batch, which has such files.

        Raises:
            LakeError: The lake cannot be written.
        """
        oldest = self.state().batch - SWEPT_BATCHES + 1
        folders = files = 0
        with refusals(self.path):
            for part, counts in [each for table in LAKE_TABLES for each in self._judged(table)]:
                if not counts:
                    _remove(part.path)
                    folders += 1
                elif part.batch >= max(0, oldest):
                    files += remove_unnamed([part.path])
        return Swept(folders, files)

    def remove_stale(
        self, table: str, since: date | None = None, through: date | None = None
    ) -> int:
        """Remove the folders of a table that do not count."""
        stale = [part for part, counts in self._judged(table, since, through) if not counts]
        for part in stale:
            _remove(part.path)
        return len(stale)


def _remove(folder: Path) -> None:
    """Remove a folder, even while an abandoned task still writes files into it."""
    for tries_left in reversed(range(MAX_TRIES)):
        try:
            shutil.rmtree(folder)
        except OSError:
            if not tries_left:
                raise
        if not folder.exists():
            return


def _counts(part: BatchFolder, compacted: tuple[int, int] | None, last: int) -> bool:
    if compacted is None:
        return 0 <= part.batch <= last
    batch, upto = compacted
    return part.batch == batch if part.batch < 0 else upto < part.batch <= last


def _folders(root: Path, key: str) -> Iterator[tuple[str, Path]]:
    """Yield value and path of the folders `key=value`."""
    try:
        found = list(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in found:
        name, is_pair, value = path.name.partition("=")
        if is_pair and name == key:
            yield value, path
