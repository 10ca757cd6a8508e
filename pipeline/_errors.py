"""The pipeline's errors, as one tree; each message says what to do.

```
PipelineError
├── BadOption             an option of the data source that is unknown or cannot be read
├── LogError              an event log cannot be read
│   ├── NoEventLog        its directory does not exist
│   ├── SegmentDamaged    a sealed segment cannot be read
│   ├── NewerSegment      a newer version of Onward wrote it
│   ├── SegmentGone       a segment was deleted before it was read
│   ├── SegmentGap        events were deleted before they were read
│   ├── SegmentLate       a segment appeared behind the position of the reader
│   └── DuplicateBroker   two logs have one name
├── TableUnreadable       a routing table cannot be read where it is needed
├── RouteUnreadable       a line or a row is not a route
├── BadMethod             a method of choosing that is not installed
├── SinkError             rows were not accepted: see `onward.pipeline.sink`
└── LakeError             the lake, or its checkpoint, is not as expected
    ├── NotALake          the directory has other contents
    ├── NewerLake         a newer version of Onward wrote it
    ├── NoCommit          there is no lake, or it is empty
    ├── CheckpointLost    the query's checkpoint is missing, or older than the lake
    ├── LakeLost          the lake is older than the checkpoint
    ├── CommitsLost       the lake has rows that no commit counts
    ├── DiskRefused       a disk is full, or cannot be written
    ├── FileGone          a file of the lake was deleted while it was read
    ├── CheckpointRefused the directory is not a checkpoint of the lake
    ├── OtherQuery        lake and checkpoint do not belong together
    ├── DayOpen           a day cannot be compacted or dropped yet
    ├── NoSuchLog         the lake has no log of that name
    ├── LakeBehind        the lake ends before the requested time
    ├── LakeBusy          another process writes the lake
    └── NeedsClassic      Spark Connect cannot run the job
```

Spark reports errors of tasks and streaming queries as text; `known_error` finds the pipeline's
error in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from importlib import import_module
from typing import Final

__all__ = [
    "BadMethod",
    "BadOption",
    "CheckpointLost",
    "CheckpointRefused",
    "CommitsLost",
    "DayOpen",
    "DiskRefused",
    "DuplicateBroker",
    "FileGone",
    "LakeBehind",
    "LakeBusy",
    "LakeError",
    "LakeLost",
    "LogError",
    "NeedsClassic",
    "NewerLake",
    "NewerSegment",
    "NoCommit",
    "NoEventLog",
    "NoSuchLog",
    "NotALake",
    "OtherQuery",
    "PipelineError",
    "RouteUnreadable",
    "SegmentDamaged",
    "SegmentGap",
    "SegmentGone",
    "SegmentLate",
    "TableUnreadable",
    "known_error",
]


_LISTED: Final = 20
"""Names that an error lists."""

_SHOWN: Final = 100
"""Characters of a line that an error shows."""


class PipelineError(Exception):
    """An error that stops the pipeline; its message, of one line, says what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))


class BadOption(PipelineError):
    """An option that is unknown, or has a value that cannot be read."""


class TableUnreadable(PipelineError):
    """A routing table that cannot be read where it is needed."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. A table is a snapshot or lines of JSON, as `onward routes --save` "
            "writes them. Drivers and executors of Spark must both see it: put it on a disk they "
            "share, or send it along (spark-submit --files) and name it without a folder"
        )


class RouteUnreadable(PipelineError):
    """A line or a row that is not a route."""

    def __init__(self, path: str, line: int | None, text: str, reason: str) -> None:
        where = path if line is None else f"{path}, line {line}"
        super().__init__(
            f"{where}: {reason}, in {text[:_SHOWN]!r}. Mend it or leave it out (a line with # "
            "at its beginning is), and build again"
        )


class BadMethod(PipelineError):
    """A method of choosing that is not installed."""

    def __init__(self, name: str, known: str) -> None:
        super().__init__(
            f"there is no method {name!r}: take one of {known}, or install the plug-in that has it "
            "on the driver and the executors"
        )


class LogError(PipelineError):
    """An event log that cannot be read."""


class NoEventLog(LogError):
    """A directory of event logs that does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is no directory: name the one that was given to --event-log, which has a "
            "folder for each broker or node. Drivers and executors of Spark must both see it"
        )


class SegmentDamaged(LogError):
    """A sealed segment that cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. See what is wrong with `onward events --check`; then move the file "
            "aside, or have it skipped (--skip-corrupt), which counts its events as missing"
        )


class NewerSegment(LogError):
    """A segment that a newer version of Onward wrote."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(
            f"{path} has version {version} of the format: upgrade Onward where the pipeline runs, "
            "on the driver and on the executors"
        )


