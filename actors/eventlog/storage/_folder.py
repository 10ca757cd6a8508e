"""A log's folder: its lock, its identity, its epochs, and the files that an earlier run left.

```
<directory>/<name>/.lock       held while the log is written
                   log         its identity, 16 random bytes
                   epoch       the last epoch with a segment, deleted or not, as text; with
                               ` running` until its run has sealed all
                   *.seg       sealed segments
                   *.open      the current segment
                   *.new       a file being written to replace another
                   *.bad       unreadable open segments, for inspection
                   .acks/      the positions of readers
```

Other files in it are ignored.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....protocol import counted
from ....protocol.eventlog import (
    LOG_ID_SIZE,
    MAX_EPOCH,
    OPEN,
    SEALED,
    EventLogError,
    parse_segment_name,
    read_header,
    recover,
)
from ..._log import shown
from .._options import LogOptions
from ._counts import Counts
from ._files import FileInfo, Files, seal_late, store

__all__ = ["LogFolder"]

_logger: Final = logging.getLogger("onward.actors.eventlog")

BAD: Final = ".bad"
_LOCK: Final = ".lock"
_LOG: Final = "log"
_EPOCH: Final = "epoch"
_RUNNING: Final = b" running"
_MAX_EPOCH_TEXT: Final = 20
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


def segment_of(name: str, suffix: str) -> tuple[int, int] | None:
    """Return epoch and first number from a segment's name; `None` for another file."""
    if not name.endswith(suffix):
        return None
    try:
        return parse_segment_name(name)
    except EventLogError:
        return None


def is_aside(name: str) -> bool:
    """Whether a file was set aside: see `LogFolder.set_aside`."""
    if not name.endswith(BAD):
        return False
    stem, _, number = name.removesuffix(BAD).rpartition(".")
    stem = stem if number.isdigit() else f"{stem}.{number}"
    return segment_of(stem, OPEN) is not None


def is_full(error: OSError) -> bool:
    """Whether the disk is full or fails, which may pass, and the folder is not at fault."""
    return error.errno in _FULL


def _epoch_of(text: bytes) -> int | None:
    """Return the epoch in the file's text; `None` if it is damaged."""
    number = text.removesuffix(_RUNNING)
    if not number.isdigit() or len(number) >= _MAX_EPOCH_TEXT or int(number) > MAX_EPOCH:
        return None
    return int(number)


