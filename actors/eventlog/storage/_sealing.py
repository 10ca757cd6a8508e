"""Files that are there whole or not at all, and segments that broke off and are sealed late.

A disk that fails an fsync has given up what was written since the last, and says so once: on Linux
the file reads whole all the same, from memory, and the next fsync succeeds, with nothing of it on
the disk. So what such a file holds is written to a new one, which takes its place. That is also
done with what a start finds: nobody knows what the run before was told. A new file takes as much
room as the old one until then, so a segment that broke off for another reason is only cut.
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
    """What was written to a file since its last fsync may never get to the disk."""


def sync(files: Files, handle: int) -> None:
    """Have what was written to a file outlast a power cut.

    Raises:
        FsyncFailed: It cannot be done, and to try again would change nothing.
    """
    try:
        files.fsync(handle)
    except OSError as error:
        raise FsyncFailed(error.errno, error.strerror) from error


def store(files: Files, path: Path, chunks: Sequence[Chunk]) -> None:
    """Write a file, whole or not at all; one that is there is replaced.

    Raises:
        OSError: It cannot be done; the one that was there still is.
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
        # It may be room that is missing, and this takes some.
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
    """Cut a segment that was left open to what is whole, and seal it.

    Args:
        files: The disk.
        path: The file.
        data: What is read of it.
        recovered: What `recover` says of that.
        anew: Whether to write all of it to a new file, as this one may not be on the disk.
        last_seq: The last number that was given, if more were than can be seen.
        ended_us: When it ended, if later than can be seen.

    Returns:
        Its footer.

    Raises:
        OSError: It cannot be done; it may be tried again, anew if it is `FsyncFailed`.
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