class SegmentGone(LogError):
    """A segment that was deleted before it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was deleted after it was listed: the log keeps less than it takes to read it. "
            "Put it back if there is a copy, and try again; else go on without it (--allow-gaps), "
            "which counts what is known to be missing. Then ingest more often, or have the log "
            "kept longer or larger"
        )


class SegmentGap(LogError):
    """A range of events that were deleted before they were read."""

    def __init__(self, broker: str, epoch: int, first: int, last: int | None) -> None:
        which = (
            f"events {first} to {last} of epoch {epoch} were deleted before they were read"
            if last is not None
            else f"if epoch {epoch} had events from {first} on, they were deleted before they were "
            "read: the segment before them is gone, and what is there now is of a later epoch"
        )
        super().__init__(
            f"{broker}: {which}. Put the segments back if there is a copy; else go on without them "
            "(--allow-gaps), which counts what is known to be missing. Then ingest more often, or "
            "have the log kept longer or larger"
        )


class SegmentLate(LogError):
    """A segment that appeared behind the position of the reader."""

    def __init__(self, path: str, broker: str, last: str) -> None:
        super().__init__(
            f"{path} was sealed or copied here after {last} of {broker} was read, and was never "
            "read itself. Nothing is skipped in silence: move the file aside, or ingest all again "
            "with a new checkpoint (--rebuild), which adds what the lake does not have"
        )


class DuplicateBroker(LogError):
    """Two event logs with one name, or a folder with the segments of another log."""

    def __init__(self, broker: str, this: str, other: str) -> None:
        super().__init__(
            f"two event logs are called {broker}: {this} and {other}. A name stands for one log "
            "for ever. Give one of them another name (--event-log-name), also if a broker was set "
            "up anew with an empty log; or start a new lake"
        )


class LakeError(PipelineError):
    """An error of the lake or its checkpoint."""


class NotALake(LakeError):
    """A directory with other contents than a lake."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} is no lake of Onward: {reason}. Name an empty or a new directory")


class NewerLake(LakeError):
    """A lake that a newer version of Onward wrote."""

    def __init__(self, path: str, version: object) -> None:
        super().__init__(f"{path} has the format {version}: upgrade Onward, or start a new lake")


class NoCommit(LakeError):
    """A lake that does not exist or is empty."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has no lake in it: run `onward pipeline ingest` first")


class CheckpointLost(LakeError):
    """A checkpoint that is missing, or older than the lake."""

    def __init__(self, checkpoint: str, lake: str, reason: str) -> None:
        super().__init__(
            f"{checkpoint} {reason}, but {lake} was written with it. Put it back; or go on with a "
            "new one (--rebuild): the lake stays as it is, all segments that are still there are "
            "looked at, and those it does not have are added"
        )


class LakeLost(LakeError):
    """A lake that is older than the checkpoint."""

    def __init__(self, lake: str, checkpoint: str, has: int, follows: int) -> None:
        had = f"ends with batch {has}" if has >= 0 else "has no batch at all"
        super().__init__(
            f"{lake} {had}, but the next one of {checkpoint} is {follows}: the lake was set back, "
            "or its _commits were deleted. Put it back as it was; or go on with a new checkpoint "
            "(--rebuild), which removes what no commit counts, and adds what the lake does not "
            "have of the segments still there. Nothing was removed so far"
        )


class CommitsLost(LakeError):
    """A lake with rows that no commit counts."""

    def __init__(self, lake: str, written: int, committed: int) -> None:
        text = (
            f"{lake} has rows of batch {written}, and its last commit is {committed}: its _commits "
            "were set back. Put them back from a copy"
            if committed >= 0
            else f"{lake} has rows, and no commit that counts them: its _commits were deleted. Put "
            "them back from a copy"
        )
        super().__init__(
            f"{text}; without one, go on with a new checkpoint (--rebuild), which removes what no "
            "commit counts and adds what is still there of the logs. Nothing was removed so far"
        )


class DiskRefused(LakeError):
    """A disk that is full or cannot be written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path} cannot be written: {reason}. Make room, or allow Spark's driver and executors "
            "to write there, and run it again: what was not done whole does not count. What Spark "
            "puts aside meanwhile is in spark.local.dir, which may be what is full"
        )


