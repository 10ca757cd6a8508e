"""The disk of an event log, and files that appear whole or not at all.

A disk that fails an fsync has discarded the data since the last one, and reports it once. On Linux
the file can still be read in full from memory, and the next fsync succeeds, with none of it on the
disk. So a segment on which the disk has failed, or that a run has left open, is never written on:
what is valid of it is written to a new file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ....protocol import OnwardError
from ....protocol.eventlog import SEALED

__all__ = ["Chunk", "DiskFiles", "FileInfo", "LogInUse", "seal_late", "store"]


class LogInUse(OnwardError):
    """An error for a log that another process writes.

    Attributes:
        path: The log's folder.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"another process writes the event log {self.path}: stop it, or give this one "
            "another name"
        )


Chunk = bytes | bytearray | memoryview

FILE_MODE: Final = 0o640
"""Tag sets are user data: only the owner can write a log, and the group read it."""

FOLDER_MODE: Final = 0o750


class FileInfo(NamedTuple):
    """The properties of a file.

    Attributes:
        name: Its name.
        size: Its bytes.
        changed: The time of its last change, in seconds since the Unix epoch.
    """

    name: str
    size: int
    changed: float


class DiskFiles:
    """The disk of this machine. Failed methods raise `OSError`. Handles are small numbers."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents; existing ones are kept."""
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)

    def lock(self, path: Path) -> int:
        """Lock a file, which is made if needed; `close` releases the lock.

        Raises:
            LogInUse: Another process, or another log of this one, has the lock.
        """
        import fcntl  # not available on Windows, where the rest can be imported

        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                raise LogInUse(str(path.parent)) from None
            raise
        return handle

    def list(self, folder: Path) -> list[FileInfo]:
        """Return the plain files in a folder, without any deleted meanwhile."""
        found: list[FileInfo] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found.append(FileInfo(entry.name, status.st_size, status.st_mtime))
                except FileNotFoundError:
                    continue
        return found

    def read(self, path: Path) -> bytes:
        """Return the content of a file."""
        return path.read_bytes()

    def create(self, path: Path) -> int:
        """Create a file for writing; it must not exist."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)

    def write(self, handle: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks, or raise with some of the bytes written."""
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                written = os.write(handle, rest)
                if not written:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                rest = rest[written:]

    def fsync(self, handle: int) -> None:
        """Sync a file to the disk."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """Close a file."""
        os.close(handle)

    def rename(self, path: Path, name: str) -> None:
        """Rename a file within its folder."""
        path.rename(path.with_name(name))

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        path.unlink()

    def fsync_folder(self, folder: Path) -> None:
        """Sync the names in a folder to the disk."""
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_NEW: Final = ".new"


def store(files: DiskFiles, path: Path, chunks: Sequence[Chunk]) -> None:
    """Write or replace a file atomically.

    Raises:
        OSError: It failed; an existing file is unchanged.
    """
    new = path.with_name(path.name + _NEW)
    with suppress(FileNotFoundError):
        files.unlink(new)
    handle = files.create(new)
    try:
        try:
            files.write(handle, chunks)
            files.fsync(handle)
        finally:
            files.close(handle)
        files.rename(new, path.name)
    except OSError:
        # Space may be short, and the new file takes some.
        with suppress(OSError):
            files.unlink(new)
        raise
    files.fsync_folder(path.parent)


def seal_late(files: DiskFiles, path: Path, size: int, end: bytes) -> None:
    """Seal the valid part of a segment that was left open, in a new file.

    Args:
        files: The disk.
        path: The open segment.
        size: Its bytes that are valid.
        end: Bytes to add, with the footer.

    Raises:
        OSError: It failed. If the sealed segment is there, only the open one is to be deleted;
            else it may be tried again.
    """
    store(files, path.with_suffix(SEALED), [memoryview(files.read(path))[:size], end])
    files.unlink(path)
