"""The file of a Unix socket: who owns its name, and whose it was.

A file left by a process that is gone is replaced. That of one that lives is not, nor is anything
that is no socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import AsyncGenerator
from pathlib import Path
from struct import Struct
from typing import Annotated, Any, Final, TypeAlias, cast

from ...protocol.options import Range

__all__ = ["MAX_PATH", "FileMode", "bind", "check_path", "clear", "peer_name", "unbind", "user_of"]

FileMode: TypeAlias = Annotated[int, Range(least=0, most=0o777, octal=True)]
"""The permissions of a file."""

MAX_PATH: Final = 107
"""Most bytes of a socket's path, on Linux; less elsewhere."""

LOCK_PATIENCE: Final = 2.0
"""Seconds to wait for another process that is just starting to listen at the same path."""
LOCK_RETRY: Final = 0.02
"""Seconds after which is looked again whether it has done so."""

_CREDENTIALS: Final = Struct("3i")


async def bind(path: Path, mode: int) -> tuple[socket.socket, tuple[int, int] | None]:
    """Bind a socket to a path. Nobody can connect before it listens.

    Args:
        path: Where the file is to be.
        mode: Its permissions: to connect takes the right to write to it.

    Returns:
        The socket, and what tells its file from another at the same path.

    Raises:
        OSError: It cannot be done; nothing is left.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound: tuple[int, int] | None = None
    try:
        made.setblocking(False)
        async with alone(path):
            clear(path)
            made.bind(str(path))
        path.chmod(mode)  # noqa: ASYNC240 - a file of this machine
        bound = identity(path)
    except BaseException:
        made.close()
        unbind(path, bound)
        raise
    return made, bound


def unbind(path: Path, file: tuple[int, int] | None) -> None:
    """Remove a socket's file, if it is still the one that was bound."""
    if file is not None and identity(path) == file:
        with contextlib.suppress(OSError):
            path.unlink()


def check_path(path: str) -> Path:
    """Return the path of a socket.

    Raises:
        ValueError: It is too long for a socket.
    """
    if len(os.fsencode(path)) > MAX_PATH:
        raise ValueError(f"the path of a Unix socket has at most {MAX_PATH} bytes: {path!r}")
    return Path(path)


def peer_name(connection: Any) -> str:
    """Return who is at the other end: the process and its user, where the system tells."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return "unix"
    raw = cast(bytes, connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    process, user, _ = _CREDENTIALS.unpack(raw)
    return f"unix:pid={process},uid={user}"


def user_of(connection: Any) -> str:
    """Return the user at the other end, where the system tells."""
    return peer_name(connection).rpartition(",")[2]


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another that is put in its place."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.asynccontextmanager
async def alone(path: Path) -> AsyncGenerator[None]:
    """Let nobody else replace the socket at this path meanwhile.

    Two processes that start at once could otherwise each take the other's file for a dead one's.
    What is locked is a file of its own, `<path>.lock`, for this user alone: who can merely look
    into the folder cannot stop anybody from starting.

    Raises:
        OSError: Somebody else has been doing so for `LOCK_PATIENCE`, the lock is another user's,
            or there is no such folder.
    """
    lock = Path(f"{path}.lock")
    loop = asyncio.get_running_loop()
    until = loop.time() + LOCK_PATIENCE
    while (held := _lock(lock)) is None:
        if loop.time() >= until:
            text = "somebody else has been starting to listen there for too long"
            raise OSError(errno.EADDRINUSE, text, str(lock))
        await asyncio.sleep(LOCK_RETRY)
    try:
        yield
    finally:
        _unlock(lock, held)


def _lock(lock: Path) -> int | None:
    """Make and lock a file; return its descriptor, or `None` if somebody else has it.

    Raises:
        OSError: It cannot be made or opened.
    """
    import fcntl  # not on every system, as Unix sockets are not

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(lock, flags, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    made = os.fstat(opened)
    if identity(lock) == (made.st_dev, made.st_ino):
        return opened
    # It was opened just before who had it took it away: others may have locked another by now.
    os.close(opened)
    return None


def _unlock(lock: Path, held: int) -> None:
    """Remove a file that is locked, while it still is, so that it is not another's."""
    lock.unlink(missing_ok=True)
    os.close(held)


def clear(path: Path) -> None:
    """Remove the file of a socket that nobody listens at.

    Raises:
        OSError: Somebody does, or it is no socket.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A live one with many who wait to be accepted would block us: it lives, then.
        probe.setblocking(False)
        error = probe.connect_ex(str(path))
    if error in {0, errno.EAGAIN}:
        raise OSError(errno.EADDRINUSE, "somebody listens there already", str(path))
    if error != errno.ECONNREFUSED:
        raise OSError(error, os.strerror(error), str(path))
    path.unlink()
