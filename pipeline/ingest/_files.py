"""Atomically written small files, locks between processes, and errors of the file system."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from .._errors import LakeBusy, LakeError, NotALake

__all__ = [
    "LOCK_SECONDS",
    "MARKER",
    "UNNAMED",
    "check_shared",
    "locked",
    "read_json",
    "refusals",
    "remove_unnamed",
    "sync",
    "sync_folders",
    "write_json",
]

MARKER: Final = "_lake.json"
"""The file that marks a directory as a lake."""

UNNAMED: Final = ".new"
"""The suffix of a file that is being written; its name begins with a dot."""

LOCK_SECONDS: Final = 600.0
"""Seconds that a batch waits for a compaction, or a compaction for a batch."""

_POLL: Final = 0.1

_SHARED: Final = (
    "Log, lake and checkpoint must be on a file system that Spark's driver and all its executors "
    "share, each under one path"
)


@contextmanager
def refusals(path: Path) -> Generator[None]:
    """Convert errors of the file system into `LakeError`, with a remedy.

    Args:
        path: The lake, or the checkpoint.

    Raises:
        LakeError: The file system refused an operation, or a file is missing.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise LakeError(
            f"{error.filename or error} is not there. {_SHARED}, and nothing else may delete in "
            "them. Then run it again: what was not done whole does not count"
        ) from None
    except OSError as error:
        raise LakeError(
            f"{path} cannot be written: {error.strerror or error}. Make room, or allow Spark's "
            "driver and executors to write there, and run it again: what was not done whole does "
            "not count"
        ) from None


def check_shared(lake: Path) -> None:
    """Check, in a task, that the executor sees the lake, before the task makes folders.

    Raises:
        LakeError: The lake is missing or not readable.
    """
    with refusals(lake):
        there = (lake / MARKER).is_file()
    if not there:
        raise LakeError(
            f"{lake} is no lake where an executor of Spark runs: there is no {MARKER} in it. "
            f"{_SHARED}. Then run ingest again: nothing of the batch is in the lake"
        )


def write_json(path: Path, plain: Mapping[str, Any]) -> None:
    """Write a JSON file atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}{UNNAMED}")
    with new.open("w", encoding="utf-8") as file:
        json.dump(plain, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    # The name must survive a power cut, too.
    sync(path.parent)


def sync_folders(folders: Iterable[Path], root: Path) -> None:
    """Flush folders to disk, with their files and their parents up to a root.

    The folders must be inside the root. Files without a final name are skipped: they belong to
    abandoned attempts and may disappear at any moment.
    """
    around: set[Path] = set()
    for folder in folders:
        for file in folder.iterdir():
            if not _is_unnamed(file):
                sync(file)
        around.update((folder, *folder.parents))
    # The innermost first: a name should not survive without its content.
    inside = (folder for folder in around if folder.is_relative_to(root))
    for folder in sorted(inside, key=lambda each: len(each.parts), reverse=True):
        sync(folder)


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _is_unnamed(file: Path) -> bool:
    return file.name.startswith(".") and file.name.endswith(UNNAMED)


def remove_unnamed(folders: Iterable[Path]) -> int:
    """Remove the files of abandoned attempts; return their number."""
    strays = [file for folder in folders for file in folder.glob(f".*{UNNAMED}")]
    for file in strays:
        file.unlink(missing_ok=True)
    return len(strays)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON file, or `None` if it does not exist.

    Raises:
        NotALake: The file is not a JSON object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise NotALake(str(path.parent), "it is a file, or under one") from None
    except UnicodeDecodeError:
        text = ""
    with suppress(ValueError):
        plain = json.loads(text)
        if isinstance(plain, dict):
            return plain
    raise NotALake(str(path.parent), f"{path.name} is no JSON object")


@contextmanager
def locked(path: Path, *, wait: float = 0.0) -> Generator[None]:
    """Hold a lock that ends with the process.

    Args:
        path: The lock's file; it is not deleted.
        wait: Most seconds to wait for another process.

    Raises:
        LakeBusy: Another process holds the lock.
        LakeError: The file cannot be written.
    """
    until = time.monotonic() + wait
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("w")
    except OSError as error:
        raise LakeError(
            f"{path.parent} cannot be written: {error.strerror}. Name a directory that this user "
            "may write, on a disk that is there"
        ) from None
    with opened as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise LakeBusy(str(path.parent), wait) from None
                time.sleep(_POLL)
        yield
