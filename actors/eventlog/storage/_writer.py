"""The writer of an event log: a queue, and a thread that waits for the disk instead of the loop.

The loop puts tasks into the queue, which is bounded in bytes; the thread does them in order. If
the disk is too slow, blocks are refused; if it fails, they are dropped. Both are counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from queue import SimpleQueue
from threading import Event, Thread
from typing import Final, NamedTuple

from ....protocol import counted
from ....protocol.eventlog import (
    MAX_BLOCK,
    SegmentFooter,
    block_header,
    read_footer,
    record_count,
)
from .._options import LogOptions
from ._counts import Counts, LogWriterStatistics
from ._files import Chunk, DiskFiles, Files
from ._folder import LogFolder
from ._janitor import Janitor
from ._segments import Segments

__all__ = ["LogWriter"]

_logger: Final = logging.getLogger("onward.actors.eventlog")

_HEADER_SIZE: Final = 9
_DEFINITIONS: Final = frozenset((b"N", b"P", b"T"))


class _Begin(NamedTuple):
    header: bytes
    first_seq: int
    number: int


class _Append(NamedTuple):
    kind: bytes
    body: Chunk
    framed: bool


class _Seal(NamedTuple):
    footer: SegmentFooter
    size: int


class LogWriter:
    """A writer of one log: a daemon thread with its queue.

    `open` is called first, in a thread, as it waits for the disk; then `begin`, `append` and
    `seal` from one thread, without blocking it; `close` at the end. A segment without records is
    deleted when it is sealed: the event `EventName.IDLE` shows that an idle log is alive.

    Args:
        options: The log's place, limits and intervals.
        files: The disk.
        clock: Returns the time for retries, in seconds.
        wall_clock: Returns the time for the age of files, in seconds since the Unix epoch.

    Attributes:
        log_id: The log's identity, 16 bytes, once it is open.
    """

    def __init__(
        self,
        options: LogOptions,
        *,
        files: Files | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.log_id = b""
        self._options = options
        self._count = Counts()
        disk = DiskFiles() if files is None else files
        self._folder = LogFolder(disk, options, self._count)
        self._janitor = Janitor(disk, self._folder, options, self._count, clock, wall_clock)
        self._segments = Segments(
            disk,
            self._folder,
            options,
            self._count,
            clock,
            self._janitor.add,
            self._janitor.look,
        )
        self._queue: SimpleQueue[_Begin | _Append | _Seal | Event | None] = SimpleQueue()
        self._thread: Thread | None = None
        # Bytes put by the loop and done by the thread; each number has one writer.
        self._put = 0
        self._done = 0
        self._refused_blocks = 0
        self._number = 0
        """Segments begun by the loop; `_at` is the thread's current one."""
        self._at = 0
        self._begun = False
        self._refusing = True
        self._failed_number = 0
        self._header: bytes | None = None
        self._footer: SegmentFooter | None = None
        """Header and footer of the last segment, to record at the end what is missing."""
        self._unclosed: str | None = None

    def open(self) -> int:
        """Open the log's folder, seal segments that an earlier run left open, and start the thread.

        If the disk is full or fails, the log is open all the same and in `trouble`: blocks are
        dropped and counted, and each new segment tries again, every `retry_seconds` at most. Files
        beyond the limits of age and bytes are deleted before.

        Returns:
            The epoch of this run.

        Raises:
            LogInUse: Another process writes this log.
            EventLogError: There are no more epochs; the text says what to do.
            OSError: The folder cannot be written, even with free space. It may be tried again.
        """
        if self._thread is not None:
            raise RuntimeError("the log was opened before")
        self._folder.open()
        try:
            self._janitor.look()
            self._janitor.clean()
            self._segments.settle()
        except BaseException:
            self._folder.close()
            raise
        self.log_id = self._folder.log_id
        self._thread = Thread(
            target=self._run, name=f"onward-eventlog-{self._options.name}", daemon=True
        )
        self._thread.start()
        return self._folder.epoch

    def begin(self, header: bytes, first_seq: int) -> None:
        """Begin a segment, and seal the one before if it is not, up to the number before.

        Args:
            header: From `SegmentHeader.serialize`.
            first_seq: Its first number.
        """
        self._number += 1
        self._header = header
        # Without room the whole segment is dropped, and the next one records the gap.
        self._refusing = self.pending >= self._options.max_pending
        self._begun = not self._refusing
        if self._begun:
            self._put += len(header)
            self._queue.put(_Begin(header, first_seq, self._number))

    def append(self, block: Chunk, body: Chunk | None = None) -> bool:
        """Queue a block.

        Args:
            block: A whole block; or only its type, one byte, for a header made by the thread.
            body: In that case the body, which must not be changed any more.

        Returns:
            Whether it was accepted. If not, too many bytes wait, it is over `MAX_BLOCK`, or the
            segment has `failed`. A refused block is not written later. The segment fails if a
            block of names, routes or tag sets is refused.
        """
        framed = body is None
        if body is None:
            kind, body = bytes(block[:1]), block
        else:
            kind = bytes(block)
        size = len(body)
        if (
            self.failed
            or size > MAX_BLOCK + _HEADER_SIZE * framed
            or self.pending + size > self._options.max_pending
        ):
            self._refused_blocks += 1
            # Later blocks may refer to it.
            self._refusing = self._refusing or kind in _DEFINITIONS
            return False
        self._put += size
        self._queue.put(_Append(kind, body, framed))
        return True

    def seal(self, footer: bytes) -> None:
        """Queue the end of the segment.

        Args:
            footer: From `SegmentFooter.serialize`. The writer counts the records itself, as
                accepted blocks may not have been written.
        """
        self._footer = read_footer(footer)
        if self._begun:
            self._put += len(footer)
            self._queue.put(_Seal(self._footer, len(footer)))
        self._begun = False
        self._refusing = True

    @property
    def failed(self) -> bool:
        """Whether the segment accepts no more blocks; seal it, and begin another.

        That may be done at once: the writer pauses for `retry_seconds` all the same.
        """
        return self._refusing or self._failed_number == self._number

    @property
    def pending(self) -> int:
        """Bytes that wait for the disk."""
        return self._put - self._done

    def trouble(self) -> str | None:
        """Return the failure that keeps the log from being written; `None` if there is none."""
        return self._unclosed or self._segments.trouble

    def unfinished(self) -> list[str]:
        """Return the notices of earlier runs that did not close, each once.

        Empty while the log cannot be written. Record each as the reason of an event
        `EventName.LOST`.
        """
        folder = self._folder
        if not folder.unfinished or self.failed or not folder.settled or self._segments.trouble:
            return []
        found, folder.unfinished = folder.unfinished, []
        return found

    def lost(self) -> int:
        """Return the number of records that were accepted and not written."""
        count = self._count
        return count.lost_hops + count.lost_flows + count.lost_events

    def statistics(self) -> LogWriterStatistics:
        """Return the writer's current figures."""
        return LogWriterStatistics(
            pending=self.pending, refused_blocks=self._refused_blocks, **asdict(self._count)
        )

    def flush(self, timeout: float) -> bool:
        """Wait until all tasks so far are done. It waits for the disk.

        Args:
            timeout: Most seconds to wait.

        Returns:
            Whether they are.
        """
        if self._thread is None or not self._thread.is_alive():
            return True
        done = Event()
        self._queue.put(done)
        return done.wait(timeout)

    def close(self, timeout: float) -> None:
        """Write the queue, end the thread, and release the folder. It waits for the disk.

        Args:
            timeout: Most seconds to wait. Then the thread runs on, `trouble` reports it, and
                blocks not written at the end of the process are lost.
        """
        thread = self._thread
        if thread is None:
            return
        self._refusing = True
        self._queue.put(None)
        thread.join(timeout)
        if thread.is_alive():
            self._unclosed = (
                f"the disk does not answer: {counted(self.pending, 'byte')} not written"
            )

    # --- on the thread --------------------------------------------------------------------

    def _run(self) -> None:
        self._guarded(self._janitor.clean)
        while (task := self._queue.get()) is not None:
            self._guarded(self._do, task)
        self._end()

    def _end(self) -> None:
        self._guarded(self._segments.close, self._header, self._footer)
        self._folder.close()

    def _guarded(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception:
            # A defect: the thread must not end while the loop depends on it.
            _logger.exception("the event log %s failed", self._options.name)
            self._count.errors += 1

    def _do(self, task: _Begin | _Append | _Seal | Event) -> None:
        if isinstance(task, _Append):
            self._write(task)
        elif isinstance(task, _Begin):
            self._begin(task)
        elif isinstance(task, Event):
            task.set()
        else:
            self._segments.seal(task.footer.last_seq, task.footer.ended_us)
            self._done += task.size
            self._janitor.clean()

    def _begin(self, task: _Begin) -> None:
        self._at = task.number
        begun = False
        try:
            begun = self._segments.begin(task.header, task.first_seq)
        finally:
            self._done += len(task.header)
            if not begun:
                self._failed_number = task.number
                # Delete old files even if nothing can be sealed: that may make room.
                self._janitor.clean()

    def _write(self, task: _Append) -> None:
        kind, body, framed = task
        written = False
        try:
            if framed:
                records = record_count(kind, memoryview(body)[_HEADER_SIZE:])
                written = self._segments.write(kind, (body,), records)
            else:
                header = block_header(kind, body)
                records = record_count(kind, body)
                written = self._segments.write(kind, (header, body), records)
        finally:
            self._done += len(body)
            if not written:
                self._failed_number = self._at
