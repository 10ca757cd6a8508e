"""Listeners for RSocket over Unix sockets."""

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
from typing import Any, ClassVar, Final, cast
from urllib.parse import unquote, urlsplit

from ...actors import Node
from ...actors.broker import Broker
from ._link import Link
from ._listener import RSocketListener
from ._options import LinkOptions, UnixOptions
from ._transport import RSocketTransport

__all__ = ["RSocketUnixTransport"]

MAX_PATH: Final = 107
"""Most bytes of a socket's path, on Linux; less elsewhere."""

LOCK_PATIENCE: Final = 2.0
"""Seconds to wait for another broker that is just starting to listen at the same path."""
LOCK_RETRY: Final = 0.02
"""Seconds after which is looked again whether it has done so."""

_CREDENTIALS: Final = Struct("3i")


class UnixListener(RSocketListener):
    """A listening Unix socket.

    A file left by a broker that is gone is replaced. That of one that lives is not, nor is
    anything that is no socket.

    Args:
        node: The node its workers live on.
        broker: Where destinations join and requests are routed.
        options: The limits.
        unix: Who may connect.
        path: Where the socket's file is to be.
    """

    def __init__(
        self, node: Node, broker: Broker, options: LinkOptions, unix: UnixOptions, path: Path
    ) -> None:
        super().__init__(node, broker, options)
        self._unix = unix
        self._path = path
        self._file: tuple[int, int] | None = None

    async def _bind(self) -> asyncio.Server:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            async with _alone(self._path):
                _clear(self._path)
                made.bind(str(self._path))
            # Nobody can connect before it listens.
            self._path.chmod(self._unix.mode)
            self._file = _identity(self._path)
            return await self._node.loop.create_unix_server(
                self._enter, sock=made, start_serving=False
            )
        except BaseException:
            made.close()
            self._unbound()
            raise

    def _shown(self, server: asyncio.Server) -> str:
        return f"{RSocketUnixTransport.scheme}://{self._path}"

    def _unbound(self) -> None:
        """Remove the socket's file, if it is still ours."""
        file, self._file = self._file, None
        if file is not None and _identity(self._path) == file:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _first(self) -> asyncio.BaseProtocol:
        first = super()._first()
        return _Named(first) if isinstance(first, Link) else first


class _Named(asyncio.Protocol):
    """Gives a connection its socket, and the name of who is at the other end."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand over."""
        link = self._link
        transport.set_protocol(link)
        link.connection_made(transport)
        link.peer_name = _peer_name(transport.get_extra_info("socket"))


class RSocketUnixTransport(RSocketTransport):
    """Listeners for RSocket over Unix sockets: `rsocket+unix:///path`.

    Besides `broker` and `options`, `listen` takes `unix`, which is `UnixOptions`. There are no
    abstract names: they have no permissions.
    """

    scheme: ClassVar[str] = "rsocket+unix"
    own_options: ClassVar[dict[str, type[Any]]] = {"unix": UnixOptions}

    def _listener(
        self, uri: str, broker: Broker, options: LinkOptions, own: dict[str, Any]
    ) -> UnixListener:
        path = parse_unix_uri(uri, self.scheme)
        return UnixListener(self.node, broker, options, own.get("unix") or UnixOptions(), path)


def parse_unix_uri(uri: str, scheme: str) -> Path:
    """Return the path of `scheme:///path`; `%` and two digits stand for a byte.

    Raises:
        ValueError: It is no such URI, or the path is too long for a socket.
    """
    parts = urlsplit(uri)
    path = unquote(parts.path)
    wrong = parts.query or parts.fragment or not path.strip("/") or "\0" in path
    if wrong or not uri.startswith(f"{scheme}:///"):
        raise ValueError(f"{uri!r} is not {scheme}:///path")
    if len(os.fsencode(path)) > MAX_PATH:
        raise ValueError(f"the path of a Unix socket has at most {MAX_PATH} bytes: {path!r}")
    return Path(path)


def _peer_name(connection: Any) -> str:
    """Return who is at the other end: the process and its user, where the system tells."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return "unix"
    raw = cast(bytes, connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    process, user, _ = _CREDENTIALS.unpack(raw)
    return f"unix:pid={process},uid={user}"


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another that is put in its place."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.asynccontextmanager
async def _alone(path: Path) -> AsyncGenerator[None]:
    """Let nobody else replace the socket at this path meanwhile.

    Two brokers that start at once could otherwise each take the other's file for a dead one's.
    What is locked is a file of its own, `<path>.lock`, for this user alone: who can merely look
    into the folder cannot stop a broker from starting.

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
    if _identity(lock) == (made.st_dev, made.st_ino):
        return opened
    # It was opened just before who had it took it away: others may have locked another by now.
    os.close(opened)
    return None


def _unlock(lock: Path, held: int) -> None:
    """Remove a file that is locked, while it still is, so that it is not another's."""
    lock.unlink(missing_ok=True)
    os.close(held)


def _clear(path: Path) -> None:
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
