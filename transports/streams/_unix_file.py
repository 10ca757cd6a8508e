"""The file of a Unix socket: creation, ownership, locking and removal.

A file left by a process that has ended is replaced. The file of a live listener is not, nor is
any file that is not a socket.
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

from ...protocol._principal import PeerIdentity
from ...protocol.options import Range

__all__ = ["MAX_PATH", "FileMode", "bind", "check_path", "clear", "peer_of", "unbind"]

FileMode: TypeAlias = Annotated[int, Range(least=0, most=0o777, octal=True)]
"""File permissions."""

MAX_PATH: Final = 107
"""The maximum length of a socket's path in bytes, on Linux; less elsewhere."""

LOCK_PATIENCE: Final = 2.0
"""Seconds to wait for another process that starts to listen at the same path."""
LOCK_RETRY: Final = 0.02
"""Seconds between two attempts to lock."""

_CREDENTIALS: Final = Struct("3i")


async def bind(path: Path, mode: int) -> tuple[socket.socket, tuple[int, int] | None]:
    """Bind a socket to a path. Clients cannot connect before it listens.

    Args:
        path: The path of the file.
        mode: Its permissions; a client needs the permission to write.

    Returns:
        The socket, and the identity of its file.

    Raises:
        OSError: The socket cannot be bound; no file is left.
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
    """Remove a socket's file, unless another file has replaced it."""
    if file is not None and identity(path) == file:
        with contextlib.suppress(OSError):
            path.unlink()


def check_path(path: str) -> Path:
    """Return the path of a socket after checking its length.

    Raises:
        ValueError: The path is too long for a socket.
    """
    if len(os.fsencode(path)) > MAX_PATH:
        raise ValueError(f"the path of a Unix socket has at most {MAX_PATH} bytes: {path!r}")
    return Path(path)


def peer_of(connection: Any) -> PeerIdentity:
    """Return the process and user at the other end, where the system reports them."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return PeerIdentity(source="unix", peer="unix")
    raw = cast(bytes, connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    process, user, _ = _CREDENTIALS.unpack(raw)
    name = f"uid={user}"
    return PeerIdentity(source=name, user_id=user, peer=f"unix:pid={process},{name}")


def identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, or `None` if there is no file."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.asynccontextmanager
async def alone(path: Path) -> AsyncGenerator[None]:
    """Keep other processes from replacing the socket at this path meanwhile.

    Two processes that start together could otherwise each take the other's file for an abandoned
    one. The lock is a separate file, `<path>.lock`, for this user only: another user with access
    to the folder cannot block a start.

    Raises:
        OSError: Another process has held the lock for `LOCK_PATIENCE`, the lock belongs to another
            user, or there is no such folder.
    """
    lock = Path(f"{path}.lock")
    loop = asyncio.get_running_loop()
    until = loop.time() + LOCK_PATIENCE
    while (held := _lock(lock)) is None:
        if loop.time() >= until:
            text = "another process has been starting to listen there for too long"
            raise OSError(errno.EADDRINUSE, text, str(lock))
        await asyncio.sleep(LOCK_RETRY)
    try:
        yield
    finally:
        _unlock(lock, held)


def _lock(lock: Path) -> int | None:
    """Make and lock a file; return its descriptor, or `None` if another process holds it.

    Raises:
        OSError: The file cannot be made or opened.
    """
    import fcntl  # only on systems that have Unix sockets

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
    # The former holder has just removed this file: another process may lock a new one by now.
    os.close(opened)
    return None


def _unlock(lock: Path, held: int) -> None:
    """Remove and unlock a file; in this order, so that it is not another process's."""
    lock.unlink(missing_ok=True)
    os.close(held)


def clear(path: Path) -> None:
    """Remove the file of a socket without a listener.

    Raises:
        OSError: There is a listener, or the file is not a socket.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # Non-blocking: a live listener with a full queue would block the probe.
        probe.setblocking(False)
        error = probe.connect_ex(str(path))
    if error in {0, errno.EAGAIN}:
        raise OSError(errno.EADDRINUSE, "another listener is there already", str(path))
    if error != errno.ECONNREFUSED:
        raise OSError(error, os.strerror(error), str(path))
    path.unlink()
