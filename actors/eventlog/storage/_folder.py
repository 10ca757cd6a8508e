"""A log's folder: its lock, its identity, its epochs, and the segments that a run left open.

```
<directory>/<name>/.lock       held while the log is written
                   log         its identity, 16 random bytes
                   epoch       the last epoch with a segment, deleted or not, as text
                   *.seg       sealed segments
                   *.open      the current segment
                   *.new       a file being written to replace another
                   *.bad       unreadable open segments, for inspection
                   .acks/      the positions of readers
```

Other files in it are ignored.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ....protocol import counted
from ....protocol.eventlog import (
    LOG_ID_SIZE,
    MAX_EPOCH,
    OPEN,
    SEALED,
    EventLogError,
    EventName,
    Recovered,
    RouteEvent,
    events_block,
    parse_segment_name,
    recover,
)
from ..._log import shown
from .._options import LogOptions
from .._statistics import LogWriterStatistics
from ._files import DiskFiles, seal_late, store

__all__ = ["LogFolder", "is_kept", "segment_of"]

_logger: Final = logging.getLogger("onward.actors.eventlog")

BAD: Final = ".bad"
_LOCK: Final = ".lock"
_LOG: Final = "log"
_EPOCH: Final = "epoch"


def segment_of(name: str, suffix: str) -> tuple[int, int] | None:
    """Return epoch and first number from a segment's name; `None` for another file."""
    if name.endswith(suffix):
        with suppress(EventLogError):
            return parse_segment_name(name.removesuffix(BAD))
    return None


def is_kept(name: str) -> bool:
    """Whether a file is a sealed segment, or was set aside: the limits of the log are for these."""
    return segment_of(name, SEALED) is not None or segment_of(name, OPEN + BAD) is not None


class LogFolder:
    """A log's folder, held by one writer.

    Args:
        files: The disk.
        options: The log's options.
        count: The counters.
        random: Makes an identity of a number of bytes.

    Attributes:
        path: The folder.
        log_id: The log's identity.
        epoch: The number of this run.
    """

    def __init__(
        self,
        files: DiskFiles,
        options: LogOptions,
        count: LogWriterStatistics,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.path = options.directory / options.name
        self.log_id = b""
        self.epoch = 0
        self._options = options
        self._files = files
        self._count = count
        self._random = random
        self._lock: int | None = None
        self._identity_stored = False
        self._epoch_stored = False

    def open(self) -> None:
        """Open the folder, and choose identity and epoch; nothing is written: see `settle`.

        Raises:
            LogInUse: Another process has it.
            EventLogError: There are no more epochs; the folder is released.
            OSError: It failed; the folder is released.
        """
        self._files.make_folder(self.path)
        self._lock = self._files.lock(self.path / _LOCK)
        try:
            names = self._names()
            self.log_id = self._identity(names)
            self.epoch = self._last_epoch(names) + 1
            if self.epoch > MAX_EPOCH:
                raise EventLogError(
                    f"{self.path} has a file of epoch {MAX_EPOCH}, the last there can be: if it is "
                    "a stray file, move it away; else give this log another name"
                )
        except BaseException:
            self.close()
            raise

    def settle(self) -> None:
        """Store the identity, and seal the segments that an earlier run left open.

        Raises:
            OSError: It failed; it may be tried again.
        """
        if not self._identity_stored:
            store(self._files, self.path / _LOG, [self.log_id])
            self._identity_stored = True
        names = self._names()
        for name in sorted(names):
            if segment_of(name, OPEN) is None:
                continue
            if name.removesuffix(OPEN) + SEALED in names:
                # All but the last step of sealing it was done.
                self._files.unlink(self.path / name)
            else:
                self._recover(name)

    def begin_epoch(self) -> None:
        """Store that the epoch has a segment, once.

        The order is: the segment's file, the epoch, the first record. So a run that ends before it
        writes leaves no epoch out, and no epoch is used twice, even if its segments are deleted.

        Raises:
            OSError: It failed; then nothing must be written.
        """
        if not self._epoch_stored:
            store(self._files, self.path / _EPOCH, [str(self.epoch).encode()])
            self._epoch_stored = True

    def close(self) -> None:
        """Release the folder."""
        if self._lock is not None:
            with suppress(OSError):
                self._files.close(self._lock)
            self._lock = None

    def _names(self) -> set[str]:
        return {info.name for info in self._files.list(self.path)}

    def _identity(self, names: set[str]) -> bytes:
        """Return the log's identity from its file, or a new one."""
        if _LOG in names:
            log_id = self._files.read(self.path / _LOG)
            self._identity_stored = len(log_id) == LOG_ID_SIZE
            if self._identity_stored:
                return log_id
            _logger.warning(
                "%s: the file %s is damaged, and made again",
                self.path,
                _LOG,
                extra={"event": "event_log.file_damaged"},
            )
        return self._random(LOG_ID_SIZE)

    def _last_epoch(self, names: Iterable[str]) -> int:
        """Return the last epoch in use; all its segments may have been deleted."""
        segments = [segment_of(name, end) for name in names for end in (SEALED, OPEN, BAD)]
        epochs = [segment[0] for segment in segments if segment is not None]
        if _EPOCH in names:
            # Earlier versions have a word behind the number.
            number = self._files.read(self.path / _EPOCH)[:20].partition(b" ")[0]
            if number.isdigit():
                epochs.append(int(number))
            else:
                _logger.warning(
                    "%s: the file %s is damaged, and made again",
                    self.path,
                    _EPOCH,
                    extra={"event": "event_log.file_damaged"},
                )
        return max(epochs, default=0)

    # --- recovery -------------------------------------------------------------------------

    def _recover(self, name: str) -> None:
        """Seal an open segment with its whole blocks, or set it aside."""
        path = self.path / name
        found = recover(self._files.read(path))
        header = found.header
        if (
            header is None
            or found.refused
            or (header.epoch, header.first_seq) != segment_of(name, OPEN)
            or header.log != self.log_id
        ):
            self._set_aside(name, found.reason or "it is not of this log")
            return
        seal_late(self._files, path, found.valid, b"" if found.sealed else self._end_of(found))
        self._count.recovered += 1
        if found.lost:
            text = "%s was left open: %d bytes at its end are lost (%s)"
            _logger.warning(
                text, name, found.lost, found.reason, extra={"event": "event_log.segment_cut"}
            )

    def _end_of(self, found: Recovered) -> bytes:
        """Return the end for a segment that was left open: an event `LOST`, and the footer."""
        options = self._options
        reason = (
            f"the run ended without closing; {counted(found.lost, 'byte')} cut; counters of at "
            f"most {options.window_seconds:g} seconds and records of at most "
            f"{options.flush_seconds:g} seconds are not there, nor what a failing disk did not take"
        )
        if options.fsync != "block":
            reason += ", nor what a power cut took"
        seq, ended_us = found.footer.last_seq + 1, found.footer.ended_us
        event = RouteEvent(seq, ended_us, EventName.LOST, None, "", (), reason)
        footer = replace(found.footer, events=found.footer.events + 1, last_seq=seq)
        return events_block([event]) + footer.serialize()

    def _set_aside(self, name: str, reason: str) -> None:
        """Rename a file that cannot be read, for inspection, and log it."""
        self._files.rename(self.path / name, name + BAD)
        self._files.fsync_folder(self.path)
        self._count.bad += 1
        _logger.error(
            "%s: set aside as %s: %s",
            self.path,
            name + BAD,
            shown(reason),
            extra={"event": "event_log.set_aside"},
        )
