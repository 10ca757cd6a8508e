"""Files of secrets: they have to be the user's own, as `ssh` asks of its files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

MAX_SECRET: Final = 16 * 1024
"""Bytes that are read of the file of a secret."""

_ROOT: Final = 0


def own_file_fault(state: os.stat_result, *, secret: bool) -> str:
    """Return why another user decides what is in an open file, or can read a secret in it.

    A file of root may be read by others: this is how secrets are mounted into containers. What is
    no file on a disk, such as a pipe, is not checked.

    Args:
        state: The state of the open file.
        secret: Whether it has a secret.

    Returns:
        The fault, and what to do about it; empty for none.
    """
    if not stat.S_ISREG(state.st_mode):
        return ""
    user = os.getuid()
    if state.st_uid not in (user, _ROOT):
        return "another user owns it, and so decides what is in it: make it your own"
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it, and so decide what is in it: chmod 600"
    if secret and state.st_uid == user and state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return "others may read the secret in it: chmod 600"
    return ""


def read_own_secret(path: Path) -> str:
    """Return the text of a file of a secret, without the end of its line.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not UTF-8, or other users can read it.
    """
    with path.open("rb") as file:
        if fault := own_file_fault(os.fstat(file.fileno()), secret=True):
            raise ValueError(f"{path}: {fault}")
        content = file.read(MAX_SECRET)
    try:
        return content.rstrip(b"\r\n").decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None
