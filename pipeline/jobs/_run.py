"""The job `report`: computes and writes the reports of a day, and collects the page."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from .._refused import spark_refusals
from ..report import Names, Page, Sources, collect_page
from ..transforms import Objective, audit_totals, latency_quantiles, log_holes
from ._progress import Progress, Silent, stage
from ._rehearsed import rehearsal_of
from ._reports import EVENT_DAYS, REPORTS, Day, bounds
from ._tables import MAX_SHOWN, Shown, flattened, shown
from ._utc import in_utc

if TYPE_CHECKING:
    from ..ingest import Lake

__all__ = ["FORMATS", "Format", "Reported", "names_of", "replay_tables", "run_report"]

Format: TypeAlias = Literal["parquet", "json", "csv", "table"]
"""The format of a written report."""

FORMATS: Final[tuple[Format, ...]] = ("parquet", "json", "csv", "table")
"""The formats of reports. `table` is text for the terminal, and writes nothing."""

_REPLAY: Final = ("replay_summary", "replay_routes")


@dataclass(slots=True)
class Reported:
    """The result of the job `report`.

    Attributes:
        rows: The number of rows of each table, by its name.
        shown: The first rows of each table as text, if the format is `table`.
        page: The page, if requested.
    """

    rows: dict[str, int] = field(default_factory=dict[str, int])
    shown: dict[str, Shown] = field(default_factory=dict[str, Shown])
    page: Page | None = None


def run_report(
    spark: SparkSession,
    lake: Lake,
    day: date,
    only: Collection[str] = (),
    *,
    out: str | Path | None = None,
    format: Format = "parquet",  # noqa: A002 - as the option is called
    objectives: Sequence[Objective] = (),
    page: bool = False,
    most: int = MAX_SHOWN,
    progress: Progress | None = None,
) -> Reported:
    """Compute the reports of a day, and replace those written earlier for that day.

    Args:
        spark: The session; its time zone is UTC during the job.
        lake: The lake.
        day: The day, UTC.
        only: Names of `REPORTS`; all by default.
        out: The folder for the reports; the lake's own by default.
        format: The format of the reports.
        objectives: The objectives of the report `slo`; without any it is left out.
        page: Whether to collect the page.
        most: Rows of each report that are shown as text.
        progress: The receiver of the progress.

    Raises:
        ValueError: There is no such report.
        PipelineError: The lake cannot be read.
        NotUtc: The session's time zone cannot be set.
    """
    told = progress or Silent()
    unknown = set(only) - set(REPORTS)
    if unknown:
        raise ValueError(f"no report is called {', '.join(sorted(unknown))}: {', '.join(REPORTS)}")
    # Read before any table is planned: the reports may lack later batches.
    through = lake.batch()
    around = Day(spark, lake, day, objectives)
    done = Reported()
    names = names_of(around)
    with spark_refusals(out or lake.path), in_utc(spark), _kept() as kept:
        for name, tables_of in REPORTS.items():
            if only and name not in only:
                continue
            with stage(told, name) as current:
                said: list[str] = []
                for table, frame in tables_of(around).items():
                    # Used twice: it is written, and then counted and shown.
                    kept[table] = frame.persist(StorageLevel.MEMORY_AND_DISK)
                    _write(kept[table], table, lake, day, out, format, through)
                    done.rows[table] = kept[table].count()
                    said.append(f"{table} {done.rows[table]:,}")
                    if format == "table":
                        done.shown[table] = shown(kept[table], names, most)
                current.says(", ".join(said) or "left out: there is no objective")
        if page:
            done.page = _collected(around, kept, names, out, told)
    return done


def _collected(
    day: Day,
    made: dict[str, DataFrame],
    names: Names,
    out: str | Path | None,
    progress: Progress,
) -> Page:
    with _part(progress, "rehearsal"):
        replayed, rehearsed = replay_tables(day, out)
    tables = {**made, **replayed}
    begin, end = bounds(day.day)
    holes = log_holes(
        day.dimension("segments"),
        day.table("route_events"),
        day.dimension("completeness"),
        begin,
        end,
    )
    return collect_page(
        Sources(
            day.day,
            tables,
            day.table("flows"),
            day.dimension("completeness"),
            day.dimension("late"),
            day.lake.is_closed(day.day),
            names,
            latency_quantiles,
            audit_totals,
            holes,
            day.going(),
            day.earlier(),
            rehearsed,
        ),
        partial(_part, progress),
    )


@contextmanager
def _part(progress: Progress, name: str) -> Generator[None]:
    """Report the progress of one part of the page."""
    with stage(progress, "page") as current:
        current.says(name)
        yield


def names_of(day: Day) -> Names:
    """Return the names of ids in a lake."""
    return Names(
        day.dimension("dim_node"),
        day.dimension("dim_tagset"),
        day.dimension("dim_route"),
        day.before("route_events", timedelta(days=EVENT_DAYS)),
    )


def replay_tables(day: Day, out: str | Path | None = None) -> tuple[dict[str, DataFrame], str]:
    """Return the reports of a rehearsal of the day and its description; empty without one.

    Args:
        day: The day.
        out: The folder of reports; the lake's own is searched next.
    """
    for place in [None] if out is None else [out, None]:
        tables = {name: day.lake.report(day.spark, name, day.day, place) for name in _REPLAY}
        if not any(table.isEmpty() for table in tables.values()):
            return tables, rehearsal_of(day.lake, day.day, place)
    return {}, ""


def _write(
    frame: DataFrame,
    table: str,
    lake: Lake,
    day: date,
    out: str | Path | None,
    format: Format,  # noqa: A002
    through: int,
) -> None:
    if format == "table":
        return
    written = flattened(frame) if format == "csv" else frame
    lake.write_report(written, table, day, out, format, through)


@contextmanager
def _kept() -> Generator[dict[str, DataFrame]]:
    """Hold the frames that are used twice, and release them at the end."""
    frames: dict[str, DataFrame] = {}
    try:
        yield frames
    finally:
        for frame in frames.values():
            frame.unpersist()
