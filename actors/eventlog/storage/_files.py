"""The few things that an event log asks of a disk. Tests put one in place that fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from .._errors import LogInUse

__all__ = ["Chunk", "DiskFiles", "FileInfo", "Files"]

Chunk = bytes | bytearray | memoryview

FILE_MODE: Final = 0o640
"""Tag sets are user data: a log is for its owner, and the group to read."""

FOLDER_MODE: Final = 0o750


class FileInfo(NamedTuple):
    """What a file in the folder is.

    Attributes:
        name: What it is called.
        size: Its bytes.
        changed: When it was changed last, in seconds since the Unix epoch.
    """

    name: str
    size: int
    changed: float


class Files(Protocol):
    """A disk. Each method raises `OSError` if it cannot be done. Handles are small numbers."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it; one that is there is fine."""
        ...

    def lock(self, path: Path) -> int:
        """Make a file if it is not there, and take its lock; it is let go with `close`.

        Raises:
            LogInUse: Somebody else has it.
        """
        ...

    def holds(self, handle: int, path: Path) -> bool:
        """Say whether the file at a path is the one that was locked, and not another."""
        ...

    def list(self, folder: Path) -> list[FileInfo]:
        """Return the plain files in a folder."""
        ...

    def read(self, path: Path) -> bytes:
        """Return all of a file."""
        ...

    def create(self, path: Path) -> int:
        """Open a new file for writing; there must be none."""
        ...

    def reopen(self, path: Path, size: int) -> int:
        """Open a file to write on behind its first bytes; the others are cut off."""
        ...

    def write(self, handle: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks, or raise; then some of the bytes may be written."""
        ...

    def fsync(self, handle: int) -> None:
        """Have what was written outlast a power cut."""
        ...

    def close(self, handle: int) -> None:
        """Close a file."""
        ...

    def rename(self, path: Path, name: str) -> None:
        """Give a file another name in the same folder."""
        ...

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        ...

    def fsync_folder(self, folder: Path) -> None:
        """Have the names in a folder outlast a power cut."""
        ...


class DiskFiles:
    """The disk of this machine."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it; one that is there is fine."""
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)

    def lock(self, path: Path) -> int:
        """Take the lock of a file.

        Raises:
            LogInUse: Another process has it, or another log of this one.
        """
        import fcntl  # there is none on Windows, where all else can be imported

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
        """Say whether the file at a path is the one that was locked, and not another."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(path))  # noqa: PTH116 - as fstat
        except FileNotFoundError:
            return False

    def list(self, folder: Path) -> list[FileInfo]:
        """Return the plain files in a folder; one that goes meanwhile is left out."""
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
        """Return all of a file."""
        return path.read_bytes()

    def create(self, path: Path) -> int:
        """Open a new file for writing; there must be none."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)

    def reopen(self, path: Path, size: int) -> int:
        """Open a file to write on behind its first bytes; the others are cut off."""
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(handle, size)
            os.lseek(handle, size, os.SEEK_SET)
        except OSError:
            os.close(handle)
            raise
        return handle

    def write(self, handle: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks, or raise; then some of the bytes may be written."""
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                written = os.write(handle, rest)
                if not written:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                rest = rest[written:]

    def fsync(self, handle: int) -> None:
        """Have what was written outlast a power cut."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """Close a file."""
        os.close(handle)

    def rename(self, path: Path, name: str) -> None:
        """Give a file another name in the same folder."""
        path.rename(path.with_name(name))

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        path.unlink()

    def fsync_folder(self, folder: Path) -> None:
        """Have the names in a folder outlast a power cut."""
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