class FileGone(LakeError):
    """A file of the lake that was deleted while it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is not there. If a day was compacted or dropped meanwhile, run it again; else "
            "the lake must be on a file system that Spark's driver and all its executors share, "
            "under one path, and nothing else may delete in it"
        )


class CheckpointRefused(LakeError):
    """A directory that is not a checkpoint of the lake."""

    def __init__(self, checkpoint: str, reason: str) -> None:
        super().__init__(
            f"{checkpoint} is no checkpoint of this lake: {reason}. Name the checkpoint that the "
            "lake was written with, or a new directory beside the lake; nothing was moved"
        )


class OtherQuery(LakeError):
    """A lake and a checkpoint that do not belong together."""

    def __init__(self, checkpoint: str, lake: str) -> None:
        super().__init__(
            f"{checkpoint} is the checkpoint of another lake than {lake}: name the two that belong "
            "together, or a new directory for either; a lake goes on with a new checkpoint after "
            "--rebuild"
        )


class LakeBusy(LakeError):
    """A lake that another process writes."""

    def __init__(self, path: str, waited: float) -> None:
        super().__init__(
            f"another process writes {path}, and has for {waited:.0f} s: wait for it, or stop it. "
            "A lake has one ingest at a time; reports may be made meanwhile"
        )


class DayOpen(LakeError):
    """A day that cannot be compacted or dropped yet."""

    def __init__(self, day: object, closed: object) -> None:
        super().__init__(
            f"{day} is not closed, the last day that is: {closed or 'none'}. A day closes when all "
            "brokers that are alive have sealed all of it, and that was ingested"
        )


class NoSuchLog(LakeError):
    """A named broker without a log in the lake."""

    def __init__(self, names: Collection[str], known: Collection[str]) -> None:
        has = ", ".join(sorted(known)[:_LISTED]) or "none at all"
        more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        super().__init__(
            f"the lake has no log of {', '.join(sorted(names))}; it has {has}{more}: name one of "
            "those (--broker), or ingest the log that is missing"
        )


class LakeBehind(LakeError):
    """A lake that ends before the requested time."""

    def __init__(self, at: datetime, broker: str, through: datetime) -> None:
        super().__init__(
            f"the lake has the log of {broker} up to {_utc(through)}, and the table at "
            f"{_utc(at)} is asked for: ingest what is missing, or name an earlier time "
            "(--at); if that log has ended, name those that have not (--broker)"
        )


class NeedsClassic(LakeError):
    """A job that Spark Connect cannot run."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} runs where Spark's driver runs and not through Spark Connect: what a batch is "
            "given to is a function of the driver. Start it without --remote, or by spark-submit"
        )


def _utc(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


_OURS: Final = re.compile(
    r"\b(?P<module>onward\.pipeline\.(?:sink\.)?_errors)\.(?P<name>\w+): (?P<text>[^\n]+)"
)


_FULL: Final = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|Permission denied"
    r"|Input/output error|File too large|Stale file handle|Not a directory"
)
_NOT_MADE: Final = re.compile(r"(?:Mkdirs? failed (?:to create|on)|Parent path is not a directory)")
_GONE: Final = re.compile(
    r"FileNotFoundException|FILE_NOT_EXIST|PATH_NOT_FOUND|NoSuchFileException"
)
_PATH: Final = re.compile(r"(?:file:)?(/[^\s,;:()\[\]'\"]+)")


def known_error(error: BaseException | str, path: str = "") -> PipelineError | None:
    """Return the innermost error of the pipeline in an error of Spark; or `None`.

    An error of a disk while Spark reads or writes becomes an error of the pipeline too.

    Args:
        error: The error of Spark, or its text.
        path: The path that was written or read, if it is known.
    """
    if isinstance(error, PipelineError):
        return error
    told = list(_OURS.finditer(str(error)))
    if not told:
        return _of_disk(str(error), path)
    found = told[-1]
    # The module of the sink may not be imported yet: only tasks raise its errors.
    kind = getattr(import_module(found["module"]), found["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, PipelineError)):
        return None
    # The text has the message only, not the arguments of the error.
    made = kind.__new__(kind)
    PipelineError.__init__(made, found["text"].rstrip())
    return made


def _of_disk(text: str, path: str) -> PipelineError | None:
    """Return the error of a disk or a missing file in a text of Java; or `None`."""
    unknown = path or "the lake, its reports or the checkpoint"
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith("at "):
            continue
        named = _PATH.search(line)
        if full := _FULL.search(line):
            # The path that Java names may end with a temporary file.
            return DiskRefused(path or (named[1] if named else unknown), full[0])
        if _NOT_MADE.search(line):
            return DiskRefused(path or (named[1] if named else unknown), "no folder can be made")
        if path and _GONE.search(line):  # without a path it may be any file
            return FileGone(named[1] if named else path)
    return None
