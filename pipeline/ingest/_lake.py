"""The lake: access to its tables and its reports."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, functions as sf

from .._errors import BadOption, DayOpen, NewerLake, NoCommit, NotALake
from .._refused import spark_refusals
from .._schema import LAKE_TABLES, PARTITIONS, REPORT_TABLES
from ._files import LOCK_SECONDS, MARKER, locked, read_json, refusals, write_json
from ._kept import thin
from ._parts import KEPT_TABLE, BatchFolder, LakeFiles
from ._state import LakeState

__all__ = ["FORMAT", "Dropped", "Lake", "once"]

FORMAT: Final = 1
"""The version of a lake's layout."""

_WHEN: Final = {
    "hops": ("ts", "ts"),
    "flows": ("window_start", "window_start"),
    "route_events": ("ts", "ts"),
    "late": ("ts", "ts"),
    "segments": ("ended", "started"),
}
"""The columns that are compared with `since` and `until`."""

_KEYS: Final = {"dim_tagset": "tagset_id", "dim_node": "node", "dim_route": "route_id"}

_REHEARSALS: Final = ("replay_summary", "replay_routes")
"""Reports that are made on request, not for every day."""

FORMATS: Final = ("parquet", "json", "csv")


@dataclass(frozen=True, slots=True)
class Dropped:
    """The result of `Lake.drop`.

    Attributes:
        day: The day.
        files: Number of deleted files.
        bytes: Bytes of the deleted files, and of the rows deleted from others.
    """

    day: date
    files: int
    bytes: int


