"""Hands blocks to a thread that writes them: the loop never waits for a disk.

The loop puts what is to be done into a queue, bounded in bytes; the thread does it in order. If
the disk does not keep up, blocks are refused; if it fails, they are dropped. Both are counted.
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
from ..recording._sink import Receipt
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
    receipt: Receipt | None


class _Seal(NamedTuple):
    footer: SegmentFooter
    size: int


class LogWriter:
    """Writes one log: a daemon thread, and a queue to it.

    `open` is called first, in a thread, as it waits for the disk; then `begin`, `append` and
    `seal` from one thread, which they do not hold up; `close` at the end. A segment that has
    no records when it is sealed is deleted: what shows that an idle log is alive is an event,
    `EventName.IDLE`.

    Args:
        options: Where and when to write, and how much.
        files: The disk.
        clock: What tells the time for retries, in seconds.
        wall_clock: What tells the age of files, in seconds since the Unix epoch.

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
        # Bytes put by one thread and done by the other; neither number has two writers.
        self._put = 0
        self._done = 0
        self._refused_blocks = 0
        self._number = 0
        """How many segments were begun; on the thread, which of them it is at."""
        self._at = 0
        self._begun = False
        self._refusing = True
        self._failed_number = 0
        self._header: bytes | None = None
        self._footer: SegmentFooter | None = None
        """Of what was given last: with them the end tells what of it is not there."""
        self._unclosed: str | None = None

    def open(self) -> int:
        """Take the log's folder, seal what an earlier run left open, and start the thread.

        If the disk is full, or fails, the log is open all the same and in `trouble`: what is
        given is dropped and counted, and with the segments that are begun it is tried again,
        every `retry_seconds` at most. What is too old or too much is deleted before.

        Returns:
            The epoch of this run.

        Raises:
            LogInUse: Another process writes this log.
            EventLogError: There are no more epochs; the text says what to do.
            OSError: The folder cannot be written, whatever room there is. It may be tried again.
        """
        if self._thread is not None:
            raise RuntimeError("the log was opened before")
        self._folder.open()
        try:
            if self._folder.held:
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
        """Begin a segment; one that was not sealed is, up to the number before.

        Args:
            header: From `SegmentHeader.serialize`.
            first_seq: Its first number.
        """
        self._number += 1
        self._header = header
        # Without room it is dropped whole, and the next one tells the gap.
        self._refusing = self.pending >= self._options.max_pending
        self._begun = not self._refusing
        if self._begun:
            self._put += len(header)
            self._queue.put(_Begin(header, first_seq, self._number))

    def append(
        self, block: Chunk, body: Chunk | None = None, receipt: Receipt | None = None
    ) -> bool:
        """Have a block written.

        Args:
            block: A whole block; or only its type, one byte, and then the thread makes the
                block's header.
            body: In that case its body, which may not be changed any more.
            receipt: Is told what becomes of it, if it is taken.

        Returns:
            Whether it was taken; if not, too many bytes wait, it is over `MAX_BLOCK`, or the
            segment has `failed`. What is refused is not written later. If that was a block of
            names, routes or tag sets, the segment has failed.
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
            # What comes later may refer to it.
            self._refusing = self._refusing or kind in _DEFINITIONS
            return False
        self._put += size
        self._queue.put(_Append(kind, body, framed, receipt))
        return True

    def seal(self, footer: bytes) -> None:
        """Have the segment sealed.

        Args:
            footer: From `SegmentFooter.serialize`. How many records there are the writer counts
                itself, as not all that were taken may have been written.
        """
        self._footer = read_footer(footer)
        if self._begun:
            self._put += len(footer)
            self._queue.put(_Seal(self._footer, len(footer)))
        self._begun = False
        self._refusing = True

    @property
    def failed(self) -> bool:
        """Whether the segment takes nothing more; seal it, and begin another.

        That may be done at once: a failing disk is left alone for `retry_seconds` all the same.
        """
        return self._refusing or self._failed_number == self._number

    @property
    def pending(self) -> int:
        """Bytes that wait for the disk."""
        return self._put - self._done

    def trouble(self) -> str | None:
        """Return what keeps the log from being written; `None` if nothing does."""
        return self._unclosed or self._segments.trouble

    def unfinished(self) -> list[str]:
        """Return what is to be told of earlier runs that did not end, each once.

        Nothing as long as nothing can be written: who records it is to be heard. What is not
        written as the reason of an event `EventName.LOST`, word for word and with a receipt that
        `says` it, the next run is to tell again.
        """
        folder = self._folder
        if not folder.unfinished or self.failed or not folder.settled or self._segments.trouble:
            return []
        found, folder.unfinished = folder.unfinished, []
        return found

    def statistics(self) -> LogWriterStatistics:
        """Return what the writer has done so far."""
        return LogWriterStatistics(
            pending=self.pending, refused_blocks=self._refused_blocks, **asdict(self._count)
        )

    def flush(self, timeout: float) -> bool:
        """Wait until all that was given so far is written, or dropped. It waits for the disk.

        Args:
            timeout: How long, in seconds.

        Returns:
            Whether it is.
        """
        if self._thread is None or not self._thread.is_alive():
            return True
        done = Event()
        self._queue.put(done)
        return done.wait(timeout)

    def close(self, timeout: float) -> None:
        """Write what waits, end the thread, and let the folder go. It waits for the disk.

        Args:
            timeout: How long, in seconds. After it the thread is left to itself, `trouble` says
                so, and what is not written by the end of the process is lost.
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
            # A defect of ours: the thread must not end while the loop counts on it.
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
                # What is too old goes even if nothing can be sealed: that may make the room.
                self._janitor.clean()

    def _write(self, task: _Append) -> None:
        kind, body, framed, receipt = task
        written = False
        try:
            if framed:
                records = record_count(kind, memoryview(body)[_HEADER_SIZE:])
                written = self._segments.write(kind, (body,), records, receipt)
            else:
                header = block_header(kind, body)
                records = record_count(kind, body)
                written = self._segments.write(kind, (header, body), records, receipt)
        finally:
            self._done += len(body)
            if not written:
                self._failed_number = self._at
