"""The segments of a log, written one after the other by one thread, through failures of the disk.

A segment is written as `.open` and sealed: footer, fsync, rename, fsync of the folder. When the
disk fails, blocks are dropped up to the next segment. Before that one begins, the whole blocks of
the failed one are written to a new file, which is sealed. Its footer has the last number in use,
and each segment begins where the one before ended: numbers without a record are lost.

After a failure the disk is not used for a while: segments begun in that time are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....protocol.eventlog import (
    OPEN,
    SEALED,
    SegmentFooter,
    SegmentHeader,
    block_header,
    segment_name,
)
from ....protocol.eventlog._blocks import EVENTS, FLOWS, HOPS
from ..._log import SeldomLogger
from .._options import LogOptions
from .._statistics import LogWriterStatistics
from ._files import Chunk, DiskFiles, seal_late
from ._folder import LogFolder
from ._janitor import Janitor

__all__ = ["Segments"]

_logger: Final = logging.getLogger("onward.actors.eventlog")


class Segments:
    """The segments of one run of a writer.

    Args:
        files: The disk.
        folder: The log's folder, opened.
        janitor: The janitor; it gets each sealed segment.
        options: The log's options.
        count: The counters.
        clock: Returns the time for retries, in seconds.

    Attributes:
        trouble: The current failure of the disk.
    """

    def __init__(
        self,
        files: DiskFiles,
        folder: LogFolder,
        janitor: Janitor,
        options: LogOptions,
        count: LogWriterStatistics,
        clock: Callable[[], float],
    ) -> None:
        self.trouble: str | None = None
        self._files = files
        self._folder = folder
        self._janitor = janitor
        self._options = options
        self._count = count
        self._clock = clock
        self._seldom = SeldomLogger(_logger)
        self._settled = False
        """Whether the segments of earlier runs are sealed."""
        self._path: Path | None = None
        """The current segment, or the one that failed."""
        self._handle: int | None = None
        """Its file; `None` if it failed."""
        self._records: dict[bytes, int] = {}
        """Its hops, flows and events, by type of block."""
        self._size = 0
        """Its bytes in whole blocks."""
        self._next_seq = 1
        """The first number of the current segment, or the next one."""
        self._last_seq = 0
        """The last number in the footer of the current segment, once it is written."""
        self._retry_at: float | None = None

    # --- calls of the writer --------------------------------------------------------------

    def settle(self) -> None:
        """Seal the segments of earlier runs; on a failing disk, later."""
        try:
            self._settle()
        except OSError as error:
            self._fail(error)

    def begin(self, started_us: int, last_seq: int) -> None:
        """Begin a segment, and seal the one before if it is not.

        Args:
            started_us: The time, in microseconds since the Unix epoch.
            last_seq: The last number in use.
        """
        if self._retry_at is not None and self._clock() < self._retry_at:
            return
        try:
            self._settle()
            self._finish(last_seq, started_us)
            self._create(started_us)
        except OSError as error:
            self._fail(error)
            return
        self._retry_at = None
        if self.trouble is not None:
            self.trouble = None
            text = "%s: events are written again"
            self._seldom.log(
                logging.WARNING,
                "again",
                text,
                self._folder.path,
                extra={"event": "event_log.written_again"},
            )

    def write(self, kind: bytes, body: Chunk, records: int) -> None:
        """Write a block, or drop it.

        Args:
            kind: Its type.
            body: Its body.
            records: The number of its records.
        """
        if self._handle is None:
            self._count.lost += records
            return
        header = block_header(kind, body)
        try:
            self._files.write(self._handle, (header, body))
            if self._options.fsync == "block":
                self._files.fsync(self._handle)
        except Exception as error:
            # Some of its bytes may be there: they are cut off.
            self._count.lost += records
            self._fail(error)
            if not isinstance(error, OSError):
                raise
            return
        if kind in self._records:
            self._records[kind] += records
        self._add_size(len(header) + len(body))

    def seal(self, last_seq: int, ended_us: int) -> None:
        """Seal the segment with the last number in use; without numbers it is deleted."""
        if self._handle is None:
            return
        try:
            self._seal(last_seq, ended_us)
        except OSError as error:
            self._fail(error)

    def close(self, last_seq: int, ended_us: int) -> None:
        """Seal the last segment, and record the numbers up to the end, if the disk works."""
        try:
            self._finish(last_seq, ended_us)
            if self._next_seq <= last_seq:
                self._settle()
                self._create(ended_us)
                self._seal(last_seq, ended_us)
        except OSError as error:
            self._fail(error)

    # --- internals ------------------------------------------------------------------------

    def _settle(self) -> None:
        if not self._settled:
            self._folder.settle()
            self._janitor.look()
            self._settled = True

    def _create(self, started_us: int) -> None:
        folder, options = self._folder, self._options
        header = SegmentHeader(
            options.name,
            folder.log_id,
            folder.epoch,
            self._next_seq,
            started_us,
            options.sample_rate,
        ).serialize()
        name = segment_name(folder.epoch, self._next_seq)
        # The state is set first, for the case that the rest fails.
        self._path = path = (folder.path / name).with_suffix(OPEN)
        self._records = {HOPS: 0, FLOWS: 0, EVENTS: 0}
        self._size = 0
        self._handle = handle = self._files.create(path)
        self._files.write(handle, [header])
        if options.fsync == "block":
            self._files.fsync(handle)
        if options.fsync != "never":
            # Its name is on the disk before its content, so that a start finds it.
            self._files.fsync_folder(folder.path)
        folder.begin_epoch()
        self._add_size(len(header))

    def _seal(self, last_seq: int, ended_us: int) -> None:
        path, handle = self._path, self._handle
        if path is None or handle is None:
            raise AssertionError("no segment is open")
        if last_seq < self._next_seq:
            # The next segment has the same first number, and so the same name.
            self._let_go()
            self._files.unlink(path)
            self._path = None
            return
        self._last_seq = last_seq
        footer = self._footer(last_seq, ended_us)
        self._files.write(handle, [footer])
        if self._options.fsync != "never":
            self._files.fsync(handle)
        self._let_go()
        self._files.rename(path, path.with_suffix(SEALED).name)
        if self._options.fsync != "never":
            self._files.fsync_folder(self._folder.path)
        self._add_size(len(footer))
        self._is_sealed(path)

    def _finish(self, last_seq: int, ended_us: int) -> None:
        """Seal the segment before, if it failed or has no end."""
        path = self._path
        if path is None:
            return
        self._let_go()
        names = {info.name for info in self._files.list(self._folder.path)}
        if path.with_suffix(SEALED).name in names:
            # What failed came after: it has the last number of then.
            if path.name in names:
                self._files.unlink(path)
            self._files.fsync_folder(self._folder.path)
        elif path.name in names and any(self._records.values()):
            self._last_seq = last_seq
            footer = self._footer(last_seq, ended_us)
            seal_late(self._files, path, self._size, footer)
            self._add_size(len(footer))
        else:
            if path.name in names:
                self._files.unlink(path)
            self._count.lost += sum(self._records.values())
            self._path = None
            return
        self._is_sealed(path)

    def _footer(self, last_seq: int, ended_us: int) -> bytes:
        hops, flows, events = self._records.values()
        return SegmentFooter(hops, flows, events, last_seq, ended_us).serialize()

    def _is_sealed(self, path: Path) -> None:
        self._path = None
        self._next_seq = self._last_seq + 1
        self._count.segments += 1
        self._janitor.add(path.with_suffix(SEALED).name, self._size)

    def _add_size(self, size: int) -> None:
        self._size += size
        self._count.bytes += size

    # --- failures -------------------------------------------------------------------------

    def _let_go(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                self._files.close(handle)

    def _fail(self, error: Exception) -> None:
        self._let_go()
        self._count.errors += 1
        pause = self._options.retry_seconds
        self._retry_at = self._clock() + pause
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        if self.trouble is None:
            text = (
                "%s: cannot write: %s; events are dropped and counted; the next try is after "
                "%g seconds"
            )
            self._seldom.log(
                logging.ERROR,
                "trouble",
                text,
                self._folder.path,
                reason,
                pause,
                extra={"event": "event_log.not_written"},
            )
        self.trouble = f"cannot write {self._folder.path}: {reason}"
