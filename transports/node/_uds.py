"""The `uds` transport: links over Unix domain sockets, between nodes of one machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import unquote_to_bytes

from ...protocol import UDS, AddressError
from ..streams._options import StreamOptions
from ..streams._unix_endpoint import UnixEndpoint
from ..streams._unix_file import FileMode
from ._stream import StreamTransport

__all__ = ["UdsOptions", "UdsTransport"]


@dataclass(frozen=True, slots=True)
class UdsOptions(StreamOptions):
    """The options of `uds`: those of all streams, and the permission to connect.

    Attributes:
        mode: The permissions of a listener's file. A client needs the permission to write to it.
            Default 600 octal: the user of the node's process, and root.

    Raises:
        ValueError: The mode is not between 0 and 777 octal, or another option is wrong.
    """

    mode: FileMode = 0o600


class UdsTransport(StreamTransport):
    """A transport over Unix domain sockets of one machine: `uds:///run/node.sock`.

    The protocol is that of `tcp`. `uds://node.sock` is a path relative to the working folder; `%`
    and two digits stand for a byte. An address `5#/run/node.sock` in a route uses the link to that
    peer, or opens one. Abstract names are not supported: they have no permissions.

    With the option `tls`, the connecting side needs `TlsOptions.server_name`.

    The options of `listen` and `connect` are the attributes of `UdsOptions`.
    """

    scheme: ClassVar[str] = "uds"
    schemes: ClassVar[Mapping[str, bool]] = {"uds": False}
    address_type: ClassVar[int | None] = UDS
    options_class: ClassVar[type[StreamOptions]] = UdsOptions

    def endpoint(self, uri: str, scheme: str, options: Any) -> UnixEndpoint:
        """Return the endpoint of `uds:///path`."""
        path = os.fsdecode(unquote_to_bytes(uri.partition("://")[2]))
        if not path.strip("/.") or any(each in uri for each in "?#") or "\0" in path:
            raise ValueError(f"{uri!r} is not uds:///path")
        return UnixEndpoint(path, options.mode)

    def endpoint_of(self, value: str, options: Any) -> UnixEndpoint:
        """Return the endpoint of a path."""
        if not value.strip("/.") or "\0" in value:
            raise AddressError(value, "not a path")
        try:
            return UnixEndpoint(value, options.mode)
        except ValueError as error:
            raise AddressError(value, str(error)) from None
