"""The folder of the sockets of the processes of `onward broker --processes`."""

from __future__ import annotations

import argparse
import os
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ._status import CommandError, Status

__all__ = ["folder_of"]


@contextmanager
def folder_of(arguments: argparse.Namespace) -> Generator[Path]:
    """Make the folder of the sockets of the processes, for this user only.

    Raises:
        CommandError: It cannot be made, or others may write to it.
    """
    given: str | None = arguments.process_folder
    runtime = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if given is None and not runtime:
        with tempfile.TemporaryDirectory(prefix="onward-") as made:
            yield Path(made)
        return
    path = Path(runtime, "processes") if given is None else Path(given)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise CommandError(f"--process-folder: {path}: {error.strerror}") from error
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise CommandError(f"--process-folder: other users may write to {path}", Status.USAGE)
    yield path.absolute()
