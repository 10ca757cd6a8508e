"""The segments of a log, written one after the other by one thread, through failures of the disk.

A segment is written as `.open` and sealed: footer, fsync, rename, fsync of the folder. When the
disk fails, blocks are dropped up to the next segment. Before that one begins, the failed one is
cut to the blocks before the failure and sealed. Its footer has the last number in use, so that the
log has no unrecorded gap. An empty segment stands for one that is wholly lost. After a failed fsync
the content is written to a new file: see `_files`.

After a failure the disk is not used for a while: segments begun in that time are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ....protocol.eventlog import (
    OPEN,
    SEALED,
    SegmentFooter,
    SegmentHeader,
    read_header,
    segment_name,
)
from ..._log import SeldomLogger
from .._options import LogOptions
from ._counts import Counts, SegmentProgress
from ._files import Chunk, Files, FsyncFailed, seal_late, sync
from ._folder import LogFolder, is_full

__all__ = ["Segments"]

_logger: Final = logging.getLogger("onward.actors.eventlog")


class Segments:
    """The segments of one run of a writer.

    Args:
        files: The disk.
        folder: The log's folder, opened.
        options: When to fsync, and how long to pause after a failure.
        count: The counters.
        clock: Returns the time for retries, in seconds.
        sealed: Called with name and size of each sealed segment.
        settled: Called when segments of earlier runs are sealed.
    """

    def __init__(
        self,
        files: Files,
        folder: LogFolder,
        options: LogOptions,
        count: Counts,
        clock: Callable[[], float],
        sealed: Callable[[str, int], None],
        settled: Callable[[], None],
    ) -> None:
        self._files = files
        self._folder = folder
        self._fsync = options.fsync
        self._retry_seconds = options.retry_seconds
        self._count = count
        self._clock = clock
        self._sealed = sealed
        self._settled = settled
        self._seldom = SeldomLogger(_logger)
        self._path: Path | None = None
        """The current segment, or the one that failed."""
        self._handle: int | None = None
        """Its file; `None` if it failed."""
        self._header: SegmentHeader | None = None
        self._written = SegmentProgress(count)
        self._doubted = False
        """Whether its content may be in memory only, and not on the disk."""
        self._size = 0
        self._last_seq = 0
        """The last number in the footer of the current segment, once it is written."""
        self._next_seq = 1
        """The first number of the next segment if none is missing."""
        self._retry_at: float | None = None
        self.trouble: str | None = None
        """The current failure of the disk."""

    # --- calls of the writer --------------------------------------------------------------

    def settle(self) -> None:
        """Begin the epoch; on a full disk, later.

        Raises:
            OSError: The folder cannot be written, and not because the disk is full or fails.
        """
        try:
            self._settle()
        except OSError as error:
            if not is_full(error):
                raise
            self._fail(error)

    def _settle(self) -> None:
        if not self._folder.settled:
            self._folder.settle()
            self._settled()

    def begin(self, header: bytes, first_seq: int) -> bool:
        """Begin a segment, and seal the one before if it is not.

        Returns:
            Whether it has begun; if not, its blocks are dropped.
        """
        if self._retry_at is not None and self._clock() < self._retry_at:
            return False
        parsed = read_header(header)
        try:
            self._have_folder()
            self._finish_last(first_seq - 1, parsed.started_us)
            if first_seq > self._next_seq:
                self._tell_gap(parsed, first_seq - 1)
            self._create(header, parsed)
        except OSError as error:
            self._fail(error)
            return False
        self._recovered_from_trouble()
        return True

    def write(self, kind: bytes, chunks: Sequence[Chunk], records: int) -> bool:
        """Write a block, or drop it.

        Args:
            kind: Its type.
            chunks: Its bytes, with its header.
            records: The number of its records.

        Returns:
            Whether it was written.
        """
        if self._handle is None:
            self._written.drop(kind, records)
            return False
        self._written.write(kind, records)
        try:
            self._files.write(self._handle, chunks)
            if self._fsync == "block":
                sync(self._files, self._handle)
        except OSError as error:
            self._fail(error)
            self._count.lost_blocks += 1
            return False
        except Exception:
            self._let_go()  # a defect
            raise
        self._written.keep()
        size = sum(map(len, chunks))
        self._size += size
        self._count.bytes += size
        return True

    def seal(self, last_seq: int, ended_us: int) -> bool:
        """Seal the segment with the last number in use and the time.

        Returns:
            Whether it is sealed. A segment without records is deleted instead.
        """
        if self._handle is None:
            return False
        try:
            return self._seal(last_seq, ended_us)
        except OSError as error:
            self._fail(error)
            return False

    def close(self, header: bytes | None = None, footer: SegmentFooter | None = None) -> None:
        """Seal the last segment, and record a gap up to the end.

        If the disk fails, the records in doubt count as lost.

        Args:
            header: The header of the last segment, written or not; the footer likewise.
            footer: The footer with the last number.
        """
        last_seq = 0 if footer is None else footer.last_seq
        try:
            # A segment with later records than the footer has stays open for the next start.
            if footer is not None and (self._header is None or last_seq >= self._header.first_seq):
                self._finish_last(last_seq, footer.ended_us)
            if header is not None and last_seq >= self._next_seq:
                self._have_folder()
                self._tell_gap(read_header(header), last_seq)
        except OSError as error:
            self._fail(error)
        if self._path is not None:
            # The next start recovers it. Records that may be lost count as lost: after a failed
            # fsync, all that no earlier fsync has written.
            if self._doubted and self._fsync != "block":
                self._written.lose_all()
            self._written.lose_doubt()
        else:
            self._folder.end_epoch()

    # --- internals ------------------------------------------------------------------------

    def _have_folder(self) -> None:
        self._folder.check()
        self._settle()

    def _create(self, header: bytes, parsed: SegmentHeader) -> None:
        name = segment_name(parsed.epoch, parsed.first_seq)
        path = self._folder.path / (name.removesuffix(SEALED) + OPEN)
        # Set the state first, for the recovery if creation fails.
        self._path, self._header = path, parsed
        self._doubted = False
        self._written.clear()
        self._handle = handle = self._files.create(path)
        self._files.write(handle, [header])
        self._size = len(header)
        self._count.bytes += len(header)
        if self._fsync == "block":
            sync(self._files, handle)
        if self._fsync != "never":
            # Its name is on the disk before its content, so that a start finds it.
            self._files.fsync_folder(self._folder.path)
        self._folder.begin_epoch()

    def _seal(self, last_seq: int, ended_us: int) -> bool:
        path, handle, header = self._now_open()
        if not self._written and last_seq < header.first_seq:
            # The next segment has the same first number, and so the same name.
            self._let_go()
            self._files.unlink(path)
            self._path = None
            return False
        data = self._written.footer(last_seq, ended_us).serialize()
        self._files.write(handle, [data])
        self._last_seq = last_seq
        if self._fsync != "never":
            sync(self._files, handle)
        self._handle = None
        self._files.close(handle)
        self._files.rename(path, path.with_suffix(SEALED).name)
        self._is_sealed(path, len(data), last_seq)
        if self._fsync != "never":
            self._files.fsync_folder(self._folder.path)
        return True

    def _now_open(self) -> tuple[Path, int, SegmentHeader]:
        if self._path is None or self._handle is None or self._header is None:
            raise AssertionError("no segment is open")
        return self._path, self._handle, self._header

    def _is_sealed(self, path: Path, end: int, last_seq: int) -> None:
        self._path = None
        self._size += end
        self._count.bytes += end
        self._next_seq = last_seq + 1
        self._count.segments += 1
        self._sealed(path.with_suffix(SEALED).name, self._size)

    def _finish_last(self, last_seq: int, ended_us: int) -> None:
        """Seal the segment before, if it failed or has no end.

        The block on which the disk failed is cut off, and counts as lost.
        """
        path = self._path
        if path is None:
            return
        self._let_go()
        self._written.lose_doubt()
        names = {info.name for info in self._files.list(self._folder.path)}
        sealed = path.with_suffix(SEALED).name
        if path.name in names and self._written:
            footer = self._written.footer(last_seq, ended_us).serialize()
            self._last_seq = last_seq
            seal_late(self._files, path, self._size, footer, anew=self._doubted)
            self._is_sealed(path, len(footer), last_seq)
        elif sealed in names and path.name not in names:
            # It was renamed all the same, with the last number of then.
            self._files.fsync_folder(self._folder.path)
            self._is_sealed(path, 0, self._last_seq)
        else:
            if path.name in names:
                self._files.unlink(path)
            self._written.lose_all()
            self._path = None

    def _tell_gap(self, header: SegmentHeader, last_seq: int) -> None:
        """Write an empty segment in place of one that was lost."""
        begun = replace(header, first_seq=self._next_seq)
        self._create(begun.serialize(), begun)
        self._seal(last_seq, header.started_us)

    # --- failures -------------------------------------------------------------------------

    def _let_go(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                self._files.close(handle)

    def _fail(self, error: OSError) -> None:
        self._let_go()
        self._doubted = self._doubted or isinstance(error, FsyncFailed)
        self._count.errors += 1
        self._retry_at = self._clock() + self._retry_seconds
        text = error.strerror or str(error)
        if self.trouble is None:
            self._seldom.log(
                logging.ERROR,
                "trouble",
                "%s: cannot write: %s; events are dropped and counted; the next try is after "
                "%g seconds",
                self._folder.path,
                text,
                self._retry_seconds,
            )
        self.trouble = f"cannot write {self._folder.path}: {text}"

    def _recovered_from_trouble(self) -> None:
        self._retry_at = None
        if self.trouble is not None:
            self.trouble = None
            self._seldom.log(
                logging.WARNING, "again", "%s: events are written again", self._folder.path
            )