class Lake:
    """A lake of plain Parquet, of which only committed files are read.

    The constructor accesses no file. Spark's driver and executors must see the path.

    Args:
        path: The directory.
    """

    def __init__(self, path: str | Path) -> None:
        # A Spark Connect server has another working directory.
        self.path = Path(path).absolute()
        self._files = LakeFiles(self.path)

    def __repr__(self) -> str:
        return f"Lake({str(self.path)!r})"

    # --- state ----------------------------------------------------------------------------

    def check(self) -> None:
        """Check that the directory is a readable lake.

        Raises:
            NoCommit: There is no lake.
            NotALake: The directory is something else.
            NewerLake: A newer version of Onward wrote it.
            CommitsLost: It has rows, but no commit.
        """
        plain = read_json(self.path / MARKER)
        if plain is None:
            raise NoCommit(str(self.path))
        if "format" not in plain or "id" not in plain:
            raise NotALake(str(self.path), f"{MARKER} says nothing of it")
        if plain["format"] != FORMAT:
            raise NewerLake(str(self.path), plain["format"])
        self._files.check_commits()

    def state(self) -> LakeState:
        """Return the lake's state, with the progress of each log, as of the last commit.

        Raises:
            LakeError: The lake is not valid or not readable.
        """
        self.check()
        return self._files.state()

    def days(self, spark: SparkSession | None = None) -> list[date]:
        """Return the days, UTC, that have rows, sorted.

        Args:
            spark: Unused: the names of folders suffice.
        """
        del spark
        return self._files.days()

    def dropped_days(self) -> list[date]:
        """Return the days, UTC, that were dropped, sorted."""
        return sorted(self._files.dropped())

    def is_closed(self, day: date) -> bool:
        """Whether all live brokers had sealed all of a day as of the last commit."""
        closed = self.state().closed
        return closed is not None and day <= closed

    def batch(self) -> int:
        """Return the last committed batch; -1 before the first.

        Call this before planning a report, and pass the result to `write_report`.
        """
        return self.state().batch

    def days_to_rerun(self) -> list[date]:
        """Return the days with late events that their reports lack.

        A day is not listed if all its reports in the lake's own folder, except rehearsals, were
        planned after those events were committed.
        """
        late = sorted(self.state().late.items())
        gone = self._files.dropped()
        return [d for d, (_, batch) in late if d not in gone and self._has_older(d, batch)]

    def _has_older(self, day: date, batch: int) -> bool:
        """Whether a day has a report that was planned before a batch, or has no report."""
        root = self.path / "reports"
        made = [name for name in REPORT_TABLES if (root / name / f"day={day}").is_dir()]
        marks = [read_json(self._reported(day, name)) for name in made if name not in _REHEARSALS]
        return not marks or any(mark is None or mark["through"] < batch for mark in marks)

    def files(self, name: str, *, day: date | None = None) -> list[str]:
        """Return the Parquet files of a table that count, for engines other than Spark.

        Args:
            name: The table.
            day: Return files of this day only, for tables with days.

        Raises:
            BadOption: There is no such table.
        """
        parts = self._files.parts(_known(name), day, day)
        return sorted(str(file) for part in parts for file in part.path.glob("*.parquet"))

    # --- tables ---------------------------------------------------------------------------

    def table(
        self,
        spark: SparkSession,
        name: str,
        *,
        day: date | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> DataFrame:
        """Return a table, with exactly the columns of `LAKE_TABLES`; it may be empty.

        Batches committed after this call are not in it. A later compaction removes its files:
        then read again.

        Args:
            spark: The session.
            name: The table.
            day: Rows of this day, UTC, only; ignored for dimensions and `completeness`.
            since: Rows from this time on.
            until: Rows before this time.

        Raises:
            LakeError: The lake is not valid or not readable.
            BadOption: There is no such table.
        """
        ddl = LAKE_TABLES[_known(name)]
        self.check()
        if day is not None:
            since, until = _day_of(day)
        parts = self._between(name, since, until)
        if not parts:
            return spark.createDataFrame([], ddl)
        # Without the parent folders, so that names of partitions are no columns.
        frame = spark.read.schema(ddl).parquet(*(str(part.path) for part in parts))
        if name in _KEYS:
            return once(frame, _KEYS[name])
        if name in _WHEN:
            return _within(frame, *_WHEN[name], since, until)
        return frame

    def _between(
        self, name: str, since: datetime | None, until: datetime | None
    ) -> Sequence[BatchFolder]:
        first = None if since is None else since.astimezone(UTC).date()
        last = None if until is None else until.astimezone(UTC).date()
        return self._files.parts(name, first, last)

    # --- deletion -------------------------------------------------------------------------

    def drop(self, day: date) -> Dropped:
        """Delete the events of a closed day for good, but not its reports and the dimensions.

        The rows of `route_events` by which destinations came and went are kept: `tagindex` needs
        them for destinations that are still registered. Late rows of this kind are added. Other
        late events of the day are not added, but counted: see `IngestSummary.dropped`.

        An interrupted call counts as done or as not begun. A second call finishes it, and so does
        the next `ingest`, except for rows of `route_events`. A concurrent `ingest` waits before its
        next batch. A concurrent report on the day may miss a file and fail: run it again.

        Raises:
            DayOpen: The day is not closed.
            LakeError: The lake is not valid or not writable.
        """
        self.check()
        with locked(self.path / "_write.lock", wait=LOCK_SECONDS), refusals(self.path):
            if not self.is_closed(day):
                raise DayOpen(day, self.state().closed)
            self._files.set_dropped(day)
            files = size = 0
            for table in LAKE_TABLES:
                if PARTITIONS[table][0] != "date":
                    continue
                if table == KEPT_TABLE:
                    thinned = thin([each.path for each in self._files.parts(table, day, day)])
                    files, size = files + thinned[0], size + thinned[1]
                    continue
                for part in self._files.all_parts(table, day, day):
                    sizes = [file.stat().st_size for file in part.path.glob("*.parquet")]
                    files, size = files + len(sizes), size + sum(sizes)
                shutil.rmtree(self.path / table / f"date={day.isoformat()}", ignore_errors=True)
        return Dropped(day, files, size)

    # --- reports --------------------------------------------------------------------------

    def write_report(
        self,
        df: DataFrame,
        report: str,
        day: date,
        out: str | Path | None = None,
        format: str = "parquet",  # noqa: A002 - Spark's name
        through: int | None = None,
    ) -> None:
        """Write a day's report in place of the previous one.

        Args:
            df: Its rows.
            report: Its name; one of `REPORT_TABLES`.
            day: The day, UTC.
            out: The directory of reports; by default `reports` in the lake.
            format: `parquet`, `json` or `csv`.
            through: The lake's last batch when `df` was planned: see `batch`. Without it, and with
                `out`, the report does not count as made anew for `days_to_rerun`.

        Raises:
            BadOption: There is no such report or format.
            DiskRefused: The report cannot be written.
        """
        if format not in FORMATS:
            raise BadOption(f"no format {format!r} for reports; there are {', '.join(FORMATS)}")
        path = self._report(report, day, out)
        mark = self._reported(day, report)
        with spark_refusals(path):
            if out is None:
                # An interrupted report does not count as made.
                mark.unlink(missing_ok=True)
            df.write.mode("overwrite").format(format).save(str(path))
            if out is None and through is not None:
                write_json(mark, {"through": through})

    def report(
        self, spark: SparkSession, name: str, day: date, out: str | Path | None = None
    ) -> DataFrame:
        """Return a day's report that was written as Parquet; empty if there is none.

        Raises:
            BadOption: There is no such report.
        """
        path = self._report(name, day, out)
        ddl = REPORT_TABLES[name]
        if not path.is_dir():
            return spark.createDataFrame([], ddl)
        return spark.read.schema(ddl).parquet(str(path))

    def _report(self, name: str, day: date, out: str | Path | None) -> Path:
        if name not in REPORT_TABLES:
            raise BadOption(f"no report {name!r}; there are {', '.join(REPORT_TABLES)}")
        root = self.path / "reports" if out is None else Path(out).absolute()
        return root / name / f"day={day.isoformat()}"

    def _reported(self, day: date, report: str) -> Path:
        return self.path / "_reported" / day.isoformat() / f"{report}.json"


def _known(name: str) -> str:
    if name not in LAKE_TABLES:
        raise BadOption(f"no table {name!r} in a lake; there are {', '.join(LAKE_TABLES)}")
    return name


def _day_of(day: date) -> tuple[datetime, datetime]:
    begin = datetime.combine(day, time(), UTC)
    return begin, begin + timedelta(days=1)


def _conditions(
    end: str, begin: str, since: datetime | None, until: datetime | None
) -> Iterator[Column]:
    if since is not None:
        yield sf.col(end) >= sf.lit(since)
    if until is not None:
        yield sf.col(begin) < sf.lit(until)


def _within(
    frame: DataFrame, end: str, begin: str, since: datetime | None, until: datetime | None
) -> DataFrame:
    for condition in _conditions(end, begin, since, until):
        frame = frame.filter(condition)
    return frame


def once(frame: DataFrame, key: str) -> DataFrame:
    """Return one row for each id, with its earliest `first_seen`; other columns are equal."""
    others: list[Column] = [
        (sf.min(name) if name == "first_seen" else sf.first(name)).alias(name)
        for name in frame.columns
        if name != key
    ]
    return frame.groupBy(key).agg(*others).select(*frame.columns)
