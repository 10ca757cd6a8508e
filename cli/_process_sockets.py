"""The sockets that the processes of one broker listen at together.

Where the system spreads connections over the sockets of one port (`SO_REUSEPORT` of Linux), each
process opens its own; a socket here that never listens keeps the port. Otherwise, and for Unix
sockets and those of systemd, there is one socket, which all processes inherit and accept from.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..protocol import AddressError
from ..transports.streams._endpoint import BACKLOG
from ..transports.streams._options import format_endpoint, parse_endpoint, parse_unix_uri
from ..transports.streams._passed_sockets import passed_socket
from ..transports.streams._unix_file import bind, check_path, unbind
from ._listen import reason_of
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ._broker_plan import Listening

__all__ = ["SPREADS", "SharedSockets"]

SPREADS: Final = sys.platform == "linux"
"""Whether the system spreads connections over the sockets of one port."""

_ATTEMPTS: Final = 5
"""Attempts to find a port that is free at all addresses of a name."""


@dataclass(slots=True)
class SharedSockets:
    """The sockets of the listeners.

    Attributes:
        uris: The URI that each process opens for each listener.
    """

    uris: list[str] = field(default_factory=list[str])
    _kept: list[socket.socket] = field(default_factory=list[socket.socket])
    _passed: list[socket.socket] = field(default_factory=list[socket.socket])
    _files: list[tuple[Path, tuple[int, int] | None]] = field(
        default_factory=list[tuple[Path, tuple[int, int] | None]]
    )

    @property
    def inherited(self) -> tuple[int, ...]:
        """The numbers of the files that a process inherits."""
        return tuple(each.fileno() for each in self._passed)

    async def open(
        self, listeners: Sequence[tuple[str, Listening]], *, spreads: bool = SPREADS
    ) -> None:
        """Open the sockets.

        Args:
            listeners: The URI of each listener, and its options.
            spreads: Whether the system spreads connections over the sockets of one port.

        Raises:
            CommandError: A URI is wrong, or cannot be listened at; none is left open.
        """
        try:
            for uri, options in listeners:
                try:
                    self.uris.append(await self._open(uri, options.unix.mode, spreads=spreads))
                except OSError as error:
                    text = f"cannot listen at {uri}: {reason_of(error)}"
                    raise CommandError(text) from error
                except (AddressError, ValueError) as error:
                    text = f"cannot listen at {uri}: {error}"
                    raise CommandError(text, Status.USAGE) from error
        except BaseException:
            self.close()
            raise

    async def _open(self, uri: str, mode: int, *, spreads: bool) -> str:
        if not uri.startswith("rsocket+"):
            raise ValueError("it does not start with rsocket+")
        scheme, _, rest = uri.partition("://")
        authority, slash, path = rest.partition("/")
        _, passed = passed_socket(uri)
        if passed is None and scheme == "rsocket+unix":
            file = check_path(parse_unix_uri(uri, scheme))
            passed, identity = await bind(file, mode)
            self._files.append((file, identity))
            slash = path = ""
        elif passed is None:
            host, port = parse_endpoint(authority)
            if spreads:
                return f"{scheme}://{format_endpoint(host, self._reserve(host, port))}{slash}{path}"
            passed = socket.create_server((host, port), backlog=BACKLOG)
        self._passed.append(passed)
        passed.listen(BACKLOG)
        return f"{scheme}://fd:{passed.fileno()}{slash}{path}"

    def _reserve(self, host: str, port: int) -> int:
        """Keep a port at all addresses of a host, and return it."""
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for attempt in range(_ATTEMPTS):
            kept: list[socket.socket] = []
            try:
                chosen = port
                for family, *_, where in dict.fromkeys(found):
                    made = _bound(family, (where[0], chosen, *where[2:]))
                    kept.append(made)
                    chosen = made.getsockname()[1]
            except OSError as error:
                for each in kept:
                    each.close()
                if port or error.errno != errno.EADDRINUSE or attempt == _ATTEMPTS - 1:
                    raise
            else:
                self._kept += kept
                return chosen
        raise AssertionError("the last attempt raises")

    def close(self) -> None:
        """Close the sockets, and remove their files. Those that processes have open stay."""
        for each in (*self._kept, *self._passed):
            each.close()
        for path, identity in self._files:
            unbind(path, identity)
        self._kept.clear()
        self._passed.clear()
        self._files.clear()


def _bound(family: int, where: tuple[object, ...]) -> socket.socket:
    """Return a socket at an address that nothing listens at; it does not listen either.

    Raises:
        OSError: Something listens there.
    """
    if where[1]:
        # With SO_REUSEPORT another program of this user could listen there: so try without.
        with _socket(family) as alone:
            alone.bind(where)
    made = _socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(where)
    except OSError:
        made.close()
        raise
    return made


def _socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, os.name == "posix")
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made
