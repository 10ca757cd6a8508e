"""A disk in memory that fails, or loses its power, at whichever operation a test names."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from onward.actors.eventlog import LogInUse
from onward.actors.eventlog.storage._files import Chunk, DiskFiles, FileInfo


class Crash(BaseException):
    """The power is gone."""


class Moment(Enum):
    """When in an operation it happens."""

    BEFORE = "before"
    AMID = "amid"
    """Of a write, half of the bytes have been written; else as before."""
    AFTER = "after"


class Survival(Enum):
    """What of all that was not made to last outlasts a power cut."""

    NOTHING = "nothing"
    HALF = "half"
    """Of the names nothing, of each file half of its end."""
    NAMES = "names"
    """The names, and of the files nothing."""
    EVERYTHING = "everything"


@dataclass
class Inode:
    """A file. `data` is what is read, `lasting` what a power cut leaves."""

    data: bytearray = field(default_factory=bytearray)
    lasting: bytes = b""
    changed: float = 0.0
    clean: int = 0
    """Bytes in front that are not written to the disk any more: they are there, or given up."""
    given_up: list[tuple[int, int]] = field(default_factory=list)

    def sync(self) -> None:
        """Write what is dirty."""
        self.lasting = self.on_disk()
        self.clean = len(self.data)

    def fail(self) -> None:
        """Give up what is dirty, as Linux does where an fsync fails: it is read, but not kept."""
        self.given_up.append((self.clean, len(self.data)))
        self.clean = len(self.data)

    def on_disk(self) -> bytes:
        """What would be there if all that is dirty was written now."""
        found = bytearray(self.data)
        for start, end in self.given_up:
            found[start:end] = bytes(end - start)
        return bytes(found)


Fault = Callable[[int, str], tuple[Moment, BaseException] | None]
"""Told the number of an operation and what it is called; says what happens then."""


def no_fault(number: int, name: str) -> None:
    return None


def disk_full(moment: Moment = Moment.AMID, code: int = errno.ENOSPC) -> tuple[Moment, OSError]:
    return moment, OSError(code, os.strerror(code))


class SimulatedDisk(DiskFiles):
    """A disk in memory."""

    def __init__(self) -> None:
        self.fault: Fault = no_fault
        self.now = 1000.0
        self.operations: list[str] = []
        self._folders: set[Path] = set()
        self._names: dict[Path, Inode] = {}
        self._lasting: dict[Path, Inode] = {}
        self._handles: dict[int, tuple[Path, Inode]] = {}
        self._locks: dict[Path, int] = {}
        self._next_handle = 3

    # --- what a test does -----------------------------------------------------------------

    def crash(self, survival: Survival) -> None:
        """Lose the power, and come back with what survives."""
        if survival in {Survival.NOTHING, Survival.HALF}:
            self._names = dict(self._lasting)
        for inode in self._names.values():
            kept, data = inode.lasting, inode.on_disk()
            if survival is Survival.EVERYTHING:
                kept = data
            elif survival is Survival.HALF and data.startswith(kept):
                kept = data[: (len(kept) + len(data) + 1) // 2]
            inode.data, inode.lasting = bytearray(kept), kept
            inode.clean, inode.given_up = len(kept), []
        self._lasting = dict(self._names)
        self._handles.clear()
        self._locks.clear()
        self.fault = no_fault
        self.operations.clear()

    def contents(self, folder: Path) -> dict[str, bytes]:
        return {
            path.name: bytes(i.data) for path, i in self._names.items() if path.parent == folder
        }

    def put(self, path: Path, data: bytes) -> None:
        self._folders.add(path.parent)
        inode = Inode(bytearray(data), data, self.now, len(data))
        self._names[path] = self._lasting[path] = inode

    def remove_folder(self, folder: Path) -> None:
        """Delete a folder with all in it, as `rm -r` does; handles stay open."""
        self._folders.discard(folder)
        for names in (self._names, self._lasting, self._locks):
            for path in [path for path in names if path.parent == folder]:
                del names[path]

    @property
    def open_handles(self) -> int:
        return len(self._handles)

    # --- what an event log does -----------------------------------------------------------

    def _fault(self, name: str) -> Callable[[Moment], None]:
        self.operations.append(name)
        found = self.fault(len(self.operations) - 1, name)

        def happen(moment: Moment) -> None:
            if found is not None and found[0] is moment:
                raise found[1]

        happen(Moment.BEFORE)
        return happen

    def _simple(self, name: str) -> Callable[[], None]:
        """The faults of an operation that is done or not, but never half."""
        happen = self._fault(name)
        happen(Moment.AMID)
        return lambda: happen(Moment.AFTER)

    def _inode(self, path: Path) -> Inode:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._names[path]

    def _handle(self, path: Path, inode: Inode) -> int:
        self._next_handle += 1
        self._handles[self._next_handle] = path, inode
        return self._next_handle

    def _check_folder(self, folder: Path) -> None:
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))

    def make_folder(self, folder: Path) -> None:
        after = self._simple("make_folder")
        self._folders.add(folder)
        after()

    def lock(self, path: Path) -> int:
        after = self._simple("lock")
        self._check_folder(path.parent)
        if path in self._locks:
            raise LogInUse(str(path.parent))
        inode = self._names.setdefault(path, Inode(changed=self.now))
        handle = self._locks[path] = self._handle(path, inode)
        after()
        return handle

    def list(self, folder: Path) -> list[FileInfo]:
        after = self._simple("list")
        self._check_folder(folder)
        found = [
            FileInfo(path.name, len(inode.data), inode.changed)
            for path, inode in self._names.items()
            if path.parent == folder
        ]
        after()
        return found

    def read(self, path: Path) -> bytes:
        after = self._simple("read")
        data = bytes(self._inode(path).data)
        after()
        return data

    def create(self, path: Path) -> int:
        after = self._simple("create")
        self._check_folder(path.parent)
        if path in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        inode = self._names[path] = Inode(changed=self.now)
        after()
        return self._handle(path, inode)

    def write(self, handle: int, chunks: Sequence[Chunk]) -> None:
        happen = self._fault("write")
        _, inode = self._handles[handle]
        data = b"".join(chunks)
        inode.changed = self.now
        half = len(data) // 2
        inode.data += data[:half]
        happen(Moment.AMID)
        inode.data += data[half:]
        happen(Moment.AFTER)

    def fsync(self, handle: int) -> None:
        _, inode = self._handles[handle]
        try:
            after = self._simple("fsync")
        except OSError:
            inode.fail()
            raise
        inode.sync()
        after()

    def close(self, handle: int) -> None:
        after = self._simple("close")
        path, _ = self._handles.pop(handle)
        if self._locks.get(path) == handle:
            del self._locks[path]
        after()

    def rename(self, path: Path, name: str) -> None:
        after = self._simple("rename")
        inode = self._inode(path)
        del self._names[path]
        self._names[path.with_name(name)] = inode
        after()

    def unlink(self, path: Path) -> None:
        after = self._simple("unlink")
        self._inode(path)
        del self._names[path]
        after()

    def fsync_folder(self, folder: Path) -> None:
        after = self._simple("fsync_folder")
        self._check_folder(folder)
        for path in [path for path in self._lasting if path.parent == folder]:
            del self._lasting[path]
        self._lasting |= {p: inode for p, inode in self._names.items() if p.parent == folder}
        after()
