"""The options of the opening handshake of WebSockets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ...protocol.options import Count, Seconds, check_options

__all__ = ["WebSocketOptions"]

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\sA-Z]+")
"""An origin as browsers send it: in lower case, without a slash at the end."""


@dataclass(frozen=True, slots=True)
class WebSocketOptions:
    """The allowed origins and the limits of the opening handshake of a WebSocket.

    Attributes:
        origins: Origins of the pages that may connect, as browsers send them: scheme, host, and
            port if it is not the default (`https://shop.example`). `*`: all pages. Others get
            403. Browsers always send an origin; a program that sends none may connect. So may a
            client with the listener itself as origin, as programs in Java have: with an IP
            address, `localhost`, the host of the URI or the name of the machine, and with
            `https` if the listener has TLS. Any other name of the listener, and `https` where
            TLS ends in front of it, has to be listed.
        max_handshake: Bytes of the opening request, with its headers. A longer one gets 431.
        handshake_timeout: Time for the opening request, in seconds, after which the socket is
            closed.

    Raises:
        ValueError: A number is not positive, or an origin is not in the form that browsers send.
    """

    origins: tuple[str, ...] = ()
    max_handshake: Count = 16 * 1024
    handshake_timeout: Seconds = 5.0

    def __post_init__(self) -> None:
        check_options(self)
        for origin in self.origins:
            if origin not in {"*", "null"} and not _ORIGIN.fullmatch(origin):
                raise ValueError(f"origins must be like https://host:port, not {origin!r}")
