"""Snapshots of routing tables in files, which are written completely or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..protocol import counted
from ..protocol.broker import (
    SnapshotError,
    SnapshotRoute,
    format_route,
    read_snapshot,
    write_snapshot,
)
from ._show import printable
from ._status import CommandError

__all__ = ["check_file", "load_routes", "save_routes"]

TEXT: Final = ".jsonl"
"""The suffix of files with lines of JSON."""

EMPTY: Final = b"# no routes\n"

FILE_MODE: Final = 0o640
"""The mode of segments too: tags are user data. The umask is applied to it."""


def load_routes(path: Path, max_routes: int | None = None) -> list[SnapshotRoute]:
    """Return the routes of a file, a snapshot or lines of JSON.

    Args:
        path: The file.
        max_routes: Most routes permitted. A snapshot with more in its header is refused before
            any of them is read.

    Raises:
        CommandError: There is no such file, or it is neither, or damaged, or has too many. All
            of it is checked, also parts that only a broker which maps it would use.
    """
    try:
        snapshot = read_snapshot(path.read_bytes())
        if max_routes is not None and len(snapshot) > max_routes:
            has = counted(len(snapshot), "route")
            raise CommandError(f"{path}: it has {has}, and there is room for {max_routes}")
        return list(snapshot.checked())
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    except SnapshotError as error:
        raise CommandError(f"{path}: {printable(str(error))}") from error


def check_file(path: Path) -> None:
    """Check that a file could be written, before the work for it is done.

    Raises:
        CommandError: It is a folder, a pipe or a device, its folder does not exist, or this cannot
            be checked.
    """
    try:
        if not path.name or path.is_dir():
            raise CommandError(f"{path}: it is a folder; give the name of a file in it")
        if path.exists() and not path.is_file():
            raise CommandError(f"{path}: it is not a regular file; give another name")
        if not path.parent.is_dir():
            number = errno.ENOTDIR if path.parent.exists() else errno.ENOENT
            raise OSError(number, os.strerror(number))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


def save_routes(path: Path, routes: Iterable[SnapshotRoute]) -> int:
    """Write routes to a file: as lines of JSON if its name ends with `.jsonl`, else as a snapshot.

    The complete file replaces one of the same name, or the target of a symbolic link. Only its
    owner and group may read it.

    Returns:
        The number of routes.

    Raises:
        CommandError: It cannot be written.
    """
    check_file(path)
    kept = sorted((route.settled() for route in routes), key=lambda each: each.route_id)
    target = Path(os.path.realpath(path))
    # Not the whole name, which may have the greatest length already.
    partial = target.with_name(f".{target.name[:50]}.{os.getpid()}")
    try:
        # Left by a process of the same number that was killed.
        partial.unlink(missing_ok=True)
        with open(partial, "xb", opener=_open) as file:
            if path.name.endswith(TEXT):
                # An empty file could come of a fault, so a table without routes has a mark.
                file.write(b"" if kept else EMPTY)
                file.writelines(f"{format_route(route)}\n".encode() for route in kept)
            else:
                file.writelines(write_snapshot(kept))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    except SnapshotError as error:
        raise CommandError(f"{path}: {printable(str(error))}") from error
    finally:
        # Suppressed, so that the first error is the one reported.
        with suppress(OSError):
            partial.unlink()
    return len(kept)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
