"""Atomic writes of files, and the late sealing of segments that were left open.

A disk that fails an fsync has discarded the data since the last one, and reports it once. On Linux
the file can still be read in full from memory, and the next fsync succeeds, with none of it on the
disk. So the content of such a file is written to a new one, which replaces it. A start does so with
every open segment, as the errors of the run before are unknown. The new file needs as much space
again, so a segment that was left open for another reason is only cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ....protocol.eventlog import SEALED, Recovered, SegmentFooter
from ._files import Chunk, Files

__all__ = ["FsyncFailed", "complete", "store", "sync"]

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


def complete(
    files: Files,
    path: Path,
    data: bytes,
    recovered: Recovered,
    *,
    anew: bool,
    last_seq: int = 0,
    ended_us: int | None = None,
) -> SegmentFooter:
    """Cut an open segment to its whole blocks, and seal it.

    Args:
        files: The disk.
        path: The file.
        data: Its content.
        recovered: The result of `recover` for the content.
        anew: Whether to write it to a new file, as this one may not be on the disk.
        last_seq: The last number in use, if it is higher than the last in the content.
        ended_us: The end, if it is later than the last time in the content.

    Returns:
        Its footer.

    Raises:
        OSError: It failed; it may be tried again, with `anew` after `FsyncFailed`.
    """
    footer = recovered.footer
    end = b""
    if not recovered.sealed:
        footer = replace(
            footer,
            last_seq=max(footer.last_seq, last_seq),
            ended_us=footer.ended_us if ended_us is None else ended_us,
        )
        end = footer.serialize()
    if anew:
        store(files, path, [memoryview(data)[: recovered.valid], end])
    else:
        _cut(files, path, recovered.valid, end)
    files.rename(path, path.with_suffix(SEALED).name)
    files.fsync_folder(path.parent)
    return footer


def _cut(files: Files, path: Path, size: int, end: bytes) -> None:
    handle = files.reopen(path, size)
    try:
        files.write(handle, [end])
        sync(files, handle)
    finally:
        files.close(handle)
