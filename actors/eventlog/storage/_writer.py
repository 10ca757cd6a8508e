"""The writer of an event log: a queue, and a thread that waits for the disk instead of the loop.

The loop puts tasks into the queue, which is bounded in bytes; the thread does them in order. If
the disk is too slow, blocks are refused; if it fails, they are dropped. Both are counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from threading import Event, Thread
from typing import Final, TypeAlias

from ....protocol import counted
from ....protocol.eventlog import MAX_BLOCK
from .._options import LogOptions
from .._statistics import LogWriterStatistics
from ._files import Chunk, DiskFiles
from ._folder import LogFolder
from ._janitor import Janitor
from ._segments import Segments

__all__ = ["LogWriter"]

_logger: Final = logging.getLogger("onward.actors.eventlog")

SEGMENT_COST: Final = 256
"""Bytes that the begin of a segment counts for, so that their number in the queue is bounded."""

_Task: TypeAlias = "tuple[int, Callable[..., object], tuple[object, ...]]"
"""Bytes that are done with it, a function, and its arguments."""


class LogWriter:
    """A writer of one log: a daemon thread with its queue.

    `open` is called first, in a thread, as it waits for the disk; then `begin`, `append` and
    `seal` from one thread, without blocking it; `close` at the end.

    Args:
        options: The log's place, limits and intervals.
        files: The disk.
        clock: Returns the time for retries, in seconds.
        wall_clock: Returns the time for the age of files, in seconds since the Unix epoch.
    """

    def __init__(
        self,
        options: LogOptions,
        *,
        files: DiskFiles | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._count = count = LogWriterStatistics()
        disk = files or DiskFiles()
        self._folder = LogFolder(disk, options, count)
        self._janitor = Janitor(disk, options, count, clock, wall_clock)
        self._segments = Segments(disk, self._folder, self._janitor, options, count, clock)
        self._queue: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._closed = True
        # Bytes put by the loop and done by the thread; each number has one writer.
        self._put = 0
        self._done = 0
        self._sealed_at: tuple[int, int] | None = None
        """The last number and the time of the last `seal`, unless a segment has begun since."""
        self._unclosed: str | None = None

    @property
    def log_id(self) -> bytes:
        """The log's identity, 16 bytes, once it is open."""
        return self._folder.log_id

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
            OSError: The folder cannot be made, locked or read. It may be tried again.
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
        self._closed = False
        self._thread = Thread(
            target=self._run, name=f"onward-eventlog-{self._options.name}", daemon=True
        )
        self._thread.start()
        return self._folder.epoch

    def begin(self, started_us: int, last_seq: int) -> bool:
        """Queue the begin of a segment; return whether there was room.

        If the segment before is not sealed, it ends with `last_seq`.

        Args:
            started_us: The time, in microseconds since the Unix epoch.
            last_seq: The last number in use.
        """
        if self._closed or self.pending >= self._options.max_pending:
            return False
        self._sealed_at = None
        self._enqueue(SEGMENT_COST, self._segments.begin, started_us, last_seq)
        return True

    def append(self, kind: bytes, body: Chunk, records: int = 0) -> bool:
        """Queue a block.

        Args:
            kind: Its type, one byte.
            body: Its body, which must not be changed any more.
            records: The number of its records.

        Returns:
            Whether it was accepted. If not, too many bytes wait, or it is over `MAX_BLOCK`.
        """
        size = len(body)
        if self._closed or size > MAX_BLOCK or self.pending + size > self._options.max_pending:
            return False
        self._enqueue(size, self._segments.write, kind, body, records)
        return True

    def seal(self, last_seq: int, ended_us: int) -> None:
        """Queue the end of the segment, with the last number in use and the time."""
        self._sealed_at = last_seq, ended_us
        self._enqueue(0, self._segments.seal, last_seq, ended_us)
        # Old files are deleted even if nothing can be sealed: that may make room.
        self._enqueue(0, self._janitor.clean)

    def _enqueue(self, size: int, call: Callable[..., object], *arguments: object) -> None:
        self._put += size
        self._queue.put((size, call, arguments))

    @property
    def pending(self) -> int:
        """Bytes that wait for the disk."""
        return self._put - self._done

    def trouble(self) -> str | None:
        """Return the failure that keeps the log from being written; `None` if there is none."""
        return self._unclosed or self._segments.trouble

    def lost(self) -> int:
        """Return the number of records that were accepted and not written."""
        return self._count.lost

    def statistics(self) -> LogWriterStatistics:
        """Return the writer's current figures."""
        return replace(self._count, pending=self.pending)

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
        self._enqueue(0, done.set)
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
        self._closed = True
        self._queue.put(None)
        thread.join(timeout)
        if thread.is_alive():
            self._unclosed = (
                f"the disk does not answer: {counted(self.pending, 'byte')} not written"
            )

    # --- on the thread --------------------------------------------------------------------

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            self._do(task)
        self._end()

    def _end(self) -> None:
        if self._sealed_at is not None:
            self._do((0, self._segments.close, self._sealed_at))
        self._folder.close()

    def _do(self, task: _Task) -> None:
        size, call, arguments = task
        try:
            call(*arguments)
        except Exception:
            # A defect: the thread must not end while the loop depends on it.
            _logger.exception(
                "the event log %s failed", self._options.name, extra={"event": "event_log.failed"}
            )
            self._count.errors += 1
        finally:
            self._done += size
