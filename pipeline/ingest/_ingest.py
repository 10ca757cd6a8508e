"""Ingestion of event logs into a lake, each event exactly once.

A streaming query over the source's table `segments` chooses the segments of a batch, and Spark
records them before the batch begins. One job reads each segment once, and its tasks write all its
rows into folders with the batch's number. A commit, one file that appears atomically, makes them
count. A batch that is interrupted before its commit is not read, and is written again. After its
commit it is recognised by its number and paths. The lake records which event numbers of each
broker it has, so a segment that arrives twice is added once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ...protocol import counted
from .._errors import CheckpointLost, LakeLost, NeedsClassic, PipelineError, known_error
from ..source import register
from ._files import LOCK_SECONDS, locked, refusals, remove_unnamed, write_json
from ._opening import OpenLake, check_apart, open_lake
from ._parts import LakeFiles
from ._plan import BatchPlan, SegmentRow, plan, unfolded
from ._state import LakeState
from ._tables import TableWriter

__all__ = ["MAX_SEGMENTS", "IngestSummary", "ingest"]

MAX_SEGMENTS: Final = 512
"""The default limit of segments in one batch: 32 GiB of a busy log."""

INTERVAL: Final = 10.0
"""Seconds between two listings of the logs while following them."""

MAX_TRIES: Final = 3
"""Attempts to start a query if its Python worker does not start in the 10 s that Spark waits."""

_OF_CHECKPOINT: Final = re.compile(
    r"STREAMING_CHECKPOINT\w*|Incomplete log file[^\n]{0,80}|[Mm]alformed log file[^\n]{0,80}"
    r"|Failed to read log file[^\n]{0,80}|Failed to parse a version[^\n]{0,80}"
    r"|Error reading stream metadata[^\n]{0,80}|batch \d+ doesn't exist"
)

_NOT_STARTED: Final = "Python worker failed to connect back"

_logger: Final = logging.getLogger(__name__)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """The result of a run of `ingest`.

    Attributes:
        batches: Batches that were committed and not empty.
        segments: Segments that were added.
        hops: Hops in them.
        flows: Flows in them.
        events: Route events in them.
        late: Events that were added to days already closed.
        duplicates: Segments that the lake had already.
        damaged: Segments that could not be read and were skipped.
        missing: Event numbers that are missing in the lake since it was begun.
        dropped: Events of dropped days; they were not added.
    """

    batches: int = 0
    segments: int = 0
    hops: int = 0
    flows: int = 0
    events: int = 0
    late: int = 0
    duplicates: int = 0
    damaged: int = 0
    missing: int = 0
    dropped: int = 0


def ingest(
    spark: SparkSession,
    log: Path,
    lake: Path,
    checkpoint: Path,
    *,
    max_segments: int | None = None,
    follow: bool = False,
    rebuild: bool = False,
    progress: Tell | None = None,
    allow_gaps: bool = False,
    skip_corrupt: bool = False,
    interval: float = INTERVAL,
    clock: Callable[[], datetime] | None = None,
) -> IngestSummary:
    """Add the segments that a lake lacks from the logs.

    Spark's driver and its executors must see all three directories under the same paths. A lake
    has one `ingest` at a time; reports may run concurrently.

    Args:
        spark: A session; not one of Spark Connect.
        log: The directory of logs, with a folder for each broker or node.
        lake: The lake's directory; it is created if missing.
        checkpoint: The directory of the query's checkpoint. It belongs to this lake only.
        max_segments: Most segments in a batch; by default `MAX_SEGMENTS`.
        follow: Continue until interrupted, instead of ending with the segments there at the start.
        rebuild: Continue with a new checkpoint. The lake's rows are not changed; all segments of
            the logs are examined, and those that the lake lacks are added.
        progress: Called with a short text for each step, in one of the driver's threads.
        allow_gaps: Continue where segments were deleted before they were read.
        skip_corrupt: Skip segments that cannot be read.
        interval: Seconds between two listings of the logs while following them.
        clock: Returns the time, for the closing of days; by default the system's.

    Raises:
        LogError: A log cannot be read; nothing of the batch is in the lake.
        LakeError: Lake and checkpoint do not belong together, or another process uses them.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise NeedsClassic("ingest")
    log, lake, checkpoint = log.absolute(), lake.absolute(), checkpoint.absolute()
    check_apart(log, lake, checkpoint)
    register(spark)
    with locked(lake / "_ingest.lock"):
        opened = open_lake(lake, checkpoint, rebuild=rebuild)
        tell = progress or _silent
        sink = _Sink(opened, log, lake, checkpoint, tell, clock or _now, check=skip_corrupt)
        options = {
            "table": "segments",
            "onGap": "skip" if allow_gaps else "fail",
            "skipCorrupt": str(skip_corrupt).lower(),
            "again": str(sink.files.skipped),
            "maxSegments": str(max_segments or MAX_SEGMENTS),
        }
        with locked(lake / "_write.lock", wait=LOCK_SECONDS):
            swept = sink.files.sweep()
            if swept.folders:
                tell(f"removed {counted(swept.folders, 'folder')} of a run that was cut off")
            if swept.files:
                tell(
                    f"removed {counted(swept.files, 'file')} of tasks that ended after their batch"
                )
            sink.files.tell_skipped(sink.files.state())
        stream = spark.readStream.format("onward").options(**options).load(str(log))
        writer = stream.writeStream.foreachBatch(sink.take).option(
            "checkpointLocation", str(checkpoint)
        )
        trigger: dict[str, Any] = (
            {"processingTime": f"{interval} seconds"} if follow else {"availableNow": True}
        )
        writer = writer.trigger(**trigger)
        tries = 1
        while not _run(writer, sink, last=tries == MAX_TRIES):
            tries += 1
            tell("the machine is busy: Spark's Python worker did not start in 10 s; trying again")
    return sink.summary


