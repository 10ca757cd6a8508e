"""The disk of an event log: an interface that tests can replace, atomic writes, and late sealing.

A disk that fails an fsync has discarded the data since the last one, and reports it once. On Linux
the file can still be read in full from memory, and the next fsync succeeds, with none of it on the
disk. So the content of such a file is written to a new one, which replaces it. A start does so with
every open segment, as the errors of the run before are unknown. The new file needs as much space
again, so a segment that was left open for another reason is only cut.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ....protocol import OnwardError
from ....protocol.eventlog import SEALED

__all__ = [
    "Chunk",
    "DiskFiles",
    "FileInfo",
    "Files",
    "FsyncFailed",
    "LogInUse",
    "seal_late",
    "store",
    "sync",
]


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


class Files(Protocol):
    """A disk. Failed methods raise `OSError`. Handles are small numbers."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents; existing ones are kept."""
        ...

    def lock(self, path: Path) -> int:
        """Lock a file, which is made if needed; `close` releases the lock.

        Raises:
            LogInUse: The lock is taken.
        """
        ...

    def holds(self, handle: int, path: Path) -> bool:
        """Whether the file at a path is the one that was locked."""
        ...

    def list(self, folder: Path) -> list[FileInfo]:
        """Return the plain files in a folder."""
        ...

    def read(self, path: Path) -> bytes:
        """Return the content of a file."""
        ...

    def create(self, path: Path) -> int:
        """Create a file for writing; it must not exist."""
        ...

    def reopen(self, path: Path, size: int) -> int:
        """Open a file, cut it to a size, and write on from there."""
        ...

    def write(self, handle: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks, or raise with some of the bytes written."""
        ...

    def fsync(self, handle: int) -> None:
        """Sync a file to the disk."""
        ...

    def close(self, handle: int) -> None:
        """Close a file."""
        ...

    def rename(self, path: Path, name: str) -> None:
        """Rename a file within its folder."""
        ...

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        ...

    def fsync_folder(self, folder: Path) -> None:
        """Sync the names in a folder to the disk."""
        ...


class DiskFiles:
    """The disk of this machine."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents; existing ones are kept."""
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)

    def lock(self, path: Path) -> int:
        """Lock a file.

        Raises:
            LogInUse: Another process, or another log of this one, has the lock.
        """
        import fcntl  # not available on Windows, where the rest can be imported

        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise LogInUse(str(path.parent)) from None
        except OSError:
            os.close(handle)
            raise
        return handle

    def holds(self, handle: int, path: Path) -> bool:
        """Whether the file at a path is the one that was locked."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(path))  # noqa: PTH116 - as fstat
        except FileNotFoundError:
            return False

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

    def reopen(self, path: Path, size: int) -> int:
        """Open a file, cut it to a size, and write on from there."""
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(handle, size)
            os.lseek(handle, size, os.SEEK_SET)
        except OSError:
            os.close(handle)
            raise
        return handle

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


class FsyncFailed(OSError):
    """An error of fsync: data written since the last one may never be on the disk."""


def sync(files: Files, handle: int) -> None:
    """Sync a file to the disk.

    Raises:
        FsyncFailed: It failed, and another try would change nothing.
    """
    try:
        files.fsync(handle)
    except OSError as error:
        raise FsyncFailed(error.errno, error.strerror) from error


def store(files: Files, path: Path, chunks: Sequence[Chunk]) -> None:
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


def seal_late(files: Files, path: Path, size: int, end: bytes, *, anew: bool) -> None:
    """Cut a segment that was left open, and seal it.

    Args:
        files: The disk.
        path: The file.
        size: Its bytes that are kept.
        end: The footer.
        anew: Whether to write it to a new file, as this one may not be on the disk.

    Raises:
        OSError: It failed; it may be tried again, with `anew` after `FsyncFailed`.
    """
    if anew:
        store(files, path, [memoryview(files.read(path))[:size], end])
    else:
        _cut(files, path, size, end)
    files.rename(path, path.with_suffix(SEALED).name)
    files.fsync_folder(path.parent)


def _cut(files: Files, path: Path, size: int, end: bytes) -> None:
    handle = files.reopen(path, size)
    try:
        files.write(handle, [end])
        sync(files, handle)
    finally:
        files.close(handle)