class LogFolder:
    """A log's folder, held by one writer.

    Args:
        files: The disk.
        options: The log's options.
        count: The counters.
        random: Makes an identity of a number of bytes.
    """

    def __init__(
        self,
        files: Files,
        options: LogOptions,
        count: Counts,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.path = options.directory / options.name
        self._options = options
        self._files = files
        self._count = count
        self._random = random
        self._lock: int | None = None
        self._identity_stored = False
        self.settled = False
        """Whether the segments of earlier runs are sealed: see `settle`."""
        self._begun = False
        """Whether the epoch has begun: see `begin_epoch`."""
        self.log_id = b""
        self.epoch = 0
        self._notices: dict[str, str] = {}
        """How earlier runs ended that did not close, by the file each left open."""
        self.unfinished: list[str] = []
        """The notices that the recorder has not fetched yet."""

    # --- opening --------------------------------------------------------------------------

    def open(self) -> None:
        """Open the folder, and choose identity and epoch; nothing is written: see `settle`.

        Raises:
            LogInUse: Another process has it.
            EventLogError: There are no more epochs; the folder is released.
            OSError: It failed; the folder is released.
        """
        self.settled = self._identity_stored = self._begun = False
        self._notices.clear()
        self._files.make_folder(self.path)
        self._lock = self._files.lock(self.path / _LOCK)
        try:
            found = self._files.list(self.path)
            self.log_id = self._identity(found)
            self.epoch = self._next_epoch(found)
            self._check_epoch(found)
        except BaseException:
            self.close()
            raise

    def settle(self) -> None:
        """Seal the segments that an earlier run left open, once.

        Raises:
            OSError: It failed; it may be tried again.
        """
        if self.settled:
            return
        found = self._files.list(self.path)
        if not self._identity_stored:
            self._store(_LOG, self.log_id)
            self._identity_stored = True
        self._recover(found)
        # A run may be killed between two segments, or lose its open file in a power cut.
        running = self._running(found)
        if running is None:
            self._store_epoch()
        else:
            if not any(name.startswith(f"{running:08x}-") for name in self._notices):
                self._tell("", running, "no file of it was left open")
            # Its mark stays until this run has a segment: a run without one hides nothing.
            self._store(_EPOCH, str(running).encode() + _RUNNING)
        self.unfinished = list(self._notices.values())
        self.settled = True

    def begin_epoch(self) -> None:
        """Store that the epoch has a segment, once.

        The order is: the segment's file, the epoch, the first record. So a run that ends before it
        writes leaves no epoch out, and no epoch is used twice, even if its segments are deleted.

        Raises:
            OSError: It failed; then nothing must be written.
        """
        if not self._begun:
            self._begun = True
            try:
                self._store_epoch()
            except BaseException:
                self._begun = False
                raise

    def end_epoch(self) -> None:
        """Store that all segments are sealed; if it fails, the next run adds a notice."""
        if self._begun and self._lock is not None:
            with suppress(OSError):
                self._store(_EPOCH, str(self.epoch).encode())

    def _store_epoch(self) -> None:
        text = str(self.epoch if self._begun else self.epoch - 1).encode()
        self._store(_EPOCH, text + _RUNNING * self._begun)

    def _running(self, found: list[FileInfo]) -> int | None:
        """Return the epoch of the run that did not close, if there is one."""
        if not any(info.name == _EPOCH for info in found):
            return None
        text = self._files.read(self.path / _EPOCH)
        return _epoch_of(text) if text.endswith(_RUNNING) else None

    def check(self) -> None:
        """Check that the folder is still the one that was opened, and not another log's.

        Raises:
            FileNotFoundError: It was removed; the log is in trouble until the next start.
            OSError: It cannot be checked.
        """
        if self._lock is None or not self._files.holds(self._lock, self.path / _LOCK):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))

    def close(self) -> None:
        """Release the folder."""
        if self._lock is not None:
            with suppress(OSError):
                self._files.close(self._lock)
            self._lock = None

    def sealed(self) -> list[FileInfo]:
        """Return the sealed segments, the oldest first.

        Raises:
            OSError: The folder cannot be read.
        """
        found = self._files.list(self.path)
        return sorted(info for info in found if segment_of(info.name, SEALED) is not None)

    def aside(self) -> list[FileInfo]:
        """Return the files that were set aside, in the order of their segments.

        Raises:
            OSError: The folder cannot be read.
        """
        return sorted(info for info in self._files.list(self.path) if is_aside(info.name))

    def _identity(self, found: list[FileInfo]) -> bytes:
        """Return the log's identity: from its file, else from a segment, else a new one."""
        if any(info.name == _LOG for info in found):
            log_id = self._files.read(self.path / _LOG)
            if len(log_id) == LOG_ID_SIZE:
                self._identity_stored = True
                return log_id
            _logger.warning("%s: the file %s is damaged, and made again", self.path, _LOG)
        return self._identity_of_segments(found) or self._random(LOG_ID_SIZE)

    def _identity_of_segments(self, found: list[FileInfo]) -> bytes | None:
        for name in sorted((info.name for info in found), reverse=True):
            if segment_of(name, SEALED) is not None:
                with suppress(EventLogError):
                    return read_header(self._files.read(self.path / name)).log
        return None

    def _next_epoch(self, found: list[FileInfo]) -> int:
        return self._last_epoch(found)[0] + 1

    def _last_epoch(self, found: list[FileInfo]) -> tuple[int, str]:
        """Return the last epoch in use, and the file that shows it."""
        epochs = [(0, "")]
        for info in found:
            stem = info.name.removesuffix(BAD)
            for suffix in (SEALED, OPEN):
                segment = segment_of(stem, suffix)
                if segment is not None:
                    epochs.append((segment[0], info.name))
        if any(info.name == _EPOCH for info in found):
            stored = _epoch_of(self._files.read(self.path / _EPOCH))
            # All segments may have been deleted; an epoch must not be used twice.
            if stored is not None:
                epochs.append((stored, _EPOCH))
            else:
                _logger.warning(
                    "%s: the file %s is damaged, and made again from the segments",
                    self.path,
                    _EPOCH,
                )
        return max(epochs)

    def _check_epoch(self, found: list[FileInfo]) -> None:
        if self.epoch > MAX_EPOCH:
            _, name = self._last_epoch(found)
            raise EventLogError(
                f"{self.path / name} is of epoch {MAX_EPOCH}, the last there can be: if it is a "
                "stray file, move it away; else give this log another name"
            )

    def _store(self, name: str, data: bytes) -> None:
        store(self._files, self.path / name, [data])

    # --- recovery -------------------------------------------------------------------------

    def _recover(self, found: list[FileInfo]) -> None:
        names = {info.name for info in found}
        for name in sorted(names):
            segment = segment_of(name, OPEN)
            if segment is None:
                continue
            path = self.path / name
            data = self._files.read(path)
            recovered = recover(data)
            header = recovered.header
            if (
                header is None
                or recovered.refused
                or (header.epoch, header.first_seq) != segment
                or header.log != self.log_id
                or path.with_suffix(SEALED).name in names
            ):
                reason = recovered.reason or "it is not of this log, or is there already"
                aside = f"its last segment could not be read, and is now {self._name_aside(path)}"
                self._tell(name, segment[0], aside)
                self.set_aside(path, reason)
                continue
            self._tell(name, segment[0], f"{counted(recovered.lost, 'byte')} cut")
            end = b"" if recovered.sealed else recovered.footer.serialize()
            seal_late(self._files, path, recovered.valid, end, anew=True)
            self._count.recovered += 1
            self._count.recovered_lost_bytes += recovered.lost
            if recovered.lost:
                _logger.warning(
                    "%s was left open: %d bytes at its end are lost (%s)",
                    path.name,
                    recovered.lost,
                    recovered.reason,
                )

    def _tell(self, name: str, epoch: int, ended: str) -> None:
        """Add a notice of a run that did not close; one that is there already stays."""
        options = self._options
        text = (
            f"the run before (epoch {epoch}) ended without closing; {ended}; "
            f"counters of at most {options.window_seconds:g} seconds and records of at most "
            f"{options.flush_seconds:g} seconds are not there, nor what a disk that failed did "
            "not take before"
        )
        power_cut = ", nor what a power cut took of a segment"
        self._notices.setdefault(name, text + power_cut * (options.fsync != "block"))

    def set_aside(self, path: Path, reason: str) -> None:
        """Rename a file that cannot be read, for inspection, and log it.

        It counts towards the limits of bytes and age, as a segment does.

        Raises:
            OSError: It failed.
        """
        name = self._name_aside(path)
        self._files.rename(path, name)
        self._files.fsync_folder(self.path)
        self._count.bad += 1
        _logger.error("%s: set aside as %s: %s", self.path, name, shown(reason))

    def _name_aside(self, path: Path) -> str:
        names = {info.name for info in self._files.list(self.path)}
        number, name = 1, path.name + BAD
        while name in names:
            number += 1
            name = f"{path.name}.{number}{BAD}"
        return name
