"""Snapshots of routing tables in files: read before a broker listens, written whole or not."""

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
"""What the name of a file ends with that is to be written for people."""

EMPTY: Final = b"# no routes\n"

FILE_MODE: Final = 0o640
"""As segments have: tags are user data. The umask takes from it."""


def load_routes(path: Path, max_routes: int | None = None) -> list[SnapshotRoute]:
    """Return the routes of a file, a snapshot or lines of JSON.

    Args:
        path: The file.
        max_routes: Most routes there may be: a snapshot with more is refused by what its header
            says, before any of them is read.

    Raises:
        CommandError: There is no such file, or it is neither, or damaged, or has too many. All
            of it is read and checked, also what only a broker that maps it would look at.
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
    """See that a file of that name could be written, before anything is done for it.

    Raises:
        CommandError: It is a folder, a pipe or a device, there is no folder that it could be in,
            or none of this can be seen.
    """
    try:
        if not path.name or path.is_dir():
            raise CommandError(f"{path}: it is a folder; give the name of a file in it")
        if path.exists() and not path.is_file():
            raise CommandError(f"{path}: it is no file that could be replaced; give another name")
        if not path.parent.is_dir():
            number = errno.ENOTDIR if path.parent.exists() else errno.ENOENT
            raise OSError(number, os.strerror(number))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


def save_routes(path: Path, routes: Iterable[SnapshotRoute]) -> int:
    """Write routes to a file: as lines of JSON if its name ends with `.jsonl`, else as a snapshot.

    The file has its name when it is whole; one that had it is replaced, and behind a symbolic link
    what it points to. Its owner and group may read it, nobody else.

    Returns:
        How many routes there are.

    Raises:
        CommandError: It cannot be written.
    """
    check_file(path)
    kept = sorted((route.settled() for route in routes), key=lambda each: each.route_id)
    target = Path(os.path.realpath(path))
    # Not the whole name: it may be as long as the folder takes.
    partial = target.with_name(f".{target.name[:50]}.{os.getpid()}")
    try:
        # Of a process of the same number that was killed.
        partial.unlink(missing_ok=True)
        with open(partial, "xb", opener=_open) as file:
            if path.name.endswith(TEXT):
                # What is empty could as well have been lost.
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
        # What went wrong before is to be told, and not that this does as well.
        with suppress(OSError):
            partial.unlink()
    return len(kept)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
