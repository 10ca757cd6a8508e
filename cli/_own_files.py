"""Files of credentials and contexts: they have to be the user's own, as `ssh` asks of its files."""

from __future__ import annotations

import os
from pathlib import Path

from ..actors.security._own_files import own_file_fault
from ._show import printable
from ._status import CommandError, Status

__all__ = ["check_own"]


def check_own(state: os.stat_result, path: Path, *, secret: bool) -> None:
    """Check that no other user decides what is in an open file, or can read a secret in it.

    A file of root may be read by others: this is how secrets are mounted into containers. What is
    no file on a disk, such as a pipe, is not checked.

    Args:
        state: The state of the open file.
        path: Its path.
        secret: Whether it has a secret.

    Raises:
        CommandError: It is another user's, others may write to it, or others may read the secret.
    """
    fault = own_file_fault(state, secret=secret)
    if fault:
        raise CommandError(printable(f"{path}: {fault}"), Status.USAGE)