def _run(writer: DataStreamWriter, sink: _Sink, *, last: bool) -> bool:
    """Run a query to its end; return whether it started."""
    query: StreamingQuery | None = None
    try:
        query = writer.start()
        query.awaitTermination()
    except (PySparkException, Py4JError) as error:
        if sink.failure is not None:
            raise known_error(sink.failure) or sink.failure from None
        known = known_error(error) or sink.of_checkpoint(str(error))
        if known is not None:
            raise known from None
        if last or _NOT_STARTED not in str(error):
            raise
        return False
    except KeyboardInterrupt:
        # Following ends so. The next run repeats an unfinished batch.
        pass
    finally:
        if query is not None:
            query.stop()
    return True


def _silent(_: str) -> None:
    """Discard a progress text."""


def _now() -> datetime:
    return datetime.now(UTC)


def _look_at(path: Path) -> tuple[int, int] | None:
    """Return a file's size and time of modification; `None` if it is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


class _Sink:
    """The sink of one run, which adds its batches to the lake."""

    def __init__(
        self,
        opened: OpenLake,
        log: Path,
        lake: Path,
        checkpoint: Path,
        tell: Tell,
        clock: Callable[[], datetime],
        *,
        check: bool,
    ) -> None:
        self.files = LakeFiles(lake)
        self.summary = IngestSummary()
        self.failure: Exception | None = None
        self._opened = opened
        self._log = log
        self._checkpoint = checkpoint
        self._tell = tell
        self._clock = clock
        self._check = check
        self._behind: set[Path] = set()

    def take(self, frame: DataFrame, spark_batch: int) -> None:
        """Take one batch into the lake; Spark calls this again for an interrupted one."""
        try:
            self._take(frame, self._opened.base + spark_batch)
        except Exception as error:
            # Spark would keep its text only.
            self.failure = error
            raise

    def of_checkpoint(self, text: str) -> PipelineError | None:
        """Return the error for Spark's text if it is about the checkpoint, else `None`."""
        told = _OF_CHECKPOINT.search(text)
        if told is None:
            return None
        reason = f"cannot be read by Spark ({told[0].strip()})"
        return CheckpointLost(str(self._checkpoint), str(self.files.path), reason)

    def _take(self, frame: DataFrame, number: int) -> None:
        rows: list[SegmentRow] = frame.toArrow().to_pylist()
        paths = sorted(str(row["path"]) for row in rows)
        state = self.files.state()
        self._tell(f"batch {number}: {len(rows)} segments")
        if number == state.batch and tuple(paths) == state.segments:
            # The interruption was between our commit and Spark's.
            self._tell(f"batch {number}: is in the lake already")
        elif number == state.batch + 1:
            with locked(self.files.path / "_write.lock", wait=LOCK_SECONDS):
                state = self._add(frame.sparkSession, rows, paths, state)
        elif number > state.batch:
            raise LakeLost(str(self.files.path), str(self._checkpoint), state.batch, number)
        else:
            reason = (
                f"is older than the lake: its next batch is {number}, the lake has {state.batch}"
            )
            raise CheckpointLost(str(self._checkpoint), str(self.files.path), reason)
        self.files.tell_skipped(state)
        _acknowledge(self._log, self._opened.query, state)
        self._tell(f"batch {number}: done")

    def _add(
        self, spark: SparkSession, rows: list[SegmentRow], paths: list[str], state: LakeState
    ) -> LakeState:
        # Files of abandoned tasks of the previous batch that ended only now.
        with refusals(self.files.path):
            remove_unnamed(self._behind)
        # Before they are read: a file that changes meanwhile is read again.
        looks = {path: look for path in paths if (look := _look_at(self._log / path)) is not None}
        if self._check:
            rows = self._checked(spark, rows)
        batch = plan(rows, unfolded(rows, state, self.files), looks)
        for row in batch.damaged:
            self._tell(f"skipped {row['path']}: {row['damaged']}")
        made = state.after(brokers=batch.brokers, segments=paths, now=self._clock())

        def tell(text: str) -> None:
            self._tell(f"batch {made.batch}: {text}")

        writer = TableWriter(spark, self.files, self._log, made.batch, tell)
        added = writer.write(batch, state.closed)
        writer.write_completeness(batch.brokers)
        late, dropped = made.with_late(added.late), made.with_dropped(added.dropped)
        made = replace(made, late=late, dropped=dropped)
        # A power cut must not leave a commit of missing files.
        writer.sync()
        tell("committing")
        self.files.commit(made)
        self._behind = writer.folders
        self._count(batch, added.late.total(), added.dropped.total())
        tell("committed")
        return made

    def _checked(self, spark: SparkSession, rows: list[SegmentRow]) -> list[SegmentRow]:
        """Return the rows of segments read in full, so that all tables skip the same ones."""
        paths = "\n".join(str(row["path"]) for row in rows)
        self._tell(f"checking {len(rows)} segments")
        reader = spark.read.format("onward").option("table", "segments").option("check", "true")
        frame = reader.option("skipCorrupt", "true").option("segments", paths).load(str(self._log))
        return frame.toArrow().to_pylist() if rows else rows

    def _count(self, batch: BatchPlan, late: int, dropped: int) -> None:
        had = self.summary
        self.summary = IngestSummary(
            # Spark makes an empty batch of an empty log.
            batches=had.batches + bool(batch.rows or batch.duplicates or batch.damaged),
            segments=had.segments + len(batch.rows),
            hops=had.hops + batch.total("hops"),
            flows=had.flows + batch.total("flows"),
            events=had.events + batch.total("events"),
            late=had.late + late,
            duplicates=had.duplicates + batch.duplicates,
            damaged=had.damaged + len(batch.damaged),
            missing=sum(broker.missing for broker in batch.brokers.values()),
            dropped=had.dropped + dropped,
        )


def _acknowledge(log: Path, query: str, state: LakeState) -> None:
    # Logs delete what was read first. One that cannot be written to keeps its segments by age and
    # bytes alone.
    for name, broker in state.brokers.items():
        folder = log / name
        if not (broker.segment and folder.is_dir()):
            continue
        try:
            write_json(folder / ".acks" / f"{query}.json", {"segment": broker.segment})
        except OSError as error:
            _logger.warning("%s: cannot acknowledge what was read: %s", folder, error.strerror)
