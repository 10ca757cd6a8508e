"""The folders of a lake's tables, and which of them count.

```
<lake>/_lake.json                        what it is, and of which query
       _commits/<batch>.json             what it has as of each batch, the newest ones
       _begun.json                       that there was a commit
       _compacted/<day>.json             which batch has a day's rows, instead of all up to which
       _compacted/tables.json            the same for tables that have no day
       _dropped/<day>.json               that of a day only who came and went counts any more
       <table>/[date=D/[hour=H/]]batch=N/*.parquet
       reports/<report>/day=D/
```

Batches from 0 on are what ingest wrote, those below 0 what compaction made of them.
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

__all__ = ["KEPT_COMMITS", "KEPT_TABLE", "SWEPT_BATCHES", "LakeFiles", "Part", "Swept", "folder_of"]

KEPT_COMMITS: Final = 100
"""Commits that are kept; each says all that the ones before it said."""

SWEPT_BATCHES: Final = 100
"""Batches, the newest, of which files are looked for that a task left behind: see `sweep`."""

KEPT_TABLE: Final = "route_events"
"""The table of which something stays when a day is dropped: who came then may be there now."""

MAX_TRIES: Final = 10
"""How often the removal of a folder is begun again because something new was in it."""

_UNDATED: Final = "tables"


@dataclass(frozen=True, slots=True)
class Part:
    """The folder of one batch in a table.

    Attributes:
        path: Where.
        batch: Which.
        day: Of which day; `None` if the table has no days.
        hour: Of which hour; `None` if it has no hours.
    """

    path: Path
    batch: int
    day: date | None = None
    hour: int | None = None


@dataclass(frozen=True, slots=True)
class Swept:
    """What `LakeFiles.sweep` has removed.

    Attributes:
        folders: Folders that did not count.
        files: Files without a name, in folders that do.
    """

    folders: int
    files: int


def folder_of(table: str, batch: int, day: date | None = None, hour: int | None = None) -> str:
    """Return the path of such a folder, from the lake."""
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

    # --- what was committed ---------------------------------------------------------------

    def state(self) -> LakeState:
        """Return what the lake has as of its newest commit; nothing if there is none."""
        batches = self._commits()
        if not batches:
            return LakeState()
        plain = read_json(self._commit(batches[-1]))
        if plain is None:
            # Only removed in favour of newer ones.
            return self.state()
        return LakeState.of(plain)

    @property
    def skipped(self) -> Path:
        """The file that tells the source which segments were skipped: see `tell_skipped`."""
        return self.path / "_skipped.json"

    def tell_skipped(self, state: LakeState) -> None:
        """Tell the source which segments were skipped, and what the files were like then."""
        told = {
            name: {each.name: [each.size, each.modified] for each in broker.skipped}
            for name, broker in state.brokers.items()
            if broker.skipped
        }
        if told != (read_json(self.skipped) or {}):
            with refusals(self.path):
                write_json(self.skipped, told)

    def commit(self, state: LakeState) -> None:
        """Have a batch count: from here on it is read.

        Raises:
            LakeError: It cannot be written. The batch counts or does not; who looks again knows.
        """
        with refusals(self.path):
            write_json(self._commit(state.batch), state.plain())
            if not self._begun.is_file():
                write_json(self._begun, {})
            for batch in self._commits()[:-KEPT_COMMITS]:
                self._commit(batch).unlink(missing_ok=True)

    @property
    def _begun(self) -> Path:
        """The file by which it is known that there was a commit, if all commits are gone."""
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
        """Check, for a reader, that there is a commit if there ever was one.

        Raises:
            CommitsLost: There was one, and there is none.
        """
        if self._commits():
            return
        written = self._written()
        # Rows of the first batch alone may be of an ingest that was cut off.
        if written > 0 or self._begun.is_file():
            raise CommitsLost(str(self.path), written, -1)

    def check_written(self) -> None:
        """Check, for a writer, that the commits are those of what was written.

        A run writes the batch behind its last commit, and what it left is removed by the next.
        Anything later was committed once: what knew of it is gone, and it must not be removed.

        Raises:
            CommitsLost: They are not.
        """
        last, written = self.state().batch, self._written()
        if written > last + 1:
            raise CommitsLost(str(self.path), written, last)

    def _written(self) -> int:
        """Return the last batch that has rows, committed or not; -1 if there is none."""
        parts = (part.batch for table in LAKE_TABLES for part in self.all_parts(table))
        return max(parts, default=-1)

    # --- what was compacted ---------------------------------------------------------------

    def compacted(self, day: date | None) -> tuple[int, int] | None:
        """Return which batch has a day's rows, or those of no day, and of all up to which."""
        plain = read_json(self._marker(day))
        return None if plain is None else (plain["batch"], plain["upto"])

    def set_compacted(self, day: date | None, batch: int, upto: int) -> None:
        """Have a compaction count instead of what it was made of."""
        with refusals(self.path):
            write_json(self._marker(day), {"batch": batch, "upto": upto})

    def _marker(self, day: date | None) -> Path:
        return self.path / "_compacted" / f"{_UNDATED if day is None else day.isoformat()}.json"

    # --- what was dropped -----------------------------------------------------------------

    def dropped(self) -> frozenset[date]:
        """Return the days that were dropped."""
        folder = self.path / "_dropped"
        names = [each.stem for each in folder.glob("*.json")] if folder.is_dir() else []
        return frozenset(date.fromisoformat(name) for name in names if not name.startswith("."))

    def set_dropped(self, day: date) -> None:
        """Have nothing of a day count any more, for ever, but who came and went."""
        with refusals(self.path):
            write_json(self.path / "_dropped" / f"{day.isoformat()}.json", {})

    # --- folders --------------------------------------------------------------------------

    def parts(
        self, table: str, since: date | None = None, through: date | None = None
    ) -> list[Part]:
        """Return the folders of a table that count, sorted."""
        found = [part for part, counts in self._judged(table, since, through) if counts]
        return sorted(found, key=lambda part: part.path)

    def _judged(
        self, table: str, since: date | None = None, through: date | None = None
    ) -> Iterator[tuple[Part, bool]]:
        """Yield all folders of a table, and whether they count."""
        last = self.state().batch
        dropped = self.dropped()
        known: dict[date | None, tuple[int, int] | None] = {}
        for part in self.all_parts(table, since, through):
            if table == "completeness":
                # It is said anew with every batch.
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
    ) -> Iterator[Part]:
        """Yield all folders of a table, whether they count or not."""
        root = self.path / table
        columns = PARTITIONS[table]
        if columns[0] != "date":
            yield from (Part(path, int(value)) for value, path in _folders(root, "batch"))
            return
        for text, folder in _folders(root, "date"):
            day = date.fromisoformat(text)
            if (since is not None and day < since) or (through is not None and day > through):
                continue
            if "hour" in columns:
                for hour, within in _folders(folder, "hour"):
                    for value, path in _folders(within, "batch"):
                        yield Part(path, int(value), day, int(hour))
            else:
                yield from (
                    Part(path, int(value), day) for value, path in _folders(folder, "batch")
                )

    def days(self) -> list[date]:
        """Return the days that have rows, sorted; not those that were dropped."""
        found = {
            part.day for table in ("hops", "flows", "route_events") for part in self.parts(table)
        }
        gone = self.dropped()
        return sorted(day for day in found if day is not None and day not in gone)

    def sweep(self) -> Swept:
        """Remove what a run left that was cut off: what does not count, and cannot any more.

        That is also what a task left that was given up on, and that ended after its batch was
        committed: files without a name in folders that count. They are looked for in those of the
        newest `SWEPT_BATCHES` batches; of older ones they go when the day is compacted.

        Only for who holds the lake's locks, before a batch is begun: its tasks have such files.

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
    """Remove a folder, also while a task that Spark gave up on still writes files into it."""
    for tries_left in reversed(range(MAX_TRIES)):
        try:
            shutil.rmtree(folder)
        except OSError:
            if not tries_left:
                raise
        if not folder.exists():
            return


def _counts(part: Part, compacted: tuple[int, int] | None, last: int) -> bool:
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
