"""The deletion of segments beyond the limits of age and bytes, the oldest first.

A wrong clock must not delete a log, so age is the time for which the log was written, by a
monotonic clock. At a start the age of segments follows from the times of their files, relative to
that of the newest or to the wall clock, whichever is earlier: both would have to be wrong. So time
in which the log was not written counts from the next start on.

A reader of a log records its position in `.acks/<reader>.json`: `{"segment": "<name of a file>"}`.
Segments are read in the order of their names, so the oldest have been read. The newest sealed
segment is always kept: it identifies the log and its position. Files set aside as unreadable are
deleted in turn, by the name of their segment.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, cast

from ....protocol.eventlog import SEALED
from .._options import LogOptions
from ._counts import Counts
from ._files import FileInfo, Files
from ._folder import LogFolder, segment_of

__all__ = ["Janitor"]

_logger: Final = logging.getLogger("onward.actors.eventlog")

ACKS: Final = ".acks"
MAX_ACKS: Final = 256
"""Most acknowledgements that are read; the first by name."""


class _Kept(NamedTuple):
    """A sealed segment or a file set aside, with its monotonic start time."""

    name: str
    size: int
    since: float


class Janitor:
    """A janitor that keeps a log within its limits of bytes and age.

    Args:
        files: The disk.
        folder: The log's folder, opened.
        options: The limits.
        count: The counters.
        clock: Returns a monotonic time in seconds.
        wall_clock: Returns the time in seconds since the Unix epoch. Read once.
    """

    def __init__(
        self,
        files: Files,
        folder: LogFolder,
        options: LogOptions,
        count: Counts,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._files = files
        self._folder = folder
        self._max_bytes = options.max_bytes
        self._max_age = options.max_age_seconds
        self._count = count
        self._clock = clock
        self._wall_clock = wall_clock
        self._segments: deque[_Kept] = deque()
        self._aside: deque[_Kept] = deque()
        self._bytes = 0
        self._told = False

    def look(self) -> None:
        """List the files.

        Raises:
            OSError: The folder cannot be read.
        """
        known = {kept.name: kept.since for kept in (*self._segments, *self._aside)}
        found, aside = self._folder.sealed(), self._folder.aside()
        newest = found[-1:] or aside[-1:]
        latest = min(self._wall_clock(), newest[0].changed) if newest else 0.0
        self._bytes = sum(info.size for info in (*found, *aside))
        self._segments = self._with_ages(found, known, latest)
        self._aside = self._with_ages(aside, known, latest)

    def _with_ages(
        self, found: list[FileInfo], known: dict[str, float], latest: float
    ) -> deque[_Kept]:
        kept: deque[_Kept] = deque()
        since = now = self._clock()
        # No file is younger than one that follows it, whatever its time.
        for name, size, changed in reversed(found):
            since = min(since, known.get(name, now - (latest - changed)))
            kept.appendleft(_Kept(name, size, since))
        return kept

    def add(self, name: str, size: int) -> None:
        """Add a segment that was just sealed."""
        self._segments.append(_Kept(name, size, self._clock()))
        self._bytes += size

    def clean(self) -> None:
        """Delete files beyond the limits. Failed deletions are tried again next time."""
        acknowledged: str | None = None
        asked = False
        oldest = self._clock() - self._max_age
        while (files := self._next()) is not None:
            info = files[0]
            by_bytes = self._bytes > self._max_bytes
            if not by_bytes and info.since >= oldest:
                return
            if not asked:
                acknowledged, asked = self._acknowledged(), True
            if not self._delete(files):
                return
            if by_bytes:
                self._count.deleted_by_bytes += 1
            else:
                self._count.deleted_by_age += 1
            if files is self._segments and acknowledged is not None and info.name > acknowledged:
                self._count_unread(info.name)

    def _next(self) -> deque[_Kept] | None:
        """Return the queue with the next file to delete; `None` if there is none."""
        segments = self._segments if len(self._segments) > 1 else None
        if not self._aside:
            return segments
        if segments is not None and segments[0].name < self._aside[0].name:
            return segments
        return self._aside

    def _delete(self, files: deque[_Kept]) -> bool:
        info = files[0]
        try:
            self._files.unlink(self._folder.path / info.name)
        except FileNotFoundError:
            pass  # it is deleted already
        except OSError as error:
            self._count.errors += 1
            _logger.warning("%s cannot be deleted: %s", info.name, error.strerror)
            return False
        files.popleft()
        self._bytes -= info.size
        return True

    def _count_unread(self, name: str) -> None:
        self._count.deleted_unread += 1
        if not self._told:
            self._told = True
            _logger.warning(
                "%s: %s was deleted, by the limits of bytes and age, before all readers of the "
                "log had read it; further ones are only counted",
                self._folder.path,
                name,
            )

    def _acknowledged(self) -> str | None:
        """Return the last segment read by all readers; `None` without readers."""
        folder = self._folder.path / ACKS
        try:
            found = sorted(info for info in self._files.list(folder) if info.name[-5:] == ".json")
        except OSError:
            return None
        read = [self._read_ack(folder / info.name) for info in found[:MAX_ACKS]]
        return min(read) if read else None

    def _read_ack(self, path: Path) -> str:
        """Return a reader's position; empty if it cannot be read."""
        try:
            said = json.loads(self._files.read(path))
        except (OSError, ValueError, RecursionError):
            return ""
        name = cast("dict[str, object]", said).get("segment") if isinstance(said, dict) else None
        return name if isinstance(name, str) and segment_of(name, SEALED) is not None else ""
