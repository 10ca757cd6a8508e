"""Files of credentials and contexts: they have to be the user's own, as `ssh` asks of its files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ._show import printable
from ._status import CommandError, Status

__all__ = ["check_own"]

ROOT: Final = 0


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
    if not stat.S_ISREG(state.st_mode):
        return
    user = os.getuid()
    fault = ""
    if state.st_uid not in (user, ROOT):
        fault = "another user owns it, and so decides what is in it: make it your own"
    elif state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        fault = "others may write to it, and so decide what is in it: chmod 600"
    elif secret and state.st_uid == user and state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        fault = "others may read the secret in it: chmod 600"
    if fault:
        raise CommandError(printable(f"{path}: {fault}"), Status.USAGE)
