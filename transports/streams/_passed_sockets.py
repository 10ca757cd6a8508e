"""Listening sockets that systemd has opened and passed to the process (socket activation).

The specification is `sd_listen_fds(3)`. A URI names such a socket by `sd:` and the name in its
unit, `FileDescriptorName=`: `rsocket+tcp://sd:web`, `rsocket+ws://sd:web/rsocket`, and for Unix
sockets `rsocket+unix://sd:web`. A process that starts another one names a socket by `fd:` and the
number of its file, which the other inherits: `rsocket+unix://fd:7`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote_from_bytes

from ._options import format_endpoint

__all__ = ["passed_socket"]

FIRST: Final = 3
"""The number of the first file that is passed: SD_LISTEN_FDS_START."""

MARK: Final = "sd:"
INHERITED: Final = "fd:"


def passed_socket(
    uri: str, environment: Mapping[str, str] = os.environ
) -> tuple[str, socket.socket | None]:
    """Return the URI of the address of a passed socket, and the socket.

    Args:
        uri: The URI to listen at.
        environment: The environment of the process.

    Returns:
        The same URI and `None` if it names no passed socket.

    Raises:
        ValueError: There is no passed socket of this name.
    """
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    number = _number(authority, environment)
    if number is None:
        return uri, None
    # A copy: a second listener with this name, or a second start, finds the socket open.
    try:
        passed = socket.socket(fileno=os.dup(number))
    except OSError as error:
        raise ValueError(f"{authority} is no socket: {error.strerror}") from None
    passed.setblocking(False)
    return f"{scheme}://{_where(passed)}{slash}{path}", passed


def _number(authority: str, environment: Mapping[str, str]) -> int | None:
    """Return the number of the file of a socket; `None` if none is named.

    Raises:
        ValueError: There is no such socket.
    """
    if authority.startswith(INHERITED):
        return int(authority.removeprefix(INHERITED))
    if not authority.startswith(MARK):
        return None
    name = authority.removeprefix(MARK)
    names = _names(environment)
    if name not in names:
        there = ", ".join(names) or "none"
        raise ValueError(f"systemd has passed no socket named {name!r}; there are: {there}")
    return FIRST + names.index(name)


def _names(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the passed sockets, in their order."""
    try:
        count = int(environment.get("LISTEN_FDS", "0"))
    except ValueError:
        return []
    # They are for the process with this id only, and not for its children.
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return []
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    # "For file descriptors without a name, the string "unknown" is returned."
    return [*names, *["unknown"] * count][:count] if names != [""] else ["unknown"] * count


def _where(passed: socket.socket) -> str:
    name = passed.getsockname()
    if passed.family == socket.AF_UNIX:
        return quote_from_bytes(os.fsencode(name), "/:@!$&'()*+,;=")
    return format_endpoint(name[0], name[1])
