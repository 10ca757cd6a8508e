"""Who may open a WebSocket."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ...protocol.options import Count, Seconds, check_options

__all__ = ["WebSocketOptions"]

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\sA-Z]+")
"""As browsers write it: in small letters, without a slash at the end."""


@dataclass(frozen=True, slots=True)
class WebSocketOptions:
    """Who may open a WebSocket, and how long that may take.

    Attributes:
        origins: Origins of the pages that may connect, as browsers say them: scheme, host, and
            port if it is not the usual one (`https://shop.example`). `*`: all pages. Others get
            403. Browsers always send an origin; whoever sends none is no browser, and may
            connect. So may who names the listener itself as origin, as programs in Java do:
            with an IP address, as `localhost`, by the name of the host in its URI or by that of
            its machine; and with `https` if it has TLS. Any other name that it is reached by,
            and `https` where TLS ends in front of it, has to be listed.
        max_handshake: Most bytes of the request that opens a WebSocket, with its headers. Over
            it: 431, and close.
        handshake_timeout: How long that request may take to come, in seconds. Then the socket
            is closed.

    Raises:
        ValueError: A number is not at least 1, or not more than 0; or an origin has something
            after its port.
    """

    origins: tuple[str, ...] = ()
    max_handshake: Count = 16 * 1024
    handshake_timeout: Seconds = 5.0

    def __post_init__(self) -> None:
        check_options(self)
        for origin in self.origins:
            if origin not in {"*", "null"} and not _ORIGIN.fullmatch(origin):
                raise ValueError(f"origins must be like https://host:port, not {origin!r}")
