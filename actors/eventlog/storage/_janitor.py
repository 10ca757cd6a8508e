"""The deletion of segments beyond the limits of age and bytes, the oldest first.

A wrong clock must not delete a log, so age is the time for which the log was written, by a
monotonic clock. At a start the age of segments follows from the times of their files, relative to
that of the newest or to the wall clock, whichever is earlier: both would have to be wrong. So time
in which the log was not written counts from the next start on.

A reader of a log records its position in `.acks/<reader>.json`: `{"segment": "<name of a file>"}`.
Segments are read in the order of their names, so the oldest have been read. The newest file is
always kept. Files set aside as unreadable are deleted in turn, by the name of their segment.
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
from .._statistics import LogWriterStatistics
from ._files import DiskFiles
from ._folder import is_kept, segment_of

__all__ = ["Janitor"]

_logger: Final = logging.getLogger("onward.actors.eventlog")

ACKS: Final = ".acks"
MAX_ACKS: Final = 256
"""Most acknowledgements that are read; the first by name."""


class _KeptFile(NamedTuple):
    """A sealed segment or a file set aside, with its monotonic start time."""

    name: str
    size: int
    since: float


class Janitor:
    """A janitor that keeps a log within its limits of bytes and age.

    Args:
        files: The disk.
        options: The log's folder, and the limits.
        count: The counters.
        clock: Returns a monotonic time in seconds.
        wall_clock: Returns the time in seconds since the Unix epoch.
    """

    def __init__(
        self,
        files: DiskFiles,
        options: LogOptions,
        count: LogWriterStatistics,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._files = files
        self._folder = options.directory / options.name
        self._max_bytes = options.max_bytes
        self._max_age = options.max_age_seconds
        self._count = count
        self._clock = clock
        self._wall_clock = wall_clock
        self._kept: deque[_KeptFile] = deque()
        self._bytes = 0
        self._warned = False

    def look(self) -> None:
        """List the files.

        Raises:
            OSError: The folder cannot be read.
        """
        found = sorted(info for info in self._files.list(self._folder) if is_kept(info.name))
        self._bytes = sum(info.size for info in found)
        self._kept.clear()
        since = now = self._clock()
        latest = min([self._wall_clock(), *(info.changed for info in found[-1:])])
        # No file is younger than one that follows it, whatever its time.
        for name, size, changed in reversed(found):
            since = min(since, now - (latest - changed))
            self._kept.appendleft(_KeptFile(name, size, since))

    def add(self, name: str, size: int) -> None:
        """Add a segment that was just sealed."""
        self._kept.append(_KeptFile(name, size, self._clock()))
        self._bytes += size

    def clean(self) -> None:
        """Delete files beyond the limits. Failed deletions are tried again next time."""
        if not self._has_due():
            return
        acknowledged = self._acknowledged()
        while self._has_due():
            name, size, _ = self._kept[0]
            try:
                self._files.unlink(self._folder / name)
            except FileNotFoundError:
                pass  # it is deleted already
            except OSError as error:
                self._count.errors += 1
                _logger.warning(
                    "%s cannot be deleted: %s",
                    name,
                    error.strerror,
                    extra={"event": "event_log.not_deleted"},
                )
                return
            self._kept.popleft()
            self._bytes -= size
            self._count.deleted += 1
            if acknowledged is not None and name.endswith(SEALED) and name > acknowledged:
                self._count_unread(name)

    def _has_due(self) -> bool:
        """Whether the oldest file is to be deleted."""
        if len(self._kept) < 2:
            return False
        oldest = self._clock() - self._max_age
        return self._bytes > self._max_bytes or self._kept[0].since < oldest

    def _count_unread(self, name: str) -> None:
        self._count.deleted_unread += 1
        if not self._warned:
            self._warned = True
            _logger.warning(
                "%s: %s was deleted, by the limits of bytes and age, before all readers of the "
                "log had read it; further ones are only counted",
                self._folder,
                name,
                extra={"event": "event_log.deleted_unread"},
            )

    def _acknowledged(self) -> str | None:
        """Return the last segment read by all readers; `None` without readers."""
        folder = self._folder / ACKS
        try:
            found = sorted(info for info in self._files.list(folder) if info.name[-5:] == ".json")
        except OSError:
            return None
        return min((self._read_ack(folder / info.name) for info in found[:MAX_ACKS]), default=None)

    def _read_ack(self, path: Path) -> str:
        """Return a reader's position; empty if it cannot be read."""
        try:
            said = json.loads(self._files.read(path))
        except (OSError, ValueError, RecursionError):
            return ""
        name = cast("dict[str, object]", said).get("segment") if isinstance(said, dict) else None
        return name if isinstance(name, str) and segment_of(name, SEALED) is not None else ""
